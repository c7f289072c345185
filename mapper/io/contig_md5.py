"""MD5 of contigs, as the M5 of SAM's @SQ line has it: of their upper-case letters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from mapper.io.fasta_codes import write_letters
from mapper.parallel.map import map_in_threads

_LETTERS_AT_ONCE = 1 << 17
"""Few enough to stay in a core's cache."""

_TASK_BASES = 1 << 20
"""Bases of a task, at least: short contigs share one."""


def contig_md5(pieces: Sequence[np.ndarray]) -> str:
    """Return the hexadecimal MD5 of one contig. Most of the time is without the GIL.

    Parameters
    ----------
    pieces
        Its written codes (uint8, see :mod:`mapper.io.fasta_codes`), cut anywhere.
    """
    md5 = hashlib.md5(usedforsecurity=False)
    letters = np.empty(_LETTERS_AT_ONCE, np.uint8)
    for codes in pieces:
        for start in range(0, len(codes), _LETTERS_AT_ONCE):
            some = codes[start : start + _LETTERS_AT_ONCE]
            write_letters(some, letters)
            md5.update(letters[: len(some)].data)
    return md5.hexdigest()


def md5_of_contigs(contigs: Sequence[np.ndarray], n_threads: int) -> list[str]:
    """Return the hexadecimal MD5 of each contig.

    Each is hashed by one thread, as MD5 cannot be shared: 0.6 GB/s.

    Parameters
    ----------
    contigs
        Written codes of each.
    """
    tasks = map_in_threads(
        lambda task: [contig_md5([codes]) for codes in task], _tasks(contigs), n_threads
    )
    return [md5 for task in tasks for md5 in task]


def _tasks(contigs: Sequence[np.ndarray]) -> Iterator[Sequence[np.ndarray]]:
    first = n_bases = 0
    for i, codes in enumerate(contigs):
        n_bases += len(codes)
        if n_bases >= _TASK_BASES:
            yield contigs[first : i + 1]
            first, n_bases = i + 1, 0
    yield contigs[first:]
