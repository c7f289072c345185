"""The text of an index: the contigs of a FASTA file, one after another, in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np

from mapper.dna import AMBIGUOUS
from mapper.index.reference import Contigs, make_contigs
from mapper.io.fasta_codes import WRITTEN_OTHERWISE
from mapper.io.reference_fasta import FastaCodes, read_fasta, sums_of_contigs
from mapper.parallel.buffers import RECYCLER
from mapper.parallel.map import map_in_threads
from mapper.parallel.pool import WRITE, Workers, in_turn

SEGMENT_BYTES = 1 << 26
"""Of a text whose length is not known before it has been read."""

_FIRST_CHECK = 1 << 24
_BLOCKS_AHEAD = 8


def read_text(
    fasta: Path,
    n_threads: int = 1,
    most: int | None = None,
    check: Callable[[int], object] = lambda n: None,
) -> tuple[Contigs, np.ndarray]:
    """Read contigs and text.

    Parameters
    ----------
    fasta
        FASTA, plain, gzip or BGZF.
    most
        Bases and separators that there may be; None: not known.
    check
        Where that is not known, called with how many there are so far whenever these have
        doubled, to refuse what is too large before it fills the memory.

    Returns
    -------
    contigs
    text
        uint8 (n,), codes of mapper.dna; one ambiguous base follows each contig.

    Raises
    ------
    InputFormatError
        See :func:`mapper.io.reference_fasta.read_fasta`.
    """
    text = _Text(most, check)
    names: list[str] = []
    lengths: list[int] = [0]  # of what comes before the first contig
    otherwise: list[list[np.ndarray]] = []

    def placements(blocks: Iterator[FastaCodes]) -> Iterator[Callable[[], list[np.ndarray]]]:
        for block in blocks:
            runs = block.runs()
            lengths[-1] += len(runs[0])
            lengths.extend(len(run) for run in runs[1:])
            names.extend(block.names)
            targets = text.room(runs)
            if block.otherwise:
                otherwise.append(targets)
            yield partial(_copy, runs, targets)

    pool = Workers(n_threads - 1) if n_threads > 1 else None
    try:
        sums = sums_of_contigs(pool)
        copying = pool.at(WRITE) if pool is not None else None
        with closing(read_fasta(fasta, pool)) as blocks:
            for targets in in_turn(placements(blocks), copying, _BLOCKS_AHEAD):
                sums.add_runs(targets)
        md5 = sums.digests()
    finally:
        if pool is not None:
            pool.shutdown()
        RECYCLER.clear()  # of blocks of the file
    while otherwise:
        for codes in otherwise.pop():
            codes &= np.uint8(WRITTEN_OTHERWISE - 1)
    return make_contigs(names, md5, lengths[1:]), text.joined(n_threads)


def _copy(runs: list[np.ndarray], targets: list[np.ndarray]) -> list[np.ndarray]:
    """Copy codes to where they belong, which is memory that nobody has touched yet (a task)."""
    for run, target in zip(runs, targets, strict=True):
        target[:] = run
    return targets


class _Text:
    """Room for a text: in one array where its length is known, or else in segments.

    Each contig has its separator in front; so the first byte is none of the text.
    """

    def __init__(self, most: int | None, check: Callable[[int], object]) -> None:
        self._n = 0
        self._check = check
        self._next_check = _FIRST_CHECK
        self._segments = [np.empty(SEGMENT_BYTES if most is None else most + 1, np.uint8)]
        self._used = [0]

    def room(self, runs: list[np.ndarray]) -> list[np.ndarray]:
        """Return where these runs are to be written; all but the first have a separator before."""
        n = sum(len(run) for run in runs) + len(runs) - 1
        if self._used[-1] + n + 1 > len(self._segments[-1]):
            self._add_segment(n + 1)
        at = self._used[-1]
        self._used[-1] += n
        self._n += n
        places = []
        for run in runs:
            places.append(self._segments[-1][at : at + len(run)])
            at += len(run) + 1
            self._segments[-1][at - 1] = AMBIGUOUS  # or what the next call writes there
        return places

    def _add_segment(self, least: int) -> None:
        if self._n >= self._next_check:
            self._check(self._n)
            self._next_check = 2 * self._n
        self._segments.append(np.empty(max(least, SEGMENT_BYTES), np.uint8))
        self._used.append(0)

    def joined(self, n_threads: int) -> np.ndarray:
        """Return the text; nobody else may hold a part of it, or memory is taken twice."""
        self._used[-1] += 1  # the last separator
        ends = list(itertools.accumulate(self._used))
        if len(self._segments) == 1:
            return self._segments[0][1 : ends[0]]
        text = np.empty(ends[-1], np.uint8)

        def move(number: int) -> None:
            n = self._used[number]
            text[ends[number] - n : ends[number]] = self._segments[number][:n]
            self._segments[number] = text[:0]  # its memory is free

        map_in_threads(move, range(len(self._segments)), n_threads)
        return text[1:]
