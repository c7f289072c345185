r"""The finished file: sorted, duplicates marked, indexed, beside the unsorted one and other tools.

    python -m benchmarks.sorted_output map REF.fmw R1.fq.gz R2.fq.gz --work DIR --modes un mark
    python -m benchmarks.sorted_output finish REF.fmw R1.fq.gz R2.fq.gz --work DIR
    python -m benchmarks.sorted_output merge REF.fmw R1.fq.gz R2.fq.gz --work DIR --parts 8

``map``: whole processes of ``fmwave map``, by turns, in the modes un (unsorted BAM), sort, mark
(``--sort --markdup``) and cram (``--sort --markdup -O cram``). ``--repeat N`` gives the reads N
times, as lanes. ``finish``: unsorted BAM of fmwave to a finished file, by ``fmwave merge
--markdup`` and by the tools that are installed: samtools, sambamba, bamsormadup. ``merge``: as
many sorted parts merged, marked and indexed, by fmwave and by samtools.

Results: OUT.md; each program adds its table.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from isal import igzip

from benchmarks.common import harness
from benchmarks.common.harness import BenchmarkError, Measurement
from benchmarks.common.map_runs import fmwave

MODES = {
    "un": ([], "unsorted BAM", "bam"),
    "sort": (["--sort"], "--sort", "bam"),
    "mark": (["--sort", "--markdup"], "--sort --markdup", "bam"),
    "cram": (["--sort", "--markdup"], "--sort --markdup, CRAM", "cram"),
}  # fmt: skip


def parser(about: str) -> argparse.ArgumentParser:
    """Return a parser with what the programs share."""
    result = argparse.ArgumentParser(description=about)
    result.add_argument("index", type=Path)
    result.add_argument("reads", type=Path, nargs=2)
    result.add_argument("--work", type=Path, required=True)
    result.add_argument("--out", type=Path, help="without suffix (default: WORK/sorted_output)")
    result.add_argument("--title", default="")
    result.add_argument("-t", "--threads", type=int, default=2)
    result.add_argument("--device", default="cpu")
    result.add_argument("--rounds", type=int, default=3)
    result.add_argument("--reference", type=Path)
    result.add_argument(
        "--backed", type=float, default=0.0, metavar="GB",
        help="memory that another process touches before each run, so that a virtual machine has "
        "it from its host [%(default)s]",
    )  # fmt: skip
    return result


def measured(command: Sequence[object], work: Path) -> Measurement:
    """Run a command; raise, with the end of its log, if it fails."""
    words = [str(word) for word in command]
    cost = harness.measure(words, work / "log")
    if cost.exit_status:
        raise BenchmarkError(f"{shlex.join(words)}:\n{harness.tail(work / 'log')}")
    return cost


def shell(line: str) -> list[str]:
    """Return the command of a shell line whose failing parts count."""
    return ["bash", "-c", f"set -euo pipefail; {line}"]


def table(rows: dict[str, list[Measurement]], n_reads: int, first: str) -> list[str]:
    """Return a table: median and range of wall time, CPU time, memory, ratio to the first row."""
    base = statistics.median(cost.wall_s for cost in next(iter(rows.values())))
    base_cpu = statistics.median(cost.cpu_s for cost in next(iter(rows.values())))
    lines = [
        f"| {first} | wall, s (all rounds) | M reads/s | wall, ratio | CPU, s | CPU, ratio | GB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, costs in rows.items():
        wall = statistics.median(cost.wall_s for cost in costs)
        cpu = statistics.median(cost.cpu_s for cost in costs)
        walls = " ".join(f"{cost.wall_s:.2f}" for cost in costs)
        lines.append(
            f"| {name} | {wall:.2f} ({walls}) | {n_reads / wall / 1e6:.3f} | {wall / base:.2f} | "
            f"{cpu:.1f} | {cpu / base_cpu:.2f} | "
            f"{max(cost.peak_rss_mb for cost in costs) / 1000:.2f} |"
        )
    return lines


def write(options: argparse.Namespace, what: str, lines: Sequence[str]) -> None:
    """Add a section to the result."""
    out = (options.out or options.work / "sorted_output").with_suffix(".md")
    before = out.read_text() if out.exists() else ""
    out.write_text(f"{before}## {options.title or what}\n\n" + "\n".join(lines) + "\n\n")
    print("\n".join(lines), flush=True)


def by_turns(commands: dict[str, list[str]], options: argparse.Namespace) -> dict[str, Any]:
    """Run each command once in every round.

    fmwave's output of the round before is removed first: to replace a file of 2 GB took a second,
    in which the system freed the old one.
    """
    costs: dict[str, list[Measurement]] = {name: [] for name in commands}
    for turn in range(options.rounds):
        for name, command in commands.items():
            if "-o" in command:
                Path(command[command.index("-o") + 1]).unlink(missing_ok=True)
            harness.back_memory(int(options.backed * 1e9))
            costs[name].append(measured(command, options.work))
            print(f"round {turn + 1}: {name}: {costs[name][-1]}", flush=True)
    return costs


def first_reads(options: argparse.Namespace, n_pairs: int) -> list[str]:
    """Return files of the first pairs, for runs that compile."""
    small = []
    for path in options.reads:
        small.append(str(options.work / f"first_{path.name.removesuffix('.gz')}"))
        with igzip.open(path, "rb") as source, Path(small[-1]).open("wb") as target:
            target.writelines(islice(source, 4 * n_pairs))
    return small


def run_map(arguments: Sequence[str] | None = None) -> int:
    """Compare the modes of ``fmwave map``."""
    own = parser("whole processes of fmwave map")
    own.add_argument("--modes", nargs="+", choices=MODES, default=["un", "sort", "mark"])
    own.add_argument("--repeat", type=int, default=1)
    own.add_argument("--memory")
    options = own.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    small = first_reads(options, 20_000)
    commands = {}
    for mode in options.modes:
        extra, name, suffix = MODES[mode]
        lanes: list[object] = ["-R", "@RG\\tID:1\\tSM:s"]
        for lane in range(2, options.repeat + 1):
            copies = [options.work / f"{lane}_{path.name}" for path in options.reads]
            for path, copy in zip(options.reads, copies, strict=True):
                if not copy.exists():
                    shutil.copyfile(path, copy)  # a file is taken once
            lanes += ["--lane", f"@RG\\tID:{lane}\\tSM:s", *copies]
        words: list[object] = [
            "-o", options.work / f"{mode}.{suffix}", "-t", options.threads, "--device",
            options.device, "--json-stats", options.work / f"{mode}.json", *extra,
            *(["--memory", options.memory] if options.memory else []),
            *(["--reference", options.reference] if suffix == "cram" else []),
        ]  # fmt: skip
        measured(fmwave("map", options.index, *small, *words), options.work)
        commands[name] = fmwave("map", options.index, *options.reads, *lanes, *words)
    costs = by_turns(commands, options)
    stats = {mode: json.loads((options.work / f"{mode}.json").read_text()) for mode in MODES
             if mode in options.modes}  # fmt: skip
    n_reads = next(iter(stats.values()))["counts"]["reads"]
    lines = table(costs, n_reads, "`fmwave map`")
    bound = f", --memory {options.memory}" if options.memory else ""
    lines += [
        "",
        f"{n_reads} reads, {options.threads} threads, --device {options.device}{bound}; "
        f"{options.backed:g} GB of memory backed before each run.",
        "",
        "The last round:",
        "",
    ]
    for mode, report in stats.items():
        seconds = report["seconds"]
        lines.append(
            f"- {MODES[mode][1]}: wall {seconds['wall']:.2f} s in the process, of which "
            f"{seconds['writing']:.2f} s after mapping; duplicates "
            f"{(report['duplicates'] or {}).get('DUPLICATE TOTAL', 'not marked')}"
        )
    write(options, "fmwave map", lines)
    return 0


def run_finish(arguments: Sequence[str] | None = None) -> int:
    """Compare tools that finish fmwave's unsorted BAM."""
    options = parser("unsorted BAM to a finished file").parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    t, work = options.threads, options.work
    unsorted = work / "unsorted.bam"
    group = ["-R", "@RG\\tID:1\\tSM:s"]
    whole = fmwave("map", options.index, *options.reads, *group, "-t", t, "--device",
                   options.device, "-o", work / "direct.bam", "--sort", "--markdup")  # fmt: skip
    plain = fmwave("map", options.index, *options.reads, *group, "-t", t, "--device",
                   options.device, "-o", unsorted, "--json-stats", work / "un.json")  # fmt: skip
    measured(whole, work)
    measured(plain, work)
    n_reads = json.loads((work / "un.json").read_text())["counts"]["reads"]
    merged = fmwave("merge", unsorted, "-o", work / "merge.bam", "--markdup", "-t", t)
    measured(merged, work)
    commands = {
        "fmwave map, unsorted": plain,
        "fmwave map --sort --markdup": whole,
        "of the unsorted file: fmwave merge --markdup": merged,
    }
    if shutil.which("samtools"):
        commands["samtools sort, markdup, index"] = shell(
            f"samtools sort -@ {t} -u -T {work}/st -o - {unsorted} | "
            f"samtools markdup -@ {t} --write-index -O bam,level=1 - {work}/samtools.bam"
        )
    if shutil.which("sambamba"):
        commands["sambamba sort, markdup (indexes)"] = shell(
            f"sambamba sort -q -t {t} -l 1 -m 4G --tmpdir {work} -o {work}/sb.bam {unsorted}; "
            f"sambamba markdup -q -t {t} -l 1 --tmpdir {work} {work}/sb.bam {work}/sambamba.bam"
        )
    if shutil.which("bamsormadup"):
        commands["bamsormadup (index)"] = shell(
            f"bamsormadup inputformat=bam threads={t} level=1 tmpfile={work}/bs "
            f"indexfilename={work}/bs.bai M={work}/bs.txt < {unsorted} > {work}/bamsormadup.bam"
        )
    costs = by_turns(commands, options)
    write(options, "fmwave's unsorted BAM finished", [
        *table(costs, n_reads, "command"), "", f"{n_reads} reads, {t} threads.",
    ])  # fmt: skip
    return 0


def run_merge(arguments: Sequence[str] | None = None) -> int:
    """Compare tools that merge sorted parts and mark duplicates."""
    own = parser("sorted parts merged, marked, indexed")
    own.add_argument("--parts", type=int, default=8)
    options = own.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    t, work = options.threads, options.work
    parts = []
    n_reads = 0
    mates = [igzip.open(path, "rb") for path in options.reads]
    with igzip.open(options.reads[0], "rb") as source:
        n_pairs = sum(chunk.count(b"\n") for chunk in iter(lambda: source.read(1 << 24), b"")) // 4
    for number in range(options.parts):
        files = []
        for mate, reads in enumerate(mates, 1):
            files.append(work / f"part_{mate}.fq")
            with files[-1].open("wb") as target:
                target.writelines(islice(reads, 4 * -(-n_pairs // options.parts)))
        parts.append(work / f"part{number}.bam")
        stats = work / "part.json"
        measured(
            fmwave("map", options.index, *files, "-R", "@RG\\tID:1\\tSM:s", "-t", t, "--device",
                   options.device, "-o", parts[-1], "--sort", "--json-stats", stats),
            work,
        )  # fmt: skip
        n_reads += json.loads(stats.read_text())["counts"]["reads"]
    listed = " ".join(map(str, parts))
    commands = {
        "fmwave merge --markdup": fmwave(
            "merge", *parts, "-o", work / "merged.bam", "--markdup", "-t", t
        )
    }
    measured(commands["fmwave merge --markdup"], work)
    if shutil.which("samtools"):
        commands["samtools merge, markdup (index)"] = shell(
            f"samtools merge -c -p -f -@ {t} -u -o - {listed} | "
            f"samtools markdup -@ {t} --write-index -O bam,level=1 - {work}/samtools.bam"
        )
    costs = by_turns(commands, options)
    write(options, f"{options.parts} sorted parts merged", [
        *table(costs, n_reads, "command"), "", f"{n_reads} reads, {t} threads.",
    ])  # fmt: skip
    return 0


main = harness.subcommands(
    __doc__,
    {name: harness.reports_errors(program)
     for name, program in (("map", run_map), ("finish", run_finish), ("merge", run_merge))},
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main())
