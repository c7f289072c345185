"""Find the members of gzip files that have many, for several threads to decompress.

Programs that compress by several threads write a member for each piece of text: fastp one for
4 MB. A member tells its plain size in its last bytes but not, as a block of BGZF does, where it
ends. It ends where the next one begins: at the bytes of a header, behind a size that is possible
for the bytes before. That occurs by chance once in some 10 ** 13 bytes, and damaged or foreign
bytes may stand between members. So what is found must be one DEFLATE stream with the size and the
checksum that its end gives. Otherwise it is read again, with all that follows, by one thread, which
needs no sizes and reads one member after another
(:class:`mapper.io.bgzf_reader.ReadAgainError`). That thread also reads the last member, as nothing
tells where it ends, and everything from a member on that exceeds these limits.

A device does not tell whether a stream ends with its body: bytes behind it that end as the member
does, and hold no header, go unnoticed there.
"""

from __future__ import annotations

import numpy as np

from mapper.io.bgzf_reader import (
    FOUND,
    MORE,
    NO_BLOCK,
    PLAIN_END,
    PLAIN_START,
    TRAILER_BYTES,
    BlockStream,
    block_table,
    put_block,
)
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import get16, get32

MOST_PLAIN = 1 << 24
"""Plain bytes of a member that is found, at most."""

MOST_PACKED = 1 << 23
"""Bytes in the file of a member that is found, at most."""

HEADER_BYTES = 10
"""Bytes of a header without name and other fields."""

_MAGIC_0, _MAGIC_1, _DEFLATE = 0x1F, 0x8B, 8
_FLAGS, _EFFORT, _SYSTEM = 3, 8, 9  # where they stand in a header
_HEADER_CHECK, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16  # flags
_RESERVED = 0xE0
_EFFORTS = 4  # 0, 2 for the most and 4 for the least
_SYSTEMS, _UNKNOWN = 13, 255

_MOST_RATIO = 1032  # of plain bytes to those of their DEFLATE stream
_FOUND_AT_ONCE = 1 << 12


@core
def is_header(data, at):
    """Return True if a member may begin at `at`, where HEADER_BYTES are known (RFC 1952)."""
    magic = data[at] == _MAGIC_0 and data[at + 1] == _MAGIC_1 and data[at + 2] == _DEFLATE
    effort, system = data[at + _EFFORT], data[at + _SYSTEM]
    return (
        magic
        and data[at + _FLAGS] & _RESERVED == 0
        and effort <= _EFFORTS
        and effort % 2 == 0
        and (system <= _SYSTEMS or system == _UNKNOWN)
    )


@core
def body_start(data, at, end):
    """Return where the body of a member begins whose header begins at `at`.

    Bytes are known up to `end`; 0 if more must be known, or there is no header.
    """
    if end - at < HEADER_BYTES or not is_header(data, at):
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
def next_header(data, at, end):
    """Return the first place from `at` on where a member may begin, wholly before `end`; or -1."""
    while at + HEADER_BYTES <= end:
        # Mostly the third byte of a magic number does not stand here, and three places are out.
        third = data[at + 2]
        if third == _DEFLATE:
            if is_header(data, at):
                return np.int64(at)
            at += 1
        elif third == _MAGIC_1:
            at += 1
        elif third == _MAGIC_0:
            at += 2
        else:
            at += 3
    return np.int64(-1)


@core
def plain_bytes(data, body, end):
    """Return the plain size that a member says it has which ends at `end`; -1 if it is impossible.

    No program makes data longer by more than an eighth.
    """
    n_body = end - TRAILER_BYTES - body
    if n_body <= 0:
        return np.int64(-1)
    n_plain = get32(data, end - 4) & 0xFFFFFFFF
    possible = n_plain <= MOST_PLAIN and n_plain <= _MOST_RATIO * n_body
    return np.int64(n_plain if possible and n_body <= n_plain + n_plain // 8 + 8 else -1)


@driver
def find_members(data, at, end, room, blocks):
    """Find consecutive whole members and the positions of their plain bytes.

    Parameters
    ----------
    data, at, end
        uint8; the members begin at `at`, and bytes are known up to `end`.
    room
        Limit of plain bytes; the first member may exceed it.
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
        following, n_plain = np.int64(-1), np.int64(-1)
        if body:
            following = next_header(data, body, end)
        while following >= 0 and n_plain < 0 and following - at <= MOST_PACKED:
            n_plain = plain_bytes(data, body, following)
            if n_plain < 0:
                following = next_header(data, following + 1, end)
        if n_plain < 0:
            return n, NO_BLOCK if following >= 0 or end - at > MOST_PACKED else MORE
        if n > 0 and plain + n_plain > room:
            return n, FOUND
        put_block(blocks[n], at, body, following, plain, n_plain)
        n += 1
        at = following
        plain += n_plain
    return n, FOUND


def largest_member(start: bytes) -> int:
    """Return the plain bytes of the largest member that is found at the start of a file, or 0."""
    data = np.frombuffer(start, np.uint8)
    blocks = block_table(_FOUND_AT_ONCE)
    n, _ = find_members(data, 0, len(data), np.iinfo(np.int64).max, blocks)
    return int((blocks[:n, PLAIN_END] - blocks[:n, PLAIN_START]).max(initial=0))


class MemberStream(BlockStream):
    """The plain bytes of gzip members that are found; NoBlockError where the next one is not.

    Damaged members are read again by one thread, too, which reports the damage.
    """

    are_guesses = True

    def _find(self, room: int, blocks: np.ndarray) -> tuple[int, int]:
        n, why = find_members(self._packed, self._at, self._end, room, blocks)
        if why == MORE and self._raw_ended:
            why = NO_BLOCK
        return int(n), int(why)
