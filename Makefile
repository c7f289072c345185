# make demo, make test: everything from a fresh clone, with nothing but Python >= 3.11.

VENV := .venv
BIN := $(VENV)/bin
CORES ?= 2
PYTEST_ARGS ?= -n auto --dist loadfile

# The first of these that runs and is new enough. Override: make PYTHON=/path/to/python3.12
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Keyed on the content of pyproject.toml and on the interpreter: a changed requirement
# reinstalls, a mere checkout does not.
STAMP := $(VENV)/.fmwave-$(shell cat pyproject.toml | cksum | cut -d' ' -f1)

.PHONY: help setup demo test simulate test-profiles test-slurm plan-cohort lint types check clean
help:
	@echo "make demo    map the bundled real reads with the workflow, show the result"
	@echo "make test    all tests (PYTEST_ARGS='-k name' for some); make simulate: CUDA kernels only, simulated"
	@echo "make test-profiles every profile of the workflow, with all executor plugins"
	@echo "make test-slurm    the workflow on a running Slurm with two GPUs (docs/cluster.md), 20 minutes"
	@echo "make plan-cohort  time and memory of planning 2 000 samples"
	@echo "make lint    ruff, snakefmt, snakemake --lint; make types: mypy; make check: lint, types and tests"
	@echo "make clean   remove the environment, caches and the demo's results"

setup: $(STAMP)

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

test: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_ARGS)
	$(MAKE) simulate

# The CUDA kernels as Python threads, for machines without a device (numba's simulator takes
# cores as Python functions, hence no JIT).
simulate: $(STAMP)
	NUMBA_ENABLE_CUDASIM=1 NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n auto -m gpu

# Dry runs of every profile, and a run without a shared disk; apart, because each process of
# Snakemake loads all executors that are installed.
test-profiles: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[executors]'
	$(BIN)/python -m pytest tests/workflow/test_profiles.py tests/workflow/test_storage.py

# Needs a Slurm of its own: the tests cancel whatever is in its queue.
test-slurm: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[executors]'
	FMWAVE_TEST_SLURM=1 $(BIN)/python -m pytest tests/workflow/test_slurm.py tests/workflow/test_slurm_trouble.py -v

# How long Snakemake plans 2 000 samples of 2 units, and in what memory; fails beyond 60 s or 2 GB.
plan-cohort: $(STAMP)
	$(BIN)/python -m benchmarks.studies.plan_cohort

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check workflow
	$(BIN)/snakemake --lint

types: $(STAMP)
	$(BIN)/mypy

check: lint types test

clean:
	rm -rf $(VENV) results .snakemake .pytest_cache .mypy_cache .ruff_cache build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
