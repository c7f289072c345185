"""Threads that are kept, and what becomes of their failures."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mapper.align.cuda.chunks import Chunk
from mapper.align.cuda.staging import Staging
from mapper.align.threads import crew

FORK = """
import os
from mapper.align.threads import crew
assert crew(2).submit(int).result() == 0
child = os.fork()
if child == 0:
    os._exit(crew(2).submit(lambda: 7).result(timeout=300))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_threads_are_kept() -> None:
    assert crew(2) is crew(2)
    assert crew(2) is not crew(3)


def test_a_forked_process_has_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=60)


class Failing:
    """A source whose threads raise."""

    def stager(self, chunks, places):
        def stage(queue, most: int) -> int:
            raise OSError("no more of that")

        return stage


def test_an_error_of_a_thread_is_raised_by_the_waiting_thread() -> None:
    staging = Staging(Failing(), [Chunk(0, 1, 0, 1, 0, 1)], np.zeros((1, 64), np.uint64), 2)
    staging.begin()
    with pytest.raises(OSError, match="no more of that"):
        staging.wait(0)
    staging.close()


def test_threads_that_wait_for_a_buffer_can_be_stopped() -> None:
    from mapper.align.cuda.sources import LetterSource
    from mapper.align.pairs import PairBatch

    letters, bounds = np.full(8, ord("A"), np.uint8), np.array([0, 4, 8])
    source = LetterSource(PairBatch(*[letters, bounds[:-1], bounds[1:]] * 2))
    staging = Staging(source, source.chunks(1), np.zeros((1, 64), np.uint64), 2)
    staging.begin()
    staging.wait(0)  # the buffer is never free for the second chunk
    staging.close()
