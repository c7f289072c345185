"""Copy an index to a node's own disk, once: stage_index.py INDEX FOLDER prints the copy's path.

The copy is named by the index's meta.json, which holds the checksums of all its files: another
index never meets an old copy. A lock makes the jobs of a node wait for the one that copies; the
copy gets its name when it is complete, and a dead job's half one is overwritten.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
from pathlib import Path


def stage(index: Path, folder: Path) -> Path:
    """Return the path of the copy, after making it if it is not there."""
    digest = hashlib.sha256((index / "meta.json").read_bytes()).hexdigest()[:16]
    copy = folder / f"fmwave-{digest}.fmw"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{copy.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not copy.exists():
            half = folder / f".{copy.name}.half"
            shutil.rmtree(half, ignore_errors=True)
            shutil.copytree(index, half)
            half.rename(copy)
    return copy


if __name__ == "__main__":
    try:
        print(stage(Path(sys.argv[1]), Path(sys.argv[2])))
    except OSError as error:
        sys.exit(f"stage_index.py: {sys.argv[1]} to {sys.argv[2]}: {error}")
