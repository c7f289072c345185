"""Write matches of k-mers as lines of tab-separated text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mapper.batch import KmerBatch, KmerHits, ReadBatch
from mapper.index.reference import find_contig
from mapper.io.tags import put_int
from mapper.jit.accelerate import driver

HEADER = b"read\toffset\tstrand\tcontig\tposition\tmismatches\n"
SKIPPED_HEADER = b"read\toffset\n"

_TAB, _LF, _PLUS, _MINUS = b"\t\n+-"
_NUMBERS = 32
"""Most characters of a line without its names: three numbers of 10, 10 and 2 digits (positions
are below 2**31), strand, five tabs and the line feed."""


class ContigNames:
    """Names of the contigs, concatenated, and the start of each contig in the text."""

    def __init__(self, names: Sequence[str], starts: np.ndarray) -> None:
        encoded = [name.encode("ascii") for name in names]
        self.letters = np.frombuffer(b"".join(encoded), np.uint8)
        self.offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(name) for name in encoded], out=self.offsets[1:])
        self.longest = max(map(len, encoded))
        self.starts = starts


@driver
def _put_letters(out, at, letters, start, end):
    for i in range(start, end):
        out[at] = letters[i]
        at += 1
    return at


@driver
def _fill(names, name_offsets, read, offset, hit_offsets, text_pos, mismatches, contig_letters,
          contig_offsets, contig_starts, out):  # fmt: skip
    """Write the lines; return their number of bytes."""
    at = 0
    for row in range(len(hit_offsets) - 1):
        kmer = row >> 1
        for hit in range(hit_offsets[row], hit_offsets[row + 1]):
            pos = np.int64(text_pos[hit])
            ref_id = find_contig(contig_starts, pos)
            name = read[kmer]
            at = _put_letters(out, at, names, name_offsets[name], name_offsets[name + 1])
            out[at] = _TAB
            at = put_int(out, at + 1, np.int64(offset[kmer]))
            out[at] = _TAB
            out[at + 1] = _PLUS if row & 1 == 0 else _MINUS
            out[at + 2] = _TAB
            at = _put_letters(
                out, at + 3, contig_letters, contig_offsets[ref_id], contig_offsets[ref_id + 1]
            )
            out[at] = _TAB
            at = put_int(out, at + 1, pos - contig_starts[ref_id])
            out[at] = _TAB
            at = put_int(out, at + 1, np.int64(mismatches[hit]))
            out[at] = _LF
            at += 1
    return at


def encode_hits(
    reads: ReadBatch, kmers: KmerBatch, hits: KmerHits, contigs: ContigNames
) -> np.ndarray:
    """Return the lines of a batch's matches, in order: uint8 (n_bytes,).

    Parameters
    ----------
    reads
        The batch that the k-mers were cut from.
    """
    per_row = np.diff(hits.hit_offsets)
    per_kmer = per_row[0::2] + per_row[1::2]
    name_lengths = np.diff(reads.name_offsets)[kmers.read]
    n_hits = int(hits.hit_offsets[-1] - hits.hit_offsets[0])
    size = int(per_kmer @ name_lengths) + n_hits * (_NUMBERS + contigs.longest)
    out = np.empty(size, np.uint8)
    n_bytes = _fill(
        reads.names, reads.name_offsets, kmers.read, kmers.offset, hits.hit_offsets,
        hits.text_pos, hits.mismatches, contigs.letters, contigs.offsets, contigs.starts, out,
    )  # fmt: skip
    return out[:n_bytes]


@driver
def _fill_skipped(names, name_offsets, read, offset, skipped, out):
    at = 0
    for kmer in range(len(skipped)):
        if skipped[kmer]:
            name = read[kmer]
            at = _put_letters(out, at, names, name_offsets[name], name_offsets[name + 1])
            out[at] = _TAB
            at = put_int(out, at + 1, np.int64(offset[kmer]))
            out[at] = _LF
            at += 1
    return at


def encode_skipped(reads: ReadBatch, kmers: KmerBatch, skipped: np.ndarray) -> np.ndarray:
    """Return a line for each k-mer with too many matches: uint8 (n_bytes,)."""
    name_lengths = np.diff(reads.name_offsets)[kmers.read]
    out = np.empty(int((name_lengths + 12) @ skipped), np.uint8)
    n_bytes = _fill_skipped(reads.names, reads.name_offsets, kmers.read, kmers.offset, skipped, out)
    return out[:n_bytes]
