"""Devices for one run at a time, where no scheduler deals them out.

Slurm, LSF and Kubernetes say by ``CUDA_VISIBLE_DEVICES`` which devices a job may use. Grid
Engine, and a machine without a scheduler, say nothing: runs that start together would all meet
on device 0. So each takes a lock on a file that stands for a device, and keeps it to its end.
The kernel gives the lock back when the process ends, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mapper.errors import DeviceError

log = logging.getLogger(__name__)

FOLDER = Path("/tmp/fmwave-devices")
"""Of the machine, not of the user or the job: Grid Engine gives each job a TMPDIR of its own."""

POLL_SECONDS = 0.5


@contextmanager
def one_of(names: Sequence[str], sharers: int = 1) -> Iterator[int]:
    """Hold one of several things that processes of this machine share; wait for a free one.

    Parameters
    ----------
    names
        What is shared, each by a name that is the same in every process (a device's UUID).
    sharers
        Processes that may hold one thing at the same time; each thing is filled evenly.

    Yields
    ------
    The held name's position in `names`.

    Raises
    ------
    DeviceError
        If the files of the locks cannot be made.
    """
    try:
        folder = _open_folder()
    except OSError as error:
        raise _cannot_lock(error) from error
    try:
        held, position = _wait_for_one(folder, names, sharers)
    except OSError as error:
        raise _cannot_lock(error) from error
    finally:
        os.close(folder)
    try:
        yield position
    finally:
        os.close(held)  # gives the lock back


def _wait_for_one(folder: int, names: Sequence[str], sharers: int) -> tuple[int, int]:
    """Return the descriptor of a lock, and the position of what it stands for."""
    waits = False
    while True:
        for place in range(sharers):
            for position, name in enumerate(names):
                held = _try_lock(folder, f"{name}.{place}")
                if held is not None:
                    return held, position
        if not waits:
            log.info(
                "waiting for a device: other runs hold all %d (locks in %s; --device cuda:0 "
                "takes a device without asking)",
                len(names), FOLDER,
            )  # fmt: skip
        waits = True
        time.sleep(POLL_SECONDS)


def _open_folder() -> int:
    try:
        FOLDER.mkdir()
        FOLDER.chmod(0o1777)  # other users make their files here; none removes another's
    except FileExistsError:
        pass
    return os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _try_lock(folder: int, name: str) -> int | None:
    """Return the descriptor that holds the lock, or None if another process does."""
    file = _open_file(folder, name)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise
    return file


def _open_file(folder: int, name: str) -> int:
    """Open for reading, which is enough to lock it; whoever made it, it stays for all."""
    flags = os.O_RDONLY | os.O_NOFOLLOW
    while True:
        try:
            # Apart from making it: in /tmp the kernel may refuse O_CREAT on another user's file.
            return os.open(name, flags, dir_fd=folder)
        except FileNotFoundError:
            pass
        try:
            file = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
        except FileExistsError:
            continue
        os.fchmod(file, 0o644)  # whatever the umask
        return file


def _cannot_lock(error: OSError) -> DeviceError:
    return DeviceError(
        f"--device auto: no device can be locked in {FOLDER} ({error.strerror or error}); name "
        "one with --device cuda:0, or set CUDA_VISIBLE_DEVICES"
    )
