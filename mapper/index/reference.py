"""Contigs of the reference, their bounds in the indexed text, and the data of an index.

The text is all contigs in order, each followed by one separator base. ``text_pos`` is
0-based in the text, ``ref_pos`` 0-based in a contig.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mapper.index.fm import FMIndex
from mapper.jit.accelerate import core
from mapper.params import IndexParams


class Contigs(NamedTuple):
    """The contigs, in the order of the FASTA and of the BAM header."""

    names: tuple[str, ...]
    md5: tuple[str, ...]  # M5 of SAM's @SQ line
    lengths: np.ndarray  # int64 (n_contigs,): without the separator
    starts: np.ndarray  # int64 (n_contigs,): text position of the first base


class ContigBounds(NamedTuple):
    """Bounds of the contigs in the text; passes unchanged to compiled code."""

    starts: np.ndarray  # int64 (n_contigs,): text position of the first base
    lengths: np.ndarray  # int64 (n_contigs,)


def make_contigs(names: list[str], md5: list[str], lengths: list[int]) -> Contigs:
    """Return contigs laid out in the text, one separator after each."""
    sizes = np.array(lengths, np.int64)
    starts = np.cumsum(sizes + 1) - (sizes + 1)
    for array in (sizes, starts):
        array.flags.writeable = False
    return Contigs(tuple(names), tuple(md5), sizes, starts)


@core
def find_contig(contig_starts, text_pos):
    """Return the contig (ref_id) of `text_pos`; a separator belongs to the contig before it."""
    lo = np.int32(0)
    hi = np.int32(len(contig_starts))
    while np.int32(hi - lo) > 1:
        middle = np.int32((lo + hi) >> 1)
        if contig_starts[np.uint32(middle)] <= text_pos:
            lo = middle
        else:
            hi = middle
    return lo


@core
def contig_bounds(contig_starts, contig_lengths, ref_id):
    """Return the text positions ``[start, end)`` of a contig, without its separator."""
    start = contig_starts[ref_id]
    return start, start + contig_lengths[ref_id]


@dataclass(frozen=True)
class IndexMeta:
    """Source file, parameters and program version of an index."""

    source_name: str  # file name of the FASTA, without its directory
    source_bytes: int  # size of that file
    params: IndexParams  # with the k that was chosen
    fmwave_version: str


@dataclass(frozen=True)
class IndexData:
    """The arrays of an index, its contigs and its origin; all arrays are read-only."""

    fm: FMIndex
    contigs: Contigs
    meta: IndexMeta

    @property
    def n_bytes(self) -> int:
        """Bytes of the index's arrays."""
        return sum(column.nbytes for column in self.fm if isinstance(column, np.ndarray))
