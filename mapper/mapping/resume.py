"""Go on with a run that was killed: its state on disk, and the checks before it is used.

``fmwave map … -o OUT --resume`` keeps what is not finished in a directory beside the output,
``.OUT.fmwave-resume``:

==============  ================================================================================
state.json      the state: what has been done, and of which run
records, index  the unfinished output and its index
spilled …       the runs of a sort (:mod:`mapper.sorting.saved_runs`), or in a directory of the
                same name and a number in ``--tmp-dir``, if that is given
lock            held by the process that writes here
==============  ================================================================================

**The state** describes the run after a batch of reads that has been written, and all batches before
it. Records do not depend on where batches are cut, so a run that goes on there gives the same file,
whatever its threads, memory and device. ``state.json`` holds, as JSON:

- ``fmwave``, ``inputs``, ``index``, ``options``: the run; another one is refused;
- ``command_line``: of the first start, which goes into the header;
- ``input``: where to go on reading (:mod:`mapper.io.position`);
- ``insert_size``: the frozen model, or null;
- ``first_pairs``: see :class:`mapper.mapping.pipeline.FirstPairs`;
- ``statistics``: counts and times (:meth:`mapper.mapping.stats.RunStats.saved`);
- ``output``: how to go on writing (:class:`mapper.io.output.Checkpoint`), with ``files``, the bytes
  that each file of the directory must have;
- ``crc32``: of all other entries.

Duplicates are found when all records have come, so of them there is nothing to keep: a run that is
killed while the sorted file is written goes on with all its records, and writes that file again.

**When it is written**: every 30 seconds, when a signal is to end the run, and after the last read
of a sorted run that has lasted so long. The thread that writes records only takes note of how far
they are; another one waits until they are on disk, then replaces the state by a rename. Two states
are never needed at a time: what the older one describes is part of what the newer one describes.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mapper import __version__
from mapper.errors import InputFormatError, MapperError, OutputError, UsageError, option
from mapper.io.input_file import STDIN
from mapper.io.output import RECORDS, PartialOutput, ResumableOutput
from mapper.io.output_file import (
    STDOUT,
    OutputFile,
    check_writable,
    is_special,
    remove_directory,
    remove_quietly,
)
from mapper.io.position import InputPosition
from mapper.io.reads import ReadsReader
from mapper.mapping.device_io import DEVICE
from mapper.mapping.job import MapJob
from mapper.parallel import signals
from mapper.parallel.pool import thread_pool

log = logging.getLogger(__name__)

FORMAT = "fmwave-resume-1"
STATE, LOCK = "state.json", "lock"

SIGNAL_SECONDS = 10.0
"""How long a run that a signal is to end may take to the end of its batch. Batch systems wait 30
seconds between SIGTERM and SIGKILL, and the state must be written in that time, too."""


# --- which runs can be resumed ---


def check_resumable(job: MapJob) -> None:
    """Raise UsageError for a run that could not go on after it was killed."""
    what = option("resume")
    if job.output == STDOUT or is_special(Path(job.output)):
        raise UsageError(
            f"{what}: what was written to standard output or a pipe cannot be gone on with; name "
            f"a file with {option('output')}"
        )
    if job.output_format == "cram" and job.sort is None:
        raise UsageError(
            f"{what}: samtools cannot go on with an unfinished CRAM file; give {option('sort')}, "
            "or write BAM"
        )
    for path in _read_files(job):
        if path == STDIN or is_special(Path(path)):
            raise UsageError(
                f"{what}: {'standard input' if path == STDIN else path} cannot be read again; "
                "name a file"
            )


def directory_of(output: str) -> Path:
    """Return the directory that holds the state of an output."""
    path = Path(output).resolve()
    return path.with_name(f".{path.name}.fmwave-resume")


def _runs_directory(job: MapJob) -> Path:
    """Return the directory for the runs of a sort."""
    directory = directory_of(job.output)
    if job.sort is None or job.sort.tmp_dir is None:
        return directory  # not TMPDIR, which often goes with the job, or is another node's
    number = zlib.crc32(os.fsencode(directory))
    return Path(job.sort.tmp_dir).resolve() / f"{directory.name}-{number:08x}"


def _read_files(job: MapJob) -> list[str]:
    return [path for lane in job.lanes for path in lane.paths] or list(job.reads)


# --- the run that a state is of ---


def _description(job: MapJob) -> dict[str, Any]:
    """Return the entries in which the state and a run must agree."""
    assert job.resume is not None
    files = [*_read_files(job), job.reference, job.input_reference]
    entries = {
        "fmwave": __version__,
        "inputs": {path: _size_and_time(path) for path in files if path is not None},
        "index": job.resume.index_checksum,
        "options": dict(_options(job)),
    }
    return dict(json.loads(json.dumps(entries)))  # as they are read


def _size_and_time(path: str) -> list[int]:
    try:
        found = Path(path).stat()
    except OSError as error:
        raise InputFormatError(f"{path}: cannot be opened ({error.strerror})") from error
    return [found.st_size, found.st_mtime_ns]


def _options(job: MapJob) -> Iterator[tuple[str, Any]]:
    """Yield the options that change the output, by name."""
    insert_size = None
    if job.insert_size is not None:
        insert_size = [job.insert_size.mean, job.insert_size.std]
        insert_size += [job.insert_size.low, job.insert_size.high, job.insert_size.n_pairs]
    yield "insert size", insert_size
    yield "reads", [[lane.read_group, *lane.paths] for lane in job.lanes] or list(job.reads)
    for name in (
        "output_format", "interleaved", "orphans", "read_group", "keep_comments", "reference",
        "input_reference", "compression",
    ):  # fmt: skip
        yield name.replace("_", " "), getattr(job, name)
    yield "compress on", job.compressor
    if job.compressor == DEVICE:
        from mapper.cuda import nvcomp

        codec = nvcomp.load()
        yield "nvCOMP", "not installed" if codec is None else codec.version
    yield "sort", job.sort is not None
    if job.sort is not None:
        yield "duplicates marked", job.sort.duplicates is not None
        if job.sort.duplicates is not None:
            yield from _flat("duplicates", job.sort.duplicates)
    yield from _flat("", job.params)


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of nested tuples by their joined names."""
    if not hasattr(value, "_asdict"):
        yield name.replace("_", " "), value
        return
    for field, its_value in value._asdict().items():
        yield from _flat(f"{name} {field}".strip(), its_value)


def _differences(saved: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Yield what differs between the run of a state and this one, in words."""
    if saved["fmwave"] != now["fmwave"]:
        yield f"it is of fmwave {saved['fmwave']}, and this is {now['fmwave']}"
    if saved["index"] != now["index"]:
        yield "the index is another one"
    for path, (size, _) in now["inputs"].items():
        before = saved["inputs"].get(path)
        if before is not None and before != now["inputs"][path]:
            how = f"{before[0]} bytes, now {size}" if before[0] != size else "by its time"
            yield f"{path} has changed ({how})"
    # Options of one run alone are there because of another option, which differs.
    for name in [name for name in now["options"] if name in saved["options"]]:
        old, new = saved["options"][name], now["options"][name]
        if old != new:
            yield f"{name} was {_shown(old)} and is {_shown(new)}"


def _shown(value: Any) -> str:
    return "not given" if value is None else json.dumps(value)


# --- the state on disk ---


def _checksum(state: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(state, sort_keys=True).encode()):08x}"


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Replace the state; when this returns, the new one is on disk."""
    entries = {"format": FORMAT, **state}
    with OutputFile(str(path)) as file:
        file.write(f"{json.dumps({**entries, 'crc32': _checksum(entries)})}\n".encode())


def read_state(path: Path) -> dict[str, Any]:
    """Return a state.

    Raises
    ------
    InputFormatError
        If the file is damaged, or of another version.
    """
    try:
        state = json.loads(path.read_bytes())
        written_as, checksum = state["format"], state.pop("crc32")
    except OSError as error:
        raise InputFormatError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputFormatError(f"{path}: is damaged or cut off") from error
    if checksum != _checksum(state):
        raise InputFormatError(f"{path}: is damaged: its checksum differs")
    if written_as != FORMAT:
        raise InputFormatError(f"{path}: is of another version of fmwave ({written_as})")
    return dict(state)


def _check_files(directory: Path, files: dict[str, int]) -> None:
    """Raise InputFormatError unless each file has at least so many bytes."""
    for name, n_bytes in files.items():
        path = directory / name
        try:
            found = path.stat().st_size
        except OSError as error:
            raise InputFormatError(f"{path}: {error.strerror}") from error
        if found < n_bytes:
            raise InputFormatError(f"{path}: has {found} bytes, and {n_bytes} were written")


# --- checkpoints of a run ---


class Checkpoints:
    """The state of one run, loaded at its start and written while it goes on.

    Parameters
    ----------
    state
        Of an earlier process; None to begin anew.
    background
        Its one thread writes states.
    """

    def __init__(self, job: MapJob, state: dict[str, Any] | None, background: Executor) -> None:
        assert job.resume is not None
        self.state = state
        self.n_starts = state["n_starts"] + 1 if state is not None else 0
        """Earlier processes of this run."""
        self.command_line: str = state["command_line"] if state is not None else job.command_line
        self.partial = PartialOutput(
            directory_of(job.output), _runs_directory(job), state and state["output"]
        )
        self.stopped = threading.Event()
        """Set when no further state is of use."""
        self._entries = {
            **_description(job), "command_line": self.command_line, "n_starts": self.n_starts,
        }  # fmt: skip
        self._seconds = job.resume.seconds
        self._background = background
        self._positions: deque[InputPosition] = deque()  # after batches that are not written yet
        self._position: InputPosition | None = None  # after the last batch that is written
        self._saving: Future[None] | None = None
        self._started = self._last = time.monotonic()

    def go_to(self, reader: ReadsReader) -> None:
        """Move the input to the position of the state."""
        if self.state is not None:
            self._position = InputPosition.from_json(self.state["input"])
            reader.go_to(self._position)
            log.info("going on after %d reads that have been mapped before", reader.n_reads)

    def cut(self, position: InputPosition) -> None:
        """Take note of the position after the next batch; the thread that cuts batches."""
        self._positions.append(position)

    @contextmanager
    def mapping(self) -> Iterator[None]:
        """Let signals wait for the end of a batch in the block."""
        self._started = self._last = time.monotonic()
        with signals.waiting(SIGNAL_SECONDS):
            yield

    def written(
        self, output: ResumableOutput[Any], entries: Callable[[], dict[str, Any]]
    ) -> None:  # fmt: skip
        """Write a state if it is time; called by the thread that has written the next batch.

        Parameters
        ----------
        entries
            Returns ``insert_size``, ``first_pairs`` and ``statistics`` of the state.

        Raises
        ------
        Terminated, Interrupted
            If a signal waits for the state.
        """
        self._position = self._positions.popleft()
        if signals.is_waiting():
            self._wait()
            self._begin(output, entries())
            self._wait()
            signals.raise_waiting()
        is_idle = self._saving is None or self._saving.done()
        if is_idle and time.monotonic() - self._last >= self._seconds:
            self._begin(output, entries())

    def all_written(
        self, output: ResumableOutput[Any], entries: Callable[[], dict[str, Any]]
    ) -> None:  # fmt: skip
        """Write the state after the last batch of records that are yet to be sorted.

        A run that has not lasted long enough has none: it is sooner begun anew.
        """
        if time.monotonic() - self._started >= self._seconds and self._position is not None:
            self._wait()
            self._begin(output, entries())

    def _begin(self, output: ResumableOutput[Any], entries: dict[str, Any]) -> None:
        """Have the state written in the background."""
        assert self._position is not None
        state = {**self._entries, **entries, "input": self._position.to_json()}
        checkpoint = output.checkpoint()
        self._last = time.monotonic()

        def save() -> None:
            try:
                state["output"] = checkpoint.save(self.stopped.is_set)
                write_state(self.partial.file(STATE), state)
                checkpoint.settle()
            except MapperError as error:
                if not self.stopped.is_set():
                    log.warning("the state of the run could not be written: %s", error)

        self._saving = self._background.submit(save)

    def _wait(self) -> None:
        if self._saving is not None:
            self._saving.result()


@contextmanager
def open_checkpoints(job: MapJob) -> Iterator[Checkpoints]:
    """Take over the unfinished output of a run, or begin a new one, as a context manager.

    When the block ends, nothing but the output is left; if it is left by an exception, what
    another process needs to go on stays.

    Raises
    ------
    UsageError, InputFormatError
        If there is the state of another run, or it cannot be used.
    OutputError
        If another process writes this output, or nothing can be written there.
    """
    check_resumable(job)
    check_writable(Path(job.output).resolve())
    directories = dict.fromkeys([directory_of(job.output), _runs_directory(job)])
    for directory in directories:
        try:
            directory.mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"{directory}: cannot be made: {error.strerror}") from error
    main = directory_of(job.output)
    with _lock(main / LOCK, job.output):
        state = _load(job, main)
        complete = False
        try:
            with thread_pool(1) as background:
                checkpoints = Checkpoints(job, state, background)
                yield checkpoints
                complete = True
                checkpoints.stopped.set()
        finally:
            if complete:  # without a state what is left when the process is killed here is ignored
                remove_quietly(main / STATE)
            if not (main / STATE).exists():
                for directory in directories:
                    remove_directory(directory)


def _load(job: MapJob, directory: Path) -> dict[str, Any] | None:
    """Return the state of the run; None if there is none, or it is to begin anew."""
    assert job.resume is not None
    if not (directory / STATE).exists():
        return None
    try:
        state = read_state(directory / STATE)
        if reasons := list(_differences(state, _description(job))):
            raise UsageError("; ".join(reasons))
        if _was_renamed(job, directory, state):
            log.warning("%s: was killed when it was complete; begun anew", job.output)
            remove_quietly(directory / STATE)
            return None
        _check_files(_runs_directory(job), state["output"]["files"])
    except (UsageError, InputFormatError) as error:
        if not job.resume.restarts:
            raise type(error)(
                f"{job.output}: its unfinished run cannot be gone on with: {error}; give what it "
                f"was begun with, or {option('resume_or_restart')}, or remove {directory}"
            ) from error
        log.warning("%s: begun anew, as %s", job.output, error)
        remove_quietly(directory / STATE)
        return None
    return state


def _was_renamed(job: MapJob, directory: Path, state: dict[str, Any]) -> bool:
    """Return True for the state of a run whose records have got their final name."""
    return (
        RECORDS in state["output"]["files"]
        and not (directory / RECORDS).exists()
        and Path(job.output).exists()
    )


@contextmanager
def _lock(path: Path, output: str) -> Iterator[None]:
    """Hold a lock that the system drops when the process ends, where the file system has locks."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise OutputError(f"{path}: cannot be made: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(handle, 200).decode(errors="replace")
            raise OutputError(
                f"{output}: is being written by another process ({owner}); wait for it, or end it"
            ) from None
        except OSError as error:
            log.debug("%s: no locks there: %s", path, error.strerror)
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.uname().nodename}, process {os.getpid()}".encode())
        yield
    finally:
        os.close(handle)
