"""Measure what ``fmwave map --resume`` costs, and what a killed run loses.

    python -m benchmarks.studies.resume_cost REF.fmw R1.fq R2.fq --work DIR > RESULT.md

Maps the same reads with and without it, in turn; then kills a run (SIGKILL), starts it again and
compares the bytes. States come every 30 seconds: give reads for minutes, or fewer and less time
between states. Prints tables in Markdown; results: benchmarks/results/resume.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path
from statistics import median

from benchmarks.common.harness import Measurement, markdown_provenance, measure, provenance, table
from mapper import __version__

KINDS = {"BAM": (), "sorted, marked": ("--sort", "--markdup")}


def resuming(options: argparse.Namespace, words: tuple[str, ...]) -> tuple[str, ...]:
    return (*words, "--resume", "--resume-seconds", str(options.seconds))


def run(
    options: argparse.Namespace, words: tuple[str, ...], limit_s: float | None = None
) -> Measurement:  # fmt: skip
    """Map all reads with two threads."""
    command = [
        sys.executable, "-m", "mapper.cli.main", "map", options.index, *options.reads, "-t", "2",
        "-o", options.work / "x.bam", "--device", "cpu", "--json-stats", options.work / "x.json",
        *words,
    ]  # fmt: skip
    return measure(command, options.work / "log", limit_s=limit_s)


def digest(path: Path) -> str:
    """Return a digest of a file, which is removed."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    path.unlink()
    return found


def costs(options: argparse.Namespace) -> list[list[object]]:
    """Return a row for each kind of output."""
    rows: list[list[object]] = []
    for kind, words in KINDS.items():
        found: dict[bool, list[Measurement]] = {False: [], True: []}
        for _ in range(options.rounds):
            for resumes, runs in found.items():
                runs.append(run(options, resuming(options, words) if resumes else words))
                digest(options.work / "x.bam")
        n_reads = json.loads((options.work / "x.json").read_text())["counts"]["reads"]
        cpu, with_it = ([one.cpu_s for one in runs] for runs in found.values())
        more = median(with_it) - median(cpu)
        rows.append([
            kind, f"{median(cpu):.1f} ({min(cpu):.1f} to {max(cpu):.1f})",
            f"{median(with_it):.1f} ({min(with_it):.1f} to {max(with_it):.1f})",
            f"{more / median(cpu):+.1%}", f"{1e6 * more / n_reads:+.2f}",
        ])  # fmt: skip
    return rows


def losses(options: argparse.Namespace) -> list[list[object]]:
    """Return a row for each killed run."""
    rows: list[list[object]] = []
    state = options.work / ".x.bam.fmwave-resume" / "state.json"
    for kind, kind_words in KINDS.items():
        words = resuming(options, kind_words)
        run(options, words)
        undisturbed = digest(options.work / "x.bam")
        for seconds in options.kill_after:
            killed = run(options, words, seconds)
            if not killed.ended_at_limit:
                digest(options.work / "x.bam")
                continue
            before = json.loads(state.read_text())["statistics"] if state.exists() else None
            again = run(options, words)
            same = digest(options.work / "x.bam") == undisturbed
            rows.append([
                kind, f"{seconds:.0f}", before["counts"]["reads"] if before else 0,
                f"{seconds - (before['wall'] if before else 0):.1f}", f"{again.wall_s:.1f}",
                "yes" if same else "NO",
            ])  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("reads", type=Path, nargs="+")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=30, help="between states")
    parser.add_argument("--kill-after", type=float, nargs="*", default=[20, 45, 70])
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    about = provenance({"fmwave": __version__})
    lines = ["# What `--resume` costs and saves", "", *markdown_provenance(about), ""]
    lines += ["Processor's seconds of a run, median and range.", ""]
    header = ["output", "without", "with `--resume`", "difference", "µs a read"]
    lines += [*table(header, costs(options)), ""]
    lines += ["Killed by SIGKILL, and started again.", ""]
    header = ["output", "killed after, s", "reads in the state", "lost, s", "second start, s",
              "same bytes"]  # fmt: skip
    lines += table(header, losses(options))
    print("\n".join(lines))
    shutil.rmtree(options.work)


if __name__ == "__main__":
    main()
