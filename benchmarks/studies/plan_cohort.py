"""Plan a large cohort: what a dry run of the workflow costs in time and memory.

Writes sheets of many samples (reads are hard links to copies of one bundled pair of files), runs
``snakemake --dry-run`` with one of the profiles, and compares its jobs, seconds and peak memory
with what is expected. Ends with status 1 if a limit is passed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"


def write_cohort(directory: Path, n_samples: int, n_units: int) -> None:
    """Write config and sheets, and a link for each read file.

    Hard links: two symbolic links to a file are the same reads, which the workflow refuses.
    """
    for mate in (1, 2):
        shutil.copy(DATA / f"phix_R{mate}.fq", directory)
    samples, units = ["sample"], ["sample\tunit\tfq1\tfq2"]
    (directory / "reads").mkdir()
    for sample in (f"s{n:05}" for n in range(n_samples)):
        samples.append(sample)
        for unit in (f"u{n}" for n in range(n_units)):
            cells = [f"reads/{sample}-{unit}_R{mate}.fq" for mate in (1, 2)]
            for mate, cell in enumerate(cells, start=1):
                (directory / cell).hardlink_to(directory / f"phix_R{mate}.fq")
            units.append("\t".join([sample, unit, *cells]))
    for name, lines in (("samples", samples), ("units", units)):
        (directory / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines))
    (directory / "config").mkdir()
    (directory / "config" / "config.yaml").write_text(
        f"reference: {DATA / 'phix174.fa'}\nsamples: samples.tsv\nunits: units.tsv\n"
        "gpu: {model: H200}\n"
    )


def plan(directory: Path, profile: str) -> tuple[float, float, float, str]:
    """Run the dry run; return seconds, those of one core, peak memory in GB, what it said."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "workflow" / "Snakefile"]
    command += ["--directory", directory, "--profile", ROOT / "profiles" / profile]
    command += ["--dry-run", "--quiet", "rules", "host"]
    with (directory / "plan.log").open("wb") as log:
        start = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    text = (directory / "plan.log").read_text()
    if status != 0:
        sys.exit(f"the dry run failed:\n{text[-2000:]}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e9, text


def main() -> None:
    """Measure, print one line of a table, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--units", type=int, default=2, help="of each sample")
    parser.add_argument("--profile", default="local-gpu")
    parser.add_argument("--max-seconds", type=float, default=60)
    parser.add_argument("--max-gb", type=float, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_cohort(Path(name), args.samples, args.units)
        seconds, busy, gb, text = plan(Path(name), args.profile)
    # A job for each unit; the insert size, where several units share it, merge and statistics
    # for each sample; index, compilation, summary, plots, the page of the summary, efficiency, all.
    expected = args.samples * (args.units + (args.units > 1) + 2) + 7
    planned = int(text.split("\ntotal")[1].split()[0])
    print(
        f"| {args.samples} × {args.units} | {args.profile} | {planned} | {seconds:.1f} s "
        f"| {busy:.1f} s | {gb:.2f} GB |"
    )
    if planned != expected:
        sys.exit(f"{planned} jobs were planned, {expected} expected")
    if seconds > args.max_seconds or gb > args.max_gb:
        sys.exit(f"more than {args.max_seconds:g} s or {args.max_gb:g} GB")


if __name__ == "__main__":
    main()
