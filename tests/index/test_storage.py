"""The index directory: round trip, damage, and interrupted writing."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import numba
import numpy as np
import pysam
import pytest

from mapper.errors import IndexFormatError, MapperError, OutputError, UsageError
from mapper.index import storage
from mapper.index.index import Index
from mapper.index.reference import contig_bounds, find_contig
from mapper.index.storage import FILES, open_index, save_index, verify
from mapper.params import IndexParams

FASTA = b">one first\nACGTTGCANNNNACGGT\n>two\nTTTTT\n>three\n" + b"ACGGATTACA\n" * 30
REPO = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fasta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fasta") / "ref.fa"
    path.write_bytes(FASTA)
    return path


@pytest.fixture(scope="module")
def built(fasta: Path) -> Index:
    return Index.build(fasta)


@pytest.fixture
def saved(built: Index, tmp_path: Path) -> Path:
    built.save(tmp_path / "ref.fmw")
    return tmp_path / "ref.fmw"


def arrays(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.glob("*.npy")}


def test_round_trip_keeps_everything_and_the_compiled_types(built: Index, saved: Path) -> None:
    verify(saved)
    opened = Index.open(saved)
    assert opened.meta == built.meta
    assert opened.contigs.names == built.contigs.names == ("one", "two", "three")
    assert opened.contigs.md5 == built.contigs.md5
    for name, one in built.fm._asdict().items():
        other = getattr(opened.fm, name)
        if isinstance(one, np.ndarray):
            assert type(other) is np.ndarray
            assert not one.flags.writeable
            np.testing.assert_array_equal(one, other)
        else:
            assert one == other
    assert numba.typeof(opened.fm) == numba.typeof(built.fm)
    assert numba.typeof(opened.contigs.starts) == numba.typeof(built.contigs.starts)


def test_text_positions_fall_into_their_contigs(built: Index) -> None:
    contigs = built.contigs
    assert contigs.starts.tolist() == [0, 18, 24]
    assert contigs.lengths.tolist() == [17, 5, 300]
    for ref_id in range(3):
        start, end = contig_bounds(contigs.starts, contigs.lengths, ref_id)
        for text_pos in (start, end - 1, end):
            assert find_contig(contigs.starts, text_pos) == ref_id


def test_same_bytes_for_every_form_of_the_same_fasta(
    built: Index, saved: Path, tmp_path: Path
) -> None:
    forms = {
        "again.fa": FASTA,
        "lower.fa": FASTA.lower(),
        "crlf.fa": FASTA.replace(b"\n", b"\r\n"),
        "x.fa.gz": gzip.compress(FASTA),
    }
    for name, data in forms.items():
        (tmp_path / name).write_bytes(data)
    pysam.tabix_compress(str(tmp_path / "again.fa"), str(tmp_path / "b.fa.gz"))
    for name in (*forms, "b.fa.gz"):
        index = Index.build(tmp_path / name)
        index.save(tmp_path / "other.fmw")
        assert arrays(tmp_path / "other.fmw") == arrays(saved)
        assert index.contigs.md5 == built.contigs.md5


def test_a_repeated_build_has_the_same_meta_too(fasta: Path, saved: Path, tmp_path: Path) -> None:
    Index.build(fasta).save(tmp_path / "again.fmw")
    assert (tmp_path / "again.fmw/meta.json").read_bytes() == (saved / "meta.json").read_bytes()


@pytest.mark.parametrize("name", sorted(FILES))
def test_missing_cut_or_changed_files_are_told(saved: Path, name: str) -> None:
    file = saved / name
    data = file.read_bytes()
    file.unlink()
    with pytest.raises(IndexFormatError, match=name):
        open_index(saved)
    for bad in (b"", data[:-1], data + b"x"):
        file.write_bytes(bad)
        if name != "meta.json" or bad != data[:-1]:  # its last byte is the end of a line
            with pytest.raises(IndexFormatError, match=name):
                open_index(saved)
    for i in range(0, len(data) - 2, 1 + len(data) // 40):
        file.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        with pytest.raises(IndexFormatError, match=name):
            verify(saved)


def test_a_file_of_another_index_is_told(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "o.fa").write_bytes(b">o\nACGT\n")
    Index.build(tmp_path / "o.fa").save(tmp_path / "o.fmw")
    shutil.copy(tmp_path / "o.fmw/blocks.npy", saved / "blocks.npy")
    with pytest.raises(IndexFormatError, match=r"blocks\.npy"):
        open_index(saved)


def test_a_newer_version_is_told(saved: Path) -> None:
    meta = json.loads((saved / "meta.json").read_text())
    meta["format_version"] = 99
    (saved / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(IndexFormatError, match="format 99; this fmwave reads formats 1 and 2"):
        open_index(saved)


def test_what_is_no_index_is_told(fasta: Path, tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match=r"mapper.Index.build\('.*ref.fa'\) builds an index"):
        open_index(fasta)
    with pytest.raises(IndexFormatError, match="no such index"):
        open_index(tmp_path / "none.fmw")
    with pytest.raises(IndexFormatError, match=r"holds no meta\.json"):
        open_index(tmp_path)
    (tmp_path / "meta.json").write_text('{"format": "other", "format_version": 1}')
    with pytest.raises(IndexFormatError, match="format 'other'"):
        open_index(tmp_path)


def test_an_index_is_replaced_and_an_open_one_stays_readable(built: Index, saved: Path) -> None:
    before = open_index(saved)
    save_index(built, saved)
    np.testing.assert_array_equal(before.fm.blocks, built.fm.blocks)
    verify(saved)
    assert [entry.name for entry in saved.parent.iterdir()] == ["ref.fmw"]


def test_what_is_no_index_is_not_replaced(built: Index, saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "reads.fq"
    file.write_text("@r\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "thesis.txt").write_text("x")
    for path in (file, folder):
        with pytest.raises(UsageError):
            save_index(built, path, force=True)
    with pytest.raises(OutputError, match="does not exist"):
        save_index(built, tmp_path / "none" / "x.fmw")
    assert file.exists()
    assert (folder / "thesis.txt").exists()
    (saved / "blocks.npy").unlink()
    (saved / "meta.json").unlink()
    with pytest.raises(UsageError, match="force=True"):
        save_index(built, saved)
    save_index(built, saved, force=True)
    verify(saved)


def test_an_index_with_other_files_beside_its_own_is_not_replaced(
    built: Index, saved: Path
) -> None:
    notes, result = saved / "notes.txt", saved / "results" / "x.bam"
    notes.write_text("x")
    result.parent.mkdir()
    result.write_text("x")
    before = (saved / "meta.json").stat().st_ino
    for force in (False, True):
        with pytest.raises(UsageError, match=r"other files .*\(notes\.txt, results\).*deleted"):
            save_index(built, saved, force=force)
    assert notes.exists()
    assert result.exists()
    assert (saved / "meta.json").stat().st_ino == before
    assert [entry.name for entry in saved.parent.iterdir()] == ["ref.fmw"]
    notes.unlink()
    result.unlink()
    result.parent.rmdir()
    (saved / ".snakemake_timestamp").touch()  # by Snakemake, in each directory that a rule makes
    save_index(built, saved)
    assert {entry.name for entry in saved.iterdir()} == FILES


def test_a_file_that_comes_while_the_new_index_is_written_is_kept(
    built: Index, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = storage._sync

    def sync_and_come(file: BinaryIO) -> None:
        (saved / "notes.txt").write_text("x")
        sync(file)

    with monkeypatch.context() as patch, pytest.raises(UsageError, match=r"notes\.txt"):
        patch.setattr(storage, "_sync", sync_and_come)
        save_index(built, saved)
    assert (saved / "notes.txt").exists()
    verify(saved)
    assert [entry.name for entry in saved.parent.iterdir()] == ["ref.fmw"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [(OSError(28, "No space left"), OutputError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_failure_while_writing_leaves_nothing(
    built: Index,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    expected: type[BaseException],
) -> None:
    calls = []

    def sync(file: object) -> None:
        calls.append(file)
        if len(calls) == 3:
            raise error

    monkeypatch.setattr(storage, "_sync", sync)
    with pytest.raises(expected):
        save_index(built, tmp_path / "x.fmw")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", [1, 2])
def test_an_interrupt_while_an_index_is_replaced_leaves_one(
    built: Index, saved: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """A signal arrives after the old directory was renamed, or after the new one was."""
    rename, n_renamed = Path.rename, 0

    def rename_and_stop(path: Path, target: Path) -> Path:
        nonlocal n_renamed
        n_renamed += 1
        renamed = rename(path, target)
        if n_renamed == step:
            raise KeyboardInterrupt
        return renamed

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", rename_and_stop)
        save_index(built, saved)
    verify(saved)
    assert [entry.name for entry in saved.parent.iterdir()] == ["ref.fmw"]


def test_an_interrupt_while_the_old_index_is_removed_leaves_nothing_of_it(
    built: Index, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink
    stopped: list[str] = []

    def unlink_and_stop(path: str, *, dir_fd: int | None = None) -> None:
        unlink(path, dir_fd=dir_fd)
        if not stopped:
            stopped.append(path)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "unlink", unlink_and_stop)
        save_index(built, saved)
    verify(saved)
    assert [entry.name for entry in saved.parent.iterdir()] == ["ref.fmw"]


def test_too_little_disk_is_told(
    built: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 8, 1))
    with pytest.raises(OutputError, match=r"takes 0\.\d MB, and 0\.0 MB are free"):
        save_index(built, tmp_path / "x.fmw")


_DIE_WHILE_SAVING = """
import os, signal, sys
from mapper.index import storage
from mapper.index.index import Index
calls = []
def sync(file):
    calls.append(file)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
storage._sync = sync
Index.build(sys.argv[1]).save(sys.argv[2])
"""


@pytest.mark.parametrize("after_files", [1, 7])
def test_kill_leaves_nothing_that_looks_complete(
    fasta: Path, tmp_path: Path, after_files: int
) -> None:
    target = tmp_path / "x.fmw"
    command = [sys.executable, "-c", _DIE_WHILE_SAVING, str(fasta), str(target), str(after_files)]
    done = subprocess.run(command, cwd=REPO, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".x.fmw.")
    assert left.name.endswith(".tmp")
    with pytest.raises(MapperError):
        open_index(target)


def test_parameters_out_of_range_are_usage_errors() -> None:
    for options in ({"occ_spacing": 32}, {"sa_sampling": 3}, {"kmer_len": 15}, {"kmer_len": -1}):
        with pytest.raises(UsageError):
            IndexParams(**options)
