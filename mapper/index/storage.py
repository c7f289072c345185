"""The index on disk: a directory of ``.npy`` files and ``meta.json`` (``docs/index-format.md``).

A directory is written under a temporary name next to its final one and renamed when complete, so
that an index under its final name is always complete.

Row numbers and text positions in the files are indices into arrays, which compiled code does not
check: with much damage a run soon ends by a signal, or never. Checksums find any damage, but those
of a large index are compared only while it is in use. Opening an index therefore checks 128 spots
of 64 rows in each array: that finds damage that spans a hundredth of an array, and none between
two spots. The bit planes of the text hold no indices and are not checked.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from mapper.errors import IndexFormatError, OutputError, UsageError, build_call, option
from mapper.index.fm import SUPERBLOCK_SHIFT, FMIndex
from mapper.index.reference import Contigs, IndexData, IndexMeta, make_contigs, with_groups
from mapper.io.output_file import check_directory_of, remove_directory, sync_to_disk
from mapper.params import IndexParams

# --- shapes of the arrays, for the builder, the memory estimate and the check of a file ---

NARROW_ROWS = 1 << 32
"""Texts of fewer rows than this have row numbers and text positions of 32 bits in the index."""


class Column(NamedTuple):
    """Type and shape of one array of :class:`mapper.index.fm.FMIndex`."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape)


def row_dtype(n: int) -> np.dtype:
    """Width of rows and text positions of a text of `n` bases (n + 1 must fit)."""
    return np.dtype(np.uint32 if n + 1 < NARROW_ROWS else np.uint64)


def columns(n: int, params: IndexParams) -> dict[str, Column]:
    """Return the arrays of the index of a text of `n` bases, by their name in FMIndex."""
    rows = row_dtype(n)
    words = np.dtype(np.uint64)
    counts = np.dtype(np.int64)
    kmer_len = params.table_kmer_len(n)
    return {
        "blocks": Column(words, (n // params.occ_spacing + 1, 2 + params.occ_spacing // 32)),
        "super_counts": Column(counts, ((n >> SUPERBLOCK_SHIFT) + 1, 4)),
        "first_row": Column(counts, (5,)),
        "sa_samples": Column(rows, (n // params.sampling(n) + 1,)),
        "kmer_starts": Column(rows, (4**kmer_len + 1 if kmer_len else 1,)),
        "ref_planes": Column(words, ((n + 63) // 64 + 2, 3)),
    }


def index_bytes(n: int, params: IndexParams) -> int:
    """Return the bytes of the arrays of an index, on disk and in memory."""
    return sum(column.n_bytes for column in columns(n, params).values())


# --- spot checks ---

SPOTS = 128
"""Spots of an array that are checked; each may be a read from the disk."""

ROWS_OF_SPOT = 64
"""Rows checked at each spot: of 64 random numbers some lie beyond the end of the array."""

_LOW_HALF = np.uint64(0xFFFFFFFF)


def _check_blocks(fm: FMIndex) -> None:
    """Raise ValueError if the counts of a block do not add up to the characters before it."""
    blocks = _spot_rows(len(fm.blocks))
    words = fm.blocks[blocks, :2]
    counts = ((words & _LOW_HALF) + (words >> np.uint64(32))).sum(axis=-1)
    before = (blocks << fm.occ_shift) & ((1 << SUPERBLOCK_SHIFT) - 1)
    if (counts != before.astype(np.uint64)).any():
        raise ValueError("the counts of a block do not add up")


def _check_sa_samples(fm: FMIndex) -> None:
    """Raise ValueError if a text position lies beyond the end of the text."""
    if (fm.sa_samples[_spot_rows(len(fm.sa_samples))] >= fm.n_rows).any():
        raise ValueError("a text position lies beyond the end of the text")


def _check_kmer_starts(fm: FMIndex) -> None:
    """Raise ValueError if rows do not ascend from k-mer to k-mer, or lie beyond the last."""
    if fm.kmer_len == 0:
        return
    starts = fm.kmer_starts[_spot_rows(len(fm.kmer_starts))]
    if (starts > fm.n_rows).any() or starts[-1, -1] != fm.n_rows:
        raise ValueError("a k-mer's row lies beyond the last, or the last k-mer's before it")
    if (starts[:, 1:] < starts[:, :-1]).any() or (starts[1:, 0] < starts[:-1, 0]).any():
        raise ValueError("the rows of k-mers do not ascend")


SPOT_CHECKS: dict[str, Callable[[FMIndex], None]] = {
    "blocks": _check_blocks,
    "sa_samples": _check_sa_samples,
    "kmer_starts": _check_kmer_starts,
}
"""Checks by array name; they raise ValueError with the reason."""


def first_rows(n_rows: int) -> np.ndarray:
    """Return the first row of each spot of an array: int64 (SPOTS,)."""
    return np.linspace(0, n_rows - min(ROWS_OF_SPOT, n_rows), SPOTS).astype(np.int64)


def _spot_rows(n_rows: int) -> np.ndarray:
    """Return the rows of all spots, int64 (SPOTS, at most ROWS_OF_SPOT), the last row included."""
    return first_rows(n_rows)[:, None] + np.arange(min(ROWS_OF_SPOT, n_rows))


# --- open and verify ---

FORMAT_NAME = "fmwave-index"
PLAIN, MARKED = 1, 2
"""Format versions: of an index, and of one with groups of contigs or masked bases, which a reader
of the first would take for one without."""
META = "meta.json"
ARRAYS = ("blocks", "super_counts", "first_row", "sa_samples", "kmer_starts", "ref_planes")
UNMASKED = "unmasked_planes"
"""The array that an index has only if bases are masked, of the shape of ``ref_planes``."""
FILES = {META, *(f"{name}.npy" for name in ARRAYS)}
_OWN_FILES = FILES | {f"{UNMASKED}.npy", ".snakemake_timestamp"}
"""Files that an index directory may hold; Snakemake writes its own, which is empty, into
directories that a rule makes."""
_SHOWN_FILES = 3
"""Files that an error message names."""

_SMALL = ("super_counts", "first_row")
"""Arrays of some hundred bytes: their checksums are compared whenever an index is opened."""

CHUNK_BYTES = 1 << 24
"""Bytes read or written at a time."""


def _rebuild() -> str:
    return f"build it again: {build_call('REF.fa')}"


def open_index(path: str | Path) -> IndexData:
    """Memory-map an index; sizes and spots are checked (:func:`checks` reads it all).

    Returns
    -------
    The data; its arrays are plain, read-only ndarrays on the mapped files, shared by processes.

    Raises
    ------
    IndexFormatError
        If `path` is no index, or an index that is incomplete, damaged or of another version.
    """
    path = Path(path)
    meta = read_meta(path)
    with _meta_fields(path):
        params = IndexParams(**meta["parameters"])
        n_masked = 0 if meta["format_version"] == PLAIN else int(meta["masked_bases"])
        source = IndexMeta(
            meta["source"]["name"], meta["source"]["bytes"], params, meta["fmwave_version"],
            n_masked,
        )  # fmt: skip
        contigs = _contigs_of(meta)
        n = meta["n_rows"] - 1
        primary = int(meta["primary"])
        shapes = _columns_on_disk(n, params, n_masked)
        sizes = {name: meta["files"][f"{name}.npy"]["bytes"] for name in shapes}
        small = {name: meta["files"][f"{name}.npy"]["crc32"] for name in _SMALL}
    if n != int(contigs.lengths.sum()) + len(contigs.lengths):
        raise IndexFormatError(f"{path / META}: contig lengths disagree with n_rows; {_rebuild()}")
    arrays = {}
    for name, column in shapes.items():
        file = path / f"{name}.npy"
        arrays[name] = _map_array(file, sizes[name])
        if arrays[name].dtype != column.dtype or arrays[name].shape != column.shape:
            raise IndexFormatError(
                f"{file}: holds {arrays[name].dtype} {arrays[name].shape}, and "
                f"{column.dtype} {column.shape} is expected; {_rebuild()}"
            )
    unmasked_planes = arrays.pop(UNMASKED, None)
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
        _prefetch_spots(path / f"{name}.npy", arrays[name])
    for name, check in SPOT_CHECKS.items():
        with _reading(path / f"{name}.npy"):
            check(fm)
    return IndexData(fm, contigs, source, unmasked_planes)


def _columns_on_disk(n: int, params: IndexParams, n_masked: int) -> dict[str, Column]:
    """Return the arrays of an index directory, by name."""
    shapes = columns(n, params)
    return {**shapes, UNMASKED: shapes["ref_planes"]} if n_masked else shapes


def _contigs_of(meta: dict[str, Any]) -> Contigs:
    """Return the contigs that ``meta.json`` lists."""
    listed = meta["contigs"]
    contigs = make_contigs(listed["names"], listed["md5"], listed["lengths"])
    if meta["format_version"] == PLAIN:
        return contigs
    return with_groups(contigs, set(listed["alt"]), listed["groups"])


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
    """Compare every file of an index with its checksum, CHUNK_BYTES at each step.

    Raises
    ------
    IndexFormatError
        Naming the first file that differs.
    """
    path = Path(path)
    for name, entry in read_meta(path)["files"].items():
        yield from _compare(path / name, entry["crc32"])


def _compare(file: Path, expected: str) -> Iterator[None]:
    """Compare a file with its checksum, CHUNK_BYTES at each step."""
    found = 0
    with _reading(file), file.open("rb") as raw:
        while chunk := raw.read(CHUNK_BYTES):
            found = crc32(chunk, found)
            yield
    if f"{found:08x}" != expected:
        raise IndexFormatError(f"{file}: the checksum differs: damaged; {_rebuild()}")


def read_meta(path: Path) -> dict[str, Any]:
    """Return ``meta.json`` of an index, without its checksum.

    Raises
    ------
    IndexFormatError
        If `path` is no index, or an index of another version, or one that may not be read, or the
        checksum differs.
    """
    mode = _mode(path)
    if stat.S_ISREG(mode):
        raise IndexFormatError(
            f"{path}: is a file, and an index is a directory; if this is the reference, "
            f"{build_call(str(path))} builds an index of it"
        )
    if not stat.S_ISDIR(mode):
        raise IndexFormatError(f"{path}: no such index; {build_call('REF.fa')} builds one")
    file = path / META
    if not stat.S_ISREG(_mode(file)):
        raise IndexFormatError(f"{path}: holds no {META}; it is no index, or not all of one")
    with _reading(file):
        text = file.read_text()
    try:
        meta = json.loads(text)
        name, version = meta["format"], meta["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise IndexFormatError(f"{file}: damaged or not of an index; {_rebuild()}") from error
    if name != FORMAT_NAME:
        raise IndexFormatError(f"{file}: format {name!r}, and {FORMAT_NAME!r} is expected")
    if version not in (PLAIN, MARKED):
        raise IndexFormatError(
            f"{path}: index format {version}; this fmwave reads formats {PLAIN} and {MARKED}: "
            f"use another fmwave, or {_rebuild()}"
        )
    if meta.pop("crc32", None) != meta_checksum(meta):
        raise IndexFormatError(f"{file}: the checksum differs: damaged or edited; {_rebuild()}")
    return meta


def _mode(path: Path) -> int:
    """Return the ``st_mode`` of `path`, 0 if it does not exist.

    Raises
    ------
    IndexFormatError
        If this cannot be told, as in a directory that one may not enter.
    """
    with _reading(path):
        try:
            return path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return 0


def checksum(path: str | Path) -> str:
    """Return a checksum of all that an index holds, as hexadecimal digits."""
    return meta_checksum(read_meta(Path(path)))


def meta_checksum(meta: dict[str, Any]) -> str:
    """Return the CRC-32 of the other entries of ``meta.json``, as hexadecimal digits."""
    return f"{zlib.crc32(json.dumps(meta, sort_keys=True).encode()):08x}"


def _map_array(file: Path, n_bytes: int) -> np.ndarray:
    with _reading(file):
        found = file.stat().st_size
        if found != n_bytes:
            raise IndexFormatError(f"{file}: {found} bytes, {n_bytes} are expected; {_rebuild()}")
        try:
            mapped = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # the parser of a damaged header raises various exceptions
            raise ValueError(f"no .npy header ({error})") from error
        # A plain ndarray: numba would compile every core once more for np.memmap.
        return np.asarray(mapped)


def _prefetch_spots(file: Path, array: np.ndarray) -> None:
    """Have the system read all spots of an array from the disk at the same time.

    Opening an index of 0.25 GB that is not in memory takes 9 ms with this, 0.25 s without.
    """
    row_bytes = array.nbytes // len(array)
    with suppress(OSError), file.open("rb") as raw:  # then they are read one by one
        header = os.fstat(raw.fileno()).st_size - array.nbytes
        for row in first_rows(len(array)).tolist():
            at, n_bytes = header + row * row_bytes, ROWS_OF_SPOT * row_bytes
            os.posix_fadvise(raw.fileno(), at, n_bytes, os.POSIX_FADV_WILLNEED)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise IndexFormatError(f"{file}: is missing; {_rebuild()}") from error
    except PermissionError as error:
        raise IndexFormatError(
            f"{file}: no permission to read it; ask the owner of the index for it (chmod -R a+rX)"
        ) from error
    except OSError as error:
        raise IndexFormatError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise IndexFormatError(f"{file}: damaged: {error}; {_rebuild()}") from error


@contextmanager
def _meta_fields(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise IndexFormatError(
            f"{path / META}: misses or misstates {error}; {_rebuild()}"
        ) from error


# --- save ---


def save_index(index: IndexData, path: str | Path, *, force: bool = False) -> None:
    """Write an index directory, complete or not at all.

    Parameters
    ----------
    path
        Directory to create. An existing index is replaced once the new one is complete;
        processes that have it open keep the old files mapped.
    force
        Replace a damaged index as well.

    Raises
    ------
    UsageError
        If `path` exists and is no index, or holds other files beside one.
    OutputError
        If the parent directory does not exist, space does not suffice, or writing fails.
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
        remove_directory(temporary)


def target_path(path: str | Path, *, force: bool = False) -> Path:
    """Return the real path of an index to be written, after checking that it can be.

    Raises
    ------
    OutputError
        If the parent directory does not exist or cannot be written to.
    UsageError
        If `path` exists and is no index, or holds other files beside one. With `force`, a
        directory with only files of an index is accepted.
    """
    final = Path(os.path.realpath(path))
    check_directory_of(final)
    if final.exists():
        if not final.is_dir():
            raise UsageError(f"{path}: is a file; name another output")
        _check_own_files(final, str(path))
        if not force and not _is_index(final):
            raise UsageError(f"{path}: is no complete index; {option('force')} replaces it")
    return final


def _check_own_files(directory: Path, name: str) -> None:
    """Raise UsageError if a directory, `name` to the user, holds other files than an index's."""
    try:
        found = {entry.name for entry in directory.iterdir()}
    except OSError as error:
        raise OutputError(
            f"{name}: is there and cannot be looked into: {error.strerror}; name another output"
        ) from error
    others = sorted(found - _OWN_FILES)
    if others:
        shown = ", ".join(others[:_SHOWN_FILES]) + (", ..." if others[_SHOWN_FILES:] else "")
        raise UsageError(
            f"{name}: holds other files than an index ({shown}), which would be deleted; move "
            "them, or name another output"
        )


def require_space(final: Path, n_bytes: int) -> None:
    """Raise OutputError if the file system of `final` has less than `n_bytes` free."""
    free = shutil.disk_usage(final.parent).free
    if n_bytes > free:
        raise OutputError(
            f"{final}: the index takes {n_bytes / 1e6:.1f} MB, and {free / 1e6:.1f} MB are free "
            "on that file system; free some space or name another output"
        )


def _is_index(path: Path) -> bool:
    try:
        read_meta(path)
    except IndexFormatError:
        return False
    return True


def format_version(index: IndexData) -> int:
    """Return the version of the format in which an index is written."""
    return MARKED if len(index.contigs.groups) or index.meta.n_masked else PLAIN


class _ChecksumFile:
    """A binary file that records the size and CRC-32 of the data written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.n_bytes = 0
        self.crc32 = 0

    def write(self, data: bytes | memoryview) -> int:
        self.crc32 = crc32(data, self.crc32)
        self.n_bytes += len(data)
        return self.file.write(data)


def _write_files(index: IndexData, directory: Path) -> None:
    arrays = {name: getattr(index.fm, name) for name in ARRAYS}
    if index.unmasked_planes is not None:
        arrays[UNMASKED] = index.unmasked_planes
    files = {}
    for name, array in arrays.items():
        with (directory / f"{name}.npy").open("wb") as raw:
            file = _ChecksumFile(raw)
            _write_array(file, array)
            _sync(raw)
        files[f"{name}.npy"] = {"bytes": file.n_bytes, "crc32": f"{file.crc32:08x}"}
    params = index.meta.params
    contigs = index.contigs
    listed: dict[str, Any] = {
        "names": list(contigs.names),
        "lengths": contigs.lengths.tolist(),
        "md5": list(contigs.md5),
    }
    version = format_version(index)
    if version == MARKED:
        groups = zip(contigs.names, contigs.named_groups, strict=False)
        listed["alt"] = contigs.alt_names
        listed["groups"] = {name: group for name, group in groups if group}
    meta = {
        "format": FORMAT_NAME,
        "format_version": version,
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
        "contigs": listed,
    }
    if version == MARKED:
        meta["masked_bases"] = index.meta.n_masked
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
    """Rename a complete directory to its final name, and remove the old one.

    Raises
    ------
    UsageError
        If files that are not an index's have come into the old one; it then stays.
    """
    old = temporary.with_suffix(".old")
    try:
        if final.exists():
            final.rename(old)
            _check_own_files(old, str(final))
        temporary.rename(final)
        sync_to_disk(final.parent)
    finally:  # also if a signal ends the run between any two steps
        if old.exists() and not final.exists():
            old.rename(final)
        remove_directory(old)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
