"""Core of seeding: exact seeds of one read by backward search, and the layout of seeds.

A seed is a stretch of the read as given. Its occurrences on the forward strand are found
by searching it; those on the reverse strand by searching its reverse complement, which
backward search reads from the seed's first base to its last. Both searches lengthen a
pattern at its left end: for strand 0 towards the start of the read, for strand 1 towards
its end.

**Layout.** Round 1 places disjoint seeds end to end over each stretch of the read without ambiguous
bases: with n seeds, every locus that differs from the read in fewer than n bases contains
one of them, so the read's best locus and its near-equals are all found (pigeonhole).
Round 2 starts a seed every few bases, round 3 at every base with shorter seeds.
"""

from __future__ import annotations

import math

import numpy as np

from mapper.index.fm import extend_left, extend_unique, kmer_interval
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import prefetch
from mapper.params import AnchorParams, MapParams, SeedParams

FEW_LEFT = 2
"""Bases of a seed beyond the table's k that are searched rather than located and compared."""

NO_KMER = -1
"""The seed has no k-mer of the table."""


@core
def pattern_base(codes, start, end, strand, i):
    """Return base `i`, counted from the right end, of the pattern for ``codes[start:end]``.

    i may exceed the seed's length: the pattern continues into the read.
    """
    if strand == 0:
        return np.int32(codes[np.uint64(end - 1 - i)])
    return np.int32(3 - np.int32(codes[np.uint64(start + i)]))


@core
def table_kmer(fm, codes, start, end, strand):
    """Return the last bases of a seed's pattern as an index of the k-mer table.

    Parameters
    ----------
    fm
        FMIndex.
    codes
        uint8 base codes that hold the seed at ``start:end``, none ambiguous.
    strand
        0 or 1.

    Returns
    -------
    The k-mer; NO_KMER without a table, or if its k exceeds the seed's length.
    """
    if fm.kmer_len == 0 or fm.kmer_len > end - start:
        return np.int64(NO_KMER)
    kmer = np.int32(0)  # of up to 14 bases
    for i in range(np.int32(fm.kmer_len)):
        kmer = np.int32(kmer | (pattern_base(codes, start, end, strand, i) << (2 * i)))
    return np.int64(kmer)


@core
def begin_seed(fm, kmer):
    """Look up the k-mer of :func:`table_kmer`.

    Returns
    -------
    sa_lo, sa_hi, length
        Rows of the last `length` bases of the pattern: all rows and 0 with NO_KMER.
    """
    if kmer == NO_KMER:
        return np.int64(0), np.int64(fm.n_rows), np.int64(0)
    sa_lo, sa_hi = kmer_interval(fm, kmer)
    return sa_lo, sa_hi, np.int64(fm.kmer_len)


@core
def prefetch_step(fm, sa_lo, sa_hi, is_last):
    """Prefetch the memory that the next search step reads, or locating if `is_last`.

    Also where both rows have one block, or the next step has nothing to search: a branch that is
    not foreseen takes longer than a prefetch.
    """
    if fm.sa_shift == 0 and is_last:
        prefetch(fm.sa_samples, sa_lo)
        return
    width = fm.blocks.shape[1]
    prefetch(fm.blocks, (sa_lo >> fm.occ_shift) * width)
    prefetch(fm.blocks, (sa_hi >> fm.occ_shift) * width)


@core
def rows_compared(fm, seed_len):
    """Return with how many rows left a search ends on the CPU, for text and read to be compared."""
    return np.int64(0) if seed_len - fm.kmer_len <= FEW_LEFT else np.int64(1)


@core
def narrow_seeds(fm, codes, seed_len, scratch, first, n, lanes):
    """Search seeds until each is complete or has at most one row left.

    All seeds take a step in turn. A device runs this: its threads hide the time that memory takes.

    Parameters
    ----------
    scratch
        Rows ``first:first + n`` hold ``start`` (on `codes`) and ``strand``; ``sa_lo``,
        ``sa_hi`` and ``length`` get the rows of the last ``length`` bases of each pattern.
    lanes
        Share the seeds.
    """
    n_lanes = np.int32(lanes.n_lanes)
    for row in range(np.int32(first + lanes.lane), np.int32(first + n), n_lanes):
        i = np.uint32(row)
        start = np.int64(scratch.start[i])
        kmer = table_kmer(fm, codes, start, start + seed_len, scratch.strand[i])
        sa_lo, sa_hi, length = begin_seed(fm, kmer)
        scratch.sa_lo[i] = sa_lo
        scratch.sa_hi[i] = sa_hi
        scratch.length[i] = length
    seed_len = np.int32(seed_len)
    is_alive = n > 0
    while is_alive:
        is_alive = False
        for row in range(np.int32(first + lanes.lane), np.int32(first + n), n_lanes):
            i = np.uint32(row)
            sa_lo = scratch.sa_lo[i]
            sa_hi = scratch.sa_hi[i]
            length = scratch.length[i]
            if length < seed_len and sa_lo + 1 < sa_hi:
                start = np.int64(scratch.start[i])
                base = pattern_base(codes, start, start + seed_len, scratch.strand[i], length)
                sa_lo, sa_hi = extend_left(fm, base, sa_lo, sa_hi)
                scratch.sa_lo[i] = sa_lo
                scratch.sa_hi[i] = sa_hi
                scratch.length[i] = length + 1
                is_alive = True


@core
def base_ahead(codes, seed_len, scratch, row):
    """Return the base by which the pattern of a row of `scratch` grows next."""
    start = np.int64(scratch.start[row])
    return pattern_base(codes, start, start + seed_len, scratch.strand[row], scratch.length[row])


@core
def narrow_together(fm, codes, seed_len, scratch, first, n):
    """Search seeds as :func:`narrow_seeds` does, on the CPU: memory is fetched beforehand.

    Memory accesses of different seeds overlap, those of one seed do not; above all those of the
    k-mer table, which is in no cache. Where few bases remain beyond the table's k, seeds with one
    row are completed as well: if the read is not of this text, most fail at the first of these
    bases. The seeds that occur are the same either way.
    """
    for row in range(first, first + n):
        start = np.int64(scratch.start[row])
        kmer = table_kmer(fm, codes, start, start + seed_len, scratch.strand[row])
        scratch.sa_lo[row] = kmer
        prefetch(fm.kmer_starts, kmer)
    most_rows = rows_compared(fm, seed_len)
    going = scratch.order  # free until the seeds are sorted
    n_going = np.int64(0)
    for row in range(first, first + n):
        sa_lo, sa_hi, length = begin_seed(fm, scratch.sa_lo[row])
        scratch.sa_lo[row], scratch.sa_hi[row], scratch.length[row] = sa_lo, sa_hi, length
        goes_on = (length < seed_len) & (sa_hi - sa_lo > most_rows)
        prefetch_step(fm, sa_lo, sa_hi, not goes_on)
        going[first + n_going] = row  # if it does not go on, the next row takes its place
        n_going += goes_on
    while n_going > 0:
        n_left = np.int64(0)
        for i in range(first, first + n_going):
            row = going[i]
            base = base_ahead(codes, seed_len, scratch, row)
            sa_lo, sa_hi = extend_left(fm, base, scratch.sa_lo[row], scratch.sa_hi[row])
            length = scratch.length[row] + 1
            scratch.sa_lo[row], scratch.sa_hi[row], scratch.length[row] = sa_lo, sa_hi, length
            goes_on = (length < seed_len) & (sa_hi - sa_lo > most_rows)
            prefetch_step(fm, sa_lo, sa_hi, not goes_on)
            going[first + n_left] = row
            n_left += goes_on
        n_going = n_left


@core
def complete_unique(fm, codes, start, end, strand, row, length):
    """Search the rest of a seed whose last `length` bases have one row; return its row or -1."""
    while length < end - start and row >= 0:
        row = extend_unique(fm, pattern_base(codes, start, end, strand, length), row)
        length += 1
    return row


@core
def lengthen_seed(fm, codes, start, end, strand, sa_lo, sa_hi, room, extend_over):
    """Lengthen a complete seed while it is frequent.

    Parameters
    ----------
    room
        Bases available beyond the seed, on the side where its pattern grows.
    extend_over
        The seed is lengthened while it has more rows than this, there is room, and the
        longer pattern still occurs.

    Returns
    -------
    sa_lo, sa_hi, length
        Rows of the pattern and its length.
    """
    length = end - start
    longest = length + room
    while sa_hi - sa_lo > extend_over and length < longest:
        next_lo, next_hi = extend_left(
            fm, pattern_base(codes, start, end, strand, length), sa_lo, sa_hi
        )
        if next_lo >= next_hi:
            break
        sa_lo = next_lo
        sa_hi = next_hi
        length += 1
    return sa_lo, sa_hi, length


@core
def _room_of(scratch, i, seed_len, first_base, end_base):
    """Return the bases by which the pattern of a seed may grow."""
    start = np.int64(scratch.start[i])
    return start - first_base if scratch.strand[i] == 0 else end_base - start - seed_len


@core
def _is_frequent(scratch, i, seed_len, extend_over):
    """Return True if a seed is complete and has more rows than it may have."""
    n_rows = scratch.sa_hi[i] - scratch.sa_lo[i]
    return scratch.length[i] == seed_len and n_rows > max(extend_over, 1)


@core
def lengthen_seeds(fm, codes, seed_len, first_base, end_base, extend_over, scratch, first, n,
                   lanes):  # fmt: skip
    """Lengthen complete seeds, one after another, each by one of the `lanes`; on a device.

    Parameters
    ----------
    first_base, end_base, extend_over, scratch, first, n
        As for :func:`lengthen_together`, which has the same results.
    """
    for i in range(first + lanes.lane, first + n, lanes.n_lanes):
        if _is_frequent(scratch, i, seed_len, extend_over):
            start = np.int64(scratch.start[i])
            sa_lo, sa_hi, length = lengthen_seed(
                fm, codes, start, start + seed_len, scratch.strand[i], scratch.sa_lo[i],
                scratch.sa_hi[i], _room_of(scratch, i, seed_len, first_base, end_base), extend_over,
            )  # fmt: skip
            scratch.sa_lo[i], scratch.sa_hi[i], scratch.length[i] = sa_lo, sa_hi, length


@core
def lengthen_together(fm, codes, seed_len, first_base, end_base, extend_over, scratch, first, n):
    """Lengthen complete seeds as :func:`lengthen_seed` does, on the CPU: a step of all in turn.

    Parameters
    ----------
    first_base, end_base
        Bounds on `codes` of the bases that seeds may grow into.
    scratch
        Rows ``first:first + n`` are as :func:`narrow_seeds` leaves them. Those of seeds with
        several rows get the rows and the length of the lengthened pattern.
    """
    growing = scratch.order  # free until the seeds are sorted
    n_growing = np.int64(0)
    for i in range(first, first + n):
        if _is_frequent(scratch, i, seed_len, extend_over):
            growing[first + n_growing] = i
            n_growing += 1
            prefetch_step(fm, scratch.sa_lo[i], scratch.sa_hi[i], False)
    while n_growing > 0:
        n_left = np.int64(0)
        for j in range(first, first + n_growing):
            i = growing[j]
            length = np.int64(scratch.length[i])
            if length >= seed_len + _room_of(scratch, i, seed_len, first_base, end_base):
                continue
            base = base_ahead(codes, seed_len, scratch, i)
            sa_lo, sa_hi = extend_left(fm, base, scratch.sa_lo[i], scratch.sa_hi[i])
            if sa_lo >= sa_hi:
                continue
            scratch.sa_lo[i], scratch.sa_hi[i] = sa_lo, sa_hi
            scratch.length[i] = length + 1
            if sa_hi - sa_lo > extend_over:
                growing[first + n_left] = i
                n_left += 1
                prefetch_step(fm, sa_lo, sa_hi, False)
        n_growing = n_left


# --- layout: where seeds start, and how long they are ---


def resolve(params: SeedParams, text_len: int) -> SeedParams:
    """Fill in the seed lengths that depend on the text's length.

    A random pattern of length ``log4(2 n)`` is expected once on the two strands of n
    bases. Seeds are 6 bases longer, which makes a chance hit one in 4000 seeds; the
    last round's are 2 longer.
    """
    once = math.ceil(math.log(2 * max(text_len, 1), 4))
    return params._replace(
        seed_len=params.seed_len or min(max(once + 6, 15), 22),
        last_len=params.last_len or min(max(once + 2, 10), 18),
    )


def resolve_anchors(params: AnchorParams, text_len: int) -> AnchorParams:
    """Fill in the window length that depends on the text's length.

    Three bases more than a random pattern needs to be expected once, as for :func:`resolve`.
    """
    once = math.ceil(math.log(2 * max(text_len, 1), 4))
    return params._replace(seed_len=params.seed_len or min(max(once + 3, 13), 17))


def resolve_all(params: MapParams, text_len: int) -> MapParams:
    """Fill in the seed lengths of all looks; those of later ones are not the longer ones."""
    second = resolve_anchors(params.long.second_look, text_len)
    params = params._replace(long=params.long._replace(second_look=second))
    seed = resolve(params.seed, text_len)

    def again(look: SeedParams) -> SeedParams:
        look = resolve(look, text_len)
        return look._replace(seed_len=min(seed.seed_len, look.seed_len))

    return params._replace(
        seed=seed, second_look=again(params.second_look), third_look=again(params.third_look)
    )


@core
def n_disjoint(stretch, seed_len):
    """Return the number of seeds of round 1 on a stretch; two overlap if one does not cover it."""
    if stretch < seed_len:
        return 0
    if stretch < 2 * seed_len:
        return 2 if stretch > seed_len else 1
    return stretch // seed_len


@core
def disjoint_start(stretch, seed_len, n_seeds, i):
    """Return the start of seed i of `n_seeds`, spread evenly so that both ends are covered."""
    if n_seeds == 1:
        return np.int32(0)
    # Below 2^32 for reads of up to 65536 bases; a device divides 64-bit numbers in a function.
    return np.int32(np.uint32(i * (stretch - seed_len)) // np.uint32(n_seeds - 1))


@core
def seed_start(stretch, seed_len, step, n_seeds, i):
    """Return the start of seed i of a stretch; with `step` 0 seeds are disjoint."""
    if step == 0:
        return disjoint_start(stretch, seed_len, n_seeds, i)
    return np.int32(i * step)
