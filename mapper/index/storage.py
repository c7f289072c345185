"""The index on disk: a directory of ``.npy`` files and ``meta.json``, opened and checked.

``docs/index-format.md`` describes it; ``save.py`` writes it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from isal.isal_zlib import crc32  # four times zlib's rate

from mapper.errors import IndexFormatError, UsageError
from mapper.index.fm import FMIndex
from mapper.index.layout import columns
from mapper.index.reference import Index, IndexMeta, make_contigs
from mapper.index.spot_checks import ROWS, SPOT_CHECKS, first_rows
from mapper.params import IndexParams

FORMAT_NAME = "fmwave-index"
FORMAT_VERSION = 1
META = "meta.json"
ARRAYS = ("blocks", "super_counts", "first_row", "sa_samples", "kmer_starts", "ref_planes")
FILES = {META, *(f"{name}.npy" for name in ARRAYS)}
_REBUILD = "build it again with 'fmwave index'"
_SMALL = ("super_counts", "first_row")
"""Arrays of some hundred bytes, each of which counts: compared with their checksums at once."""

CHUNK_BYTES = 1 << 24
"""Read or written at a time."""

CHECKED_AT_ONCE = 1 << 30
"""Bytes of an index, at most, that a run checks before it begins: 0.1 s."""


def open_index(path: str | Path) -> Index:
    """Memory-map an index; sizes and some places are checked (:func:`checks` reads it all).

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
        sizes = {name: meta["files"][f"{name}.npy"]["bytes"] for name in ARRAYS}
        small = {name: meta["files"][f"{name}.npy"]["crc32"] for name in _SMALL}
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
    for name, checksum in small.items():
        for _ in _compare(path / f"{name}.npy", checksum):
            pass
    for name in SPOT_CHECKS:
        _ask_for_places(path / f"{name}.npy", arrays[name])
    for name, check in SPOT_CHECKS.items():
        with _reading(path / f"{name}.npy"):
            check(fm)
    return Index(fm, contigs, source)


def open_checked(path: str | Path) -> tuple[Index, Iterator[None]]:
    """Open an index and check it: a small one now, a large one while it is in use.

    Returns
    -------
    The index; steps that check the rest (:func:`checks`), to be done before results are kept.
    Until then one with damage that opening it did not find may give wrong results, or end the
    process.
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
        yield from _compare(path / name, entry["crc32"])


def _compare(file: Path, expected: str) -> Iterator[None]:
    """Compare a file with its checksum, a chunk at each step."""
    found = 0
    with _reading(file), file.open("rb") as raw:
        while chunk := raw.read(CHUNK_BYTES):
            found = crc32(chunk, found)
            yield
    if f"{found:08x}" != expected:
        raise IndexFormatError(f"{file}: the checksum differs: damaged; {_REBUILD}")


def read_meta(path: Path) -> dict[str, Any]:
    """Return ``meta.json`` of an index, without its checksum.

    Raises
    ------
    IndexFormatError
        If `path` is no index, or one of another version, or the checksum differs.
    """
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
    if meta.pop("crc32", None) != meta_checksum(meta):
        raise IndexFormatError(f"{file}: the checksum differs: damaged or edited; {_REBUILD}")
    return meta


def meta_checksum(meta: dict[str, Any]) -> str:
    """Return the CRC-32 of what ``meta.json`` says beside it, as hexadecimal digits."""
    return f"{zlib.crc32(json.dumps(meta, sort_keys=True).encode()):08x}"


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


def _ask_for_places(file: Path, array: np.ndarray) -> None:
    """Have the system read the places of spot checks from the disk, all at once.

    Opening an index of 0.25 GB that is not in memory takes 9 ms with this, 0.25 s without.
    """
    row_bytes = array.nbytes // len(array)
    with suppress(OSError), file.open("rb") as raw:  # then they are read when they are looked at
        header = os.fstat(raw.fileno()).st_size - array.nbytes
        for row in first_rows(len(array)).tolist():
            at, n_bytes = header + row * row_bytes, ROWS * row_bytes
            os.posix_fadvise(raw.fileno(), at, n_bytes, os.POSIX_FADV_WILLNEED)


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
