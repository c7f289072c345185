"""k-mer searches as lists of matches, for comparison with tests/naive/kmers.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from mapper.batch import KmerBatch, KmerHits
from mapper.index.fm import FMIndex
from mapper.jit.accelerate import driver
from mapper.kmers.cpu import CpuKmerSearch
from mapper.kmers.cut import cut_kmers
from mapper.kmers.hits import NO_LIMIT, HitStore, KmerWork, StepMasks
from mapper.kmers.search import TextBounds, fill_contexts, make_text_bounds, search_rows
from mapper.params import KmerParams
from tests.helpers.read_batches import Genome, reads_of
from tests.naive.kmers import Match


def bounds_of(genome: Genome) -> TextBounds:
    """Return the bounds of a genome's contigs."""
    return make_text_bounds(genome.starts, genome.lengths, genome.fm.ref_planes)


@driver
def _fill(fm, left_len, contexts):
    for row in range(fm.n_rows):
        fill_contexts(fm, left_len, row, contexts)


@driver
def _search_by_contexts(fm, bounds, contexts, low, high, work, params, hits):
    search_rows(fm, bounds, contexts, low, high, work, params, hits, 0)


class SearchAsOnDevice(CpuKmerSearch):
    """The search of the CUDA kernels, with contexts and two passes, by one thread of the CPU."""

    def __init__(
        self,
        fm: FMIndex,
        bounds: TextBounds,
        params: KmerParams,
        max_turns: int,
        step_masks: StepMasks,
    ) -> None:
        super().__init__(fm, bounds, params)
        self._step_masks = step_masks
        self.n_deferred = 0
        self._max_turns = max_turns
        self.contexts = np.empty((2, fm.n_rows), np.uint32)
        _fill(self._fm, params.kmer_len - self._fm.kmer_len, self.contexts)

    def _find(self, kmers: KmerBatch, store: HitStore) -> None:
        n_rows = 2 * kmers.n_kmers
        n_deferred, deferred = np.zeros(1, np.int64), np.empty(n_rows, np.int32)
        for max_turns, in_parts in ((self._max_turns, False), (NO_LIMIT, True)):
            work = KmerWork(
                np.zeros(1, np.int64),
                n_rows,
                max_turns,
                n_deferred,
                deferred,
                in_parts,
                self._step_masks,
            )
            _search_by_contexts(
                self._fm, self._bounds, self.contexts, kmers.low, kmers.high, work, self.params,
                store,
            )  # fmt: skip
        self.n_deferred += int(n_deferred[0])


def letters_of(kmers: KmerBatch, kmer_len: int) -> list[str]:
    """Each k-mer as letters."""
    return [
        "".join("ACGT"[(low >> i & 1) + 2 * (high >> i & 1)] for i in range(kmer_len))
        for low, high in zip(kmers.low.tolist(), kmers.high.tolist(), strict=True)
    ]


def matches_of(genome: Genome, kmers: KmerBatch, hits: KmerHits) -> list[Match]:
    """Hits as the oracle writes them, in the order of the batch."""
    rows = np.repeat(np.arange(2 * kmers.n_kmers), np.diff(hits.hit_offsets))
    contigs = np.searchsorted(genome.starts, hits.text_pos, side="right") - 1
    positions = hits.text_pos - genome.starts[contigs]
    return [
        Match(int(kmers.read[row >> 1]), int(kmers.offset[row >> 1]), row & 1, contig, pos, n)
        for row, contig, pos, n in zip(
            rows.tolist(), contigs.tolist(), positions.tolist(), hits.mismatches.tolist(),
            strict=True,
        )
    ]  # fmt: skip


def run_search(
    genome: Genome, search: Callable[[KmerBatch], KmerHits], reads: Sequence[str], kmer_len: int,
    stride: int, max_kmers: int = 1 << 16,
) -> tuple[list[Match], list[tuple[int, int]], int]:  # fmt: skip
    """Cut and search reads; return matches, skipped k-mers and the number of ambiguous ones."""
    matches: list[Match] = []
    skipped: list[tuple[int, int]] = []
    n_ambiguous = 0
    for kmers, ambiguous in cut_kmers(reads_of(reads), kmer_len, stride, max_kmers):
        hits = search(kmers)
        assert len(hits.skipped) == kmers.n_kmers
        assert len(hits.text_pos) == hits.hit_offsets[-1]
        matches += matches_of(genome, kmers, hits)
        skipped += [
            (int(kmers.read[i]), int(kmers.offset[i])) for i in np.flatnonzero(hits.skipped)
        ]
        n_ambiguous += ambiguous
    return matches, skipped, n_ambiguous


@st.composite
def genomes(draw: st.DrawFn) -> list[str]:
    """Contigs of few words, so that k-mers repeat, with N runs, palindromes and poly-A."""
    word = st.one_of(
        st.text("ACGT", min_size=1, max_size=30),
        st.text("AC", min_size=1, max_size=4),
        st.integers(1, 12).map(lambda n: "N" * n),
        st.sampled_from(["A" * 30, "ACGT" * 6, "R", "T" * 20, "GAATTC"]),
    )
    words = draw(st.lists(word, min_size=1, max_size=4))
    contig = st.lists(st.sampled_from(words), min_size=1, max_size=8).map("".join)
    return draw(st.lists(contig, min_size=1, max_size=4))


@st.composite
def reads_from(draw: st.DrawFn, contigs: list[str]) -> list[str]:
    """Reads from anywhere on the contigs with a few changed bases, and short random ones."""
    reads = draw(st.lists(st.text("ACGTN", max_size=20), max_size=2))
    for _ in range(draw(st.integers(1, 4))):
        letters = list(draw(st.sampled_from(contigs)))
        for _ in range(draw(st.integers(0, 3))):
            letters[draw(st.integers(0, len(letters) - 1))] = draw(st.sampled_from("ACGTN"))
        start = draw(st.integers(0, len(letters) - 1))
        reads.append("".join(letters[start : start + draw(st.integers(1, 60))]))
    return reads
