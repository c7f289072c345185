"""The pipeline of ``fmwave seed``: read, cut, search and write, overlapped and in order.

Batches of k-mers go to searchers, one for each CPU thread or two for each CUDA device (one
copies while the other computes). Their hits are encoded as text by a second pool of threads and
written in the order of the input. Each stage is only a few batches ahead of the next: memory is
bounded by the index and the batches, not by the input.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import comb, inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper.batch import KmerBatch, KmerHits, ReadBatch
from mapper.cuda.devices import CPU, CUDA, DeviceChoice
from mapper.host_memory import available_bytes
from mapper.index.fm import with_table
from mapper.index.index import Index
from mapper.io.fastq import FastqReader, open_sequences
from mapper.io.output_file import OutputFile
from mapper.kmers.cut import cut_kmers
from mapper.kmers.search import make_text_bounds
from mapper.kmers.table import (
    HEADER,
    SKIPPED_HEADER,
    ContigNames,
    encode_hits,
    encode_skipped,
)
from mapper.parallel.map import any_idle, ordered_map
from mapper.params import KmerParams

log = logging.getLogger(__name__)

READ_BASES = {CPU: 1 << 20, CUDA: 1 << 23}
"""Bases read at a time: a device needs more k-mers at once to be busy."""
HITS_OF_BATCH = 1 << 26
"""Most hits of a batch, if each k-mer has ``max_hits``. Unless that allows fewer than ..."""
FEWEST_KMERS = 1 << 12
"""... k-mers. A batch then has so many at most, and no more than are expected to have ..."""
EXPECTED_HITS = 1 << 22
"""... hits in a random text."""
KMERS_OF_BATCH = {CPU: 1 << 13, CUDA: 1 << 19}
HITS_OF_TEXT = 1 << 19
"""Hits encoded as text at a time, some tens of megabytes."""
STREAMS_OF_DEVICE = 2
BASES_OF_BYTE = 4
"""Most bases in a byte of a compressed file of reads."""


@dataclass(frozen=True)
class SeedJob:
    """Input, output and options of a run."""

    reads: str
    output: str
    params: KmerParams
    stride: int = 1
    skipped: str | None = None
    file_format: str | None = None
    device: DeviceChoice = field(default_factory=lambda: DeviceChoice(CPU))
    threads: int = 1
    batch_kmers: int | None = None
    checks: Iterable[None] = ()  # of the index's files: mapper.index.storage.checks


@dataclass
class SeedCounts:
    """Counts of a run."""

    reads: int = 0
    kmers: int = 0
    ambiguous: int = 0  # not searched: with an ambiguous base
    matched: int = 0
    skipped: int = 0  # more hits than the limit
    hits: int = 0


class _Piece(NamedTuple):
    """k-mers with the reads they come from."""

    reads: ReadBatch
    kmers: KmerBatch


class _Found(NamedTuple):
    reads: ReadBatch
    kmers: KmerBatch
    hits: KmerHits


def seed_reads(index: Index, job: SeedJob) -> SeedCounts:
    """Search the k-mers of reads and write their matches.

    Returns
    -------
    Counts. The output is complete, under its final name, when this returns; on any exception
    no file has that name.

    Raises
    ------
    MapperError
        If input, options, device or output are invalid.
    """
    counts = SeedCounts()
    searchers = make_searchers(index, job)
    n_bases = int(index.contigs.lengths.sum())
    names = ContigNames(index.contigs.names, index.contigs.starts)
    reader = open_sequences(job.reads, READ_BASES[job.device.backend], job.file_format)
    found = _search(reader, searchers, job, n_bases, counts)
    try:
        with OutputFile(job.output) as output:
            output.write(HEADER)
            if job.skipped is None:
                _write(found, names, job, output, None)
            else:
                with OutputFile(job.skipped) as skipped:
                    skipped.write(SKIPPED_HEADER)
                    _write(found, names, job, output, skipped)
            for _ in job.checks:  # matches of a damaged index must not be published
                pass
    finally:
        reader.close()
    return counts


def make_searchers(index: Index, job: SeedJob) -> list[Callable[[KmerBatch], KmerHits]]:
    """Return the functions that search batches of k-mers, one for each worker.

    Raises
    ------
    DeviceMemoryError
        If the index does not fit on a device.
    """
    bounds = make_text_bounds(index.contigs.starts, index.contigs.lengths, index.fm.ref_planes)
    if job.device.backend != CUDA:
        from mapper.kmers.cpu import CpuKmerSearch, fit_table, table_len_for_work

        fm = fit_table(index.fm, job.params.kmer_len)
        free = available_bytes() or 0
        wanted = table_len_for_work(fm, job.params, kmers_at_most(job), free)
        fm = with_table(fm, wanted, job.threads)
        return [CpuKmerSearch(fm, bounds, job.params) for _ in range(job.threads)]
    from mapper.cuda.api import device_context
    from mapper.index.cuda import device_index
    from mapper.kmers.cuda import CudaKmerSearch, device_contexts

    on_device = {}
    for ordinal in job.device.ordinals:
        if ordinal not in on_device:
            with device_context(ordinal):
                fm = device_index(index.fm, job.params.kmer_len)
                on_device[ordinal] = fm, device_contexts(fm, job.params)
    return [
        CudaKmerSearch(ordinal, *on_device[ordinal], bounds, job.params)
        for _ in range(STREAMS_OF_DEVICE)
        for ordinal in job.device.ordinals
    ]


def kmers_at_most(job: SeedJob) -> float:
    """Return the most k-mers that the file of reads may hold; infinity if it is no file."""
    reads = Path(job.reads)
    return reads.stat().st_size * BASES_OF_BYTE / job.stride if reads.is_file() else inf


def _search(
    reader: FastqReader, searchers: list[Callable[[KmerBatch], KmerHits]], job: SeedJob,
    n_bases: int, counts: SeedCounts,
) -> Iterator[_Found]:  # fmt: skip
    """Yield the hits of all k-mers, in order."""

    def with_reads(search: Callable[[KmerBatch], KmerHits]) -> Callable[[_Piece], _Found]:
        return lambda piece: _Found(*piece, search(piece.kmers))

    search = any_idle([with_reads(search) for search in searchers])
    pieces = _pieces(reader, job, n_bases, counts)
    for found in ordered_map(search, pieces, len(searchers)):
        per_row = np.diff(found.hits.hit_offsets)
        counts.matched += int(np.count_nonzero(per_row[0::2] + per_row[1::2]))
        counts.skipped += int(found.hits.skipped.sum())
        counts.hits += len(found.hits.text_pos)
        yield found


def most_kmers(params: KmerParams, n_bases: int) -> int:
    """Return the most k-mers of a batch, for a reference of `n_bases` bases."""
    limit = HITS_OF_BATCH // params.max_hits
    if limit >= FEWEST_KMERS:
        return limit
    k = params.kmer_len
    alike = sum(comb(k, m) * 3**m for m in range(min(params.max_mismatches, k) + 1))
    hits_of_one = 2 * n_bases * alike // 4**k + 1
    return max(1, min(FEWEST_KMERS, EXPECTED_HITS // hits_of_one))


def _pieces(
    reader: FastqReader, job: SeedJob, n_bases: int, counts: SeedCounts
) -> Iterator[_Piece]:
    """Yield the k-mers of all reads, in batches."""
    limit = most_kmers(job.params, n_bases)
    most = min(limit, job.batch_kmers or KMERS_OF_BATCH[job.device.backend])
    while (reads := reader.next_batch()) is not None:
        counts.reads += reads.n_reads
        for kmers, n_ambiguous in cut_kmers(reads, job.params.kmer_len, job.stride, most):
            counts.kmers += kmers.n_kmers
            counts.ambiguous += n_ambiguous
            if kmers.n_kmers:
                yield _Piece(reads, kmers)


def _write(
    found: Iterator[_Found], names: ContigNames, job: SeedJob, output: OutputFile,
    skipped: OutputFile | None,
) -> None:  # fmt: skip
    """Encode the hits and write them in order."""

    def encode(part: _Found) -> tuple[np.ndarray, np.ndarray]:
        lines = encode_hits(part.reads, part.kmers, part.hits, names)
        if skipped is None:
            return lines, lines[:0]
        return lines, encode_skipped(part.reads, part.kmers, part.hits.skipped)

    parts = (part for whole in found for part in _parts(whole))
    for lines, skipped_lines in ordered_map(encode, parts, job.threads):
        output.write(lines.data)
        if skipped is not None:
            skipped.write(skipped_lines.data)


def _parts(whole: _Found) -> Iterator[_Found]:
    """Cut a batch into parts of at most HITS_OF_TEXT hits, or of one k-mer."""
    reads, kmers, hits = whole
    first_hit = hits.hit_offsets[0::2]  # of each k-mer, and the total
    start = 0
    while start < kmers.n_kmers:
        end = int(np.searchsorted(first_hit, first_hit[start] + HITS_OF_TEXT, side="right")) - 1
        end = min(max(end, start + 1), kmers.n_kmers)
        yield _Found(
            reads,
            KmerBatch(*(column[start:end] for column in kmers)),
            hits._replace(
                hit_offsets=hits.hit_offsets[2 * start : 2 * end + 1],
                skipped=hits.skipped[start:end],
            ),
        )
        start = end
