"""``fmwave align``: align pairs of sequences from files."""

from __future__ import annotations

import argparse
import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from mapper.cli.align_engines import check_options, engine_of, matrix_options, numbers
from mapper.errors import UsageError

if TYPE_CHECKING:
    from mapper.align.files import StreamCounts
    from mapper.align.spans import Span

log = logging.getLogger(__name__)

METRICS = ("edit", "affine", "matrix")
SPANS = ("global", "semiglobal", "prefix", "local", "extension")

EXAMPLES = """\
fmwave align pairs.seq -o out.tsv
fmwave align queries.fa refs.fa --metric affine --penalties 4,6,2
fmwave align proteins.fa --metric matrix --matrix BLOSUM62 --span local --all-vs-all --format paf"""
DOCUMENT = "docs/pairwise.md"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of ``fmwave align``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "align",
        help="align pairs of sequences",
        description="Align pairs of sequences of any length and write a table: pair (from 0), "
        "query_length, ref_length, score, status, cigar; where a span leaves ends unaligned, "
        "also query_start, query_end, ref_start, ref_end (docs/pairwise.md). With --all-vs-all, "
        "align every sequence of a set with every other.",
    )
    parser.add_argument(
        "pairs", nargs="+", metavar="PAIRS",
        help="one .seq file (lines '>query' then '<reference'), or two FASTA or FASTQ files, "
        "queries and references, read in step; with --all-vs-all one or two FASTA or FASTQ "
        "files; plain or gzip; - is standard input",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", default="-", metavar="OUT.tsv",
        help="appears only when complete (default: standard output)",
    )  # fmt: skip
    sets = parser.add_argument_group("sets")
    sets.add_argument(
        "--all-vs-all", action="store_true",
        help="matrix: align all sequences of one file with each other, each pair once, or those "
        "of one file with those of another; the sets are held in memory, alignments are not",
    )  # fmt: skip
    sets.add_argument(
        "--format", choices=("tsv", "paf", "fasta"), default=None,
        help="with --all-vs-all; tsv: a table with names; paf: PAF, with the score and the CIGAR; "
        "fasta: two records a pair, the aligned parts with gaps (default: tsv)",
    )  # fmt: skip
    _add_alignment(parser)
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "-t", "--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
        help="threads that align; no effect on the result (default: all, %(default)s here)",
    )  # fmt: skip
    machine.add_argument(
        "--device", default="auto", metavar="auto|cpu|cuda[:0,1]",
        help="where to compute (default: %(default)s)",
    )  # fmt: skip
    return parser


def _add_alignment(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("alignment")
    group.add_argument(
        "--metric", choices=METRICS, default="edit",
        help="what is optimised; edit: fewest mismatches, inserted and deleted symbols; "
        "affine: lowest penalty with affine gaps; matrix: highest score of a substitution "
        "matrix, by the whole matrix of cells (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--span", choices=SPANS, default=None,
        help="global: both sequences whole; semiglobal: the whole query anywhere in the "
        "reference (matrix: all ends free); prefix: at its start (not matrix); local: the best "
        "parts (matrix only); extension: the best-scoring beginnings, the rest of the query "
        "clipped (affine only) (default: global)",
    )  # fmt: skip
    group.add_argument(
        "--ends-free", metavar="QB,QE,RB,RE",
        help="instead of --span: symbols that may stay unaligned at the query's begin and end "
        "and the reference's begin and end",
    )  # fmt: skip
    group.add_argument(
        "--matrix", metavar="NAME|FILE|MATCH,MISMATCH",
        help="matrix: NUC.4.4 (nucleotides), BLOSUM45, 50, 62, 80 or 90, PAM30, 70 or 250 (amino "
        "acids), another name that the package biopython has, a file in BLAST's form (./FILE where "
        "a matrix has its name), or the scores of equal and different bases, as 2,-3 (default: "
        "NUC.4.4: equal bases 5, different ones -4)",
    )  # fmt: skip
    group.add_argument(
        "--gaps", metavar="O,E",
        help="matrix: gap open and extend; a gap of n costs O + n E (default: 10,1)",
    )  # fmt: skip
    group.add_argument("--score-only", action="store_true", help="no CIGAR: faster")
    group.add_argument(
        "--max-score", type=int, metavar="N",
        help="give up on pairs above this distance or penalty; their status is over_limit",
    )  # fmt: skip
    group.add_argument(
        "--penalties", metavar="X,O,E[,O2,E2]",
        help="affine: mismatch, gap open, gap extend; a gap of n costs O + n E, or with five "
        "numbers the lower of that and O2 + n E2 (on the CPU) (default: 4,6,2)",
    )  # fmt: skip
    group.add_argument(
        "--scores", metavar="A,B,O,E",
        help="affine with --span extension: match, mismatch, gap open, gap extend; a gap of n "
        "costs O + n E (default: 1,4,6,1)",
    )  # fmt: skip
    group.add_argument(
        "--x-drop", type=int, metavar="N",
        help="affine with --span extension: heuristic that drops cells more than N below the best "
        "score so far; pairs that lost some have the status heuristic (default: exact)",
    )  # fmt: skip
    group.add_argument(
        "--band", metavar="WIDTH,INTERVAL",
        help="affine: heuristic that keeps WIDTH diagonals, chosen anew every INTERVAL "
        "penalties; pairs that may be suboptimal have the status heuristic (default: exact)",
    )  # fmt: skip
    group.add_argument(
        "--symbols", choices=("dna", "iupac", "bytes"), default=None,
        help="edit and affine: what matches; dna: A C G T, other IUPAC letters match nothing; "
        "iupac: each letter matches itself; bytes: any text (default: dna)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Align, then report."""
    span = _span(args)
    _check_output(args)
    with ExitStack() as held:
        if args.all_vs_all:
            done = _align_sets(args, span, held)
        elif args.format is not None:
            raise UsageError("--format belongs to --all-vs-all")
        else:
            engine = engine_of(args, span, held)

            from mapper.align.files import align_files

            done = align_files(args.pairs, args.output, engine, with_spans=span != "global")
    statuses = ", ".join(f"{n} {name}" for name, n in done.by_status.items())
    log.info("%d pairs%s", done.n_pairs, f": {statuses}" if statuses else "")
    return 0


def _check_output(args: argparse.Namespace) -> None:
    """Raise UsageError if the output would overwrite a file of sequences."""
    from mapper.io.input_file import same_file
    from mapper.io.output_file import STDOUT

    if args.output != STDOUT and any(same_file(args.output, path) for path in args.pairs):
        raise UsageError(f"{args.output} is a file of sequences; name another output")


def _span(args: argparse.Namespace) -> Span:
    if args.ends_free is None:
        return args.span or "global"
    if args.span is not None:
        raise UsageError("--span and --ends-free exclude each other; give one")
    a, b, c, d = numbers("--ends-free", args.ends_free, 4)
    return a, b, c, d


def _align_sets(args: argparse.Namespace, span: Span, held: ExitStack) -> StreamCounts:
    """Align all sequences of the sets with each other."""
    if args.metric != "matrix":
        raise UsageError("--all-vs-all belongs to --metric matrix")
    check_options(args, held)
    options = matrix_options(args, span)

    from mapper.align.files import align_sets

    return align_sets(args.pairs, args.output, form=args.format or "tsv", **options)
