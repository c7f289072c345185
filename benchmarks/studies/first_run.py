"""Measure the way of a new user: pip install of a wheel, first runs, later starts.

    python -m benchmarks.studies.first_run dist/*.whl --work DIR > RESULT.md

Each wheel is installed into an empty environment, with what it requires from the package index. The
first ``fmwave index`` and ``fmwave map`` follow, with an empty folder of compiled code, then
``fmwave map`` some more times. The reads are those of *Portiera* in ``tests/data``. The records of
all wheels must be the same. Prints a table in Markdown; results: benchmarks/results/first_run.md.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.common.harness import (
    BenchmarkError,
    Measurement,
    markdown_provenance,
    measure,
    provenance,
    reports_errors,
    table,
    tail,
)

DATA = Path(__file__).parents[2] / "tests" / "data"
LATER_RUNS = 9


def done(log: Path, *command: str | Path) -> Measurement:
    """Run a command; raise BenchmarkError if it fails."""
    cost = measure(command, log)
    if cost.exit_status:
        raise BenchmarkError(tail(log))
    return cost


def row_of(wheel: Path, place: Path) -> tuple[list[str], str]:
    """Return the cells of a wheel, and a digest of its records."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    log, programs = place / "log", place / "venv" / "bin"
    venv.create(place / "venv", with_pip=True)
    installing = done(log, programs / "pip", "install", "--quiet", wheel)
    os.environ["NUMBA_CACHE_DIR"] = str(place / "code")
    reads = [DATA / f"portiera_R{mate}.fq.gz" for mate in (1, 2)]
    index, sam = place / "ref.fmw", place / "out.sam"
    indexing = done(log, programs / "fmwave", "index", DATA / "portiera.fa.gz", "-o", index)
    runs = [
        done(
            log, programs / "fmwave", "map", index, *reads, "-t", "2", "--device", "cpu",
            "-o", sam, "--quiet",
        )
        for _ in range(1 + LATER_RUNS)
    ]  # fmt: skip
    compiled = [path for path in (place / "code").rglob("*") if path.is_file()]
    later = runs[1:]
    cells = [
        f"`{wheel.name}`", f"{wheel.stat().st_size / 1e6:.1f}", f"{installing.wall_s:.1f}",
        f"{indexing.wall_s:.1f}", f"{runs[0].wall_s:.2f}", f"{runs[0].cpu_s:.2f}",
        str(len(compiled)), f"{median(run.wall_s for run in later):.2f}",
        f"{median(run.cpu_s for run in later):.2f}",
    ]  # fmt: skip
    records = [line for line in sam.read_bytes().splitlines() if not line.startswith(b"@PG")]
    return cells, hashlib.sha256(b"\n".join(records)).hexdigest()


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the wheels one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path, nargs="+")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args(arguments)
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)  # the environment is to be that of a user
    about = provenance({"python": sys.version.split()[0]})
    rows = [row_of(wheel, options.work / str(i)) for i, wheel in enumerate(options.wheels)]
    if len({digest for _, digest in rows}) != 1:
        raise BenchmarkError("the records of the wheels differ")
    header = [
        "wheel", "MB", "pip install, s", "first index, s", "first map, s", "CPU, s",
        "functions compiled", "later starts, s", "CPU, s",
    ]  # fmt: skip
    print("\n".join([*markdown_provenance(about), *table(header, [cells for cells, _ in rows])]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
