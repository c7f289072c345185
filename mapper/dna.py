"""Encode DNA as base codes and bit planes, and reverse complement it.

**Codes** (uint8): A 0, C 1, G 2, T 3 (lexicographic, as the FM-index needs; the
complement of c is 3 - c). N is 4; the other IUPAC letters are 5 to 14, kept so that the
output repeats the input. Every code of 4 or more is *ambiguous*: it never seeds and
never matches, not even itself. U reads as T. Case is ignored.

**Bit planes** (uint64, shape (n_words, 3)): word w of a sequence holds its bases
64 w to 64 w + 63, base i in bit i & 63; column 0 has the low bits of the codes, column
1 the high bits, column 2 is set where the base is ambiguous (columns 0 and 1 are then
0 in a read and anything in a reference) or beyond the end. Two sequences compare 64 bases
at a time: ``(lo ^ lo') | (hi ^ hi') | amb | amb'`` has a bit for every mismatch.
"""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.intrinsics import leading_zeros, trailing_zeros

AMBIGUOUS = 4
LETTERS = b"ACGTNMRSVWYHKDB"
"""Letter of each base code."""

_COMPLEMENT_LETTERS = b"TGCANKYSBWRDMHV"
NOT_A_BASE = 255

CODE_OF_ASCII = np.full(256, NOT_A_BASE, np.uint8)
for _code, _letter in enumerate(LETTERS):
    CODE_OF_ASCII[_letter] = CODE_OF_ASCII[_letter + 32] = _code
CODE_OF_ASCII[ord("U")] = CODE_OF_ASCII[ord("u")] = 3
CODE_OF_ASCII[ord(".")] = AMBIGUOUS

COMPLEMENT = np.array([LETTERS.index(c) for c in _COMPLEMENT_LETTERS], np.uint8)
"""Code of the complement of each code."""

ASCII_OF_CODE = np.frombuffer(LETTERS, np.uint8).copy()


def encode(text: str | bytes) -> np.ndarray:
    """Return the base codes (uint8) of a sequence of letters.

    Raises
    ------
    ValueError
        For a character that is no IUPAC nucleotide letter.
    """
    raw = np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8)
    codes = CODE_OF_ASCII[raw]
    bad = np.flatnonzero(codes == NOT_A_BASE)
    if bad.size:
        raise ValueError(f"character {chr(raw[bad[0]])!r} at position {bad[0]} is not a base")
    return codes


def decode(codes: np.ndarray) -> str:
    """Return the letters of base codes (uint8, 0 to 4)."""
    return ASCII_OF_CODE[codes].tobytes().decode()


def reverse_complement(codes: np.ndarray) -> np.ndarray:
    """Return the codes of the opposite strand (uint8, as `codes`)."""
    return COMPLEMENT[codes[::-1]]


def letters_of_planes(planes: np.ndarray, start: int, end: int) -> str:
    """Return the letters of bases ``start:end`` of bit planes; N for an ambiguous base."""
    first = start >> 6
    words = planes[first : (end + 63) >> 6]
    low, high, ambiguous = (
        np.unpackbits(np.ascontiguousarray(words[:, plane]).view(np.uint8), bitorder="little")
        for plane in range(3)
    )
    codes = low | high << 1
    codes[ambiguous != 0] = AMBIGUOUS
    return decode(codes[start - 64 * first : end - 64 * first])


@core
def n_words(length):
    """Return the number of 64-base words for `length` bases."""
    return (length + 63) >> 6


@core
def pack_strand(codes, start, end, strand, planes, word):
    """Write the bit planes of ``codes[start:end]`` from row `word` of `planes` on.

    For strand 1, those of its reverse complement.
    """
    one = np.uint64(1)
    low = np.uint64(0)
    high = np.uint64(0)
    ambiguous = np.uint64(0)
    length = end - start
    for i in range(length):
        code = np.int64(codes[start + i] if strand == 0 else codes[end - 1 - i])
        bit = np.uint64(i & 63)
        if code >= AMBIGUOUS:
            ambiguous |= one << bit
        else:
            if strand == 1:
                code = 3 - code
            low |= np.uint64(code & 1) << bit
            high |= np.uint64(code >> 1) << bit
        if (i & 63) == 63 or i == length - 1:
            planes[word, 0] = low
            planes[word, 1] = high
            planes[word, 2] = ambiguous
            word += 1
            low = high = ambiguous = np.uint64(0)
    used = np.uint64(length & 63)
    if used:
        planes[word - 1, 2] |= ~np.uint64(0) << used


@core
def plane_word(planes, word, pos, plane):
    """Return 64 bits of one plane, from base `pos` of the sequence at row `word` on.

    A further row must exist after that of the last base, of any content: callers mask by length.
    """
    w = np.uint64(word + (pos >> 6))  # a signed index would be checked for being negative
    one, shift = np.uint64(1), np.uint64(pos & 63)
    # Two shifts, because a shift by 64 is undefined.
    return (planes[w, plane] >> shift) | (
        (planes[w + one, plane] << one) << (np.uint64(63) - shift)
    )


@core
def mismatch_word(a_planes, a_word, a_pos, b_planes, b_word, b_pos):
    """Compare 64 bases of two packed sequences; bit i is set where base i differs.

    Ambiguous bases differ from everything.
    """
    return (
        (plane_word(a_planes, a_word, a_pos, 0) ^ plane_word(b_planes, b_word, b_pos, 0))
        | (plane_word(a_planes, a_word, a_pos, 1) ^ plane_word(b_planes, b_word, b_pos, 1))
        | plane_word(a_planes, a_word, a_pos, 2)
        | plane_word(b_planes, b_word, b_pos, 2)
    )


@core
def matching_run(a_planes, a_word, a_pos, b_planes, b_word, b_pos, limit, forward):
    """Return how many bases match in a row, `limit` at most; 64 bases a step.

    Forward from `a_pos` (int32) and `b_pos` on, or backward from the bases before them.
    """
    done = np.int32(0)
    while done < limit:
        step = min(np.int32(64), np.int32(limit - done))
        # From where the 64 bases start that are compared.
        ahead = done if forward else np.int32(-done - step)
        differ = mismatch_word(
            a_planes, a_word, np.int32(a_pos + ahead), b_planes, b_word, b_pos + ahead
        )
        if forward:
            run = np.int32(trailing_zeros(differ))
        else:
            run = np.int32(leading_zeros(differ << np.uint64(64 - step)))
        if run < step:
            return np.int32(done + run)
        done = np.int32(done + step)
    return limit


@core
def unpack(planes, word, start, end, out):
    """Write the codes of bases start:end of a packed sequence to `out` (uint8); N for ambiguous."""
    one = np.uint64(1)
    for first in range(start, end, 64):
        low = plane_word(planes, word, first, 0)
        high = plane_word(planes, word, first, 1)
        ambiguous = plane_word(planes, word, first, 2)
        for i in range(min(np.int64(64), end - first)):
            code = (low & one) | ((high & one) << one)
            out[first - start + i] = AMBIGUOUS if ambiguous & one else np.uint8(code)
            low >>= one
            high >>= one
            ambiguous >>= one
