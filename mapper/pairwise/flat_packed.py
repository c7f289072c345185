"""Chunks of pairs that are packed already on their way to a device; see ``flat_batch.py``."""

from __future__ import annotations

import numpy as np

from mapper.accelerate import core, driver
from mapper.pairwise import flat_chunks
from mapper.pairwise.flat_batch import take_out_long
from mapper.pairwise.flat_chunks import BEHIND, Chunk, Job
from mapper.pairwise.packing import PackedPairs
from mapper.pairwise.small_rows import MAX_SMALL_LENGTH


class PackedSource:
    """Pairs whose words are copied; those of more than 2 bits a symbol are not given to a device.

    Parameters
    ----------
    packed
        Sequences of each side lie one behind the other.
    """

    def __init__(self, packed: PackedPairs) -> None:
        self._packed = packed
        self.n_pairs = packed.n_pairs

    def chunks(self, most_pairs: int) -> list[Chunk]:
        """Cut the pairs into runs."""
        packed = self._packed
        sides = (packed.query_start, packed.query_len), (packed.ref_start, packed.ref_len)
        bounds, first = [], 0
        while first < self.n_pairs:
            last = min(
                int(
                    np.searchsorted(
                        start, start[first] + (flat_chunks.CHUNK_SYMBOLS >> 5), side="right"
                    )
                )
                - 1
                for start, _ in sides
            )
            last = min(max(last, first + 1), first + most_pairs, self.n_pairs)
            spans = []
            for start, length in sides:
                n_bits = int(length[last - 1]) << int(packed.shift[last - 1])
                spans += [int(start[first]), int(start[last - 1]) + ((n_bits + 63) >> 6)]
            bounds.append(Chunk(first, last, *spans))
            first = last
        return bounds

    def n_words(self, chunk: Chunk) -> int:
        """Words of a staged chunk."""
        n_words = chunk.query_behind - chunk.query_begin + chunk.ref_behind - chunk.ref_begin
        return 2 * chunk.n_pairs + n_words + BEHIND

    def job(self, chunk: Chunk, staged: np.ndarray, n_jobs: int) -> tuple[Job, None]:
        """Return what stages a chunk, by any threads."""
        packed, query_at = self._packed, 2 * chunk.n_pairs
        ref_at = query_at + chunk.query_behind - chunk.query_begin
        sides = (
            (packed.query_words, chunk.query_begin, chunk.query_behind, query_at),
            (packed.ref_words, chunk.ref_begin, chunk.ref_behind, ref_at),
        )

        def part(k: int) -> None:
            for words, begin, behind, at in sides:
                a, b = ((behind - begin) * x // n_jobs for x in (k, k + 1))
                staged[at + a : at + b] = words[begin + a : begin + b]
            rows = (chunk.n_pairs * x // n_jobs for x in (k, k + 1))
            _stage_rows(
                packed.query_start, packed.query_len, packed.ref_start, packed.ref_len,
                packed.shift, chunk.first, chunk.query_begin - query_at, chunk.ref_begin - ref_at,
                *rows, chunk.n_pairs, staged.view(np.int32),
            )  # fmt: skip

        return part, None

    def settling_job(self, chunk: Chunk, staged: np.ndarray, noted: None, n_jobs: int) -> None:
        """Return nothing: rows are final when the job is done."""

    def selected(self, pairs: np.ndarray) -> PackedPairs:
        """Return some pairs (int64, rising)."""
        packed = self._packed
        return packed._replace(
            query_start=packed.query_start[pairs], query_len=packed.query_len[pairs],
            ref_start=packed.ref_start[pairs], ref_len=packed.ref_len[pairs],
            shift=packed.shift[pairs],
        )  # fmt: skip


@driver
def _stage_rows(query_start, query_len, ref_start, ref_len, shift, first, query_origin, ref_origin,
                begin, end, n, columns):  # fmt: skip
    """Write rows begin:end of the four columns of a chunk of n pairs."""
    query_start, query_len = query_start[first + begin :], query_len[first + begin :]
    ref_start, ref_len = ref_start[first + begin :], ref_len[first + begin :]
    _symbols_from(query_start, query_origin, columns[begin:end])
    _symbols_from(ref_start, ref_origin, columns[n + begin : n + end])
    lengths = columns[2 * n + begin : 2 * n + end], columns[3 * n + begin : 3 * n + end]
    _lengths(query_len, shift[first + begin :], lengths[0])
    _lengths(ref_len, shift[first + begin :], lengths[1])
    take_out_long(lengths[0], lengths[1])


@core
def _symbols_from(words, origin, out):
    for j in range(len(out)):
        out[j] = (words[j] - origin) << 5


@core
def _lengths(lengths, shift, out):
    """Write lengths, more than the greatest for pairs of more than 2 bits a symbol."""
    for j in range(len(out)):
        out[j] = lengths[j] if shift[j] == 1 else np.int64(MAX_SMALL_LENGTH + 1)
