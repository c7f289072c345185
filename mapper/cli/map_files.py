"""The files of ``fmwave map``: their options, and checks of combinations."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mapper.cli.duplicate_options import add_duplicate_options, mark_options
from mapper.cli.output_options import add_tmp_dir, check_not_terminal
from mapper.cli.sizes import whole_number
from mapper.errors import UsageError
from mapper.mapping.device_io import AUTO, COMPRESS_ON, DEVICE
from mapper.mapping.output_checks import (
    DUPLICATES,
    STATISTICS,
    check_cigars,
    check_outputs,
    check_references,
    check_tmp_dir,
)
from mapper.params import RESUME_SECONDS


class _InsteadOf(argparse.Action):
    """An option that replaces a positional argument.

    With ``nargs="*"`` that argument could not follow options (``map REF.fmw -o OUT READS``).
    """

    def __init__(self, *, replaced: argparse.Action, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._replaced = replaced

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        self._replaced.required = False


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name and describe files."""
    reads = parser.add_argument(
        "reads",
        nargs="+",
        metavar="READS",
        help="FASTQ or FASTA, plain or gzip: one file, or two of mates; or BAM, CRAM and SAM "
        "files, of unaligned or of name-grouped reads; - is standard input",
    )
    group = parser.add_argument_group("input and output")
    group.add_argument(
        "--batch", metavar="SHEET.tsv", action=_InsteadOf, replaced=reads,
        help="map several samples, a line for each lane, instead of READS; lines of the same "
        "output make one file. Columns: output, reads1 and, if wanted, reads2, interleaved, "
        "read_group (or ID, SM, LB, PL ...), insert_size, insert_size_from, json_stats "
        "(docs/input-and-output.md)",
    )  # fmt: skip
    group.add_argument(
        "-o", "--output", default="-", metavar="OUT.bam",
        help=".bam, .cram, .sam or .paf; appears only when complete (default: standard output)",
    )  # fmt: skip
    group.add_argument(
        "-O", "--output-format", choices=("bam", "cram", "sam", "paf"),
        metavar="bam|cram|sam|paf",
        help="format (default: by the name; sam on standard output)",
    )  # fmt: skip
    group.add_argument(
        "-p", "--interleaved", action="store_true", help="the one file holds mates alternately"
    )
    group.add_argument(
        "--orphans", choices=("map", "skip", "refuse"), default="map", metavar="map|skip|refuse",
        help="what to do with reads of BAM, CRAM and SAM that are flagged paired and have no mate "
        "in the file: map them as single reads, leave them out, or stop (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "-R", "--read-group", metavar="LINE",
        help=r"read group of reads that have none, as '@RG\tID:run1\tSM:sample1'",
    )  # fmt: skip
    group.add_argument(
        "--lane", action="append", nargs="+", default=[], metavar=("LINE", "READS"),
        help="one more lane: its read group as for -R, then its files; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "-C", "--comments", action="store_true",
        help="take comments of FASTQ and FASTA as SAM tags (TAG:TYPE:VALUE, separated by tabs)",
    )  # fmt: skip
    group.add_argument(
        "--reference", metavar="REF.fa",
        help="FASTA file that the index was built from, plain or bgzip; for CRAM output",
    )  # fmt: skip
    group.add_argument(
        "--input-reference", metavar="REF.fa", help="FASTA file that CRAM input was made with"
    )
    group.add_argument(
        "--sort", action="store_true", help="sort by coordinate and write an index (BAM or CRAM)"
    )
    add_duplicate_options(group, "with --sort, ")
    add_tmp_dir(group, "which --sort makes")
    group.add_argument(
        "--compression", type=int, choices=range(10), default=1, metavar="0..9",
        help="level of BAM and CRAM compression (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--compress-on", choices=COMPRESS_ON, default=AUTO, metavar="|".join(COMPRESS_ON),
        help="where BAM is compressed: on a device, by nvCOMP, the records are the same and the "
        "file's bytes are not; auto: on the device where nvCOMP is installed, but on the host with "
        "--resume (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "-a", "--all", action="store_true", help="write secondary records instead of the XA tag"
    )
    group.add_argument("--eqx", action="store_true", help="write = and X in CIGARs instead of M")
    # The forms are options of their own: a value behind "--cs " would be one of the files.
    group.add_argument(
        "--cs", "--cs=short", dest="cs", action="store_const", const="short",
        help="write the tag cs, the differences from the reference, as minimap2 does",
    )  # fmt: skip
    group.add_argument(
        "--cs=long", dest="cs", action="store_const", const="long",
        help="cs (and ds) with the bases that match",
    )  # fmt: skip
    group.add_argument(
        "--ds", action="store_true",
        help="write the tag ds: cs with brackets around bases of a gap that could as well lie "
        "elsewhere, as minimap2 does",
    )  # fmt: skip
    group.add_argument(
        "-Y", "--soft-clip", action="store_true", help="soft clips in supplementary records"
    )
    _add_resume(group)
    group.add_argument(
        "--json-stats", metavar="FILE", help="write counts, times of the stages, and versions"
    )
    group.add_argument(
        "--verbose", action="store_true", help="the times of the stages on stderr, too"
    )


def _add_resume(group: Any) -> None:
    group.add_argument(
        "--resume", dest="resume", action="store_const", const="refuse",
        help="go on where an earlier start of this command was killed or preempted; until the "
        "output is complete, what is needed for that lies in .OUT.bam.fmwave-resume beside it. "
        "Refused if reads, index, options or version are others",
    )  # fmt: skip
    group.add_argument(
        "--resume-or-restart", dest="resume", action="store_const", const="restart",
        help="as --resume, but begin anew where that is refused",
    )  # fmt: skip
    group.add_argument(
        "--resume-seconds", type=whole_number, default=RESUME_SECONDS, metavar="N",
        help="with --resume, seconds between two states (default: %(default)s)",
    )  # fmt: skip


def lanes_of(args: argparse.Namespace) -> list[tuple[str | None, tuple[str, ...]]]:
    """Return read group line and files of each sequencing lane; empty if there is only one."""
    if not args.lane:
        return []
    first = (args.read_group, tuple(args.reads))
    return [first, *((line, tuple(paths)) for line, *paths in args.lane)]


def check_files(args: argparse.Namespace, output_format: str) -> None:
    """Raise UsageError if an output would overwrite an input or another, or cannot be made."""
    _check_combinations(args, output_format)
    reads = [*args.reads, *(path for _, paths in lanes_of(args) for path in paths)]
    inputs = (args.reference, args.input_reference, args.batch, args.insert_size_from)
    others = {STATISTICS: args.json_stats, DUPLICATES: args.markdup_stats}
    for output in check_outputs(args.output, others, reads, inputs):
        if Path(args.index).resolve() in Path(output).resolve().parents:
            raise UsageError(f"{output} would lie in the index; name another output")


def _check_samples(groups: Sequence[str]) -> None:
    """Raise UsageError unless the read groups of all lanes have the same SM."""
    from mapper.io.header import header_field, parse_read_group

    first, *others = (header_field(parse_read_group(group)[0], "SM") for group in groups)
    for sample in others:
        if sample != first:
            raise UsageError(
                f"--lane: SM is {sample or 'missing'}, and {first or 'missing'} in -R; an output "
                "is one sample: give its lanes the same SM, or each sample its own output"
            )


def _check_combinations(args: argparse.Namespace, output_format: str) -> None:
    # Files of a sheet may have read groups of their own, which map_batch looks up.
    if args.lane and args.read_group is None and args.batch is None:
        raise UsageError("--lane: with several lanes, name the read group of the first with -R")
    for line, paths in lanes_of(args):
        if not paths:
            raise UsageError(f"--lane {line}: a read group, then its files are expected")
    if args.lane and args.batch is None:
        _check_samples([line for line, _ in lanes_of(args) if line is not None])
    if args.resume is not None and args.batch is not None:
        raise UsageError(
            "--resume and --batch: outputs that are finished would be made again; map each sample "
            "in a run of its own"
        )
    if args.compress_on == DEVICE and output_format != "bam":
        raise UsageError(
            f"--compress-on device is for BAM, and the output is {output_format.upper()}"
        )
    check_cigars(output_format, args.eqx)
    if args.markdup and not args.sort:
        raise UsageError("--markdup needs --sort")
    mark_options(args)
    if args.markdup_stats is not None and args.batch is not None:
        raise UsageError(
            "--markdup-stats and --batch: all samples would write one file; map them in runs of "
            "their own"
        )
    check_tmp_dir(args.tmp_dir)
    check_references(reference=args.reference, input_reference=args.input_reference)
    check_not_terminal(args.output, output_format)
