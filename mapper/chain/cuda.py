"""CUDA kernel of chaining for short reads: turn seeds into candidate loci, a seed a thread."""

from __future__ import annotations

import numpy as np

from mapper.batch import LocusBatch
from mapper.chain.cpu import find_window
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace
from mapper.index.reference import ContigBounds
from mapper.seed.cuda import DeviceSeeds


@kernel(128)
def _chain(contigs, seeds, loci, n_seeds):
    i = cuda.grid(1)
    if i < n_seeds:
        loci.diagonal[i] = seeds.text_pos[i] - seeds.query_start[i]
        find_window(
            contigs.starts, contigs.lengths, seeds.text_pos, i, loci.ref_id, loci.window_start,
            loci.window_end,
        )  # fmt: skip


def find_loci(space: Workspace, contigs: ContigBounds, seeds: DeviceSeeds) -> LocusBatch:
    """Turn located seeds into candidate loci: :func:`mapper.chain.cpu.find_loci`.

    The result consists of device arrays, some of them shared with `seeds`.
    """
    n = len(seeds.columns.strand)
    loci = LocusBatch(
        locus_offsets=seeds.offsets,
        strand=seeds.columns.strand,
        diagonal=space.device("locus.diagonal", n, np.int64),
        ref_id=space.device("locus.ref_id", n, np.int32),
        window_start=space.device("locus.window_start", n, np.int64),
        window_end=space.device("locus.window_end", n, np.int64),
    )
    _chain.launch(n, space.stream, contigs, seeds.columns, loci, n)
    return loci
