"""Write outputs with the same bytes for any calls, complete under their name or not at all."""

from __future__ import annotations

import errno
import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.errors import OutputError, UsageError
from mapper.io import bgzf
from mapper.io.header import header_text
from mapper.io.output import format_of, open_output
from mapper.io.output_file import OutputFile
from mapper.sorting.options import SortOptions
from mapper.sorting.output import SortedTarget, open_sorted_output
from tests.helpers.record_batches import CONTIG_LENGTHS, CONTIG_NAMES, random_reads, random_records
from tests.naive.sam import sam_lines

HEADER = header_text(CONTIG_NAMES, CONTIG_LENGTHS, "fmwave map")


class Collector:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes | memoryview) -> None:
        self.data += data


def compressed(
    data: bytes, cuts: list[int], threads: int, level: int = 1, *, in_background: bool = False
) -> bytes:
    sink = Collector()
    bounds = [0, *sorted(cuts), len(data)]
    with ThreadPoolExecutor(threads) as executor:
        compressor = bgzf.HostCompressor(executor, level)
        writer = bgzf.BgzfWriter(sink, executor, compressor, 3, in_background=in_background)
        for start, end in pairwise(bounds):
            writer.append(data[start:end])
        writer.finish()
    return sink.data


DATA = bytes(np.random.default_rng(1).integers(65, 75, 4_000_000).astype(np.uint8))


@pytest.fixture(scope="module")
def whole() -> bytes:
    return compressed(DATA, [], 1)


@given(
    st.lists(st.integers(0, len(DATA)), max_size=20), st.integers(1, 2), st.integers(1, 70),
    st.booleans(),
)  # fmt: skip
@settings(deadline=None, max_examples=25)
def test_bgzf_bytes_depend_on_data_alone(whole, cuts, threads, blocks_per_task, in_background):
    """The bytes do not depend on the groups of blocks; here some end inside a piece."""
    with mock.patch.object(bgzf, "BLOCKS_PER_TASK", blocks_per_task):
        assert compressed(DATA, cuts, threads, in_background=in_background) == whole


class FullDisk:
    """A sink that fails after its first bytes, slowly."""

    def __init__(self) -> None:
        self.n_writes = 0
        self.is_writing = False

    def write(self, data: bytes | memoryview) -> None:
        self.is_writing = True
        time.sleep(0.02)
        self.is_writing = False
        self.n_writes += 1
        if self.n_writes > 1:
            raise OutputError("the disk is full")


def test_a_write_in_the_background_that_fails():
    """It is told, and when the writer has been cancelled nothing is written any more."""
    sink = FullDisk()
    with ThreadPoolExecutor(2) as executor, mock.patch.object(bgzf, "BLOCKS_PER_TASK", 1):
        writer = bgzf.BgzfWriter(sink, executor, in_background=True)
        with pytest.raises(OutputError, match="disk is full"):
            for _ in range(100):
                writer.append(DATA)
        writer.cancel()
        assert not sink.is_writing
        assert sink.n_writes == 2


def test_a_cancelled_writer_leaves_the_sink_alone():
    sink = FullDisk()
    with ThreadPoolExecutor(1) as executor:
        writer = bgzf.BgzfWriter(sink, executor, max_pending=0, in_background=True)
        writer.append(bytes(DATA) * 2)  # its first group is being written, or waits for the thread
        writer.cancel()
        n_writes = sink.n_writes
        assert not sink.is_writing
    assert sink.n_writes == n_writes


def test_bgzf_is_gzip_in_blocks_of_65280(whole):
    assert gzip.decompress(whole) == DATA
    assert whole.endswith(bgzf.EOF_BLOCK)
    at, sizes = 0, []
    while at < len(whole):
        size = int.from_bytes(whole[at + 16 : at + 18], "little") + 1
        sizes.append(int.from_bytes(whole[at + size - 4 : at + size], "little"))
        at += size
    assert sizes == [65280] * (len(DATA) // 65280) + [len(DATA) % 65280, 0]


@pytest.mark.parametrize("level", [1, 6])
def test_bgzf_offsets_of_blocks(level):
    """Each offset is that of a block, the last that of the end of the file."""
    data = DATA[:3_000_000] + np.random.default_rng(4).bytes(1_500_000)
    sink = Collector()
    with ThreadPoolExecutor(2) as executor:
        compressor = bgzf.HostCompressor(executor, level)
        writer = bgzf.BgzfWriter(sink, executor, compressor, max_pending=1)
        assert writer.block_offsets.tolist() == [0]
        writer.append(data[:100])
        writer.end_block()
        assert writer.n_blocks == 1
        writer.append(data[100:])
        writer.finish()
    offsets = writer.block_offsets
    assert offsets.dtype == np.int64
    assert writer.n_blocks == len(offsets) - 1 == 1 - (len(data) - 100) // -bgzf.BLOCK_BYTES
    assert sink.data[offsets[-1] :] == bgzf.EOF_BLOCK
    blocks = [gzip.decompress(sink.data[a:b]) for a, b in pairwise(offsets)]
    assert blocks[0] == data[:100]
    assert {len(block) for block in blocks[1:-1]} == {bgzf.BLOCK_BYTES}
    assert b"".join(blocks) == data


@pytest.mark.parametrize("level", range(10))
@pytest.mark.parametrize("n", [0, 1, 65279, 65280, 65281])
def test_bgzf_of_incompressible_bytes(level, n):
    data = np.random.default_rng(2).bytes(n)
    assert gzip.decompress(compressed(data, [], 1, level)) == data


def test_bgzf_stores_what_grows():
    data = np.random.default_rng(2).bytes(bgzf.BLOCK_BYTES)
    block = bgzf.compress_block(memoryview(data), lambda raw: bytes(raw) * 2)
    assert gzip.decompress(block) == data
    assert len(block) <= 65536


def test_level_must_exist():
    with pytest.raises(UsageError, match="level 10"):
        bgzf.deflater(10)


@pytest.fixture(scope="module")
def batches():
    rng = np.random.default_rng(8)
    result = []
    for _ in range(6):
        reads = random_reads(rng, 500)
        result.append((random_records(rng, reads, 1000), reads))
    return result


def write(path, fmt, batches, threads=2, *, sort=False, memory=1 << 20, **options) -> None:
    header = header_text(CONTIG_NAMES, CONTIG_LENGTHS, "fmwave map", sort=sort)
    with ThreadPoolExecutor(threads) as executor:
        if sort:
            target = SortedTarget(
                str(path), fmt, "fmwave map", header, CONTIG_NAMES, CONTIG_LENGTHS, **options
            )
            opened = open_sorted_output(target, SortOptions(), executor, threads, memory=memory)
        else:
            arguments = (header, CONTIG_NAMES, CONTIG_LENGTHS)
            opened = open_output(str(path), fmt, *arguments, executor, **options)
        with opened as output:
            for encoded in executor.map(lambda batch: output.encode(*batch), batches):
                output.append(encoded)


def expected_lines(batches) -> list[str]:
    return [line for batch in batches for line in sam_lines(*batch, CONTIG_NAMES)]


def test_threads_do_not_show_in_the_file(tmp_path, batches):
    for threads in (1, 2, 4):
        write(tmp_path / f"{threads}.bam", "bam", batches, threads)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
    pysam.quickcheck(str(tmp_path / "1.bam"))
    assert pysam.view(str(tmp_path / "1.bam")).splitlines() == expected_lines(batches)


def test_old_file_is_replaced_at_the_end_only(tmp_path, batches):
    path = tmp_path / "out.bam"
    path.write_text("old")
    with (
        ThreadPoolExecutor(1) as executor,
        open_output(str(path), "bam", HEADER, CONTIG_NAMES, CONTIG_LENGTHS, executor) as output,
    ):
        output.append(output.encode(*batches[0]))
        assert path.read_text() == "old"
        temporary = [p.name for p in tmp_path.iterdir() if p != path]
        assert temporary == [f".out.bam.fmwave-{os.getpid()}.tmp"]
    assert list(tmp_path.iterdir()) == [path]
    pysam.quickcheck(str(path))


@pytest.mark.parametrize("options", [{}, {"sort": True}])
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_is_left_after_an_exception(tmp_path, batches, options, kind):
    def fail():
        yield batches[0]
        raise kind

    with pytest.raises(kind):
        write(tmp_path / "out.bam", "bam", fail(), **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.medium
def test_symbolic_link_stays(tmp_path, batches):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "real.sam", tmp_path / "out.sam"
    link.symlink_to(target)
    write(link, "sam", batches)
    assert link.is_symlink()
    assert not target.is_symlink()
    assert len(target.read_text().splitlines()) > 6000


def test_permissions_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        with OutputFile(str(tmp_path / "x")) as file:
            file.write(b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


def test_full_disk(batches):
    for fmt in ("bam", "sam"):
        with pytest.raises(OutputError, match=r"/dev/full: writing failed: No space left"):
            write("/dev/full", fmt, batches)
    assert Path("/dev/full").is_char_device()


def test_places_where_no_file_can_be(tmp_path):
    with pytest.raises(OutputError, match="does not exist"):
        OutputFile(str(tmp_path / "no" / "x.bam"))
    with pytest.raises(OutputError, match="is a directory"):
        OutputFile(str(tmp_path))

    def got_inside():
        raise AssertionError("got inside")
        yield

    for sort in (False, True):
        with pytest.raises(OutputError, match="does not exist"):
            write(tmp_path / "no" / "x.bam", "bam", got_inside(), sort=sort)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_directory_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="no permission"):
        OutputFile(str(tmp_path / "x.bam"))


@pytest.mark.parametrize(("name", "sort"), [("x.paf", True), ("x.cram", True), ("x.cram", False)])
def test_combinations_that_make_no_sense(tmp_path, name, sort):
    with pytest.raises(UsageError):
        write(tmp_path / name, Path(name).suffix[1:], [], sort=sort)
    assert list(tmp_path.iterdir()) == []


def test_format_of():
    assert [format_of(path) for path in ("a.bam", "b.c/d.SAM", "-")] == ["bam", "sam", "sam"]
    with pytest.raises(UsageError):
        format_of("x.vcf")


CHILD = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from mapper.errors import MapperError
from mapper.io.output import open_output
from mapper.io.header import header_text
try:
    with ThreadPoolExecutor(1) as executor:
        with open_output(sys.argv[1], sys.argv[2], header_text(["c"], [9], ""), ["c"], [9],
                         executor) as output:
            if sys.argv[3] == "hang":
                print("ready", flush=True)
                time.sleep(60)
            if sys.argv[3] == "fail":
                sys.exit(7)
except MapperError as error:
    sys.exit(f"{error.exit_status}: {error}")
"""


def child(*arguments: str, **options) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", CHILD, *arguments], **options)


def run_child(*arguments: str, stdout) -> tuple[int, str, bytes]:
    with child(*arguments, stdout=stdout, stderr=subprocess.PIPE) as process:
        out, err = process.communicate()
    return process.returncode, err.decode(), out


def test_standard_output(tmp_path):
    header = header_text(["c"], [9], "")
    for fmt in ("sam", "bam"):
        status, _, out = run_child("-", fmt, "", stdout=subprocess.PIPE)
        assert status == 0
        (tmp_path / fmt).write_bytes(out)
        assert pysam.view("--no-PG", "-h", str(tmp_path / fmt)) == header
        assert out.endswith(bgzf.EOF_BLOCK) == (fmt == "bam")


def test_standard_output_after_a_failure_has_no_end():
    status, _, out = run_child("-", "bam", "fail", stdout=subprocess.PIPE)
    assert status == 7
    assert not out.endswith(bgzf.EOF_BLOCK)


def test_standard_output_full_or_closed():
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        status, err, _ = run_child("-", "bam", "", stdout=full)
    assert status == 1
    assert "4: standard output: writing failed: No space left" in err
    read_end, write_end = os.pipe()
    os.close(read_end)
    status, err, _ = run_child("-", "sam", "", stdout=write_end)
    os.close(write_end)
    assert "4: standard output: writing failed: Broken pipe" in err


def test_kill_leaves_the_temporary_name_only(tmp_path):
    with child(str(tmp_path / "out.bam"), "bam", "hang", stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    names = [path.name for path in tmp_path.iterdir()]
    assert names == [f".out.bam.fmwave-{process.pid}.tmp"]


def test_writes_to_a_pipe(tmp_path, batches):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    received = []
    thread = threading.Thread(target=lambda: received.append(fifo.read_bytes()))
    thread.start()
    write(fifo, "sam", batches)
    thread.join()
    assert received[0].decode() == HEADER + "".join(f"{x}\n" for x in expected_lines(batches))
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


@pytest.mark.parametrize("fmt", ["sam", "bam"])
def test_sorted_records_go_through_a_pipe(tmp_path, batches, fmt):
    fifo = tmp_path / f"fifo.{fmt}"
    os.mkfifo(fifo)
    received = []
    thread = threading.Thread(target=lambda: received.append(fifo.read_bytes()))
    thread.start()
    write(fifo, fmt, batches, sort=True)
    thread.join()
    (tmp_path / "copy").write_bytes(received[0])
    lines = pysam.view("--no-PG", str(tmp_path / "copy")).splitlines()
    assert lines == sorted(expected_lines(batches), key=sort_key)
    assert fifo.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", fifo.name]


def sort_key(line: str) -> tuple[int, int, bool]:
    fields = line.split("\t")
    ref = CONTIG_NAMES.index(fields[2]) if fields[2] != "*" else len(CONTIG_NAMES)
    return ref, int(fields[3]), bool(int(fields[1]) & 16)


@pytest.mark.parametrize("memory", [1, 1 << 20, 1 << 30])
@pytest.mark.parametrize("threads", [1, 3])
def test_sort_and_index(tmp_path, monkeypatch, batches, threads, memory):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    path = tmp_path / "out.bam"
    (tmp_path / "out.bam.csi").write_text("index of an older file")
    write(path, "bam", batches, threads, sort=True, memory=memory)
    text = pysam.view("--no-PG", "-h", str(path))
    lines = [line for line in text.splitlines() if not line.startswith("@")]
    assert lines == sorted(expected_lines(batches), key=sort_key)
    sorted_header = header_text(CONTIG_NAMES, CONTIG_LENGTHS, "fmwave map", sort=True)
    assert text.startswith(sorted_header)
    with pysam.AlignmentFile(str(path)) as bam:
        assert bam.has_index()
        n_mapped = sum(x.mapped for x in bam.get_index_statistics())
    assert n_mapped == sum(key[0] < 3 for key in map(sort_key, lines))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.bam", "out.bam.bai", "scratch"]
    assert list(scratch.iterdir()) == []


OLD_INDEXES = {
    "bam": ("x.bam.bai", "x.bam.csi", "x.bai", "x.csi"),
    "cram": ("x.cram.crai", "x.cram.bai", "x.crai"),
    "sam": ("x.sam.csi", "x.sam.bai"),
    "paf": ("x.paf.csi",),
}
OF_OTHERS = ("y.bam.bai", "y.bai", "x.bed.csi", "x.bam.bai.txt")


@pytest.mark.parametrize(
    ("fmt", "sort"), [("bam", False), ("bam", True), ("cram", False), ("cram", True),
                      ("sam", False), ("paf", False)],
)  # fmt: skip
def test_indexes_of_an_older_file_go_with_it(tmp_path, fmt, sort):
    path = tmp_path / f"x.{fmt}"
    old = [path.name, *OLD_INDEXES[fmt]]
    for name in (*old, *OF_OTHERS):
        (tmp_path / name).write_text("old")

    (tmp_path / "ref.fa").write_text(">c\nA\n")  # enough for a CRAM without records
    options = {"sort": sort}
    options["reference"] = str(tmp_path / "ref.fa") if fmt == "cram" else None

    def fail():
        yield from ()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(path, fmt, fail(), **options)
    assert all((tmp_path / name).read_text() == "old" for name in (*old, *OF_OTHERS))
    write(path, fmt, [], **options)
    assert all((tmp_path / name).read_text() == "old" for name in OF_OTHERS)
    expected = {path.name}
    if sort:
        expected.add({"bam": "x.bam.bai", "cram": "x.cram.crai"}[fmt])
    left = {p.name for p in tmp_path.iterdir()} - {"ref.fa", "ref.fa.fai", *OF_OTHERS}
    assert left == expected
    assert all((tmp_path / name).read_bytes() != b"old" for name in left)


@pytest.mark.parametrize("sort", [False, True])
def test_indexes_beside_a_link_to_the_output(tmp_path, batches, sort):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "y.bam", tmp_path / "x.bam"
    link.symlink_to(target)
    for path in (target, target.with_suffix(".bam.bai"), tmp_path / "x.bai"):
        path.write_text("old")
    (tmp_path / "x.bam.bai").symlink_to(target.with_suffix(".bam.bai"))
    write(link, "bam", batches[:1], sort=sort)
    here = {p.name for p in tmp_path.iterdir()}
    assert here == {"there", "x.bam"} | ({"x.bam.bai"} if sort else set())
    there = {p.name for p in target.parent.iterdir()}
    assert there == {"y.bam"} | ({"y.bam.bai"} if sort else set())
    with pysam.AlignmentFile(str(link)) as bam:
        assert bam.has_index() == sort


def test_an_old_index_that_cannot_be_removed_keeps_the_old_file(tmp_path, batches, monkeypatch):
    path, index = tmp_path / "x.bam", tmp_path / "x.bam.bai"
    path.write_text("old")
    index.write_text("old")
    unlink = Path.unlink

    def refuse(file, missing_ok=False):
        if file == index:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        unlink(file, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(
        OutputError, match=r"x\.bam\.bai: of an older output, and cannot be removed"
    ):
        write(path, "bam", batches[:1])
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "x.bam": "old",
        index.name: "old",
    }


def test_long_contigs_get_a_csi(tmp_path):
    lengths = [(1 << 29) + 1]
    header = header_text(["c"], lengths, "", sort=True)
    target = SortedTarget(str(tmp_path / "o.bam"), "bam", "", header, ["c"], lengths)
    with (
        ThreadPoolExecutor(1) as executor,
        open_sorted_output(target, SortOptions(), executor, 1, memory=1 << 20),
    ):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o.bam", "o.bam.csi"]


@pytest.mark.parametrize("option", ["TMPDIR", "tmp_dir"])
def test_directory_for_temporary_files_that_is_not_there(tmp_path, monkeypatch, option):
    missing = str(tmp_path / "no")
    if option == "TMPDIR":
        monkeypatch.setenv("TMPDIR", missing)
    options = SortOptions(missing if option == "tmp_dir" else None)
    target = SortedTarget(str(tmp_path / "x.bam"), "bam", "", HEADER, CONTIG_NAMES, CONTIG_LENGTHS)
    with (
        pytest.raises(OutputError, match=rf"^{option} /.*/no: no such directory, and sorting"),
        ThreadPoolExecutor(1) as executor,
        open_sorted_output(target, options, executor, 1, memory=1),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_full_directory_for_temporary_files(tmp_path, monkeypatch, batches):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(OutputError, match=r"temporary file of the sort failed .*tmp_dir.*memory"):
        write(tmp_path / "x.bam", "bam", batches, sort=True, memory=1)
    assert list(tmp_path.iterdir()) == []


def test_bytes_of_a_sorted_file_depend_on_the_records_alone(tmp_path, batches):
    for number, (threads, memory) in enumerate([(1, 1 << 30), (3, 1), (2, 300_000)]):
        write(tmp_path / f"{number}.bam", "bam", batches, threads, sort=True, memory=memory)
    assert len({path.read_bytes() for path in tmp_path.glob("*.bam")}) == 1
    assert len({path.read_bytes() for path in tmp_path.glob("*.bai")}) == 1
