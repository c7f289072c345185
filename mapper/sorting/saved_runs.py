"""Bring the runs of a sort to disk while records still come, so that another process can go on.

Runs that have been merged lie in the temporary file of the sort, which then has a name; a table of
its blocks lies beside it. Runs that are still in memory are written as they are at every
checkpoint, each once; their files are removed when a later checkpoint finds all of them in the
temporary file. So a checkpoint writes what has come since the one before.

Files of the directory:

==========  ====================================================================================
spilled     the temporary file of the sort (:mod:`mapper.sorting.spill_file`)
blocks      int64 rows of first key, bytes, records and offset: of each block of a merged run, and
            one with the end of its last block
runs-N      the records of consecutive runs of the input, each sorted: uncompressed BAM
==========  ====================================================================================
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mapper.errors import OutputError
from mapper.io.output_file import (
    Partial,
    output_error,
    remove_quietly,
    sync_to_disk,
)
from mapper.io.uncached_file import UncachedFile
from mapper.sorting.runs import RecordSorter, Run, RunsSoFar, run_of_bytes
from mapper.sorting.spill_file import SpilledRun, SpillFile

_SPILLED, _BLOCKS, _RUNS = "spilled", "blocks", "runs-"
_COLUMNS = 4
_ROW_BYTES = _COLUMNS * np.dtype(np.int64).itemsize


class _RunsFile(NamedTuple):
    """A file of runs that were in memory."""

    number: int
    first: int  # ordinal in the input of its first run
    sizes: list[int]  # bytes of each run

    @property
    def name(self) -> str:
        return f"{_RUNS}{self.number}"

    @property
    def end(self) -> int:
        """Ordinal behind that of its last run."""
        return self.first + len(self.sizes)


class SavedRuns:
    """The runs of a sort on disk.

    Parameters
    ----------
    directory
        It exists.
    saved
        What :meth:`RunsCheckpoint.save` returned in an earlier process; None to begin anew.

    Raises
    ------
    OutputError
        If the files are not those that were saved, or cannot be written.
    """

    def __init__(self, directory: Path, saved: dict[str, Any] | None) -> None:
        saved = saved or {
            "blocks": [], "n_merged": 0, "runs": [], "longest_clip": 0, "files": {_SPILLED: 0},
        }  # fmt: skip
        self._directory = directory
        self._block_counts: list[int] = saved["blocks"]  # rows of each merged run, its end too
        self._n_merged: int = saved["n_merged"]
        self._longest_clip: int = saved["longest_clip"]
        self._files = [_RunsFile(*file) for file in saved["runs"]]
        self._number = max((file.number for file in self._files), default=-1) + 1
        try:
            self.spill_file = SpillFile(
                directory, Partial(directory / _SPILLED, saved["files"][_SPILLED])
            )
        except OSError as error:
            raise output_error(directory, error) from error

    def restore(self, sorter: RecordSorter) -> None:
        """Give a new sorter the runs."""
        kept = {self._path(file) for file in self._files}
        for path in self._directory.glob(f"{_RUNS}*"):  # of a checkpoint that was not completed
            if path not in kept:
                remove_quietly(path)
        sorter.restore(self._merged_runs(), self._n_merged, self._longest_clip)
        for data in self._saved_data():
            sorter.add(run_of_bytes(data))

    def checkpoint(self, sorter: RecordSorter) -> RunsCheckpoint:
        """Return what a sorter holds; not while an earlier checkpoint is being saved."""
        so_far = sorter.so_far()
        first = max([so_far.n_merged, *(file.end for file in self._files)])
        # Not the runs that are on disk: their memory is to be free when they have been merged.
        new = deque(so_far.runs[first - so_far.n_merged :])
        so_far = so_far._replace(runs=[])
        return RunsCheckpoint(self, so_far, first, new, self.spill_file.later_sync())

    def save(self, of: RunsCheckpoint, stopped: Callable[[], bool]) -> dict[str, Any]:
        """Write what is not on disk yet; see :class:`RunsCheckpoint`."""
        so_far = of.so_far
        try:
            of.sync()
            self._save_blocks(so_far.merged[len(self._block_counts) :])
            self._n_merged = so_far.n_merged
            if of.new:
                self._save_runs(of.new, of.first, stopped)
            sync_to_disk(self._directory)
        except OSError as error:
            raise output_error(self._directory, error) from error
        runs = [file for file in self._files if file.end > self._n_merged]
        n_bytes = int(so_far.merged[-1].offsets[-1]) if so_far.merged else 0
        return {
            "blocks": list(self._block_counts),
            "n_merged": self._n_merged,
            "runs": [list(file) for file in runs],
            "longest_clip": so_far.longest_clip,
            "files": {
                _SPILLED: n_bytes,
                _BLOCKS: sum(self._block_counts) * _ROW_BYTES,
                **{file.name: sum(file.sizes) for file in runs},
            },
        }

    def remove_merged(self) -> None:
        """Remove files of runs that the last checkpoint found in the temporary file."""
        for file in self._files:
            if file.end <= self._n_merged:
                remove_quietly(self._path(file))
        self._files = [file for file in self._files if file.end > self._n_merged]

    def _path(self, file: _RunsFile) -> Path:
        return self._directory / file.name

    def _save_blocks(self, merged: Sequence[SpilledRun]) -> None:
        n_before = sum(self._block_counts)
        with (self._directory / _BLOCKS).open("ab") as file:
            file.truncate(n_before * _ROW_BYTES)
            new = []
            for run in merged:
                rows = np.zeros((len(run.offsets), _COLUMNS), np.int64)
                for column, values in enumerate(run):
                    rows[: len(values), column] = values
                file.write(rows.tobytes())
                new.append(len(rows))
            file.flush()
            os.fsync(file.fileno())
        self._block_counts += new

    def _save_runs(self, runs: deque[Run], first: int, stopped: Callable[[], bool]) -> None:
        """Write runs, of which the first has that ordinal, and drop each when it is written."""
        file = _RunsFile(self._number, first, [len(run.data) for run in runs])
        with UncachedFile(self._path(file)) as out:
            while runs:
                if stopped():
                    raise OutputError(f"{self._path(file)}: the run has ended")
                out.write(runs.popleft().data)
            out.sync()
        self._files.append(file)
        self._number += 1

    def _merged_runs(self) -> list[SpilledRun]:
        table = self._read(_BLOCKS, 0, sum(self._block_counts) * _ROW_BYTES)
        rows = table.view(np.int64).reshape(-1, _COLUMNS)
        ends = accumulate(self._block_counts, initial=0)
        return [
            SpilledRun(
                rows[a : b - 1, 0].copy(), rows[a : b - 1, 1].copy(), rows[a : b - 1, 2].copy(),
                rows[a:b, 3].copy(),
            )
            for a, b in pairwise(ends)
        ]  # fmt: skip

    def _saved_data(self) -> Iterator[np.ndarray]:
        """Yield the records of the runs that are not in the temporary file, in input order."""
        for file in self._files:
            offsets = accumulate(file.sizes, initial=0)
            for ordinal, (offset, end) in enumerate(pairwise(offsets), file.first):
                if ordinal >= self._n_merged:
                    yield self._read(file.name, offset, end - offset)

    def _read(self, name: str, offset: int, n_bytes: int) -> np.ndarray:
        data = np.empty(n_bytes, np.uint8)
        if n_bytes == 0:
            return data
        path = self._directory / name
        try:
            with path.open("rb") as file:
                file.seek(offset)
                if file.readinto(data.data) != n_bytes:
                    raise OutputError(f"{path}: is shorter than what was written")
        except OSError as error:
            raise OutputError(f"{path}: cannot be read: {error.strerror}") from error
        return data


class RunsCheckpoint(NamedTuple):
    """The runs of a sort at one moment, to be brought to disk by another thread."""

    saved: SavedRuns
    so_far: RunsSoFar  # without the runs in memory
    first: int  # ordinal of the first of these that is not on disk
    new: deque[Run]  # those that are not
    sync: Callable[[], None]  # of the temporary file

    def save(self, stopped: Callable[[], bool]) -> dict[str, Any]:
        """Write what is not on disk yet; see :meth:`mapper.io.output.Checkpoint.save`."""
        return self.saved.save(self, stopped)

    def settle(self) -> None:
        """Remove what only earlier checkpoints need."""
        self.saved.remove_merged()
