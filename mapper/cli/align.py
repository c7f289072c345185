"""``fmwave align``: align pairs of sequences from files."""

from __future__ import annotations

import argparse
import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from mapper.errors import UsageError

if TYPE_CHECKING:
    from mapper.pairwise.spans import Span
    from mapper.pairwise.stream import Engine, StreamCounts

log = logging.getLogger(__name__)

METRICS = ("edit", "affine", "matrix")
SPANS = ("global", "semiglobal", "prefix", "local", "extension")
_ONLY_WITH = {
    "penalties": ("affine",),
    "scores": ("affine",),
    "band": ("affine",),
    "matrix": ("matrix",),
    "gaps": ("matrix",),
    "ends_free": ("edit", "affine"),
    "max_score": ("edit", "affine"),
    "symbols": ("edit", "affine"),
}
"""Options that only some metrics know."""


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
        "--matrix", metavar="NAME|MATCH,MISMATCH",
        help="matrix: BLOSUM62, PAM250, ... (needs the package biopython), or the scores of equal "
        "and different bases, as 2,-3 (default: BLOSUM62)",
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
        "--penalties", metavar="X,O,E",
        help="affine: mismatch, gap open, gap extend; a gap of n costs O + n E (default: 4,6,2)",
    )  # fmt: skip
    group.add_argument(
        "--scores", metavar="A,B,O,E",
        help="affine with --span extension: match, mismatch, gap open, gap extend; a gap of n "
        "costs O + n E (default: 1,4,6,1)",
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
            engine = _engine(args, span, held)

            from mapper.pairwise.stream import align_files

            done = align_files(args.pairs, args.output, engine, with_spans=span != "global")
    statuses = ", ".join(f"{n} {name}" for name, n in done.by_status.items())
    log.info("%d pairs%s", done.n_pairs, f": {statuses}" if statuses else "")
    return 0


def _check_output(args: argparse.Namespace) -> None:
    """Refuse to write over a file of sequences."""
    from mapper.io.atomic import STDOUT
    from mapper.io.source import same_file

    if args.output != STDOUT and any(same_file(args.output, path) for path in args.pairs):
        raise UsageError(f"{args.output} is a file of sequences; name another output")


def _span(args: argparse.Namespace) -> Span:
    if args.ends_free is None:
        return args.span or "global"
    if args.span is not None:
        raise UsageError("--span and --ends-free exclude each other; give one")
    a, b, c, d = _numbers("--ends-free", args.ends_free, 4)
    return a, b, c, d


def _numbers(option: str, text: str, n: int) -> list[int]:
    """Parse `n` whole numbers with commas between."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != n or min(numbers) < 0:
        raise UsageError(
            f"{option} {text}: {n} numbers, 0 or more with commas between are expected"
        )
    return numbers


def _align_sets(args: argparse.Namespace, span: Span, held: ExitStack) -> StreamCounts:
    """Align all with all."""
    if args.metric != "matrix":
        raise UsageError("--all-vs-all belongs to --metric matrix")
    _check_options(args, held)
    options = _matrix_options(args, span)

    from mapper.pairwise.stream_all import align_sets

    return align_sets(args.pairs, args.output, form=args.format or "tsv", **options)


def _check_options(args: argparse.Namespace, held: ExitStack) -> None:
    """Refuse options that do not belong to the metric; choose the device, `held` so long."""
    from mapper.pairwise.run import thread_count

    thread_count(args.threads)
    args.device = _device(args, held)
    if args.max_score is not None and args.max_score < 0:
        raise UsageError(f"--max-score {args.max_score}: 0 or more is expected")
    for option, metrics in _ONLY_WITH.items():
        if getattr(args, option) is not None and args.metric not in metrics:
            name = option.replace("_", "-")
            raise UsageError(f"--{name} belongs to --metric {' or '.join(metrics)}")


def _engine(args: argparse.Namespace, span: Span, held: ExitStack) -> Engine:
    """Return what aligns a batch."""
    from mapper.pairwise.edit import edit_distance

    _check_options(args, held)
    if args.scores is not None and span != "extension":
        raise UsageError("--scores belongs to --span extension; penalties are --penalties")
    if args.metric == "affine" and span == "extension":
        return _extension_engine(args)
    if args.metric == "affine":
        return _affine_engine(args, span)
    if args.metric == "matrix":
        return _matrix_engine(args, span)
    return lambda batch, first_pair: edit_distance(
        batch, span=span, cigar=not args.score_only, max_distance=args.max_score,
        symbols=args.symbols or "dna", device=args.device, threads=args.threads,
        first_pair=first_pair,
    )  # fmt: skip


def _device(args: argparse.Namespace, held: ExitStack) -> str:
    """Choose the device once, before the first batch; return it in words."""
    from mapper.device.choose import CPU, hold_device

    choice = held.enter_context(hold_device(args.device))
    if choice.backend == CPU:
        return CPU
    return f"{choice.backend}:{','.join(map(str, choice.ordinals))}"


def _affine_engine(args: argparse.Namespace, span: Span) -> Engine:
    from mapper.pairwise.affine import DEFAULT_PENALTIES, align_affine, check_band, check_penalties

    penalties = DEFAULT_PENALTIES
    if args.penalties is not None:
        x, o, e = _numbers("--penalties", args.penalties, 3)
        penalties = check_penalties((x, o, e))
    band = None
    if args.band is not None:
        width, interval = _numbers("--band", args.band, 2)
        band = check_band((width, interval))
    return lambda batch, first_pair: align_affine(
        batch, penalties=penalties, span=span, cigar=not args.score_only,
        max_penalty=args.max_score, band=band, symbols=args.symbols or "dna",
        device=args.device, threads=args.threads, first_pair=first_pair,
    )  # fmt: skip


def _extension_engine(args: argparse.Namespace) -> Engine:
    from mapper.pairwise.extension import DEFAULT_SCORES, align_extension, check_scores

    for option in ("penalties", "band", "max_score"):
        if getattr(args, option) is not None:
            name = option.replace("_", "-")
            raise UsageError(f"--{name} does not go with --span extension, which has --scores")
    scores = DEFAULT_SCORES
    if args.scores is not None:
        a, b, o, e = _numbers("--scores", args.scores, 4)
        scores = (a, b, o, e)
    check_scores(scores)
    return lambda batch, first_pair: align_extension(
        batch, scores=scores, cigar=not args.score_only, symbols=args.symbols or "dna",
        device=args.device, threads=args.threads, first_pair=first_pair,
    )  # fmt: skip


def _matrix_engine(args: argparse.Namespace, span: Span) -> Engine:
    from mapper.pairwise.matrix import align_matrix

    options = _matrix_options(args, span)
    return lambda batch, first_pair: align_matrix(batch, first_pair=first_pair, **options)


def _matrix_options(args: argparse.Namespace, span: Span) -> dict[str, Any]:
    """Return the options of :func:`mapper.align_matrix`."""
    from mapper.pairwise.matrices import substitution_matrix
    from mapper.pairwise.matrix_scoring import DEFAULT_GAPS, MODES, check_gaps

    if not isinstance(span, str) or span not in MODES:
        raise UsageError(f"--span {span}: with --metric matrix, {', '.join(MODES)} are possible")
    table = substitution_matrix(_matrix(args.matrix or "BLOSUM62"))
    gaps = DEFAULT_GAPS
    if args.gaps is not None:
        gap_open, gap_extend = _numbers("--gaps", args.gaps, 2)
        gaps = check_gaps((gap_open, gap_extend))
    return {
        "matrix": table, "gaps": gaps, "span": span, "cigar": not args.score_only,
        "device": args.device, "threads": args.threads,
    }  # fmt: skip


def _matrix(text: str) -> str | tuple[int, int]:
    if "," not in text:
        return text
    try:
        match, mismatch = (int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--matrix {text}: a name, or two whole numbers, as 2,-3") from None
    return match, mismatch
