"""Pack, merge, left-align and print CIGAR operations.

An operation is ``length << 4 | code`` (uint32). Inside the mapper the codes are
``= X I D`` (SAM: I consumes the read only, D the reference only); soft clips and, by
option, M appear when records are made.
"""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core

LETTERS = "MIDNSHP=X"
ASCII_OF_OP = np.frombuffer(LETTERS.ljust(16, "?").encode(), np.uint8).copy()
M, I, D, N, S, H, P, EQUAL, X = range(9)  # noqa: E741  (SAM's letters)


class _Texts(dict[int, str]):
    """Text of operations, kept of the common ones: making it takes longer than looking it up."""

    def __missing__(self, op: int) -> str:
        text = f"{op >> 4}{LETTERS[op & 15]}"
        if op >> 4 < _KEPT_LENGTHS:
            self[op] = text
        return text


_KEPT_LENGTHS = 512
_texts = _Texts()


def to_text(cigar_ops: np.ndarray) -> str:
    """Return the SAM text of packed operations, uint32 (``*`` for none)."""
    if len(cigar_ops) == 0:
        return "*"
    return "".join(map(_texts.__getitem__, cigar_ops.tolist()))


def from_text(text: str) -> np.ndarray:
    """Return the packed operations (uint32) of SAM text."""
    ops, length = [], 0
    for char in "" if text == "*" else text:
        if char.isdigit():
            length = 10 * length + int(char)
        else:
            ops.append(length << 4 | LETTERS.index(char))
            length = 0
    return np.array(ops, np.uint32)


@core
def measure(cigar_ops, start, end):
    """Measure the alignment of ``cigar_ops[start:end]``.

    Returns
    -------
    Clipped bases before it, and after it; bases of the read, and of the reference, that it covers;
    and its length, gaps included.
    """
    left, right = np.int64(0), np.int64(0)
    on_query, on_ref, block = np.int64(0), np.int64(0), np.int64(0)
    for i in range(start, end):
        op = np.int64(cigar_ops[i])
        code, length = op & 15, op >> 4
        if code == S or code == H:
            if block == 0:
                left += length
            else:
                right += length
            continue
        block += length
        on_query += 0 if code == D else length
        on_ref += 0 if code == I else length
    return left, right, on_query, on_ref, block


@core
def count_events(cigar_ops, start, end):
    """Return the numbers of columns and of differences of ``= X I D``; a gap is one of each."""
    columns, differences = np.int64(0), np.int64(0)
    for i in range(start, end):
        code, length = np.int64(cigar_ops[i] & 15), np.int64(cigar_ops[i] >> 4)
        events = length if code == EQUAL or code == X else np.int64(1)
        columns += events
        differences += 0 if code == EQUAL else events
    return columns, differences


@core
def append_op(ops, n_ops, code, length):
    """Append `length` of one operation, merging it with the last; return the new count."""
    if length == 0:
        return n_ops
    if n_ops > 0:
        last = np.uint32(n_ops - 1)
        if (ops[last] & 15) == code:
            ops[last] += np.uint32(length << 4)
            return n_ops
    ops[np.uint32(n_ops)] = np.uint32((length << 4) | code)
    return np.int32(n_ops + 1)


@core
def base_at(planes, word, pos):
    """Return the base at `pos` of a packed sequence: 0 to 3, or 4 if ambiguous."""
    w = np.uint64(word + (pos >> 6))
    bit = np.uint64(pos & 63)
    one = np.uint64(1)
    if (planes[w, 2] >> bit) & one:
        return np.int32(4)
    return np.int32(((planes[w, 0] >> bit) & one) | (((planes[w, 1] >> bit) & one) << one))


@core
def _room_on_left(code, length, most, read_planes, read_word, query, ref_planes, text):
    """Return by how many bases a gap moves left through matches, `most` at most.

    It begins at `query` and `text`, and moves by one where the base before it equals its own last.
    """
    moved = np.int32(0)
    while moved < most:
        if code == I:
            before = np.int32(query - 1 - moved)
            same = base_at(read_planes, read_word, np.int32(before + length)) == base_at(
                read_planes, read_word, before
            )
        else:
            text_before = text - 1 - moved
            same = base_at(ref_planes, 0, text_before + length) == base_at(
                ref_planes, 0, text_before
            )
        if not same:
            break
        moved = np.int32(moved + 1)
    return moved


@core
def left_align(ops, n_ops, read_planes, read_word, query_start, ref_planes, text_start):
    """Move every gap between matches as far left as it goes without changing the score, in place.

    A gap moves by one base where the base before it equals its own last base and is in a run of
    matches. At least one match of the run stays: gaps do not swap or reach an end.
    """
    query = np.int32(query_start)
    text = text_start
    for i in range(n_ops):
        code = ops[i] & 15
        length = np.int32(ops[i] >> 4)
        gap = code == I or code == D
        if gap and 0 < i < n_ops - 1 and (ops[i - 1] & 15) == EQUAL and (ops[i + 1] & 15) == EQUAL:
            most = np.int32(np.int32(ops[i - 1] >> 4) - 1)
            moved = _room_on_left(
                code, length, most, read_planes, read_word, query, ref_planes, text
            )
            ops[i - 1] -= np.uint32(moved << 4)
            ops[i + 1] += np.uint32(moved << 4)
            query = np.int32(query - moved)
            text -= moved
        if code != D:
            query = np.int32(query + length)
        if code != I:
            text += length


@core
def part_from_mismatches(ops, first, end, read_planes, read_word, query_end, ref_planes, text_end):
    """Move gaps that a mismatch follows left, as :func:`left_align` does those between matches.

    The matches that a gap passes come behind it, as an operation of their own.

    Parameters
    ----------
    ops
        Holds operations ``first:end``, and may be overwritten behind them.
    query_end, text_end
        Where they end.

    Returns
    -------
    Their end; -1, and nothing is changed, if `ops` is too small.
    """
    n_more = np.int64(0)
    for is_writing in range(2):
        query, text = np.int64(query_end), np.int64(text_end)
        to = np.int64(end) - 1 + n_more
        if is_writing and (n_more == 0 or to >= len(ops)):
            break
        was_mismatch = False
        for i in range(end - 1, first - 1, -1):
            code, length = ops[i] & 15, np.int64(ops[i] >> 4)
            query -= 0 if code == D else length
            text -= 0 if code == I else length
            moved = np.int64(0)
            is_gap = code == I or code == D
            if is_gap and was_mismatch and i > first and ops[i - 1] & 15 == EQUAL:
                most = np.int64(ops[i - 1] >> 4) - 1
                moved = np.int64(
                    _room_on_left(
                        code, length, most, read_planes, read_word, query, ref_planes, text
                    )
                )
            was_mismatch = code == X
            if not is_writing:
                n_more += moved > 0
                continue
            op = ops[i]
            if moved:
                ops[to] = np.uint32((moved << 4) | EQUAL)
                to -= 1
                ops[i - 1] -= np.uint32(moved << 4)
                query -= moved
                text -= moved
            ops[to] = op
            to -= 1
    if end + n_more > len(ops):
        return np.int64(-1)
    return np.int64(end + n_more)
