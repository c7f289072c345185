"""``fmwave merge``: merge the parts of a sample to one finished file."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mapper.cli.duplicate_options import add_duplicate_options, mark_options
from mapper.cli.output_options import add_tmp_dir, check_not_terminal
from mapper.cli.sizes import memory_size, thread_number
from mapper.errors import UsageError
from mapper.mapping.output_checks import (
    DUPLICATES,
    check_outputs,
    check_references,
    check_tmp_dir,
)

EXAMPLES = """\
fmwave merge lane1.bam lane2.bam -o sample.bam --markdup -t 16
fmwave merge part*.bam -o sample.cram --reference ref.fa --markdup --markdup-stats sample.json"""
DOCUMENT = "docs/input-and-output.md"

FORMATS = ("bam", "cram", "sam")


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of ``fmwave merge``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "merge",
        help="merge sorted parts of a sample, mark duplicates, index",
        description="Merge BAM files of the same reference by coordinate, mark duplicates among "
        "all of them by library, and write the index.",
    )
    parser.add_argument(
        "parts", nargs="+", metavar="PART.bam",
        help="BAM file, sorted by coordinate or as fmwave map writes it without --sort; records of "
        "one place come in the order of the files; - is standard input",
    )  # fmt: skip
    group = parser.add_argument_group("output")
    group.add_argument(
        "-o", "--output", required=True, metavar="OUT.bam",
        help=".bam, .cram or .sam; appears only when complete; - is standard output, which has no "
        "index",
    )  # fmt: skip
    group.add_argument(
        "-O", "--output-format", choices=FORMATS, metavar="bam|cram|sam",
        help="format (default: by the name; sam on standard output)",
    )  # fmt: skip
    group.add_argument(
        "--reference", metavar="REF.fa",
        help="FASTA file of the reference, plain or bgzip; for CRAM output",
    )  # fmt: skip
    group.add_argument(
        "--compression", type=int, choices=range(10), default=1, metavar="0..9",
        help="level of BAM and CRAM compression (default: %(default)s)",
    )  # fmt: skip
    add_duplicate_options(parser.add_argument_group("duplicates"))
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "-t", "--threads", type=thread_number, default=len(os.sched_getaffinity(0)), metavar="N",
        help="threads that read, merge and compress (default: all, %(default)s here)",
    )  # fmt: skip
    machine.add_argument(
        "--memory", type=memory_size, metavar="SIZE",
        help="bound of the records that are kept in memory where parts are not sorted, such as 4G; "
        "others go to a temporary file (default: 768M a thread, half of what is free at most)",
    )  # fmt: skip
    add_tmp_dir(machine, "which parts that are not sorted need")
    return parser


def run(args: argparse.Namespace) -> int:
    """Merge the parts."""
    output_format = _check(args)
    from mapper.io.output_file import write_json
    from mapper.mapping.memory_plan import sort_bytes_without_bound
    from mapper.sorting.merge import merge_parts
    from mapper.sorting.options import SortOptions
    from mapper.sorting.output import SortedTarget

    target = SortedTarget(
        args.output, output_format, shlex.join(["fmwave", *args.argv]), level=args.compression,
        reference=args.reference, threads=args.threads,
    )  # fmt: skip
    target.check()
    options = mark_options(args)
    if options is not None:
        options = options._replace(clear=True)
    counts = merge_parts(
        args.parts, target, SortOptions(args.tmp_dir, options), args.threads,
        args.memory or sort_bytes_without_bound(args.threads),
        progress=sys.stderr.isatty() and not args.quiet,
    )  # fmt: skip
    if args.markdup_stats is not None:
        write_json(args.markdup_stats, counts)
    return 0


def _check(args: argparse.Namespace) -> str:
    """Return the format of the output; raise UsageError for options that do not go together."""
    from mapper.io.output import check_format, format_of

    output_format = args.output_format or format_of(args.output)
    if output_format not in FORMATS:
        raise UsageError(
            f"output {args.output}: parts are merged to BAM, CRAM or SAM; name it .bam, .cram or "
            ".sam, or give the format with -O"
        )
    mark_options(args)
    check_format(output_format, sort=True, reference=args.reference)
    check_not_terminal(args.output, output_format)
    check_tmp_dir(args.tmp_dir)
    check_references(reference=args.reference)
    _check_parts_differ(args.parts)
    check_outputs(args.output, {DUPLICATES: args.markdup_stats}, args.parts, [args.reference])
    return output_format


def _check_parts_differ(parts: Sequence[str]) -> None:
    """Raise UsageError if two parts are one file, under any names."""
    from mapper.io.input_file import STDIN, source_name

    seen = set()
    for part in parts:
        identity: object = part
        if part != STDIN:
            with suppress(OSError):  # opening it gives the reason
                found = Path(part).stat()
                identity = found.st_dev, found.st_ino
        if identity in seen:
            raise UsageError(f"{source_name(part)} is given twice; give each part once")
        seen.add(identity)
