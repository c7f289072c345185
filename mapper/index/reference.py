"""Contigs of the reference, their bounds in the indexed text, and the data of an index.

The text is all contigs in order, each followed by one separator base. ``text_pos`` is
0-based in the text, ``ref_pos`` 0-based in a contig.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mapper.index.fm import FMIndex
from mapper.jit.accelerate import core
from mapper.params import IndexParams

ALT, UNGROUPED = -1, 0
"""Groups of contigs: alternate loci of the assembly, and contigs of no group. Named groups, such
as the haplotypes of a diploid reference, are 1, 2, ..."""

NO_GROUPS = np.zeros(0, np.int32)
"""Groups of a reference whose contigs all compete with each other."""
NO_GROUPS.flags.writeable = False


class Contigs(NamedTuple):
    """The contigs, in the order of the FASTA and of the BAM header."""

    names: tuple[str, ...]
    md5: tuple[str, ...]  # M5 of SAM's @SQ line
    lengths: np.ndarray  # int64 (n_contigs,): without the separator
    starts: np.ndarray  # int64 (n_contigs,): text position of the first base
    groups: np.ndarray = NO_GROUPS  # int32 (n_contigs,): ALT, UNGROUPED or 1, 2, ...; or empty
    group_names: tuple[str, ...] = ()  # of groups 1, 2, ...

    @property
    def alt_names(self) -> list[str]:
        """Names of the ALT contigs."""
        return [self.names[i] for i in np.flatnonzero(self.groups == ALT)]

    @property
    def named_groups(self) -> list[str]:
        """Name of each contig's group, empty where it has none; an empty list without groups."""
        return [self.group_names[group - 1] if group > 0 else "" for group in self.groups]


class ContigBounds(NamedTuple):
    """Bounds of the contigs in the text; passes unchanged to compiled code."""

    starts: np.ndarray  # int64 (n_contigs,): text position of the first base
    lengths: np.ndarray  # int64 (n_contigs,)


def make_contigs(names: Sequence[str], md5: Sequence[str], lengths: Sequence[int]) -> Contigs:
    """Return contigs of no group, laid out in the text, one separator after each."""
    sizes = np.array(lengths, np.int64)
    starts = np.cumsum(sizes + 1) - (sizes + 1)
    for array in (sizes, starts):
        array.flags.writeable = False
    return Contigs(tuple(names), tuple(md5), sizes, starts)


def with_groups(contigs: Contigs, alt: Collection[str], group_of: Mapping[str, str]) -> Contigs:
    """Return the contigs with their groups.

    Parameters
    ----------
    alt
        Names of the ALT contigs.
    group_of
        Names of the groups of other contigs, by contig; an empty name is none.
    """
    if not alt and not any(group_of.values()):
        return contigs
    own = ["" if name in alt else group_of.get(name, "") for name in contigs.names]
    group_names = tuple(dict.fromkeys(filter(None, own)))
    numbers = {name: number for number, name in enumerate(group_names, 1)}
    groups = np.array([numbers.get(name, UNGROUPED) for name in own], np.int32)
    groups[[name in alt for name in contigs.names]] = ALT
    groups.flags.writeable = False
    return contigs._replace(groups=groups, group_names=group_names)


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
    n_masked: int = 0  # bases that seeds do not find


@dataclass(frozen=True)
class IndexData:
    """The arrays of an index, its contigs and its origin; all arrays are read-only."""

    fm: FMIndex
    contigs: Contigs
    meta: IndexMeta
    unmasked_planes: np.ndarray | None = None
    """The text in bit planes, if bases are masked: these are ambiguous in ``fm.ref_planes``."""

    @property
    def text_planes(self) -> np.ndarray:
        """Bit planes of the text that reads are aligned to; seeds have ``fm.ref_planes``."""
        return self.fm.ref_planes if self.unmasked_planes is None else self.unmasked_planes

    @property
    def n_bytes(self) -> int:
        """Bytes of the index's arrays."""
        n_bytes = sum(column.nbytes for column in self.fm if isinstance(column, np.ndarray))
        return n_bytes + (0 if self.unmasked_planes is None else self.unmasked_planes.nbytes)
