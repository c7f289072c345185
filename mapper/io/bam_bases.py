"""Bases of BAM records, two in a byte, to base codes."""

from __future__ import annotations

import numpy as np

from mapper.accelerate import core
from mapper.dna import COMPLEMENT, LETTERS

NOT_A_BASE = 255
"""Code of "=", which stands for the reference's base."""

_RUN = 64  # bases looked at together: the compiler makes that a few instructions

_CODE_OF_NIBBLE = np.array(
    [LETTERS.index(c) if c in LETTERS else NOT_A_BASE for c in b"=ACMGRSVTWYHKDBN"], np.uint8
)
_COMPLEMENT_OF_NIBBLE = np.array(
    [COMPLEMENT[code] if code != NOT_A_BASE else NOT_A_BASE for code in _CODE_OF_NIBBLE], np.uint8
)


@core
def _plain_code(nibble):
    """Return the code 0 to 3 of the nibbles 1, 2, 4 and 8, and more than 3 of all others.

    Arithmetic, not a table: the compiler vectorises that.
    """
    code = np.uint8(np.uint8(nibble >> np.uint8(1)) - np.uint8(nibble >> np.uint8(3)))
    several = np.uint8(nibble & np.uint8(nibble - np.uint8(1)))
    none = np.uint8(64) if nibble == 0 else np.uint8(0)
    return np.uint8(code | np.uint8(several << np.uint8(2)) | none)


@core
def _read_run(sequence, target):
    """Write the codes of _RUN bases that are A, C, G or T, and more than 3 for all others."""
    for i in range(_RUN // 2):
        target[2 * i] = _plain_code(np.uint8(sequence[i] >> np.uint8(4)))
        target[2 * i + 1] = _plain_code(np.uint8(sequence[i] & np.uint8(15)))


@core
def _read_run_reversed(sequence, target):
    """As :func:`_read_run`, turned and complemented."""
    for i in range(_RUN // 2):
        pair = sequence[_RUN // 2 - 1 - i]
        target[2 * i] = np.uint8(3 - _plain_code(np.uint8(pair & np.uint8(15))))
        target[2 * i + 1] = np.uint8(3 - _plain_code(np.uint8(pair >> np.uint8(4))))


@core
def _read_plain(sequence, target, reverse):
    """Write the codes of bases in runs; say whether all are A, C, G or T, as they must be.

    An odd last base is left out. Reads shorter than a run are none of this function's.
    """
    length = len(target)
    half = _RUN // 2
    for run in range(length // _RUN + 1):
        # The last is what is left, and some of that before it again.
        pair = min(run * half, (length >> 1) - half)
        if reverse:
            end = length - 2 * pair
            _read_run_reversed(sequence[pair : pair + half], target[end - _RUN : end])
        else:
            _read_run(sequence[pair : pair + half], target[2 * pair : 2 * pair + _RUN])
    odd = length & 1
    written = target[odd:] if reverse else target[: length - odd]
    worst = np.uint8(0)
    for i in range(len(written)):
        worst = max(worst, written[i])
    return worst <= 3


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
    if length >= _RUN and _read_plain(sequence, target, reverse):
        done = length & ~1
    for i in range(done, length):
        nibble = (sequence[i >> 1] >> (0 if i & 1 else 4)) & 15
        code = codes[nibble]
        target[length - 1 - i if reverse else i] = code
        worst = max(worst, code)
    return worst
