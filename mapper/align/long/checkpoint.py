"""The state of a long search on disk, so that a run of hours can be interrupted."""

from __future__ import annotations

import logging
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper.errors import OutputError, UsageError
from mapper.io.output_file import (
    check_writable,
    output_error,
    remove_quietly,
    sync_and_rename,
    temporary_name,
)

log = logging.getLogger(__name__)

SECONDS = 60.0
"""Time between two states saved, where nothing else is said."""


class Part(NamedTuple):
    """A part of a path: from (v, h), so long, with this distance (or at most)."""

    v: int
    h: int
    query_len: int
    ref_len: int
    bound: int


class Work(NamedTuple):
    """What is done and what is left."""

    pending: list[Part]
    done: dict[tuple[int, int], np.ndarray]  # operations by the place where a part starts
    search: list[np.ndarray] | None  # state and rows of the search in the first part


class Checkpoint:
    """Where the work is saved, if anywhere.

    Parameters
    ----------
    path
        File, or None to save nothing.
    digest
        Of the problem; a file with another is refused.
    seconds
        Time between two states saved; None: ``SECONDS``.

    Raises
    ------
    OutputError
        If no file can be made there.
    """

    def __init__(self, path: Path | str | None, digest: str, seconds: float | None) -> None:
        self._path = None if path is None else Path(path)
        self._digest = digest
        self._seconds = SECONDS if seconds is None else seconds
        self._last = time.monotonic()
        if self._path is not None:
            check_writable(self._path)

    def load(self) -> Work | None:
        """Return the work saved by an interrupted run, or None if there is no file.

        Raises
        ------
        UsageError
            If the file is no checkpoint, or one of another problem.
        """
        if self._path is None or not self._path.exists():
            return None
        try:
            # Opened here: np.load would leave a broken file open.
            with self._path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                if str(file["digest"]) != self._digest:
                    raise UsageError(
                        f"{self._path}: a checkpoint of other sequences or options; remove it, or "
                        "name another file"
                    )
                pending = [Part(*map(int, row)) for row in file["pending"]]
                places = [(int(v), int(h)) for v, h in file["places"]]
                done = {place: file[f"ops{i}"] for i, place in enumerate(places)}
                n_arrays = int(file["n_arrays"])
                search = [file[f"search{i}"] for i in range(n_arrays)] if n_arrays else None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise UsageError(
                f"{self._path}: is no checkpoint; remove it, or name another file"
            ) from error
        return Work(pending, done, search)

    def save_if_due(self, work: Callable[[], Work]) -> None:
        """Save, if the time for it has come."""
        if self._path is None or time.monotonic() - self._last < self._seconds:
            return
        self._save(self._path, work())
        self._last = time.monotonic()

    @contextmanager
    def kept_by_signals(self, work: Callable[[], Work | None]) -> Iterator[None]:
        """Save, too, when KeyboardInterrupt or its like ends what is within; then raise it.

        An error saves nothing: it may have left things half done. Neither is anything saved where
        `work` returns None; the last state saved stays.
        """
        try:
            yield
        except Exception:
            raise
        except BaseException:
            left = None if self._path is None else work()
            if self._path is not None and left is not None:
                try:
                    self._save(self._path, left)
                    log.info("the state is saved in %s", self._path)
                except OutputError as error:
                    log.warning("the state of now is not saved: %s", error)
            raise

    def remove(self) -> None:
        """Remove the file: the work is complete."""
        if self._path is not None:
            remove_quietly(self._path)

    def _save(self, path: Path, work: Work) -> None:
        search = work.search or []
        arrays = {f"ops{i}": ops for i, ops in enumerate(work.done.values())}
        arrays |= {f"search{i}": array for i, array in enumerate(search)}
        temporary = temporary_name(path)
        try:
            with temporary.open("wb") as file:
                np.savez(
                    file,
                    digest=np.array(self._digest),
                    pending=np.array(work.pending, np.int64).reshape(-1, 5),
                    places=np.array(list(work.done), np.int64).reshape(-1, 2),
                    n_arrays=np.array(len(search)),
                    **arrays,  # type: ignore[arg-type]
                )
            sync_and_rename(temporary, path)
        except OSError as error:
            raise output_error(path, error) from error
        finally:
            remove_quietly(temporary)
