"""Jobs with the memory that the rules ask for, and no more, on a real Slurm: ``make test-slurm``.

Cgroups hold them to it, at the first attempt. The sample has more records than its sort keeps in
memory. ``-s`` shows what the jobs used.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.slurm import only_on_slurm, settings, start, wait_for_exit
from tests.helpers.workflow_runs import PORTIERA

pytestmark = [pytest.mark.timeout(3600), pytest.mark.slow, *only_on_slurm]

COPIES = 800  # of the reads: 2.8 M, whose records are some 920 MB; a thread's sort keeps 768 MB


def write_reads(directory: Path, unit: str, copies: int) -> str:
    """Write pairs with qualities of their own; return the cells of the sheet."""
    rng = np.random.default_rng(2)
    names = []
    for mate, path in enumerate(PORTIERA, start=1):
        lines = gzip.decompress(path.read_bytes()).splitlines()
        names.append(f"{unit}_R{mate}.fq")
        with (directory / names[-1]).open("wb") as out:
            for _ in range(copies):
                quals = rng.integers(35, 75, (len(lines) // 4, 1000), np.uint8)
                out.writelines(
                    b"%s\n%s\n+\n%s\n" % (name, bases, letters[: len(bases)].tobytes())
                    for name, bases, letters in zip(lines[::4], lines[1::4], quals, strict=True)
                )
    return "\t".join(names)


@pytest.mark.parametrize("n_units", [1, 2])
def test_jobs_need_no_more_memory_than_they_ask_for(tmp_path, no_jobs_left, n_units: int) -> None:
    """One job that maps, sorts and marks; or two that map and sort, and one that merges."""
    directory = settings(tmp_path, 1)
    units = (directory / "units.tsv").read_text().splitlines()[:1]
    units += [
        f"s1\tu{n}\t{write_reads(directory, f'u{n}', COPIES // n_units)}\t\t"
        for n in range(n_units)
    ]
    (directory / "units.tsv").write_text("".join(f"{line}\n" for line in units))
    config = directory / "config" / "config.yaml"
    config.write_text(config.read_text() + "map: {threads: 1}\noutput: {threads: 1}\n")

    process = start(
        directory, "--retries", "0", "--config", "gpu={model: none}",
        "--set-resources", "fmwave_map:slurm_partition=cpu",
    )  # fmt: skip

    assert wait_for_exit(process, 1800) == 0, (directory / "run.log").read_text()
    with (directory / "results" / "efficiency.tsv").open() as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    for row in rows:
        print("|", " | ".join([row["rule"], row["job"], row["mem_mb_asked"], row["max_rss_mb"]]))  # noqa: T201
    rules = {row["rule"] for row in rows}
    assert {"index", "map", "alignment_statistics"} <= rules
    assert ("finish_sample" in rules) == (n_units == 2)
    assert all(float(row["max_rss_mb"]) <= float(row["mem_mb_asked"]) for row in rows)
