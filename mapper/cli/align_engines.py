"""The engine of ``fmwave align``: a function that aligns a batch as the options say."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.errors import UsageError

if TYPE_CHECKING:
    from mapper.align.files import Engine
    from mapper.align.spans import Span

_ONLY_WITH = {
    "penalties": ("affine",),
    "scores": ("affine",),
    "band": ("affine",),
    "matrix": ("matrix",),
    "gaps": ("matrix",),
    "x_drop": ("affine",),
    "ends_free": ("edit", "affine"),
    "max_score": ("edit", "affine"),
    "symbols": ("edit", "affine"),
}
"""Options that only some metrics have."""

_SPAN_OF = {"local": "matrix", "extension": "affine"}
"""Spans that only one metric has."""


def numbers(option: str, text: str, n: int, or_else: str = "") -> list[int]:
    """Parse `n` whole numbers separated by commas; `or_else` says what else is expected."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != n or min(numbers) < 0:
        raise UsageError(
            f"{option} {text}: {n} numbers{or_else}, 0 or more with commas between are expected"
        )
    return numbers


def check_options(args: argparse.Namespace, held: ExitStack) -> None:
    """Raise UsageError for options of other metrics; choose the device, held by `held`."""
    from mapper.align.threads import thread_count

    thread_count(args.threads)
    args.device = _device(args, held)
    if args.max_score is not None and args.max_score < 0:
        raise UsageError(f"--max-score {args.max_score}: 0 or more is expected")
    for option, metrics in _ONLY_WITH.items():
        if getattr(args, option) is not None and args.metric not in metrics:
            name = option.replace("_", "-")
            raise UsageError(f"--{name} belongs to --metric {' or '.join(metrics)}")
    if _SPAN_OF.get(args.span, args.metric) != args.metric:
        raise UsageError(f"--span {args.span} belongs to --metric {_SPAN_OF[args.span]}")


def engine_of(args: argparse.Namespace, span: Span, held: ExitStack) -> Engine:
    """Return a function that aligns a batch."""
    from mapper.align.edit.api import edit_distance

    check_options(args, held)
    if args.scores is not None and span != "extension":
        raise UsageError("--scores belongs to --span extension; penalties are --penalties")
    if args.x_drop is not None and span != "extension":
        raise UsageError("--x-drop belongs to --span extension")
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
    """Choose the device once, before the first batch; return a value of ``--device``."""
    from mapper.cuda.devices import CPU, hold_device

    if _has_two_pieces(args):
        from mapper.align.affine.two_piece import TWO_PIECE_ALIGNED
        from mapper.align.dispatch import cpu_only

        return cpu_only(args.device, TWO_PIECE_ALIGNED)
    choice = held.enter_context(hold_device(args.device))
    if choice.backend == CPU:
        return CPU
    return f"{choice.backend}:{','.join(map(str, choice.ordinals))}"


def _has_two_pieces(args: argparse.Namespace) -> bool:
    """Return True if ``--penalties`` has the numbers of two-piece gaps."""
    return args.penalties is not None and args.penalties.count(",") == 4


def _affine_engine(args: argparse.Namespace, span: Span) -> Engine:
    from mapper.align.affine.api import (
        DEFAULT_PENALTIES,
        Penalties,
        align_affine,
        check_band,
        check_penalties,
    )
    from mapper.align.affine.two_piece import check_two_piece

    penalties: Penalties = DEFAULT_PENALTIES
    if args.penalties is not None:
        n, or_else = (5, "") if _has_two_pieces(args) else (3, ", or 5 for two-piece gaps")
        penalties = check_penalties(tuple(numbers("--penalties", args.penalties, n, or_else)))
    band = None
    if args.band is not None:
        width, interval = numbers("--band", args.band, 2)
        band = check_band((width, interval))
    if len(penalties) == 5:
        check_two_piece(band, args.device)
    return lambda batch, first_pair: align_affine(
        batch, penalties=penalties, span=span, cigar=not args.score_only,
        max_penalty=args.max_score, band=band, symbols=args.symbols or "dna",
        device=args.device, threads=args.threads, first_pair=first_pair,
    )  # fmt: skip


def _extension_engine(args: argparse.Namespace) -> Engine:
    from mapper.align.affine.api import DEFAULT_SCORES, align_extension, check_scores

    for option in ("penalties", "band", "max_score"):
        if getattr(args, option) is not None:
            name = option.replace("_", "-")
            raise UsageError(f"--{name} does not go with --span extension, which has --scores")
    scores = DEFAULT_SCORES
    if args.scores is not None:
        a, b, o, e = numbers("--scores", args.scores, 4)
        scores = (a, b, o, e)
    check_scores(scores)
    if args.x_drop is not None and args.x_drop < 0:
        raise UsageError(f"--x-drop {args.x_drop}: 0 or more is expected")
    return lambda batch, first_pair: align_extension(
        batch, scores=scores, x_drop=args.x_drop, cigar=not args.score_only,
        symbols=args.symbols or "dna", device=args.device, threads=args.threads,
        first_pair=first_pair,
    )  # fmt: skip


def _matrix_engine(args: argparse.Namespace, span: Span) -> Engine:
    from mapper.align.matrix.api import align_matrix

    options = matrix_options(args, span)
    return lambda batch, first_pair: align_matrix(batch, first_pair=first_pair, **options)


def matrix_options(args: argparse.Namespace, span: Span) -> dict[str, Any]:
    """Return the options of :func:`mapper.align_matrix`."""
    from mapper.align.matrix.scoring import (
        DEFAULT_GAPS,
        DEFAULT_MATRIX,
        MODES,
        check_gaps,
        substitution_matrix,
    )

    if not isinstance(span, str) or span not in MODES:
        raise UsageError(f"--span {span}: with --metric matrix, {', '.join(MODES)} are possible")
    table = substitution_matrix(_matrix(args.matrix or DEFAULT_MATRIX))
    gaps = DEFAULT_GAPS
    if args.gaps is not None:
        gap_open, gap_extend = numbers("--gaps", args.gaps, 2)
        gaps = check_gaps((gap_open, gap_extend))
    return {
        "matrix": table, "gaps": gaps, "span": span, "cigar": not args.score_only,
        "device": args.device, "threads": args.threads,
    }  # fmt: skip


def _matrix(text: str) -> str | Path | tuple[int, int]:
    from mapper.align.matrix.scoring import is_known

    if "/" in text or (Path(text).exists() and not is_known(text)):
        return Path(text)
    if "," not in text:
        return text
    try:
        match, mismatch = (int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"--matrix {text}: a name, a file, or two whole numbers, as 2,-3"
        ) from None
    return match, mismatch
