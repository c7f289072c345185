"""Many short pairs on CUDA devices: the first pass of a batch.

What limits it is the way to the device and back, so that the host touches every letter once:

- Threads pack the letters of a chunk of pairs into page-locked memory (``flat_batch.py``; what is
  packed already is copied there), several chunks ahead of the device. Packed pairs that lie in
  page-locked memory are copied from where they lie, and a kernel looks at their columns.
- One thread, this one, queues for each chunk the copies, the kernels, and the copies back
  (``flat_slots.py``), and packs like the others while it has nothing to queue or to finish.
- The device writes the columns of results as the caller gets them, and they are copied into
  page-locked arrays that are the caller's to keep, and used again when the caller lets go.
  Where the operations of a chunk go follows from the number of those before, so chunks are
  finished in their order.

Pairs with other letters than A C G T, and those that do not fit the small work space of a
kernel, are left to what follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from mapper.align.cuda.chunks import CHUNK_PAIRS, Chunk
from mapper.align.cuda.flat_found import FirstPass
from mapper.align.cuda.flat_packed import PackedSource
from mapper.align.cuda.launch_plan import FlatMetric
from mapper.align.cuda.retry import workspace_of
from mapper.align.cuda.staging import Source, Staging, words_of_place
from mapper.align.cuda.stream import Slot, slot_of
from mapper.align.cuda.trace import host_time
from mapper.cuda.api import cuda
from mapper.cuda.memory import Workspace, is_page_locked, page_locked, total_bytes
from mapper.errors import DeviceError, DeviceMemoryError

log = logging.getLogger(__name__)

SLOTS = 4
"""Chunks of a device that are on their way: being staged, copied, computed and copied back."""

CHUNKS_A_DEVICE = 16
"""Of full size of a batch, if they are not smaller than is worth what each takes, nor larger than
there is room for."""

FEWEST_PAIRS = 1 << 14
"""Of a chunk of full size."""

MOST_WORDS = 1 << 25
"""Of a staged chunk; a longer pair is left."""

_LEAST_CHUNK = 1 << 10


def first_pass(
    ordinals: Sequence[int], metric: FlatMetric, source: Source, want_path: bool, threads: int
) -> FirstPass:
    """Align the pairs that fit; with less memory in smaller chunks."""
    most_pairs = CHUNK_PAIRS
    while True:
        with ExitStack() as stack:
            spaces = [
                (ordinal, stack.enter_context(workspace_of(ordinal, i)))
                for i in range(SLOTS)
                for ordinal in ordinals
            ]
            try:
                return _in_chunks(spaces, metric, source, want_path, threads, most_pairs)
            except DeviceMemoryError as error:
                for ordinal, space in spaces:
                    with cuda.gpus[ordinal]:
                        space.release()
                most_pairs //= 4
                log.debug("%s; going on with chunks of %d pairs", error, most_pairs)
                if most_pairs < min(_LEAST_CHUNK, CHUNK_PAIRS):
                    source.check(threads)  # nothing has been looked at
                    found = FirstPass(source.n_pairs, want_path)
                    found.close([Chunk(0, source.n_pairs, 0, 0, 0, 0)])
                    return found


def _in_chunks(
    spaces: Sequence[tuple[int, Workspace]], metric: FlatMetric, source: Source, want_path: bool,
    threads: int, most_pairs: int,
) -> FirstPass:  # fmt: skip
    """Stage, align and fetch all chunks, each in the next slot."""
    with host_time("preparing"):
        direct = isinstance(source, PackedSource) and is_page_locked(source.packed)
        by_memory = (total_bytes() >> 6) // (4 * metric.slot)
        share = source.n_pairs * SLOTS // (CHUNKS_A_DEVICE * len(spaces)) + 1
        chunks = source.chunks(max(1, min(most_pairs, by_memory, max(share, FEWEST_PAIRS))))
        unfit = [chunk for chunk in chunks if source.n_words(chunk) > MOST_WORDS]
        if unfit:
            source.check(threads)  # they are not looked at on the way
        chunks = [chunk for chunk in chunks if source.n_words(chunk) <= MOST_WORDS]
        is_current = len({ordinal for ordinal, _ in spaces}) == 1
        spaces = spaces[: len(chunks)]

    def prepared() -> tuple[FirstPass, list[Slot]]:
        most = max((chunk.n_pairs for chunk in chunks), default=0)
        n_words = words_of_place(source, chunks)
        slots = [slot_of(*space, metric, most, n_words, want_path, is_current) for space in spaces]
        return FirstPass(source.n_pairs, want_path), slots

    if chunks and direct and isinstance(source, PackedSource):
        with host_time("preparing"):
            found, slots = prepared()
        run_direct(slots, source, chunks, found)
        if found.n_wrong:
            source.check(threads)
            raise DeviceError(f"{found.n_wrong} packed pairs were not read as they are")
    elif chunks:
        found = run_staged(len(spaces), source, chunks, threads, prepared)
    else:
        found = FirstPass(source.n_pairs, want_path)
    with host_time("closing"):
        found.close(unfit)
    return found


def run_staged(
    n_slots: int, source: Source, chunks: Sequence[Chunk], threads: int,
    prepared: Callable[[], tuple[FirstPass, list[Slot]]],
) -> FirstPass:  # fmt: skip
    """Stage, align and fetch chunks; a place for each slot, which it is copied from.

    `prepared` makes what results go to, and the slots, while the first chunks are staged.
    """
    with host_time("preparing"):
        n_words = words_of_place(source, chunks)
        places = page_locked(n_slots * n_words, np.dtype(np.uint64)).reshape(n_slots, n_words)
        staging = Staging(source, chunks, places, threads)
    slots: list[Slot] = []
    try:
        with host_time("preparing"):
            staging.begin(n_slots)
            found, slots = prepared()
        begun, queued, finished, turn = n_slots, 0, 0, 0
        while finished < len(chunks):
            if queued < begun and staging.is_ready(queued):
                with host_time("queueing"):
                    chunk = chunks[queued]
                    staged = staging.place(queued)
                    slots[queued % n_slots].queue(chunk, staged, source.n_words(chunk))
                queued += 1
            elif queued == begun or (finished < queued and slots[finished % n_slots].is_done()):
                _finish(slots, finished, source, chunks, found)
                finished += 1
                if begun < len(chunks):
                    staging.begin()
                    begun += 1
            else:
                with host_time("waiting for staging"):
                    turn = staging.help(turn)
        return found
    finally:
        with host_time("closing"):
            staging.close()
            wait_for(slots)


def run_direct(
    slots: Sequence[Slot], source: PackedSource, chunks: Sequence[Chunk], found: FirstPass
) -> None:
    """Align and fetch chunks that the device copies from where they lie."""
    n_slots = len(slots)
    try:
        for step in range(len(chunks) + n_slots):
            if step >= n_slots:
                _finish(slots, step - n_slots, source, chunks, found)
            if step < len(chunks):
                with host_time("queueing"):
                    slots[step % n_slots].queue_packed(chunks[step], source)
    finally:
        wait_for(slots)


def _finish(
    slots: Sequence[Slot], c: int, source: Source, chunks: Sequence[Chunk], found: FirstPass
) -> None:
    """Fetch chunk c; the slot is free for what follows on its stream."""
    slots[c % len(slots)].finish(chunks[c], source.n_pairs, found, lambda: wait_for(slots))


def wait_for(slots: Sequence[Slot]) -> None:
    """Wait for all that is queued."""
    for slot in slots:
        slot.wait()
