"""The index on disk: a directory of ``.npy`` files and ``meta.json``.

``docs/index-format.md`` describes it. A directory is written under a temporary name
beside its final one and renamed when complete, so whatever stands under the final name
is whole.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from isal.isal_zlib import crc32  # four times zlib's rate

from mapper.errors import IndexFormatError, OutputError, UsageError
from mapper.index.fm import FMIndex
from mapper.index.layout import columns
from mapper.index.reference import Index, IndexMeta, make_contigs
from mapper.params import IndexParams

FORMAT_NAME = "fmwave-index"
FORMAT_VERSION = 1
META = "meta.json"
_ARRAYS = ("blocks", "super_counts", "first_row", "sa_samples", "kmer_starts", "ref_planes")
_FILES = {META, *(f"{name}.npy" for name in _ARRAYS)}
_REBUILD = "build it again with 'fmwave index'"
_CHUNK = 1 << 24

CHECKED_AT_ONCE = 1 << 30
"""Bytes of an index, at most, that a run checks before it begins: 0.1 s."""


def open_index(path: str | Path) -> Index:
    """Memory-map an index; only its sizes are checked (:func:`checks` reads it all).

    Returns
    -------
    Arrays are plain, read-only ndarrays on the mapped files, which processes share.

    Raises
    ------
    IndexFormatError
        If `path` is no index, or one that is incomplete, damaged or of another version.
    """
    path = Path(path)
    meta = read_meta(path)
    with _meta_fields(path):
        params = IndexParams(**meta["parameters"])
        source = IndexMeta(
            meta["source"]["name"], meta["source"]["bytes"], params, meta["fmwave_version"]
        )
        listed = meta["contigs"]
        contigs = make_contigs(listed["names"], listed["md5"], listed["lengths"])
        n = meta["n_rows"] - 1
        primary = int(meta["primary"])
        sizes = {name: meta["files"][f"{name}.npy"]["bytes"] for name in _ARRAYS}
    if n != int(contigs.lengths.sum()) + len(contigs.lengths):
        raise IndexFormatError(f"{path / META}: contig lengths disagree with n_rows; {_REBUILD}")
    arrays = {}
    for name, column in columns(n, params).items():
        file = path / f"{name}.npy"
        arrays[name] = _map_array(file, sizes[name])
        if arrays[name].dtype != column.dtype or arrays[name].shape != column.shape:
            raise IndexFormatError(
                f"{file}: holds {arrays[name].dtype} {arrays[name].shape}, and "
                f"{column.dtype} {column.shape} is expected; {_REBUILD}"
            )
    fm = FMIndex(
        **arrays,
        n_rows=n + 1,
        primary=primary,
        occ_shift=params.occ_spacing.bit_length() - 1,
        sa_shift=params.sampling(n).bit_length() - 1,
        kmer_len=params.table_kmer_len(n),
    )
    return Index(fm, contigs, source)


def open_checked(path: str | Path) -> tuple[Index, Iterator[None]]:
    """Open an index and check it: a small one now, a large one while it is in use.

    Returns
    -------
    The index; steps that check the rest (:func:`checks`), to be done before results are kept.
    Until then a damaged one may give wrong results, or end the process.
    """
    index = open_index(path)
    left = checks(path)
    if index.n_bytes <= CHECKED_AT_ONCE:
        left = iter(list(left))
    return index, left


def verify(path: str | Path) -> None:
    """Read every file of an index and compare it with its checksum.

    Raises
    ------
    IndexFormatError
        Naming the first file that differs.
    """
    open_index(path)
    for _ in checks(path):
        pass


def checks(path: str | Path) -> Iterator[None]:
    """Compare every file of an index with its checksum, some of it at each step.

    Raises
    ------
    IndexFormatError
        Naming the first file that differs.
    """
    path = Path(path)
    for name, entry in read_meta(path)["files"].items():
        checksum = 0
        with _reading(path / name), (path / name).open("rb") as file:
            while chunk := file.read(_CHUNK):
                checksum = crc32(chunk, checksum)
                yield
        if f"{checksum:08x}" != entry["crc32"]:
            raise IndexFormatError(f"{path / name}: the checksum differs: damaged; {_REBUILD}")


def read_meta(path: Path) -> dict[str, Any]:
    """Return ``meta.json`` of an index, checked for format, version and its checksum."""
    if path.is_file():
        raise IndexFormatError(
            f"{path}: is a file, and an index is a directory; if this is the reference, run "
            f"'fmwave index {path}' first"
        )
    if not path.is_dir():
        raise IndexFormatError(f"{path}: no such index; 'fmwave index REF.fa' builds one")
    file = path / META
    if not file.is_file():
        raise IndexFormatError(f"{path}: holds no {META}; it is no index, or not all of one")
    with _reading(file):
        text = file.read_text()
    try:
        meta = json.loads(text)
        name, version = meta["format"], meta["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise IndexFormatError(f"{file}: damaged or not of an index; {_REBUILD}") from error
    if name != FORMAT_NAME:
        raise IndexFormatError(f"{file}: format {name!r}, and {FORMAT_NAME!r} is expected")
    if version != FORMAT_VERSION:
        raise IndexFormatError(
            f"{path}: index format {version}; this fmwave reads format {FORMAT_VERSION}: "
            f"use another fmwave, or {_REBUILD}"
        )
    if meta.pop("crc32", None) != _meta_checksum(meta):
        raise IndexFormatError(f"{file}: the checksum differs: damaged or edited; {_REBUILD}")
    return meta


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
    UsageError, OutputError
        If something else is in the way, space does not suffice, or writing fails.
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
    UsageError
        If the parent directory cannot be written to, or `path` is taken by what is no
        index (with `force`, a directory that holds nothing but an index's files will do).
    """
    final = Path(os.path.realpath(path))
    if not os.access(final.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{final.parent}: no such directory, or not writable")
    if final.exists() and not _is_index(final):
        if not final.is_dir():
            raise UsageError(f"{path}: is a file; name another output")
        if any(entry.name not in _FILES for entry in final.iterdir()):
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
    for name in _ARRAYS:
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
    meta["crc32"] = _meta_checksum(meta)
    with (directory / META).open("wb") as raw:
        raw.write(json.dumps(meta, indent=1).encode() + b"\n")
        _sync(raw)
    _sync_directory(directory)


def _write_array(file: _ChecksumFile, array: np.ndarray) -> None:
    """Write a C-contiguous array as ``np.save`` does, without copying it."""
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(file, header)
    data = array.data.cast("B")
    for start in range(0, len(data), _CHUNK):
        file.write(data[start : start + _CHUNK])


def _meta_checksum(meta: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(meta, sort_keys=True).encode()):08x}"


def _replace_directory(temporary: Path, final: Path) -> None:
    """Rename a complete directory to its final name, and remove what was there."""
    old = temporary.with_suffix(".old")
    try:
        if final.exists():
            final.rename(old)
        temporary.rename(final)
        _sync_directory(final.parent)
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


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _map_array(file: Path, n_bytes: int) -> np.ndarray:
    with _reading(file):
        found = file.stat().st_size
        if found != n_bytes:
            raise IndexFormatError(f"{file}: {found} bytes, {n_bytes} are expected; {_REBUILD}")
        try:
            mapped = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # a damaged header raises whatever its parser meets
            raise ValueError(f"no .npy header ({error})") from error
        # A plain ndarray: numba would compile every core once more for np.memmap.
        return np.asarray(mapped)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise IndexFormatError(f"{file}: is missing; {_REBUILD}") from error
    except OSError as error:
        raise IndexFormatError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise IndexFormatError(f"{file}: damaged: {error}; {_REBUILD}") from error


@contextmanager
def _meta_fields(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise IndexFormatError(f"{path / META}: misses or misstates {error}; {_REBUILD}") from error
