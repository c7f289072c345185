"""A record as an object, with the names of mappy's alignments."""

from __future__ import annotations

import re
from typing import Any, Protocol

import numpy as np

from mapper.batch import ReadBatch
from mapper.cigar import LETTERS, H, S, to_text
from mapper.dna import AMBIGUOUS, ASCII_OF_CODE, reverse_complement
from mapper.sam_flags import LAST, PAIRED, PROPER, REVERSE, SECONDARY, SUPPLEMENTARY, UNMAPPED

_MD = re.compile(r"\^[A-Z]+|\d+|[A-Z]")


class Records(Protocol):
    """The columns of records, as :class:`mapper.Hits` has them."""

    @property
    def reads(self) -> ReadBatch: ...

    @property
    def contig_names(self) -> tuple[str, ...]: ...

    @property
    def contig_lengths(self) -> np.ndarray: ...

    @property
    def read(self) -> np.ndarray: ...

    @property
    def cigar_ops(self) -> np.ndarray: ...

    @property
    def cigar_offsets(self) -> np.ndarray: ...

    def name_of(self, row: int) -> str: ...

    def sequence_of(self, row: int) -> str: ...

    def tags_of(self, row: int) -> dict[str, Any]: ...


class Hit:
    """A record of a read: one alignment, or none.

    The attributes that :class:`mappy.Alignment` has, have its names and meanings. Its string form
    is that of mappy: the columns of PAF from the fifth on.

    Attributes
    ----------
    name : str
        Name of the read.
    read_num : int
        2 for the second read of a pair, else 1.
    flag : int
        SAM flags.
    ctg : str or None
        Name of the contig.
    r_st, r_en : int
        Bounds in the contig, 0-based and half-open; -1 for an unmapped read.
    q_st, q_en : int
        Bounds of the aligned part in the read as given.
    strand : int
        1 forward, -1 reverse, 0 unmapped.
    mapq, NM, score : int
        Mapping quality, edit distance, alignment score.
    blen, mlen : int
        Columns of the alignment; of these, matches.
    """

    __slots__ = (
        "NM", "_contig", "_hits", "_row", "blen", "flag", "mapq", "q_en", "q_st", "r_en", "r_st",
        "score",
    )  # fmt: skip

    def __init__(
        self, hits: Records, row: int, flag: int, contig: int, start: int, end: int,
        query_start: int, query_end: int, mapq: int, nm: int, score: int, block_len: int,
    ) -> None:  # fmt: skip
        self._hits, self._row, self._contig = hits, row, contig
        self.flag, self.mapq, self.NM, self.score, self.blen = flag, mapq, nm, score, block_len
        self.q_st, self.q_en = query_start, query_end
        # The columns have the place of the mate, as records do.
        self.r_st, self.r_en = (-1, -1) if flag & UNMAPPED else (start, end)

    @property
    def name(self) -> str:
        return self._hits.name_of(self._row)

    @property
    def read(self) -> int:
        """Number of the read in the input of the call."""
        return int(self._hits.read[self._row])

    @property
    def read_num(self) -> int:
        return 2 if self.flag & LAST else 1

    @property
    def is_mapped(self) -> bool:
        return not self.flag & UNMAPPED

    @property
    def is_primary(self) -> bool:
        """True unless it is secondary or unmapped; as in mappy, for parts of split reads too."""
        return not self.flag & (UNMAPPED | SECONDARY)

    @property
    def is_supplementary(self) -> bool:
        return bool(self.flag & SUPPLEMENTARY)

    @property
    def is_paired(self) -> bool:
        return bool(self.flag & PAIRED)

    @property
    def is_proper(self) -> bool:
        return bool(self.flag & PROPER)

    @property
    def ctg(self) -> str | None:
        return None if self.flag & UNMAPPED else self._hits.contig_names[self._contig]

    @property
    def ctg_len(self) -> int:
        return 0 if self.flag & UNMAPPED else int(self._hits.contig_lengths[self._contig])

    @property
    def strand(self) -> int:
        if self.flag & UNMAPPED:
            return 0
        return -1 if self.flag & REVERSE else 1

    @property
    def trans_strand(self) -> int:
        """0: the strand of a transcript is not known."""
        return 0

    @property
    def mlen(self) -> int:
        return self.blen - self.NM if self.is_mapped else 0

    def _ops(self) -> np.ndarray:
        """Return the packed operations without clips."""
        start, end = self._hits.cigar_offsets[self._row : self._row + 2]
        ops = self._hits.cigar_ops[start:end]
        return ops[((ops & 15) != S) & ((ops & 15) != H)]

    @property
    def cigar(self) -> list[list[int]]:
        """Length and code of each operation, without clips; codes index ``"MIDNSHP=X"``."""
        return [[op >> 4, op & 15] for op in self._ops().tolist()]

    @property
    def cigar_str(self) -> str:
        """The operations as text, without clips; empty for an unmapped read."""
        ops = self._ops()
        return to_text(ops) if len(ops) else ""

    @property
    def tags(self) -> dict[str, Any]:
        """All tags of the record by name."""
        return self._hits.tags_of(self._row)

    @property
    def MD(self) -> str:  # noqa: N802 (mappy's name)
        """Text of the MD tag; empty for an unmapped read."""
        return str(self.tags.get("MD", ""))

    @property
    def seq(self) -> str:
        """Letters of the read, as given."""
        return self._hits.sequence_of(self._row)

    @property
    def cs(self) -> str:
        """Differences in minimap2's short form, as ``:6-ata:10+gtc:4*at:3``."""
        if not self.is_mapped:
            return ""
        hits = self._hits
        read = hits.read[self._row] - hits.reads.first_read
        start, end = hits.reads.base_offsets[read : read + 2]
        codes = hits.reads.bases[start:end]
        if self.flag & REVERSE:
            codes = reverse_complement(codes)
            first = len(codes) - self.q_en
        else:
            first = self.q_st
        letters = ASCII_OF_CODE[np.minimum(codes, AMBIGUOUS)].tobytes().decode().lower()
        return _short_cs(self.cigar, self.MD, letters[first:])

    def __str__(self) -> str:
        if not self.is_mapped:
            return "\t".join(["0", "0", "*", "*", "0", "0", "0", "0", "0", "0"])
        columns = (
            self.q_st, self.q_en, "+" if self.strand > 0 else "-", self.ctg, self.ctg_len,
            self.r_st, self.r_en, self.mlen, self.blen, self.mapq,
            "tp:A:P" if self.is_primary else "tp:A:S", "ts:A:.", f"cg:Z:{self.cigar_str}",
        )  # fmt: skip
        return "\t".join(map(str, columns))

    def __repr__(self) -> str:
        place = f"{self.ctg}:{self.r_st}-{self.r_en}" if self.is_mapped else "unmapped"
        return f"<mapper.Hit {self.name!r} {place} mapq {self.mapq} {self.cigar_str}>"


def _short_cs(cigar: list[list[int]], md: str, letters: str) -> str:
    """Return the short cs of an alignment.

    Parameters
    ----------
    cigar
        Length and code of each operation.
    md
        The reference's letters where they differ.
    letters
        The read's letters from the first aligned one on, in lower case.
    """
    # Of the reference, run by run: matches as numbers, letters that differ, deleted ones with ^.
    differences = _MD.findall(md)
    parts: list[str] = []
    matches = at = 0

    def end_run() -> None:
        nonlocal matches
        if matches:
            parts.append(f":{matches}")
        matches = 0

    item, left = 0, 0  # the next item of MD; matches left of a number that was begun
    for length, code in cigar:
        op = LETTERS[code]
        if op == "I":
            end_run()
            parts.append(f"+{letters[at : at + length]}")
            at += length
        elif op == "D":
            while not differences[item].startswith("^"):  # numbers of no length
                item += 1
            end_run()
            parts.append(f"-{differences[item][1:].lower()}")
            item += 1
        else:
            rest = length
            while rest:
                if left == 0 and differences[item].isdigit():
                    left, item = int(differences[item]), item + 1
                    if left == 0:
                        continue
                if left:
                    n = min(left, rest)
                    matches += n
                    left, rest, at = left - n, rest - n, at + n
                    continue
                end_run()
                parts.append(f"*{differences[item].lower()}{letters[at]}")
                item, rest, at = item + 1, rest - 1, at + 1
    end_run()
    return "".join(parts)
