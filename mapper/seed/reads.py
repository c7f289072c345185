"""Reads on the device: as they came, and as bit planes of both strands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import PackedReads, ReadBatch
from mapper.batch_ops import join_offsets, longest_row
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace
from mapper.seed.pack import pack_row, packed_offsets


class DeviceReads(NamedTuple):
    """What the stages need of a ReadBatch and its PackedReads, as device arrays."""

    bases: Any  # uint8
    base_offsets: Any  # int64 (n + 1,)
    planes: Any  # uint64 (n_words, 3)
    word_offsets: Any  # int64 (n + 1,)


@kernel(128)
def _pack(reads, n_rows):
    """Pack one strand of one read a thread."""
    row = cuda.grid(1)
    if row < n_rows:
        pack_row(
            reads.bases, reads.base_offsets, reads.planes, reads.word_offsets, row >> 1, row & 1
        )


def upload_reads(space: Workspace, batches: Sequence[ReadBatch]) -> tuple[DeviceReads, int]:
    """Copy reads to the device, all batches as one, and pack them there; queued on the stream.

    Returns
    -------
    The reads; the bases of the longest of them, 1 at least.
    """
    base_offsets = join_offsets([reads.base_offsets for reads in batches])
    word_offsets = packed_offsets(base_offsets)
    n_reads, n_words = len(base_offsets) - 1, int(word_offsets[-1]) + 1
    on_device = DeviceReads(
        bases=space.upload_joined("bases", [reads.bases for reads in batches]),
        base_offsets=space.upload("base_offsets", base_offsets),
        planes=space.device("planes", 3 * n_words, np.uint64).reshape(n_words, 3),
        word_offsets=space.upload("word_offsets", word_offsets),
    )
    _pack.launch(2 * n_reads, space.stream, on_device, 2 * n_reads)
    return on_device, max(1, int(longest_row(base_offsets)))


def download_packed(space: Workspace, reads: DeviceReads) -> PackedReads:
    """Return the bit planes as the CPU makes them; waits for the stream."""
    n_words = len(reads.planes)
    planes = space.download("planes", reads.planes.reshape(3 * n_words))
    word_offsets = space.download("word_offsets", reads.word_offsets)
    space.synchronize()
    packed = planes.reshape(n_words, 3).copy()
    packed[-1] = 0  # the row of padding, which no kernel writes
    return PackedReads(packed, word_offsets.copy())
