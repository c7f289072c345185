"""Marks of a reference: its ALT contigs, groups of contigs, and masked regions.

They come from files beside the FASTA. These are read, and their form checked, before the FASTA;
their contigs are looked up once those of the reference are known.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from mapper.errors import InputFormatError, option
from mapper.index.reference import Contigs, with_groups
from mapper.io.contig_files import GroupLine, Region, read_alt, read_bed, read_groups

log = logging.getLogger(__name__)


class Marks(NamedTuple):
    """What files say about the contigs of a reference; all entries know their lines."""

    alt_file: Path | None = None
    alt: Mapping[str, int] = {}
    """Line that names each ALT contig first."""
    group_file: Path | None = None
    groups: Mapping[str, GroupLine] = {}
    mask: Path | None = None
    regions: tuple[Region, ...] = ()

    def group(self, contigs: Contigs, fasta: Path) -> Contigs:
        """Return the contigs with their groups.

        Raises
        ------
        InputFormatError
            If a contig is not one of the reference, or is ALT and has a group.
        """
        known = set(contigs.names)
        for name, line in self.alt.items():
            if name not in known:
                _unknown(
                    self.alt_file, line, name, fasta,
                    f"give the file of this reference ({option('alt')}), or {option('no_alt')}",
                )  # fmt: skip
        for name, entry in self.groups.items():
            if name not in known:
                _unknown(self.group_file, entry.line, name, fasta, "remove the line")
            if name in self.alt:
                raise InputFormatError(
                    f"{self.group_file}: line {entry.line}: contig {name!r} has a group, and is "
                    f"an ALT contig by {self.alt_file}, line {self.alt[name]}; remove one of the "
                    f"lines, or give {option('no_alt')}"
                )
        group_of = {name: entry.group for name, entry in self.groups.items()}
        return with_groups(contigs, self.alt.keys(), group_of)

    def masked_regions(self, contigs: Contigs, fasta: Path) -> np.ndarray:
        """Return the masked regions in text positions: int64 (n, 2), ascending, disjoint.

        Raises
        ------
        InputFormatError
            If a region does not lie within a contig of the reference.
        """
        ref_ids = {name: ref_id for ref_id, name in enumerate(contigs.names)}
        starts, lengths = contigs.starts.tolist(), contigs.lengths.tolist()
        merged: list[list[int]] = []
        placed = []
        for name, start, end, line in self.regions:
            ref_id = ref_ids.get(name)
            if ref_id is None:
                _unknown(self.mask, line, name, fasta, "remove the line, or give another file")
            if end > lengths[ref_id]:
                raise InputFormatError(
                    f"{self.mask}: line {line}: region {start}-{end} ends beyond contig {name!r}, "
                    f"which has {lengths[ref_id]} bases in {fasta}; give the file of this reference"
                )
            placed.append((starts[ref_id] + start, starts[ref_id] + end))
        for start, end in sorted(placed):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        return np.array(merged, np.int64).reshape(-1, 2)


NO_MARKS = Marks()


def _unknown(file: Path | None, line: int, name: str, fasta: Path, remedy: str) -> NoReturn:
    raise InputFormatError(f"{file}: line {line}: there is no contig {name!r} in {fasta}; {remedy}")


def read_marks(
    alt: Path | None = None, groups: Path | None = None, mask: Path | None = None
) -> Marks:
    """Read the files that mark contigs and regions.

    Parameters
    ----------
    alt, groups, mask
        ALT contigs (:func:`mapper.io.contig_files.read_alt`), groups of contigs, and a BED file.

    Raises
    ------
    InputFormatError
        If a file cannot be read, or a line has not the form of its kind.
    """
    return Marks(
        alt, read_alt(alt) if alt else {}, groups, read_groups(groups) if groups else {},
        mask, tuple(read_bed(mask)) if mask else (),
    )  # fmt: skip


def alt_file_of(fasta: Path) -> Path | None:
    """Return the ``.alt`` file beside a FASTA, as bwa names it, or None."""
    for name in (fasta.name, fasta.name.removesuffix(".gz")):
        file = fasta.parent / f"{name}.alt"
        if file.exists():
            log.info(
                "%s: ALT contigs are taken from it (%s ignores it)", file,
                option("no_alt"),
            )  # fmt: skip
            return file
    return None
