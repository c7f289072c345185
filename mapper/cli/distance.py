"""``fmwave distance``: edit distance, and path, of two very long sequences."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.cli.standard_streams import report
from mapper.cuda.devices import check_device_name
from mapper.errors import InputFormatError, UsageError

if TYPE_CHECKING:
    from mapper.align.long.search import Progress

log = logging.getLogger(__name__)

EXAMPLES = """\
fmwave distance a.fa b.fa
fmwave distance a.fa b.fa --path --checkpoint a_b.state"""
DOCUMENT = "docs/pairwise.md"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of ``fmwave distance``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "distance",
        help="edit distance of two very long sequences",
        description="Print the exact edit distance of two sequences of up to 2^30 symbols; with "
        "--path also, on a second line, pair (0), query_length, ref_length, score, status and "
        "cigar, tab-separated.",
    )
    parser.add_argument("query", metavar="A.fa", help="FASTA or FASTQ with one sequence")
    parser.add_argument("ref", metavar="B.fa", help="the other; both may be gzip")
    parser.add_argument("--path", action="store_true", help="also find a shortest path")
    parser.add_argument(
        "--max-distance", type=int, metavar="N", help="stop above it; the distance is then *"
    )
    parser.add_argument(
        "--symbols", choices=("dna", "iupac", "bytes"), default="dna",
        help="what matches; dna: A C G T, other IUPAC letters match nothing; iupac: each letter "
        "matches itself; bytes: any text (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE",
        help="save the state here every minute and when a signal ends the run (Ctrl-C, SIGTERM, "
        "SIGHUP ...); a run that is started again goes on from it",
    )  # fmt: skip
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "-t", "--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
        help="threads that look for parts of the path (default: all, %(default)s here)",
    )  # fmt: skip
    machine.add_argument(
        "--device", default="auto", metavar="auto|cpu|cuda[:0,1]",
        help="where to compute: auto takes CUDA devices where there are any; the result is the "
        "same (default: %(default)s)",
    )  # fmt: skip
    return parser


def run(args: argparse.Namespace) -> int:
    """Compute and print."""
    from mapper.align.long.api import long_edit_distance
    from mapper.align.threads import thread_count
    from mapper.io.sequences import only_sequence

    if args.max_distance is not None and args.max_distance < 0:
        raise UsageError(f"--max-distance {args.max_distance}: 0 or more is expected")
    check_device_name(args.device)
    thread_count(args.threads)
    _check_files(args)
    query, ref = only_sequence(args.query), only_sequence(args.ref)
    log.info("%d and %d symbols", len(query), len(ref))
    progress, close = _progress(sys.stderr.isatty() and not args.quiet)
    try:
        found = long_edit_distance(
            query, ref, path=args.path, max_distance=args.max_distance, symbols=args.symbols,
            device=args.device, threads=args.threads, progress=progress, checkpoint=args.checkpoint,
        )  # fmt: skip
    except InputFormatError as error:
        raise InputFormatError(f"{args.query}, {args.ref}: {error}") from error
    finally:
        close()
    score = "*" if found.distance is None else str(found.distance)
    lines = [score]
    if args.path:
        status = "over_limit" if found.distance is None else "ok"
        fields = ("0", str(len(query)), str(len(ref)), score, status, found.cigar or "*")
        lines.append("\t".join(fields))
    report("\n".join(lines) + "\n")
    return 0


def _check_files(args: argparse.Namespace) -> None:
    """Raise UsageError for files that cannot be used together, before any is read."""
    from mapper.io.input_file import STDIN, same_file

    if args.query == args.ref == STDIN:
        raise UsageError("standard input cannot be read twice; give two files")
    for path in (args.query, args.ref):
        if args.checkpoint is not None and same_file(str(args.checkpoint), path):
            raise UsageError(f"--checkpoint {args.checkpoint}: is a sequence; name another file")


def _progress(shown: bool) -> tuple[Progress | None, Any]:
    """Return functions that show progress on the terminal, and that end the display."""
    if not shown:
        return None, lambda: None
    from tqdm import tqdm

    bar = tqdm(unit=" edits", desc="distance", leave=False)

    def show(placed: int, edits: int) -> None:
        if placed:
            bar.set_description("path")
            bar.total = edits
        bar.n = placed or edits
        bar.refresh()

    return show, bar.close
