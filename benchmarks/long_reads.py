r"""Long reads beside minimap2 and minibwa: places, mapping qualities, speed.

    python -m benchmarks.long_reads GENOME.fa --work DIR --reads 3000 --binary minibwa=PATH

Reads of GENOME by the evaluation kit's simulate.py, a donor with SNPs, one set for each profile of
SETS. Indexes are made first and are no part of a run. Runs are whole processes, by turns: fmwave
writes BAM, the others SAM to a file. Places are scored by mapeval.py.

Results: OUT.md and OUT.json.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import harness
from benchmarks.common.data import run_kit
from benchmarks.common.harness import BenchmarkError
from benchmarks.common.map_runs import fmwave

SETS = {
    "hifi": ("hifi", "map-hifi", "HiFi, 0.7 % errors", ()),
    "ont_r10": ("ont", "map-ont", "nanopore, 1 % errors", ("--err", "0.01")),
    "ont": ("ont", "map-ont", "nanopore, 6.5 % errors", ()),
}
"""Profile and preset, minimap2's preset, what it is, further options of simulate.py."""

THRESHOLDS = (1, 10, 30, 60)
SEED = 31


@dataclass(frozen=True)
class Tool:
    """A mapper; in its commands {ref} {index} {preset} {theirs} {threads} {reads} are replaced."""

    name: str
    version: str
    index: str
    map: str
    suffix: str = ".sam"

    def words(self, template: str, values: dict[str, object]) -> list[str]:
        return [word.format(**values) for word in shlex.split(template)]

    def index_file(self, work: Path, theirs: str) -> Path:
        """Return the path of the index; minimap2's depends on its preset."""
        index = work / (f"{self.name}.{theirs}" if "{theirs}" in self.index else self.name)
        return index.with_suffix(".fmw" if self.name == "fmwave" else index.suffix)


def tools_of(binaries: dict[str, str]) -> list[Tool]:
    """Return the mappers; minibwa only if its program is named."""
    own = shlex.join(fmwave())
    minimap2 = binaries.get("minimap2", "minimap2")
    found = [
        Tool("fmwave", f"{own} --version", f"{own} index {{ref}} -o {{index}} --force",
             f"{own} map {{index}} {{reads}} --preset {{preset}} -t {{threads}} -o {{out}} "
             "--device cpu", ".bam"),
        Tool("minimap2", f"{minimap2} --version",
             f"{minimap2} -x {{theirs}} -t {{threads}} -d {{index}} {{ref}}",
             f"{minimap2} -ax {{theirs}} -t {{threads}} {{index}} {{reads}}"),
    ]  # fmt: skip
    if "minibwa" in binaries:
        minibwa = binaries["minibwa"]
        found.append(
            Tool(
                "minibwa",
                f"{minibwa} version",
                f"{minibwa} index -t {{threads}} {{ref}} {{index}}",
                f"{minibwa} map -x lr -t {{threads}} {{index}} {{reads}}",
            )
        )
    return found


def version_of(tool: Tool) -> str:
    """Return the last word that a mapper says of its version."""
    said = subprocess.run(tool.words(tool.version, {}), capture_output=True, text=True, check=True)
    return said.stdout.split()[-1]


def run(tool: Tool, command: Sequence[str], work: Path, out: Path | None) -> harness.Measurement:
    cost = harness.measure(command, work / f"{tool.name}.log", out)
    if cost.exit_status:
        raise BenchmarkError(f"{shlex.join(command)}:\n{harness.tail(work / f'{tool.name}.log')}")
    return cost


def measured(name: str, tools: Sequence[Tool], options: argparse.Namespace) -> dict[str, Any]:
    """Simulate a set, map it by turns, and score the places."""
    preset, theirs, _, further = SETS[name]
    work: Path = options.work
    prefix = work / name
    run_kit(
        "simulate.py", "-p", preset, "-n", options.reads, "--seed", SEED, "--snp", "0.001",
        "--threads", options.threads, *further, options.genome, prefix,
    )  # fmt: skip
    reads = next(path for path in sorted(work.glob(f"{name}.f*q*")) if path.is_file())
    values: dict[str, object] = {
        "ref": options.genome, "preset": preset, "theirs": theirs,
        "threads": options.threads, "reads": reads,
    }  # fmt: skip
    results: dict[str, Any] = {}
    commands: dict[str, tuple[list[str], Path | None, Path]] = {}
    for tool in tools:
        index = tool.index_file(work, theirs)
        written = work / f"{name}.{tool.name}{tool.suffix}"
        values |= {"index": index, "out": written}
        if not any(work.glob(f"{index.name}*")):
            run(tool, tool.words(tool.index, values), work, None)
        out = written if tool.suffix == ".sam" else None
        commands[tool.name] = tool.words(tool.map, values), out, written
        results[tool.name] = {"runs": []}
    for tool in tools:  # code is compiled, files are in memory
        run(tool, commands[tool.name][0], work, commands[tool.name][1])
    for turn in range(options.rounds):
        for i in range(len(tools)):
            tool = tools[(turn + i) % len(tools)]
            cost = run(tool, commands[tool.name][0], work, commands[tool.name][1])
            results[tool.name]["runs"].append(asdict(cost))
            print(f"  {name} {tool.name}: {cost.wall_s:.2f} s, {cost.cpu_s:.2f} s CPU", flush=True)
    n_bases = bases_of(reads)
    for tool in tools:
        scored = harness.evaluate(
            commands[tool.name][2], options.genome, prefix.with_suffix(".json")
        )
        results[tool.name] |= {"accuracy": scored, "bases": n_bases}
    return results


def bases_of(reads: Path) -> int:
    """Return the bases of a file of reads."""
    import pysam

    with pysam.FastxFile(str(reads), persist=False) as file:
        return sum(len(read.sequence or "") for read in file)


def markdown(report: dict[str, Any]) -> list[str]:
    lines = [
        "# Long reads beside minimap2 and minibwa", "",
        *harness.markdown_provenance(report["about"]),
        f"{report['reads']} reads of {report['genome']} a set, a donor with 0.1 % SNPs; right:",
        "place and truth overlap by more than a tenth of their union. Wall: median of whole",
        "processes, by turns, the index made before; fmwave writes BAM, the others SAM.", "",
    ]  # fmt: skip
    for name, results in report["sets"].items():
        lines += [f"## {SETS[name][2]}", ""]
        rows = []
        for tool, found in results.items():
            wall = [cost["wall_s"] for cost in found["runs"]]
            cpu = statistics.median(cost["cpu_s"] for cost in found["runs"])
            memory = max(cost["peak_rss_mb"] for cost in found["runs"]) / 1000
            score = found["accuracy"]
            rows.append([
                tool, f"{statistics.median(wall):.2f} ({' '.join(f'{s:.2f}' for s in wall)})",
                f"{found['bases'] / statistics.median(wall) / 1e6:.1f}", f"{cpu:.1f}",
                f"{memory:.2f}", f"{score['correct']}",
                *(f"{score[f'mapq{t}']['mapped_pct']:.2f} / {score[f'mapq{t}']['wrong']}"
                  for t in THRESHOLDS),
            ])  # fmt: skip
        header = ["mapper", "wall, s (all rounds)", "Mbp/s", "CPU, s", "GB", "right"]
        header += [f"share, % / wrong at MAPQ ≥ {t}" for t in THRESHOLDS]
        lines += harness.table(header, rows)
    return lines


def parser_about(text: str) -> argparse.ArgumentParser:
    """Return a parser of what benchmarks of long reads share, for the module's docstring."""
    result = argparse.ArgumentParser(description=text.splitlines()[0])
    result.add_argument("genome", type=Path)
    result.add_argument("--work", type=Path, required=True, help="for reads, indexes and output")
    result.add_argument("-t", "--threads", type=int, default=2, help="[%(default)s]")
    result.add_argument("--binary", nargs="*", default=[], metavar="NAME=PATH")
    result.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    return result


def parser() -> argparse.ArgumentParser:
    result = parser_about(__doc__ or "")
    result.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    result.add_argument("--reads", type=int, default=3000, help="of a set [%(default)s]")
    result.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    return result


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 1 if a mapper failed or something is missing."""
    options = parser().parse_args(arguments)
    harness.kit("mapeval.py")
    options.work.mkdir(parents=True, exist_ok=True)
    tools = tools_of(dict(text.split("=", 1) for text in options.binary))
    report: dict[str, Any] = {
        "about": harness.provenance({tool.name: version_of(tool) for tool in tools}),
        "genome": options.genome.name,
        "reads": options.reads,
        "sets": {},
    }
    for name in options.sets:
        report["sets"][name] = measured(name, tools, options)
        harness.write_results(options.out, "long_reads", report, markdown(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
