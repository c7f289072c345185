r"""Places of single reads by length, across the switch from short reads' stages to long ones'.

    python -m benchmarks.studies.read_lengths GENOME.fa --work DIR [--binary minibwa=PATH …]

Reads of one length each, of a donor with 0.1 % SNPs, with errors of nanopore reads. fmwave maps
them without a preset, minibwa in its adaptive mode, which interpolates parameters by length,
minimap2 with ``map-ont``, ``bwa mem`` as it is. Scored by mapeval.py. Prints a table in Markdown;
results: benchmarks/results/long_reads.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import harness
from benchmarks.common.data import run_kit
from benchmarks.common.map_runs import fmwave
from benchmarks.long_reads import Tool, parser_about, run, version_of

LENGTHS = (250, 500, 800, 950, 1050, 1200, 2000, 5000)
ERRORS = (0.01, 0.05)
SEED = 41


def tools_of(binaries: dict[str, str]) -> list[Tool]:
    """Return fmwave, and the peers whose programs are named."""
    own = shlex.join(fmwave())
    tools = [
        Tool("fmwave", f"{own} --version", f"{own} index {{ref}} -o {{index}} --force",
             f"{own} map {{index}} {{reads}} -t {{threads}} -o {{out}} --device cpu", ".bam"),
    ]  # fmt: skip
    if "minibwa" in binaries:
        program = binaries["minibwa"]
        tools.append(
            Tool("minibwa", f"{program} version",
                 f"{program} index -t {{threads}} {{ref}} {{index}}",
                 f"{program} map -t {{threads}} {{index}} {{reads}}")
        )  # fmt: skip
    if "minimap2" in binaries:
        program = binaries["minimap2"]
        tools.append(
            Tool("minimap2", f"{program} --version",
                 f"{program} -x {{theirs}} -t {{threads}} -d {{index}} {{ref}}",
                 f"{program} -ax {{theirs}} -t {{threads}} {{index}} {{reads}}")
        )  # fmt: skip
    if "bwa" in binaries:
        program = binaries["bwa"]
        tools.append(
            Tool("bwa", f"sh -c '{program} 2>&1 | grep Version'",
                 f"{program} index -p {{index}} {{ref}}",
                 f"{program} mem -t {{threads}} {{index}} {{reads}}")
        )  # fmt: skip
    return tools


def scores(tool: Tool, genome: Path, reads: Path, work: Path, threads: int) -> str:
    """Map a set; return reads right, wrong ones of MAPQ 1 or more, and share and wrong of 30."""
    stem = reads.name.removesuffix(".fq.gz")
    written = work / f"{stem}.{tool.name}{tool.suffix}"
    index = tool.index_file(work, "map-ont")
    values: dict[str, object] = {
        "ref": genome, "index": index, "theirs": "map-ont", "threads": threads, "reads": reads,
        "out": written,
    }  # fmt: skip
    if not any(work.glob(f"{index.name}*")):
        run(tool, tool.words(tool.index, values), work, None)
    run(tool, tool.words(tool.map, values), work, written if tool.suffix == ".sam" else None)
    found = harness.evaluate(written, genome, reads.parent / f"{stem}.json")
    share = f"{found['mapq30']['mapped_pct']:.2f} ({found['mapq30']['wrong']})"
    return f"{found['correct']} / {found['mapq1']['wrong']} / {share}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_about(__doc__ or "")
    parser.add_argument("--reads", type=int, default=4000, help="of a set [%(default)s]")
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    tools = tools_of(dict(text.split("=", 1) for text in options.binary))
    about = harness.provenance({tool.name: version_of(tool) for tool in tools})
    rows: list[list[object]] = []
    for errors in ERRORS:
        for length in LENGTHS:
            prefix = options.work / f"length_{length}_{errors}"
            run_kit(
                "simulate.py", options.genome, prefix, "-n", options.reads, "-p", "ont",
                "-l", length, "--min-len", length, "--max-len", length, "--err", errors,
                "--snp", 0.001, "--seed", SEED, "--threads", options.threads,
            )  # fmt: skip
            reads = Path(f"{prefix}.fq.gz")
            rows.append(
                [length, f"{errors:.0%}"]
                + [scores(tool, options.genome, reads, options.work, options.threads)
                   for tool in tools]
            )  # fmt: skip
            print(*rows[-1], sep="\t", flush=True)
    header = ["length", "errors", *(tool.name for tool in tools)]
    print("\n".join([*harness.markdown_provenance(about), *harness.table(header, rows)]))


if __name__ == "__main__":
    main()
