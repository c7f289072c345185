"""Bases of BAM records, two in a byte, from and to base codes."""

from __future__ import annotations

import numpy as np

from mapper.dna import COMPLEMENT, LETTERS
from mapper.io.base_runs import RUN, pack_run, unpack_run
from mapper.jit.accelerate import core

NOT_A_BASE = 255
"""Code of "=", which stands for the reference's base."""

_BAM_LETTERS = b"=ACMGRSVTWYHKDBN"
_NIBBLE_OF_CODE = np.array([_BAM_LETTERS.index(letter) for letter in LETTERS], np.uint8)
_NIBBLE_OF_COMPLEMENT = _NIBBLE_OF_CODE[COMPLEMENT]
_CODE_OF_NIBBLE = np.array(
    [LETTERS.index(c) if c in LETTERS else NOT_A_BASE for c in _BAM_LETTERS], np.uint8
)
_COMPLEMENT_OF_NIBBLE = np.array(
    [COMPLEMENT[code] if code != NOT_A_BASE else NOT_A_BASE for code in _CODE_OF_NIBBLE], np.uint8
)


@core
def _put_plain(target, part, reverse):
    """Write bases in runs, an odd last one left out; say whether all are A, C, G or T.

    They must be, and RUN of them at the least. The last run is what is left, and some of that
    before it again.
    """
    length = len(part)
    half = RUN // 2
    others = np.int64(0)
    for run in range(length // RUN + 1):
        pair = min(run * half, (length >> 1) - half)
        start = length - 2 * pair - RUN if reverse else 2 * pair
        others |= pack_run(part, start, target, pair, reverse)
    return others == 0


@core
def put_bases(out, at, bases, start, end, reverse):
    """Write ``bases[start:end]`` as a record has them; return the position after that.

    Parameters
    ----------
    out, at
        uint8, and where in it.
    bases, start, end
        uint8 codes.
    reverse
        Whether they are to be turned and complemented.
    """
    length = end - start
    n_pairs = length >> 1
    target = out[at : at + ((length + 1) >> 1)]
    part = bases[start:end]
    nibbles = _NIBBLE_OF_COMPLEMENT if reverse else _NIBBLE_OF_CODE
    last = length - 1
    if length < RUN or not _put_plain(target, part, reverse):
        for i in range(n_pairs):
            first, second = 2 * i, 2 * i + 1
            high = nibbles[part[last - first if reverse else first]]
            target[i] = (high << 4) | nibbles[part[last - second if reverse else second]]
    if length & 1:
        target[n_pairs] = nibbles[part[0 if reverse else last]] << 4
    return at + ((length + 1) >> 1)


@core
def _read_plain(sequence, target, reverse):
    """The opposite of :func:`_put_plain`."""
    length = len(target)
    half = RUN // 2
    others = np.int64(0)
    for run in range(length // RUN + 1):
        pair = min(run * half, (length >> 1) - half)
        start = length - 2 * pair - RUN if reverse else 2 * pair
        others |= unpack_run(sequence, pair, target, start, reverse)
    return others == 0


@core
def read_bases(sequence, target, reverse):
    """Write the codes of the bases of a record, as the instrument read them.

    Parameters
    ----------
    sequence
        uint8: two bases a byte, the first in the high half.
    target
        uint8, as long as there are bases.
    reverse
        Whether they are to be turned and complemented.

    Returns
    -------
    The largest code: NOT_A_BASE if there is a "=".
    """
    length = len(target)
    codes = _COMPLEMENT_OF_NIBBLE if reverse else _CODE_OF_NIBBLE
    worst = np.uint8(0)
    done = np.int64(0)
    if length >= RUN and _read_plain(sequence, target, reverse):
        done = length & ~1
    for i in range(done, length):
        nibble = (sequence[i >> 1] >> (0 if i & 1 else 4)) & 15
        code = codes[nibble]
        target[length - 1 - i if reverse else i] = code
        worst = max(worst, code)
    return worst
