"""Indexes of sorted BAM files answer every query as those of samtools do."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.errors import InputFormatError
from mapper.io.bgzf import BLOCK_BYTES, BgzfWriter
from mapper.io.header import bam_header, header_text
from mapper.sorting.bam_index import BamIndex, index_part
from mapper.sorting.options import SortOptions
from tests.helpers.mapping_runs import DATA, build_index, map_to
from tests.naive.bam_index import parse_index

M, N, S = 0, 3, 4  # operations of a CIGAR
UNMAPPED = 4
Place = tuple[int, int, int]  # reference, first base, base behind the last


class Files(NamedTuple):
    """A BAM file with our index, the same with that of samtools, and what its records cover."""

    ours: Path
    theirs: Path
    places: list[Place]
    lengths: Sequence[int]


def record(
    ordinal: int,
    ref: int,
    pos: int,
    ops: Sequence[tuple[int, int]] = ((50, M),),
    flag: int = 0,
    n_extra: int = 0,
    n_bases: int = 0,
    tags: bytes = b"",
) -> bytes:
    """Return a BAM record whose name is its ordinal; its bin is wrong, as indexes do not use it.

    `n_extra` bytes that cannot be compressed make it longer.
    """
    name = b"%d\0" % ordinal
    if n_extra:
        extra = np.random.default_rng(ordinal).bytes(n_extra)
        tags += b"XXBC" + struct.pack("<I", n_extra) + extra
    body = struct.pack(
        "<iiBBHHHiiii", ref, pos, len(name), 60, 4680, len(ops), flag, n_bases, -1, -1, 0
    )
    body += name + b"".join(struct.pack("<I", n << 4 | op) for n, op in ops)
    body += b"\x11" * ((n_bases + 1) // 2) + b"\xff" * n_bases + tags
    return struct.pack("<i", len(body)) + body


def place_of(data: bytes) -> Place:
    """Return what a record covers, by the specification."""
    ref, pos, name_length, _, _, n_ops, flag = struct.unpack_from("<iiBBHHH", data, 4)
    ops = struct.unpack_from(f"<{n_ops}I", data, 36 + name_length)
    span = sum(op >> 4 for op in ops if op & 15 in (0, 2, 3, 7, 8))
    return ref, pos, pos + (1 if flag & UNMAPPED else max(span, 1))


def make_index(
    records: Sequence[bytes], names: Sequence[str], lengths: Sequence[int], cuts: Sequence[int]
) -> tuple[bytes, bytes, str]:
    """Return a BAM file, its index and the suffix of that; parts of the index end at `cuts`."""
    file = bytearray()

    class Sink:
        def write(self, data: bytes | memoryview) -> None:
            file.extend(data)

    index = BamIndex(names, lengths)
    with ThreadPoolExecutor(1) as executor:
        writer = BgzfWriter(Sink(), executor)
        writer.append(bam_header(header_text(names, lengths, ""), names, lengths))
        writer.end_block()
        n_header_blocks = writer.n_blocks
        for start, end in pairwise([0, *sorted(cuts), len(records)]):
            part = b"".join(records[start:end])
            starts = np.cumsum([0, *map(len, records[start:end])])[:-1]
            index.add(index_part(np.frombuffer(part, np.uint8), starts))
            writer.append(part)
        writer.finish()
    return bytes(file), index.write(writer.block_offsets[n_header_blocks:]), index.suffix


def write_both(
    directory: Path, records: Sequence[bytes], lengths: Sequence[int], cuts: Sequence[int] = ()
) -> Files:
    names = [f"c{i}" for i in range(len(lengths))]
    data, index, suffix = make_index(records, names, lengths, cuts)
    (directory / "ours").mkdir(exist_ok=True)
    (directory / "theirs").mkdir(exist_ok=True)
    ours, theirs = directory / "ours" / "x.bam", directory / "theirs" / "x.bam"
    for path in (ours, theirs):
        path.write_bytes(data)
    for path in (*directory.glob("*/x.bam.bai"), *directory.glob("*/x.bam.csi")):
        path.unlink()
    index_path(ours, suffix).write_bytes(index)
    pysam.index("-c" if suffix == ".csi" else "-b", str(theirs))
    return Files(ours, theirs, [place_of(data) for data in records], lengths)


def index_path(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def only_index(path: Path) -> bytes:
    (index,) = path.parent.glob("x.bam.?si" if path.with_name("x.bam.csi").exists() else "x.*.bai")
    return index.read_bytes()


def some_regions(files: Files, rng: np.random.Generator, n: int) -> list[Place]:
    """Return regions of all sizes, single bases, and what is around the ends of records."""
    regions = []
    for ref, length in enumerate(files.lengths):
        regions += [(ref, 0, length), (ref, length - 1, length)]
        for _ in range(n):
            start = int(rng.integers(0, length))
            size = int(2 ** rng.uniform(0, np.log2(length) + 1))
            regions.append((ref, start, min(start + size, length)))
    for i in rng.permutation(len(files.places))[:n]:
        ref, start, end = files.places[i]
        if ref >= 0:
            around = [(start, start + 1), (end - 1, end), (end, end + 1), (start - 1, start)]
            regions += [(ref, a, b) for a, b in around if a >= 0 and b <= files.lengths[ref]]
    return regions


def check(files: Files, n_regions: int = 20, seed: int = 1) -> None:
    """Compare queries, counts and content of the two indexes."""
    rng = np.random.default_rng(seed)
    with (
        pysam.AlignmentFile(str(files.ours), check_sq=False) as ours,
        pysam.AlignmentFile(str(files.theirs), check_sq=False) as theirs,
    ):
        assert ours.has_index()
        for ref, start, end in some_regions(files, rng, n_regions):
            expected = [
                i for i, place in enumerate(files.places)
                if place[0] == ref and place[1] < end and place[2] > start
            ]  # fmt: skip
            region = ours.get_reference_name(ref), start, end
            assert [int(r.query_name) for r in ours.fetch(*region)] == expected, region
            assert [int(r.query_name) for r in theirs.fetch(*region)] == expected, region
        nowhere = [i for i, place in enumerate(files.places) if place[0] < 0]
        assert [int(r.query_name) for r in ours.fetch("*")] == nowhere
    assert pysam.idxstats(str(files.ours)) == pysam.idxstats(str(files.theirs))
    check_content(only_index(files.ours), only_index(files.theirs))


def check_content(our_bytes: bytes, their_bytes: bytes) -> None:
    """Check that two indexes have the same bins and offsets, and ours as few chunks or fewer."""
    ours, theirs = parse_index(our_bytes), parse_index(their_bytes)
    assert (ours.depth, ours.n_no_coor) == (theirs.depth, theirs.n_no_coor)
    assert len(ours.contigs) == len(theirs.contigs)
    counts = (8 ** (ours.depth + 1) - 1) // 7 + 1
    for our, their in zip(ours.contigs, theirs.contigs, strict=True):
        assert our.linear == their.linear
        assert our.loffsets == their.loffsets
        assert our.bins.keys() == their.bins.keys()
        assert our.bins.get(counts) == their.bins.get(counts)
        for number, chunks in our.bins.items():
            assert len(chunks) <= len(their.bins[number])
            assert number == counts or all(a[1] < b[0] for a, b in pairwise(chunks))
            for start, end in their.bins[number]:
                assert any(a <= start and end <= b for a, b in chunks) or number == counts
    assert len(our_bytes) <= 1.1 * len(their_bytes) + 100


def simulated(
    rng: np.random.Generator, lengths: Sequence[int], n: int, n_extra: int, n_nowhere: int = 3
) -> list[bytes]:
    """Return sorted records with spans from 1 to the length of their contig, on some contigs."""
    used = [ref for ref in range(len(lengths)) if ref % 3 != 1]
    drawn = []
    for _ in range(n):
        ref = int(rng.choice(used))
        length = lengths[ref]
        clustered = rng.random() < 0.5
        pos = int(rng.integers(0, min(length, 100_000) if clustered else length))
        flag = UNMAPPED if rng.random() < 0.1 else 0
        drawn.append((ref, pos, flag))
    drawn.sort()
    records = []
    for ref, pos, flag in drawn:
        longest = lengths[ref] - pos
        span = min(int(2 ** rng.uniform(0, 8 if rng.random() < 0.7 else 28)), longest)
        ops = [(1, M), (span - 2, N), (1, M)] if span > 200 else [(span, M)]
        if (flag and rng.random() < 0.5) or rng.random() < 0.05:
            ops = []
        records.append(record(len(records), ref, pos, ops, flag, int(rng.integers(0, n_extra + 1))))
    records += [record(n + i, -1, -1, [], UNMAPPED, 10) for i in range(n_nowhere)]
    return records


@given(
    st.integers(0, 2**32),
    st.sampled_from([[20_000], [3_000_000, 5, 16_384, 16_385], [1 << 29, 70_000, 90_000, 1 << 20]]),
    st.sampled_from([0, 30, 500]),
    st.sampled_from([0, 300, 3000, 70_000]),
    st.lists(st.floats(0, 1), max_size=6),
)
@settings(max_examples=20)
def test_simulated(tmp_path_factory, seed, lengths, n, n_extra, cuts):
    rng = np.random.default_rng(seed)
    n = min(n, 5_000_000 // (n_extra + 1))
    records = simulated(rng, lengths, n, n_extra)
    where = [int(cut * len(records)) for cut in cuts]
    check(write_both(tmp_path_factory.mktemp("simulated"), records, lengths, where), 10)


@pytest.mark.parametrize("length", [(1 << 29) + 1, 1 << 30, (1 << 31) - 1])
def test_contigs_beyond_bai(tmp_path, length):
    """They need a CSI; the longest is the longest that BAM can name."""
    lengths = [1000, 5_000_000, 40_000, length]
    records = simulated(np.random.default_rng(length), lengths, 1000, 500)[:-3]
    n = len(records)
    records.append(record(n, 3, length - 1, [(1, M)]))
    records.append(record(n + 1, -1, -1, [], UNMAPPED))
    files = write_both(tmp_path, records, lengths, [300, 700])
    assert index_path(files.ours, ".csi").exists()
    check(files, 40)


def test_every_level(tmp_path):
    """Records that end at, and cross, the borders of bins of every level."""
    positions = []
    for shift in range(14, 30, 3):
        for border in (1 << shift, 3 << shift, 8 << shift):
            for start, end in ((-5, 5), (-5, 0), (-5, 1), (0, 1), (-1, 1)):
                if border + end <= 1 << 29:
                    positions.append((border + start, end - start))
    records = [
        record(i, 0, pos, [(span, M)], n_extra=20_000)
        for i, (pos, span) in enumerate(sorted(positions))
    ]
    check(write_both(tmp_path, records, [1 << 29], [7, 50]), 100)


def test_ends_of_contigs(tmp_path):
    """First and last bases, records without position on a contig, and long spans."""
    lengths = [1 << 29, 100, 1_500_000]
    places = [
        (0, -1, 0), (0, 0, 0), (0, 0, 1), (0, 5, 1 << 28), (0, (1 << 29) - 1, 1),
        (1, 0, 100), (1, 99, 1),
        (2, 0, 1_000_000), (2, 30_000, 10), (2, 400_000, 1_100_000), (2, 499_999, 1_000_001),
    ]  # fmt: skip
    records = [
        record(i, ref, pos, [(1, M), (span - 1, N)] if span > 1 else [(span, M)] * span)
        for i, (ref, pos, span) in enumerate(places)
    ]
    check(write_both(tmp_path, records, lengths), 50)


def test_unmapped_mates(tmp_path):
    """They lie at their mate's position, some before it, and count as one base."""
    records = []
    for i in range(0, 400, 2):
        flags = (0, UNMAPPED) if i % 4 else (UNMAPPED, 0)
        for j, flag in enumerate(flags):
            # An unmapped record with a CIGAR does not cover it.
            records.append(record(i + j, 0, i * 1000, [(5000, M)], flag, n_extra=1500))
    check(write_both(tmp_path, records, [500_000], [201]), 100)


def test_more_operations_than_the_field_holds(tmp_path):
    """The CIGAR is in a tag then, and its place in the record has one operation of its span."""
    n_bases = 35_000
    ops = [(1, 7), (1, 2)] * n_bases  # 1=1D, spans twice the bases
    tag = b"CGBI" + struct.pack("<I", len(ops))
    tag += b"".join(struct.pack("<I", n << 4 | op) for n, op in ops)
    placeholder = [(n_bases, S), (2 * n_bases, N)]
    records = [
        record(0, 0, 10, [(50, M)]),
        record(1, 0, 16_000, placeholder, n_bases=n_bases, tags=tag),
        record(2, 0, 60_000, [(50, M)]),
    ]
    files = write_both(tmp_path, records, [200_000])
    with pysam.AlignmentFile(str(files.ours)) as bam:
        assert [len(r.cigartuples) for r in bam] == [1, 70_000, 1]
    check(files, 50)


@pytest.mark.parametrize("lengths", [[], [100], [100, 1 << 30]])
@pytest.mark.parametrize("n_nowhere", [0, 2])
def test_nothing_mapped(tmp_path, lengths, n_nowhere):
    records = [record(i, -1, -1, [], UNMAPPED) for i in range(n_nowhere)]
    check(write_both(tmp_path, records, lengths))


def test_records_end_with_a_block(tmp_path):
    records = [record(i, 0, 30_000 * i) for i in range(9)]
    n_extra = 2 * BLOCK_BYTES - len(b"".join(records)) - len(record(9, 0, 300_000, n_extra=1)) + 1
    records.append(record(9, 0, 300_000, n_extra=n_extra))
    assert len(b"".join(records)) == 2 * BLOCK_BYTES
    check(write_both(tmp_path, records, [1_000_000]))


def test_cuts_do_not_matter():
    """Spliced records alternate between bins; wherever parts end, the index has the same bytes."""
    rng = np.random.default_rng(3)
    records = [
        record(i, 0, 20 * i, [(20, M), (int(rng.choice([1, 9_000, 200_000])), N), (20, M)])
        for i in range(6000)
    ]
    indexes = {
        make_index(records, ["c"], [1_000_000], cuts)[1]
        for cuts in ([], [1, 2, 3, 3000], range(0, 6000, 7), [2500, 2500, 5999])
    }
    assert len(indexes) == 1


def test_far_fewer_chunks_than_alternating_records():
    """A part keeps few chunks though each record has another bin than the one before."""
    records = [record(i, 0, i, [(20, M), (20_000 * (i % 2), N), (20, M)]) for i in range(6000)]
    starts = np.cumsum([0, *map(len, records)])[:-1]
    part = index_part(np.frombuffer(b"".join(records), np.uint8), starts)
    assert len(part.chunks) == 2


@pytest.mark.medium
def test_mapped_reads(tmp_path):
    """The bundled reads: pairs of a genome of many windows."""
    index = build_index(DATA / "portiera.fa.gz", tmp_path / "index.fmw")
    reads = [str(DATA / f"portiera_R{i}.fq.gz") for i in (1, 2)]
    map_to(index, tmp_path / "sorted.bam", *reads, sort=SortOptions())
    with pysam.AlignmentFile(str(tmp_path / "sorted.bam")) as bam:
        lengths = bam.lengths
        n_records = bam.count(until_eof=True)
    data = gzip.decompress((tmp_path / "sorted.bam").read_bytes())
    at = end_of_header(data)
    records = []
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        records.append(renamed(data[at:end], len(records)))
        at = end
    assert len(records) == n_records > 1000
    check(write_both(tmp_path, records, lengths, range(0, n_records, 999)), 300)


def end_of_header(data: bytes) -> int:
    at = 8 + int.from_bytes(data[4:8], "little")
    n_contigs = int.from_bytes(data[at : at + 4], "little")
    at += 4
    for _ in range(n_contigs):
        at += 8 + int.from_bytes(data[at : at + 4], "little")
    return at


def renamed(data: bytes, ordinal: int) -> bytes:
    """Return a record with its ordinal as name."""
    name = b"%d\0" % ordinal
    rest = data[4:12] + bytes([len(name)]) + data[13:36] + name + data[36 + data[12] :]
    return struct.pack("<i", len(rest)) + rest


# --- what cannot be indexed ---


def part_of(*records: bytes):
    starts = np.cumsum([0, *map(len, records)])[:-1]
    return index_part(np.frombuffer(b"".join(records), np.uint8), starts)


@pytest.mark.parametrize("second", [(0, 9), (0, -1), (-1, -1)])
def test_order_is_checked(second):
    first = (0, 10) if second[0] == 0 else (1, 0)
    before, behind = record(0, *second), record(1, *first)
    if second[0] < 0:  # records without place are the last
        before, behind = behind, before
    part_of(before, behind)
    with pytest.raises(RuntimeError, match="record 1 of 2"):
        part_of(behind, before)
    index = BamIndex(["a", "b"], [100, 100])
    index.add(part_of(behind))
    with pytest.raises(RuntimeError, match="order"):
        index.add(part_of(before))


def test_damaged_records():
    cut = bytearray(record(7, 0, 5))
    cut[16:18] = struct.pack("<H", 500)  # operations
    for damaged in (bytes(cut), record(7, -2, 5)):
        with pytest.raises(InputFormatError, match="'7' is damaged"):
            part_of(record(6, 0, 5), damaged)
    with pytest.raises(InputFormatError, match="'' is damaged"):
        part_of(record(6, 0, 5)[:20])


@pytest.mark.parametrize("length", [1 << 29, (1 << 29) + 1])
def test_records_beyond_the_index(length):
    """The contig with the record may be short: what counts is what the index can hold."""
    index = BamIndex(["a", "long"], [100, length])
    bound = 1 << (29 if length == 1 << 29 else 32)
    ops = [(1 << 27, N)] * (bound >> 27)
    index.add(part_of(record(0, 0, -1, ops), record(1, 0, 0, ops)))
    beyond = record(2, 0, 1, ops)
    with pytest.raises(InputFormatError, match=rf"beyond base {bound} of contig a.*{index.suffix}"):
        index.add(part_of(beyond))


def test_unknown_contig():
    index = BamIndex(["a"], [100])
    with pytest.raises(InputFormatError, match="contig 2 and the header has 1"):
        index.add(part_of(record(0, 0, 1), record(1, 1, 1)))


def test_blocks_must_fit_the_records():
    index = BamIndex(["a"], [100])
    index.add(part_of(record(0, 0, 1)))
    with pytest.raises(RuntimeError, match="2 blocks"):
        index.write(np.array([0, 100, 200]))
