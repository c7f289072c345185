"""Letters → 2 bits each, as they lie in memory.

Whole blocks are packed by lines (``flat_lines.py``), what is left of a span four letters at a time,
as a word of 32 bits.

What is no A, C, G or T is noted for blocks of letters; only sequences in such blocks are looked at
letter by letter.
"""

from __future__ import annotations

import numpy as np

from mapper.align.cuda.flat_lines import LINE_LETTERS, pack_line
from mapper.align.cuda.flat_stream import LINE
from mapper.align.matches import unaligned_half, unaligned_word
from mapper.align.packing import differs_from_acgt
from mapper.jit.accelerate import core, driver

BLOCK_LETTERS = 1024
"""Letters of which it is noted whether any is none of A C G T."""


@driver
def blocks_of(begin, behind):
    """Number of blocks of the letters begin:behind."""
    return (behind - begin + BLOCK_LETTERS - 1) // BLOCK_LETTERS


@core
def _codes(word):
    """The 2-bit codes of 4 letters, as uint8."""
    word = np.uint32(np.uint32(word >> np.uint32(1)) & np.uint32(0x03030303))
    # Brings the codes side by side into the highest byte; nothing is carried into it.
    return np.uint8(np.uint32(word * np.uint32(0x01041040)) >> np.uint32(24))


@core
def _doubts(word):
    """Two words (uint32) for 4 letters; see :func:`_are_doubtful`.

    In upper case A is 01000001, C 01000011, G 01000111, T 01010100 and U 01010101: bit 4 is set
    where bit 2 is and bit 1 is not, and only there may bit 0 be clear.
    """
    differ = np.uint32(word ^ np.uint32(0x41414141))
    t = np.uint32(np.uint32(word << np.uint32(2)) & np.uint32(~np.uint32(word << np.uint32(3))))
    t = np.uint32(t & np.uint32(0x10101010))
    even = np.uint32(differ & np.uint32(~np.uint32(t >> np.uint32(4))))
    return np.uint32(differ ^ t), even


@core
def _are_doubtful(differ, even):
    """Whether any letter is none of A C G T U, in either case; from doubts, or those of many."""
    return ((differ & np.uint32(0xD8D8D8D8)) | (even & np.uint32(0x01010101))) != 0


@core
def _last_letters(letters, at, end):
    """The letters from `at` on as a word of 32 bits; those from `end` on are A and not loaded."""
    word = np.uint32(0x41414141)
    for x in range(min(np.int64(4), end - at)):
        word = np.uint32(word ^ np.uint32(np.uint32(letters[at + x] ^ 0x41) << np.uint32(8 * x)))
    return word


@core
def _pack_block(letters, start, end, codes):
    """Pack letters start:end, 4 to an item of `codes`; say whether any is none of A C G T."""
    whole = (end - start) >> 2
    differ, even = np.uint32(0), np.uint32(0)
    for j in range(whole):
        word = unaligned_half(letters, start + 4 * j)
        codes[j] = _codes(word)
        more_differ, more_even = _doubts(word)
        differ = np.uint32(differ | more_differ)
        even = np.uint32(even | more_even)
    if start + 4 * whole < end:
        word = _last_letters(letters, start + 4 * whole, end)
        codes[whole] = _codes(word)
        more_differ, more_even = _doubts(word)
        differ = np.uint32(differ | more_differ)
        even = np.uint32(even | more_even)
    return _are_doubtful(differ, even)


@core
def _pack_lines(letters, start, codes, at, streamed):
    """Pack a whole block; say whether any letter is none of A C G T."""
    doubts = np.int64(0)
    for x in range(BLOCK_LETTERS // LINE_LETTERS):
        doubts |= pack_line(letters, start + x * LINE_LETTERS, codes, at + x * LINE, streamed)
    return doubts != 0


@driver
def pack_blocks(letters, begin, behind, first_block, last_block, codes, noted, streamed):
    """Pack some blocks of the letters begin:behind.

    Parameters
    ----------
    codes
        uint8: 4 letters an item, the first of all in the first.
    noted
        bool, one a block: gets whether any letter of it is none of A C G T.
    streamed
        Whether to store past the caches; `codes` then begins at a line.
    """
    for block in range(first_block, last_block):
        at = block * (BLOCK_LETTERS // 4)
        start = begin + block * BLOCK_LETTERS
        end = min(start + BLOCK_LETTERS, behind)
        if end - start == BLOCK_LETTERS:
            noted[block] = _pack_lines(letters, start, codes, at, streamed)
        else:
            noted[block] = _pack_block(letters, start, end, codes[at : at + BLOCK_LETTERS // 4])


@core
def _eight_letters(letters, at, end):
    """The letters from `at` on as a word; those from `end` on are A and not loaded."""
    word = np.uint64(0x4141414141414141)
    for x in range(min(np.int64(8), end - at)):
        word ^= np.uint64(letters[at + x] ^ 0x41) << np.uint64(8 * x)
    return word


@core
def is_acgt_where_noted(letters, start, end, origin, noted):
    """Whether letters are all A, C, G or T; only noted blocks, counted from `origin`, are read."""
    if start == end:
        return True
    doubted = False
    for block in range((start - origin) // BLOCK_LETTERS, (end - 1 - origin) // BLOCK_LETTERS + 1):
        doubted = doubted or noted[block]
    if not doubted:
        return True
    differ = np.uint64(0)
    at = start
    while at + 8 <= end:
        differ |= differs_from_acgt(unaligned_word(letters, at))
        at += 8
    return (differ | differs_from_acgt(_eight_letters(letters, at, end))) == 0
