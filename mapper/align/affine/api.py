"""Gap-affine alignment and extension of lists of pairs: the public calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from math import gcd
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np

from mapper.align.affine.cpu import align_affine_source, align_one_affine
from mapper.align.affine.extension import NO_X_DROP, align_one_extension, extend_source
from mapper.align.affine.low_memory import Problem, with_long_paths
from mapper.align.affine.two_piece import align_two_piece, align_two_strings, check_two_piece
from mapper.align.affine.wavefront import AffinePenalties, Band
from mapper.align.dispatch import PairInput, align_pairs
from mapper.align.pairs import MAX_LENGTH, Sequences, limit_of
from mapper.align.parts import CpuPairs, run_pairs
from mapper.align.result import PairAlignment, PairAlignments
from mapper.align.single import (
    Align,
    PairResult,
    align_one,
    is_cpu,
    is_single,
    joined_letters,
    scalar_of,
)
from mapper.align.spans import Span, ends_of
from mapper.align.threads import check_threads, thread_count
from mapper.cuda.devices import choose_device
from mapper.errors import UsageError
from mapper.extend.wavefront import wavefront_penalties
from mapper.params import ExtendParams, TwoPieceScoring

if TYPE_CHECKING:
    from mapper.align.cuda.launch_plan import LaunchPlan
    from mapper.align.dispatch import Worker

DEFAULT_PENALTIES = (4, 6, 2)
"""Mismatch, gap open, gap extend: WFA2-lib's."""

Penalties = tuple[int, int, int] | tuple[int, int, int, int, int]
"""Mismatch, gap open, gap extend; open and extend of the second piece, if gaps have two."""

_PENALTIES_RULE = (
    "three whole numbers x, o, e are expected, or five for two-piece gaps, x, o1, e1, o2, e2"
)

MAX_PENALTY = 1000
"""Greatest single penalty; the workspace holds as many rows as the greatest looks back."""

DEFAULT_MEMORY = 1 << 30
"""Bytes that a thread may use for the origins of one path."""

_NO_LIMIT = 2**60


@overload
def align_affine(  # type: ignore[overload-overlap]
    queries: str | bytes,
    refs: str | bytes,
    *,
    penalties: Penalties = DEFAULT_PENALTIES,
    span: Span = "global",
    cigar: Literal[False] = False,
    max_penalty: int | None = None,
    band: tuple[int, int] | None = None,
    symbols: str = "dna",
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> int | None: ...


@overload
def align_affine(  # type: ignore[overload-overlap]
    queries: str | bytes,
    refs: str | bytes,
    *,
    penalties: Penalties = DEFAULT_PENALTIES,
    span: Span = "global",
    cigar: Literal[True],
    max_penalty: int | None = None,
    band: tuple[int, int] | None = None,
    symbols: str = "dna",
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignment: ...


@overload
def align_affine(
    queries: PairInput,
    refs: Sequences | None = None,
    *,
    penalties: Penalties = DEFAULT_PENALTIES,
    span: Span = "global",
    cigar: bool = False,
    max_penalty: int | None = None,
    band: tuple[int, int] | None = None,
    symbols: str = "dna",
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignments: ...


def align_affine(
    queries: Any,
    refs: Any = None,
    *,
    penalties: Penalties = DEFAULT_PENALTIES,
    span: Span = "global",
    cigar: bool = False,
    max_penalty: int | None = None,
    band: tuple[int, int] | None = None,
    symbols: str = "dna",
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignments | PairResult:
    """Align with the lowest gap-affine penalty, pair by pair.

    Parameters
    ----------
    queries, refs
        As for :func:`mapper.edit_distance`.
    penalties
        Mismatch x, gap open o and gap extend e, integers up to 1000, x and e at least 1: a
        gap of n symbols costs ``o + n * e``, a match nothing. Five numbers x, o1, e1, o2, e2 stand
        for two-piece gaps, which cost ``min(o1 + n * e1, o2 + n * e2)``: exact, without `band`, on
        the CPU, which ``device="auto"`` then means.
    span
        As for :func:`mapper.edit_distance`.
    cigar
        Also find an alignment: operations ``= X I D``.
    max_penalty
        Give pairs above it the status ``over_limit`` and no score.
    band
        Heuristic: ``(width, interval)`` keeps, every `interval` rows, the `width` diagonals
        around that which is closest to the end. Pairs from which cells were cut have the
        status ``heuristic``: valid, perhaps not optimal. None is exact.
    symbols
        What matches (``packing.py``).
    memory
        Bytes a thread may use for where the cells of one path came from. A pair that needs
        more is computed twice, or a few times, in stretches (``low_memory.py``), with the same
        result; one of which not even a row fits has the status ``no_memory``. With two-piece gaps
        a pair that needs more has it, too. Without CIGARs memory is O(s), with two-piece gaps O(n).
    device, threads, first_pair
        As for :func:`mapper.edit_distance`.

    Returns
    -------
    Of two strings a scalar, else :class:`mapper.align.result.PairAlignments`, as for
    :func:`mapper.edit_distance`. The score is the penalty.

    Raises
    ------
    UsageError, InputFormatError, DeviceError
        As for :func:`mapper.edit_distance`.

    Notes
    -----
    O(n s) time for length n and penalty s, worst; O(s) memory, and with CIGARs a byte a
    cell, at most ``s * (s - o) / e`` bytes, up to `memory`.

    References
    ----------
    Marco-Sola et al. (2021), doi:10.1093/bioinformatics/btaa777; Aguado-Puig et al. (2023),
    doi:10.1093/bioinformatics/btad061.

    Examples
    --------
    >>> align_affine("GATTACA", "GAATA")
    14
    >>> found = align_affine(["GATTACA"], ["GAATA"], cigar=True)
    >>> int(found.score[0]), found.cigar(0)
    (14, '2=1X2=2I')
    """
    free = ends_of(span)
    try:
        scaled, scale = _scaled((*penalties,))
    except (TypeError, ValueError) as error:  # no numbers
        raise UsageError(f"penalties {penalties!r}: {_PENALTIES_RULE}") from error
    limit = _NO_LIMIT
    if max_penalty is not None:
        limit = limit_of("max_penalty", max_penalty, _NO_LIMIT) // scale
    if isinstance(scaled, TwoPieceScoring):
        check_two_piece(band, device)
        check_memory(memory)
        alone = is_single(queries, refs)
        letters = joined_letters(queries, refs) if alone else None
        if letters is not None:
            check_threads(threads)
            return align_two_strings(
                letters, free, scaled, scale=scale, limit=limit, cigar=cigar, symbols=symbols,
                memory=memory, first_pair=first_pair,
            )  # fmt: skip
        all_found = align_two_piece(
            [queries] if alone else queries, [refs] if alone else refs,
            free, scaled, scale=scale, limit=limit, cigar=cigar,
            symbols=symbols, memory=memory, threads=threads, first_pair=first_pair,
        )  # fmt: skip
        return scalar_of(all_found) if alone else all_found
    cut = Band(0, 1) if band is None else Band(*check_band(band))
    check_memory(memory)
    if is_single(queries, refs):
        letters = joined_letters(queries, refs)
        if letters is not None and is_cpu(device):
            check_threads(threads)
            run = partial(align_one_affine, *free, *scaled, scale, *cut, limit, memory)
            found = align_one(run, letters, symbols, cigar, first_pair)
            if not (isinstance(found, PairAlignment) and found.status == "no_memory"):
                return found
        return scalar_of(
            align_affine(
                [queries], [refs], penalties=penalties, span=span, cigar=cigar,
                max_penalty=max_penalty, band=band, symbols=symbols, memory=memory, device=device,
                threads=threads, first_pair=first_pair,
            )
        )  # fmt: skip

    others = free, scaled, scale, cut, limit, memory, cigar

    def on_cpu(pairs: CpuPairs) -> PairAlignments:
        found = run_pairs(align_affine_source, others, pairs, cigar, threads)
        problem = Problem(free, scaled, scale, cut, limit, memory)
        return with_long_paths(found, pairs, problem, thread_count(threads)) if cigar else found

    def on_device(ordinal: int) -> Worker:
        from mapper.align.affine.cuda_general import AffineWorker

        return AffineWorker(ordinal, free, scaled, scale, limit, cut)

    def plan() -> LaunchPlan:
        from mapper.align.affine.cuda_plan import AffinePlan

        return AffinePlan(scaled, scale, limit, cut)

    return align_pairs(
        queries, refs, choice=choose_device(device), symbols=symbols, first_pair=first_pair,
        threads=threads, cigar=cigar, on_cpu=on_cpu, on_device=on_device,
        plan=plan if sum(free) == 0 else None,
    )  # fmt: skip


def check_memory(memory: int) -> None:
    """Raise UsageError for less memory than the first workspace takes."""
    if not isinstance(memory, (int, np.integer)) or memory < 1 << 16:
        raise UsageError(f"memory {memory!r}: at least 65536 bytes are expected")


def check_band(band: tuple[int, int]) -> tuple[int, int]:
    """Return a band; raise UsageError if it is invalid."""
    try:
        width, interval = band
        if width >= 2 and interval >= 1:
            return int(width), int(interval)
    except (TypeError, ValueError):  # not two numbers
        pass
    raise UsageError(
        f"band {band!r}: a width of at least 2 and an interval of at least 1 are expected"
    )


def check_penalties(penalties: Sequence[int]) -> Penalties:
    """Return the penalties; raise UsageError if they are invalid."""
    if len(penalties) not in (3, 5) or any(int(p) != p for p in penalties):
        raise UsageError(f"penalties {penalties}: {_PENALTIES_RULE}")
    whole = tuple(int(p) for p in penalties)
    x, opens, extends = whole[0], whole[1::2], whole[2::2]
    if x < 1 or min(opens) < 0 or min(extends) < 1 or max(whole) > MAX_PENALTY:
        raise UsageError(
            f"penalties {','.join(map(str, whole))}: mismatch and gap extend from 1, gap open from "
            f"0, all up to {MAX_PENALTY} are expected"
        )
    return whole  # type: ignore[return-value]


# Kept for calls of two strings, which take little longer than checking penalties.
@lru_cache(maxsize=64)
def _scaled(penalties: tuple[int, ...]) -> tuple[AffinePenalties | TwoPieceScoring, int]:
    """Return checked penalties divided by what they have in common, and that number.

    Of two-piece gaps the piece of the flatter cost is the second.
    """
    numbers = check_penalties(penalties)
    scale = gcd(*numbers)
    x, *gaps = (number // scale for number in numbers)
    if len(gaps) == 2:
        return AffinePenalties(x, *gaps), scale
    o1, e1, o2, e2 = gaps
    if e2 > e1:
        o1, e1, o2, e2 = o2, e2, o1, e1
    return TwoPieceScoring(0, x, o1, e1, o2, e2, ambiguous=x), scale


DEFAULT_SCORES = (1, 4, 6, 1)
"""Match, mismatch, gap open, gap extend: bwa's."""

_SCORES_RULE = "four whole numbers a, b, o, e are expected"

MAX_SCORE = 200

_GREATEST_X_DROP = 4 * MAX_SCORE * MAX_LENGTH
"""More than any two scores of a pair differ by."""


@overload
def align_extension(  # type: ignore[overload-overlap]
    queries: str | bytes,
    refs: str | bytes,
    *,
    scores: tuple[int, int, int, int] = DEFAULT_SCORES,
    x_drop: int | None = None,
    cigar: Literal[False] = False,
    symbols: str = "dna",
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> int | None: ...


@overload
def align_extension(  # type: ignore[overload-overlap]
    queries: str | bytes,
    refs: str | bytes,
    *,
    scores: tuple[int, int, int, int] = DEFAULT_SCORES,
    x_drop: int | None = None,
    cigar: Literal[True],
    symbols: str = "dna",
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignment: ...


@overload
def align_extension(
    queries: PairInput,
    refs: Sequences | None = None,
    *,
    scores: tuple[int, int, int, int] = DEFAULT_SCORES,
    x_drop: int | None = None,
    cigar: bool = False,
    symbols: str = "dna",
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignments: ...


def align_extension(
    queries: Any,
    refs: Any = None,
    *,
    scores: tuple[int, int, int, int] = DEFAULT_SCORES,
    x_drop: int | None = None,
    cigar: bool = False,
    symbols: str = "dna",
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignments | PairResult:
    """Align the best-scoring prefixes of both sequences; the rest of the query is clipped.

    Parameters
    ----------
    queries, refs
        As for :func:`mapper.edit_distance`.
    scores
        Match bonus a, and what is subtracted: mismatch b, and ``o + n e`` for a gap of n
        symbols. Whole numbers up to 200; a, b and e at least 1, o at least 0.
    x_drop
        Heuristic: drop cells whose score is more than this below the best so far, in the order
        of rising penalties. Pairs that lost cells have the status ``heuristic``: valid, perhaps
        not optimal. None is exact.
    cigar
        Also find an alignment: operations ``= X I D``, and S for what is left of the query.
    symbols
        As for :func:`mapper.align_affine`.
    memory
        Bytes a thread may use for one path; a pair that needs more has the status
        ``no_memory`` and no score.
    device, threads, first_pair
        As for :func:`mapper.edit_distance`.

    Returns
    -------
    Of two strings a scalar, else :class:`mapper.align.result.PairAlignments`, as for
    :func:`mapper.edit_distance`. The score is at least 0: nothing aligned.

    Raises
    ------
    UsageError, InputFormatError, DeviceError
        As for :func:`mapper.edit_distance`.

    Notes
    -----
    O(s²) time for ``s = a (n + m) - 2 score``; without `x_drop` unlike sequences take up to the
    product of their lengths.

    References
    ----------
    Eizenga, Paten (2022), doi:10.1101/2022.01.12.476087: scores as penalties. Zhang et al.
    (2000), J. Comput. Biol. 7:203: X-drop.

    Examples
    --------
    >>> align_extension("ACGTACGTTTTTT", "ACGTACGTAAAAAA", cigar=True).cigar
    '8=5S'
    """
    try:
        match, penalties, drop, extend_one = _kept_scheme((*scores,), x_drop, memory)
    except (TypeError, ValueError) as error:  # no numbers
        raise UsageError(f"scores {scores!r}: {_SCORES_RULE}") from error
    if is_single(queries, refs):
        letters = joined_letters(queries, refs)
        if letters is not None and is_cpu(device):
            check_threads(threads)
            return align_one(extend_one, letters, symbols, cigar, first_pair)
        return scalar_of(
            align_extension(
                [queries], [refs], scores=scores, x_drop=x_drop, cigar=cigar, symbols=symbols,
                memory=memory, device=device, threads=threads, first_pair=first_pair,
            )
        )  # fmt: skip

    others = penalties, match, drop, memory, cigar

    def on_cpu(pairs: CpuPairs) -> PairAlignments:
        return run_pairs(extend_source, others, pairs, cigar, threads)

    def on_device(ordinal: int) -> Worker:
        from mapper.align.affine.cuda_general import ExtensionWorker

        return ExtensionWorker(ordinal, penalties, match, drop)

    return align_pairs(
        queries, refs, choice=choose_device(device), symbols=symbols, first_pair=first_pair,
        threads=threads, cigar=cigar, on_cpu=on_cpu, on_device=on_device, plan=None,
    )  # fmt: skip


def check_scores(scores: tuple[int, int, int, int]) -> tuple[int, AffinePenalties]:
    """Return the match bonus and the wavefront's penalties; raise UsageError for invalid scores."""
    if len(scores) != 4 or any(int(score) != score for score in scores):
        raise UsageError(f"scores {scores}: {_SCORES_RULE}")
    a, b, o, e = (int(score) for score in scores)
    if min(a, b, e) < 1 or o < 0 or max(a, b, o, e) > MAX_SCORE:
        raise UsageError(
            f"scores {a},{b},{o},{e}: match, mismatch and gap extend from 1, gap open from 0, all "
            f"up to {MAX_SCORE} are expected"
        )
    p = wavefront_penalties(ExtendParams(match=a, mismatch=b, gap_open=o, gap_extend=e))
    return a, AffinePenalties(p.mismatch, p.gap_open, p.gap_extend)


class _Scheme(NamedTuple):
    """How pairs are extended."""

    match: int
    penalties: AffinePenalties
    drop: int
    one: Align
    """Extends a pair of two strings."""


@lru_cache(maxsize=64)
def _kept_scheme(scores: tuple[int, int, int, int], x_drop: int | None, memory: int) -> _Scheme:
    """Check the numbers of an extension, once: two strings are extended in ten microseconds."""
    match, penalties = check_scores(scores)
    drop = NO_X_DROP if x_drop is None else limit_of("x_drop", x_drop, _GREATEST_X_DROP)
    check_memory(memory)
    one = partial(align_one_extension, *penalties, match, drop, memory)
    return _Scheme(match, penalties, drop, one)
