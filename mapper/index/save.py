"""Write an index directory, complete or not at all.

A directory is written under a temporary name beside its final one and renamed when complete, so
whatever stands under the final name is whole.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path
from typing import BinaryIO

import numpy as np
from isal.isal_zlib import crc32  # four times zlib's rate

from mapper.errors import IndexFormatError, OutputError, UsageError
from mapper.index.reference import Index
from mapper.index.storage import (
    ARRAYS,
    CHUNK_BYTES,
    FILES,
    FORMAT_NAME,
    FORMAT_VERSION,
    META,
    meta_checksum,
    read_meta,
)
from mapper.io.output_file import check_directory_of, sync_to_disk


def save_index(index: Index, path: str | Path, *, force: bool = False) -> None:
    """Write an index directory, complete or not at all.

    Parameters
    ----------
    path
        Directory to make. An index that is there already is replaced once the new one
        is complete; processes that have it open keep what they mapped.
    force
        Also replace an index that is damaged.

    Raises
    ------
    UsageError
        If something else is in the way.
    OutputError
        If the directory to write in is not there, space does not suffice, or writing fails.
    """
    final = target_path(path, force=force)
    require_space(final, index.n_bytes)
    temporary = final.with_name(f".{final.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir()
        _write_files(index, temporary)
        _replace_directory(temporary, final)
    except OSError as error:
        raise OutputError(f"{final}: could not be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def target_path(path: str | Path, *, force: bool = False) -> Path:
    """Return where an index named `path` would be written, if it may be.

    Raises
    ------
    OutputError
        If the parent directory is not there or cannot be written to.
    UsageError
        If `path` is taken by what is no index (with `force`, a directory that holds nothing but
        an index's files will do).
    """
    final = Path(os.path.realpath(path))
    check_directory_of(final)
    if final.exists() and not _is_index(final):
        if not final.is_dir():
            raise UsageError(f"{path}: is a file; name another output")
        if any(entry.name not in FILES for entry in final.iterdir()):
            raise UsageError(f"{path}: holds other files than an index; name another output")
        if not force:
            raise UsageError(f"{path}: is no complete index; --force replaces it")
    return final


def require_space(final: Path, n_bytes: int) -> None:
    """Raise OutputError if the file system of `final` has less than `n_bytes` free."""
    free = shutil.disk_usage(final.parent).free
    if n_bytes > free:
        raise OutputError(
            f"{final}: the index takes {n_bytes / 1e6:.1f} MB, and {free / 1e6:.1f} MB are free "
            "on that file system; free some space or name another output with -o"
        )


def _is_index(path: Path) -> bool:
    try:
        read_meta(path)
    except IndexFormatError:
        return False
    return True


class _ChecksumFile:
    """A binary file that keeps size and CRC-32 of what is written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.n_bytes = 0
        self.crc32 = 0

    def write(self, data: bytes | memoryview) -> int:
        self.crc32 = crc32(data, self.crc32)
        self.n_bytes += len(data)
        return self.file.write(data)


def _write_files(index: Index, directory: Path) -> None:
    files = {}
    for name in ARRAYS:
        with (directory / f"{name}.npy").open("wb") as raw:
            file = _ChecksumFile(raw)
            _write_array(file, getattr(index.fm, name))
            _sync(raw)
        files[f"{name}.npy"] = {"bytes": file.n_bytes, "crc32": f"{file.crc32:08x}"}
    params = index.meta.params
    meta = {
        "format": FORMAT_NAME,
        "format_version": FORMAT_VERSION,
        "fmwave_version": index.meta.fmwave_version,
        "source": {"name": index.meta.source_name, "bytes": index.meta.source_bytes},
        "parameters": {
            "occ_spacing": params.occ_spacing,
            "sa_sampling": params.sa_sampling,
            "kmer_len": params.kmer_len,
        },
        "n_rows": index.fm.n_rows,
        "primary": index.fm.primary,
        "files": files,
        "contigs": {
            "names": list(index.contigs.names),
            "lengths": index.contigs.lengths.tolist(),
            "md5": list(index.contigs.md5),
        },
    }
    meta["crc32"] = meta_checksum(meta)
    with (directory / META).open("wb") as raw:
        raw.write(json.dumps(meta, indent=1).encode() + b"\n")
        _sync(raw)
    sync_to_disk(directory)


def _write_array(file: _ChecksumFile, array: np.ndarray) -> None:
    """Write a C-contiguous array as ``np.save`` does, without copying it."""
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(file, header)
    data = array.data.cast("B")
    for start in range(0, len(data), CHUNK_BYTES):
        file.write(data[start : start + CHUNK_BYTES])


def _replace_directory(temporary: Path, final: Path) -> None:
    """Rename a complete directory to its final name, and remove what was there."""
    old = temporary.with_suffix(".old")
    try:
        if final.exists():
            final.rename(old)
        temporary.rename(final)
        sync_to_disk(final.parent)
    finally:  # also where a signal ends the run between any two steps
        if old.exists() and not final.exists():
            old.rename(final)
        _remove(old)


def _remove(directory: Path) -> None:
    """Remove a directory, if there is one, even where a signal comes meanwhile."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
