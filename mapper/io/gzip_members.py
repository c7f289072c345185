"""Find the members of gzip files that have many, for several threads to decompress.

Programs that compress by several threads write a member for each piece of text: fastp one for
4 MB. A member tells its plain size in its last bytes but not, as a block of BGZF does, where it
ends. It ends where the next one begins, and headers by one program hardly differ: a place is taken
for a start if it has the header of the file's first member, but for the low half of the time.

Such bytes occur by chance once in 10 ** 19, but a member by another program may stand between. So a
member that does not give what its end says is read again, with all that follows, by one thread,
which needs no sizes and reads one member after another
(:class:`mapper.io.bgzf_reader.ReadAgainError`). That thread also reads the last member, as nothing
tells where it ends, and everything from a member on that is larger than these limits or is followed
by padding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mapper.io.bgzf_reader import (
    BODY,
    END,
    FOUND,
    MORE,
    NO_BLOCK,
    PLAIN_END,
    PLAIN_START,
    START,
    TRAILER_BYTES,
    BlockStream,
    block_table,
)
from mapper.io.position import START as FILE_START
from mapper.io.position import Place
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import get16, get32

MOST_PLAIN = 1 << 24
"""Plain bytes of a member that is found, at most."""

MOST_PACKED = 1 << 23
"""Its bytes in the file at most."""

HEADER_BYTES = 10
"""Of a header without name and other fields."""

_TIME = 4  # start of the low half of a header's time
_DEFLATE = 8
_MAGIC_0, _MAGIC_1 = 0x1F, 0x8B
_FLAGS = 3
_HEADER_CHECK, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16
_RESERVED = 0xE0


@core
def body_start(data, at, end):
    """Return where the body of a member begins whose header begins at `at`.

    Bytes are known up to `end`; 0 if more must be known, or the header is none.
    """
    if end - at < HEADER_BYTES or data[at + _FLAGS] & _RESERVED:
        return np.int64(0)
    flags = data[at + _FLAGS]
    body = at + HEADER_BYTES
    if flags & _EXTRA:
        if end - body < 2:
            return np.int64(0)
        body += 2 + get16(data, body)
    for kind in (_NAME, _COMMENT):
        if flags & kind:
            while body < end and data[body] != 0:
                body += 1
            body += 1
    if flags & _HEADER_CHECK:
        body += 2
    return np.int64(body if body <= end else 0)


@core
def _has_header(data, at, first):
    for i in range(HEADER_BYTES):
        if data[at + i] != first[i] and i != _TIME and i != _TIME + 1:
            return False
    return True


@core
def next_start(data, at, end, first):
    """Return the first place from `at` on where a member begins as `first` does; -1 if none.

    The header must lie before `end`.
    """
    while at + HEADER_BYTES <= end:
        # Mostly the third byte of a magic number does not stand here, and three places are out.
        third = data[at + 2]
        if third == _DEFLATE:
            if _has_header(data, at, first):
                return np.int64(at)
            at += 1
        elif third == _MAGIC_1:
            at += 1
        elif third == _MAGIC_0:
            at += 2
        else:
            at += 3
    return np.int64(-1)


@driver
def find_members(data, at, end, room, first, blocks):
    """Find consecutive whole members and the positions of their plain bytes.

    Parameters
    ----------
    data, at, end
        uint8; the members begin at `at`, and bytes are known up to `end`.
    room
        Limit of plain bytes; the first member may exceed it.
    first
        The first HEADER_BYTES of the file.
    blocks
        Table to be written (:func:`mapper.io.bgzf_reader.block_table`), but for N_LINES.

    Returns
    -------
    Number of members found; FOUND, MORE or NO_BLOCK.
    """
    n = 0
    plain = np.int64(0)
    while n < len(blocks):
        body = body_start(data, at, end)
        following = next_start(data, body, end, first) if body else np.int64(-1)
        if following < 0:
            return n, MORE if end - at < MOST_PACKED else NO_BLOCK
        n_body = following - TRAILER_BYTES - body
        n_plain = get32(data, following - 4) & 0xFFFFFFFF
        # Nothing becomes longer by more than this: the bytes before are no size, but padding.
        if n_body <= 0 or n_plain > MOST_PLAIN or n_body > n_plain + n_plain // 8 + 8:
            return n, NO_BLOCK
        if n > 0 and plain + n_plain > room:
            return n, FOUND
        blocks[n, START], blocks[n, BODY], blocks[n, END] = at, body, following
        blocks[n, PLAIN_START], blocks[n, PLAIN_END] = plain, plain + n_plain
        n += 1
        at = following
        plain += n_plain
    return n, FOUND


def begins_with_members(start: bytes) -> bool:
    """Return True if a file that begins with these bytes begins with a member that is found."""
    data = np.frombuffer(start, np.uint8)
    if len(data) < HEADER_BYTES or data[0] != _MAGIC_0 or data[1] != _MAGIC_1:
        return False
    n, _ = find_members(data, 0, len(data), 0, data[:HEADER_BYTES], block_table(1))
    return bool(n)


class MemberStream(BlockStream):
    """The plain bytes of gzip members that are found; NoBlockError where the next one is not.

    Parts raise ReadAgainError, for damaged members too.

    Parameters
    ----------
    raw, executor, start
        See :class:`BlockStream`.
    first
        The first HEADER_BYTES of the file.
    """

    are_certain = False

    def __init__(self, raw: Any, executor: Any, first: bytes, start: Place = FILE_START) -> None:
        super().__init__(raw, executor, 2 * MOST_PACKED, start)
        self._first = np.frombuffer(first, np.uint8)[:HEADER_BYTES]

    def _find(self, room: int, blocks: np.ndarray) -> tuple[int, int]:
        n, why = find_members(self._packed, self._at, self._end, room, self._first, blocks)
        if why == MORE and self._raw_ended:
            why = NO_BLOCK
        return int(n), int(why)
