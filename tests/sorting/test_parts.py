"""Sorted parts in ranges of their merged order, and what is refused."""

from __future__ import annotations

import os
import struct
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam
import pytest

from mapper.errors import InputFormatError, UsageError
from mapper.io.bgzf import EOF_BLOCK
from mapper.parallel.pool import READ, PriorityPool
from mapper.sorting import parts as parts_module
from mapper.sorting.libraries import Libraries
from mapper.sorting.parts import PartsReader
from mapper.sorting.ranges import RecordRange
from tests.helpers.alignment_files import write_alignments

CONTIGS = "@SQ\tSN:c1\tLN:100000\n@SQ\tSN:c2\tLN:50000\n"
SORTED = "@HD\tVN:1.6\tSO:coordinate\n" + CONTIGS
UNSORTED = "@HD\tVN:1.6\tSO:unsorted\tGO:query\n" + CONTIGS
FORWARD, REVERSE, UNMAPPED = 0, 16, 4


class Record(NamedTuple):
    contig: str  # "*" for none
    pos: int  # 1-based
    flag: int
    n_bases: int = 20

    @property
    def key(self) -> tuple[int, int, bool]:
        contig = {"c1": 0, "c2": 1, "*": 2}[self.contig]
        return contig, self.pos, bool(self.flag & REVERSE)

    def line(self, name: str) -> str:
        cigar = "*" if self.flag & UNMAPPED else f"{self.n_bases}M"
        bases, quals = "A" * self.n_bases, "I" * self.n_bases
        return (
            f"{name}\t{self.flag}\t{self.contig}\t{self.pos}\t9\t{cigar}\t*\t0\t0\t{bases}\t{quals}"
        )


def random_part(rng: np.random.Generator, n: int, n_places: int) -> list[Record]:
    """Return sorted records on few places, so that many keys are equal."""
    records = []
    for _ in range(n):
        contig = str(rng.choice(["c1", "c1", "c2", "*"]))
        flag = UNMAPPED if contig == "*" else int(rng.choice([FORWARD, REVERSE, UNMAPPED]))
        pos = 0 if contig == "*" else int(rng.integers(1, n_places + 1))
        records.append(Record(contig, pos, flag, int(rng.integers(1, 200))))
    return sorted(records, key=lambda record: record.key)


def write(path: Path, records: list[Record], header: str = SORTED, tag: str = "") -> str:
    lines = [record.line(f"{tag or path.stem}_{i}") for i, record in enumerate(records)]
    return str(write_alignments(path, lines, header))


def write_all(folder: Path, parts: list[list[Record]], header: str = SORTED) -> list[str]:
    return [write(folder / f"p{i}.bam", records, header) for i, records in enumerate(parts)]


def parsed(data: np.ndarray) -> list[tuple[tuple[int, int, bool], str]]:
    """Return the key and the name of each record."""
    raw, at, found = data.tobytes(), 0, []
    while at < len(raw):
        size, ref, pos = struct.unpack_from("<iii", raw, at)
        name = raw[at + 36 : at + 36 + raw[at + 12]].split(b"\0")[0].decode()
        flag = struct.unpack_from("<H", raw, at + 18)[0]
        found.append(((2 if ref < 0 else ref, pos + 1, bool(flag & REVERSE)), name))
        at += 4 + size
    assert at == len(raw)
    return found


def place_of(key: tuple[int, int, bool]) -> int:
    contig = (1 << 30) - 1 if key[0] == 2 else key[0]
    return contig << 32 | key[1]


def names_in_order(ranges: list[RecordRange]) -> list[str]:
    """Check the ranges' places, and return the names of all records, each range sorted."""
    names: list[str] = []
    last_key = (0, 0, False)
    last_place = 0
    for record_range in ranges:
        assert record_range.place >= last_place
        last_place = record_range.place
        records = parsed(record_range.load().data)
        assert records
        assert min(place_of(key) for key, _ in records) >= record_range.place
        records.sort(key=lambda record: record[0])
        assert records[0][0] >= last_key
        last_key = records[-1][0]
        names += [name for _, name in records]
    return names


def merged(paths: list[str], n_threads: int = 0, range_bytes: int = 4 << 20) -> list[str]:
    if not n_threads:
        with PartsReader(paths, range_bytes=range_bytes) as reader:
            return names_in_order(list(reader.ranges()))
    pool = PriorityPool(n_threads)
    try:
        with PartsReader(paths, pool.at(READ), range_bytes) as reader:
            assert reader.all_sorted
            return names_in_order(list(reader.ranges()))
    finally:
        pool.shutdown()


def of_samtools(paths: list[str], folder: Path) -> list[str]:
    out = folder / "samtools.bam"
    pysam.merge("-f", "-c", "-p", str(out), *paths)
    with pysam.AlignmentFile(str(out), check_sq=False) as file:
        return [str(record.query_name) for record in file.fetch(until_eof=True)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in steps, and find records in windows, of less than a few records."""
    monkeypatch.setattr(parts_module, "_LEAST_WINDOW", 300)
    monkeypatch.setattr(parts_module, "_STEP_BYTES", 1000)
    monkeypatch.setattr(parts_module, "_AHEAD_BYTES", 1)


# --- order ---


@pytest.mark.parametrize("n_threads", [0, 1, 3])
@pytest.mark.parametrize("range_bytes", [1, 700, 20_000, 4 << 20])
@pytest.mark.usefixtures("small")
def test_the_order_is_that_of_samtools_merge(tmp_path, range_bytes, n_threads):
    rng = np.random.default_rng(range_bytes)
    sizes = [300, 0, 1, 120, 500, 40]
    paths = write_all(tmp_path, [random_part(rng, n, 40) for n in sizes])
    names = merged(paths, n_threads, range_bytes)
    assert len(names) == sum(sizes)
    assert names == of_samtools(paths, tmp_path)


def test_the_usual_sizes(tmp_path):
    """Parts of several windows, of BGZF blocks that end inside records."""
    rng = np.random.default_rng(5)
    paths = write_all(tmp_path, [random_part(rng, 9000, 50_000) for _ in range(3)])
    assert merged(paths, 2, range_bytes=1 << 20) == of_samtools(paths, tmp_path)


def test_ranges_have_about_the_wanted_size_and_do_not_depend_on_threads(tmp_path):
    rng = np.random.default_rng(6)
    paths = write_all(tmp_path, [random_part(rng, 4000, 40_000) for _ in range(4)])
    pool = PriorityPool(3)
    cuts = []
    for executor in (None, pool.at(READ)):
        with PartsReader(paths, executor, 100_000) as reader:
            cuts.append([(found.place, len(found.load().data)) for found in reader.ranges()])
            assert reader.n_records == 16_000
    pool.shutdown()
    assert cuts[0] == cuts[1]
    sizes = [size for place, size in cuts[0] if place < place_of((2, 0, False))]
    assert min(sizes[:-1]) > 50_000
    assert max(sizes) < 130_000


@pytest.mark.parametrize("n_threads", [0, 2])
def test_thousands_of_records_of_one_key(tmp_path, n_threads):
    """More than fit a window or a range: in the order of the parts, forward ones first."""
    place = [Record("c1", 7, FORWARD)] * 3000 + [Record("c1", 7, REVERSE)] * 2000
    parts = [
        [Record("c1", 3, FORWARD), *place],
        place[:1000],
        [*place, Record("c1", 8, FORWARD)],
        [Record("c1", 9, FORWARD), *[Record("*", 0, UNMAPPED)] * 4000],
        [Record("*", 0, UNMAPPED)] * 4000,
    ]
    paths = write_all(tmp_path, parts)
    names = merged(paths, n_threads, range_bytes=20_000)
    assert names == of_samtools(paths, tmp_path)


def test_ranges_of_one_key_stay_small(tmp_path):
    paths = write_all(tmp_path, [[Record("c2", 5, FORWARD)] * 5000] * 2)
    with PartsReader(paths, range_bytes=20_000) as reader:
        sizes = [len(found.load().data) for found in reader.ranges()]
    assert max(sizes) < 2 * 20_000
    assert sum(sizes) / len(sizes) > 10_000


def test_one_part(tmp_path):
    records = random_part(np.random.default_rng(1), 500, 9)
    path = write(tmp_path / "a.bam", records)
    assert merged([path]) == [f"a_{i}" for i in range(500)]


def test_parts_without_records(tmp_path):
    paths = write_all(tmp_path, [[], []])
    assert merged(paths) == []


def test_parts_of_unmapped_records(tmp_path):
    paths = write_all(tmp_path, [[Record("*", 0, UNMAPPED)] * n for n in (3, 0, 2)])
    assert merged(paths) == ["p0_0", "p0_1", "p0_2", "p2_0", "p2_1"]


def test_many_parts(tmp_path):
    rng = np.random.default_rng(2)
    paths = write_all(tmp_path, [random_part(rng, 30, 20) for _ in range(40)])
    assert merged(paths, 2, range_bytes=5000) == of_samtools(paths, tmp_path)


def test_sorters_that_do_not_compare_strands(tmp_path):
    """A part whose records of one place have any order of strands is sorted, too."""
    strands = [Record("c1", 7, flag) for flag in (REVERSE, FORWARD, REVERSE, FORWARD)]
    parts = [[Record("c1", 2, FORWARD), *strands], [Record("c1", 7, FORWARD)]]
    paths = write_all(tmp_path, parts)
    assert merged(paths) == ["p0_0", "p0_2", "p0_4", "p1_0", "p0_1", "p0_3"]
    with PartsReader(paths, range_bytes=1) as reader:  # ranges are cut within the place
        records = [record for found in reader.ranges() for record in parsed(found.load().data)]
    assert [name for _, name in records] == ["p0_0", "p1_0", *(f"p0_{i}" for i in range(1, 5))]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("range_bytes", [1, 1000, 9000])
def test_ranges_that_end_among_strands_in_any_order(tmp_path, range_bytes):
    """Places are in order over all ranges; a part's records of one key keep theirs in a range."""
    rng = np.random.default_rng(range_bytes)
    parts = [random_part(rng, 400, 8) for _ in range(3)]
    for part in parts:
        part.sort(key=lambda record: (record.key[:2], rng.random()))
    paths = write_all(tmp_path, parts)
    with PartsReader(paths, range_bytes=range_bytes) as reader:
        ranges = [parsed(found.load().data) for found in reader.ranges()]
    assert len(ranges) > 30
    for before, after in pairwise(ranges):
        assert max(key[:2] for key, _ in before) <= min(key[:2] for key, _ in after)
    for records in ranges:
        read = [(key, *map(int, name[1:].split("_"))) for key, name in records]
        assert read == sorted(read)
    names = [name for records in ranges for _, name in records]
    assert sorted(names) == sorted(
        f"p{i}_{n}" for i, part in enumerate(parts) for n in range(len(part))
    )


@pytest.mark.usefixtures("small")
def test_a_record_that_is_larger_than_windows_and_ranges(tmp_path):
    large = [Record("c1", pos, FORWARD, n_bases=30_000) for pos in (2, 5)]
    paths = write_all(tmp_path, [large, [Record("c1", 3, FORWARD)], large])
    assert merged(paths, 2, range_bytes=100) == ["p0_0", "p2_0", "p1_0", "p0_1", "p2_1"]


def test_uncompressed_and_plain_gzip_files(tmp_path):
    import gzip

    paths = write_all(tmp_path, [[Record("c1", n, FORWARD)] * 5 for n in (2, 1)])
    plain = gzip.decompress(Path(paths[0]).read_bytes())
    Path(paths[0]).write_bytes(gzip.compress(plain))
    other = tmp_path / "plain.bam"
    other.write_bytes(plain)
    assert merged([paths[0], paths[1]])[:6] == [*(f"p1_{i}" for i in range(5)), "p0_0"]
    assert len(merged([paths[1], str(other)], 2)) == 10


def test_a_reader_that_is_left_early_ends(tmp_path):
    rng = np.random.default_rng(3)
    paths = write_all(tmp_path, [random_part(rng, 3000, 500) for _ in range(2)])
    pool = PriorityPool(2)
    with PartsReader(paths, pool.at(READ), 10_000) as reader:
        ranges = reader.ranges()
        first = next(ranges)
        ranges.close()
    assert len(parsed(first.load().data)) > 10
    pool.shutdown()


def test_a_reader_that_waits_for_an_idle_pipe_ends(tmp_path, monkeypatch):
    """The pipe has three BGZF blocks, of 65 280 bytes each: three ranges and some."""
    monkeypatch.setattr(parts_module, "_LEAST_WINDOW", 1)
    records = [Record("c1", pos, FORWARD, 200) for pos in range(1, 3001)]
    data = Path(write(tmp_path / "a.bam", records)).read_bytes()
    end = 0
    for _ in range(3):
        end += struct.unpack_from("<H", data, end + 16)[0] + 1
    read_end, write_end = os.pipe()
    os.write(write_end, data[:end])
    pool = PriorityPool(2)
    try:
        with PartsReader([f"/dev/fd/{read_end}"], pool.at(READ), 60_000) as reader:
            ranges = reader.ranges()
            assert len(next(ranges).load().data) > 50_000
            time.sleep(0.3)  # meanwhile a task waits for the bytes of the fourth range
            ranges.close()
    finally:
        os.close(write_end)
        os.close(read_end)
        pool.shutdown()


# --- unsorted parts ---


@pytest.mark.parametrize("n_threads", [0, 2])
def test_unsorted_parts_come_in_the_order_of_the_files(tmp_path, n_threads):
    rng = np.random.default_rng(4)
    parts = [random_part(rng, n, 100) for n in (700, 0, 900)]
    for part in parts:
        rng.shuffle(part)  # type: ignore[arg-type]
    paths = write_all(tmp_path, parts, UNSORTED)
    pool = PriorityPool(n_threads) if n_threads else None
    with PartsReader(paths, pool and pool.at(READ)) as reader:
        assert not reader.all_sorted
        chunks = list(reader.unsorted_chunks(10_000))
        assert reader.n_records == 1600
    if pool:
        pool.shutdown()
    assert max(map(len, chunks)) <= 10_000
    assert len(chunks) < 60
    names = [name for chunk in chunks for _, name in parsed(chunk)]
    assert names == [f"p{i}_{n}" for i, part in enumerate(parts) for n in range(len(part))]


def test_one_unsorted_part_makes_all_unsorted(tmp_path):
    record = [Record("c1", 1, FORWARD)]
    paths = [
        write(tmp_path / "a.bam", record),
        write(tmp_path / "b.bam", record, UNSORTED),
        write(tmp_path / "c.bam", record, CONTIGS),
    ]
    for chosen, is_sorted in (([0], True), ([0, 1], False), ([2], False)):
        with PartsReader([paths[i] for i in chosen]) as reader:
            assert reader.all_sorted == is_sorted


# --- headers ---


def header_of(paths: list[str]) -> list[str]:
    with PartsReader(paths) as reader:
        assert reader.contig_names == ["c1", "c2"]
        assert reader.contig_lengths == [100000, 50000]
        return reader.header("fmwave merge x").splitlines()


def test_headers_are_merged(tmp_path):
    first = "@RG\tID:a\tSM:s\n@PG\tID:fmwave\tCL:one\n@CO\tfirst\n"
    second = "@RG\tID:b\tSM:s\n@RG\tID:a\tSM:s\n@PG\tID:fmwave\tCL:two\n"
    paths = [
        write(tmp_path / "a.bam", [], SORTED + first),
        write(tmp_path / "b.bam", [], UNSORTED + second),
    ]
    lines = header_of(paths)
    assert lines[:3] == [line for line in SORTED.splitlines() if line]
    assert lines[3:7] == [
        "@RG\tID:a\tSM:s", "@RG\tID:b\tSM:s", "@PG\tID:fmwave\tCL:one", "@PG\tID:fmwave.1\tCL:two",
    ]  # fmt: skip
    own = [line for line in lines if "CL:fmwave merge x" in line]
    assert ["PP:fmwave" in own[0], "PP:fmwave.1" in own[1]] == [True, True]
    assert lines[-1] == "@CO\tfirst"


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_lines_end_at_line_feeds_alone(tmp_path, separator):
    kept = [f"@RG\tID:a\tDS:one{separator}two\tSM:s\tLB:x", f"@CO\tone{separator}two"]
    part = write(tmp_path / "a.bam", [], SORTED + "".join(f"{line}\r\n" for line in kept))
    with PartsReader([part]) as reader:
        text = reader.header("fmwave merge x")
    assert [line for line in text.split("\n") if line[:3] in ("@RG", "@CO")] == kept
    assert Libraries(text).names == ("x", "unknown")


def test_fields_of_contigs_are_kept_where_parts_agree(tmp_path):
    same, other = "\tM5:0123456789abcdef0123456789abcdef", "\tAS:b38"
    lines = CONTIGS.splitlines()
    first = f"@HD\tSO:coordinate\n{lines[0]}{same}\n{lines[1]}{same}\n"
    second = f"@HD\tSO:coordinate\n{lines[0]}{same}\n{lines[1]}{other}\n"
    paths = [write(tmp_path / "a.bam", [], first), write(tmp_path / "b.bam", [], second)]
    assert header_of(paths)[1:3] == [lines[0] + same, lines[1]]


def test_a_read_group_that_is_described_in_two_ways(tmp_path):
    paths = [
        write(tmp_path / "a.bam", [], SORTED + "@RG\tID:a\tSM:s\n"),
        write(tmp_path / "b.bam", [], SORTED + "@RG\tID:a\tSM:t\n"),
    ]
    with (
        PartsReader(paths) as reader,
        pytest.raises(UsageError, match="'a' is described in two ways"),
    ):
        reader.header("")


@pytest.mark.parametrize(
    ("contigs", "message"),
    [
        ("@SQ\tSN:c1\tLN:100000\n@SQ\tSN:c3\tLN:50000\n", "contig 2 is 'c3' of 50000 bases, and"),
        ("@SQ\tSN:c1\tLN:100001\n@SQ\tSN:c2\tLN:50000\n",
         "contig 1 is 'c1' of 100001 bases, and in .*a.bam 'c1' of 100000 bases;"),
        ("@SQ\tSN:c1\tLN:100000\n", "contig 2 is none, and in .*a.bam 'c2' of 50000 bases;"),
        (CONTIGS + "@SQ\tSN:c3\tLN:9\n", "contig 3 is 'c3' of 9 bases, and in .*a.bam none;"),
    ],
)  # fmt: skip
def test_contigs_that_differ(tmp_path, contigs, message):
    paths = [
        write(tmp_path / "a.bam", []),
        write(tmp_path / "b.bam", [], "@HD\tSO:coordinate\n" + contigs),
    ]
    with pytest.raises(InputFormatError, match=rf"b\.bam: {message}"):
        PartsReader(paths)


def test_contigs_of_other_bases(tmp_path):
    lines = CONTIGS.splitlines()
    checksums = ["", f"\tM5:{'01' * 16}", f"\tM5:{'f1' * 16}"]
    without, one, other = (
        write(tmp_path / f"{name}.bam", [], f"@HD\tSO:coordinate\n{lines[0]}{m5}\n{lines[1]}\n")
        for name, m5 in zip("abc", checksums, strict=True)
    )
    for paths in ([without, one], [one, without], [one, one]):
        PartsReader(paths).close()
    message = r"c\.bam: contig 'c1' has the bases of M5:f1.*, and in .*b\.bam those of M5:01"
    with pytest.raises(InputFormatError, match=message):
        PartsReader([without, one, other])


# --- bad files ---


def error_of(paths: list[str], n_threads: int = 0) -> str:
    with pytest.raises(InputFormatError) as caught:
        merged(paths, n_threads, range_bytes=50_000)
    return str(caught.value)


def bam_of(folder: Path, n: int = 5000) -> tuple[Path, str]:
    """Return a file of records of many blocks, and one to merge it with."""
    rng = np.random.default_rng(9)
    other = write(folder / "other.bam", random_part(rng, 100, 100))
    return Path(write(folder / "bad.bam", random_part(rng, n, 900))), other


@pytest.mark.parametrize("n_threads", [0, 2])
def test_a_file_that_is_cut_off(tmp_path, n_threads):
    bad, other = bam_of(tmp_path)
    whole = bad.read_bytes()
    bad.write_bytes(whole[: len(whole) // 2])
    message = error_of([other, str(bad)], n_threads)
    assert "bad.bam: the gzip data end early: the file is truncated" in message
    assert "(found after record " in message


def test_a_missing_end_of_file_block(tmp_path):
    bad, other = bam_of(tmp_path)
    bad.write_bytes(bad.read_bytes().removesuffix(EOF_BLOCK))
    message = error_of([other, str(bad)])
    assert "bad.bam: no end-of-file block after record 5000: the file is truncated" in message


def test_a_damaged_block(tmp_path):
    bad, other = bam_of(tmp_path)
    data = bytearray(bad.read_bytes())
    data[len(data) // 2] ^= 1
    bad.write_bytes(data)
    assert "bad.bam: the gzip data are damaged" in error_of([other, str(bad)], 2)


def damaged_record(path: Path, offset: int, value: int) -> None:
    """Change a field of the only record of a file."""
    import gzip

    plain = bytearray(gzip.decompress(path.read_bytes()))
    at = plain.rfind(b"last_0") - 36
    struct.pack_into("<i", plain, at + offset, value)
    path.write_bytes(gzip.compress(plain))


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, 3, "record 1: its lengths contradict each other"),
        (0, 9999, "record 1: the file ends inside the record"),
        (4, 2, "record 1: 'last_0': its contig is not in the header, or its position is neg"),
        (4, -2, "record 1: 'last_0': its contig"),
        (8, -2, "record 1: 'last_0': its contig"),
    ],
)
def test_a_damaged_record(tmp_path, offset, value, message):
    path = Path(write(tmp_path / "bad.bam", [Record("c1", 5, FORWARD)], tag="last"))
    damaged_record(path, offset, value)
    assert f"bad.bam: {message}" in error_of([str(path)])


@pytest.mark.parametrize("n_threads", [0, 2])
def test_a_file_that_is_not_sorted_as_its_header_says(tmp_path, n_threads):
    records = [Record("c1", pos, FORWARD) for pos in range(1, 4001)]
    records.insert(3000, Record("c1", 2999, FORWARD))
    other = write(tmp_path / "other.bam", random_part(np.random.default_rng(1), 50, 50))
    message = error_of([other, write(tmp_path / "bad.bam", records)], n_threads)
    assert message == (
        f"{tmp_path}/bad.bam: record 3001: 'bad_3000' belongs before the record in front of it, "
        "and the header says that the file is sorted (SO:coordinate); sort it with `samtools sort`"
    )


def test_records_without_a_contig_must_come_last(tmp_path):
    records = [Record("*", 0, UNMAPPED), Record("c1", 1, FORWARD)]
    assert "bad.bam: record 2: 'bad_1' belongs" in error_of([write(tmp_path / "bad.bam", records)])


def test_other_files(tmp_path):
    text = tmp_path / "text"
    text.write_text("no BAM")
    assert error_of([str(text)]) == f"{text}: not a BAM file; check that it is the right file"
    text.write_text("")
    assert "text: the file ends inside the header" in error_of([str(text)])
    for name in ("a.sam", "a.cram"):
        path = write(tmp_path / name, [])
        kind = name[2:].upper()
        assert f"{name}: a {kind} file, and parts are merged from BAM" in error_of([path])
    assert "none.bam: no such file" in error_of([str(tmp_path / "none.bam")])


@pytest.mark.usefixtures("small")
def test_the_share_that_was_read_grows_to_all(tmp_path):
    """It tells the time that is left; of a pipe nothing is known."""
    rng = np.random.default_rng(3)
    paths = write_all(tmp_path, [random_part(rng, 3000, 40) for _ in range(2)])
    with PartsReader(paths, range_bytes=20_000) as reader:
        shares = [reader.share_read for _ in reader.ranges()]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] == 1
    read, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as sink:
        sink.write(Path(write(tmp_path / "small.bam", [Record("c1", 5, FORWARD)])).read_bytes())
    with PartsReader([f"/dev/fd/{read}"]) as reader:
        assert reader.share_read is None
    os.close(read)
