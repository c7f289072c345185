"""Run a command with a copy of an index on the node's own disk.

`stage_index.py INDEX FOLDER COMMAND ...` becomes COMMAND, with the copy's path for INDEX. The copy
is named by the index's meta.json, which holds the checksums of all its files: another index never
meets an old copy.

Each copy has a lock file. A job holds it alone while it copies, so that the others of the node
wait, and shares it from then on until COMMAND ends, however that ends: the kernel gives locks back.
The time of the lock file is the start of the last job. Who gets the lock alone knows that no job
uses the copy; if the last began long ago, it removes it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

UNUSED_DAYS = 14  # after which a copy is removed
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def open_locked(path: Path, kind: int) -> int | None:
    """Open and lock a file, which is made if need be; None if another process has a lock on it.

    None is only returned with LOCK_NB in `kind`; else the others are waited for.
    """
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, kind)
        except BlockingIOError:
            os.close(file)
            return None
        # It may have been removed, and made again by another job, before the lock was given.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        os.close(file)


def copy_of(lock: Path) -> tuple[Path, Path]:
    """Return the paths of the copy that a lock is for, and of one that is not complete."""
    name = lock.name.removeprefix(".").removesuffix(".lock")
    return lock.with_name(name), lock.with_name(f".{name}.half")


def remove_unused(folder: Path, keep: Path) -> None:
    """Remove the copies that no job uses or has used of late, except that of the lock `keep`."""
    for lock in folder.glob(".fmwave-*.fmw.lock"):
        if lock == keep:
            continue
        with suppress(OSError):  # another user's
            file = open_locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file is None:
                continue
            if time.time() - os.fstat(file).st_mtime > UNUSED_DAYS * 24 * 3600:
                for path in copy_of(lock):
                    shutil.rmtree(path, ignore_errors=True)
                lock.unlink()
            os.close(file)


def stage(index: Path, folder: Path) -> Path:
    """Return the path of the copy, after making it if it is not there; a lock on it stays open.

    On a full disk it is the path of the index itself: a node whose disk is full would take job
    after job and fail each.
    """
    digest = hashlib.sha256((index / "meta.json").read_bytes()).hexdigest()[:16]
    lock = folder / f".fmwave-{digest}.fmw.lock"
    copy, half = copy_of(lock)
    folder.mkdir(parents=True, exist_ok=True)
    remove_unused(folder, lock)
    file = open_locked(lock, fcntl.LOCK_EX)
    assert file is not None
    if not copy.exists():
        shutil.rmtree(half, ignore_errors=True)  # a dead job's
        try:
            half.mkdir()
            files = list(index.iterdir())
            # Not by trying alone: each job of the node would fill the disk once more.
            if sum(path.stat().st_size for path in files) > shutil.disk_usage(half).free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            for path in files:  # copytree() does not say why it failed
                shutil.copy2(path, half)
        except OSError as error:
            shutil.rmtree(half, ignore_errors=True)
            os.close(file)
            if error.errno not in NO_ROOM:
                raise
            print(
                f"stage_index.py: {folder} has no room for a copy of {index} ({error.strerror}): "
                "the index is read where it is, more slowly if that is a network's disk",
                file=sys.stderr,
            )
            return index
        half.rename(copy)
    # First, for in becoming a shared one a lock is free for a moment; its time then keeps the copy.
    os.utime(file)
    fcntl.flock(file, fcntl.LOCK_SH)
    os.set_inheritable(file, True)
    return copy


if __name__ == "__main__":
    index, folder, *command = sys.argv[1:]
    try:
        copy = stage(Path(index), Path(folder))
    except OSError as error:
        sys.exit(f"stage_index.py: {index} to {folder}: {error}")
    command = [str(copy) if word == index else word for word in command]
    os.execvp(command[0], command)
