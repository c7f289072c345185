"""Columns and objects of mapped reads, beside pysam's view of the command's file."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pysam
import pytest

import mapper
from mapper.api.tag_values import tags_of
from mapper.cli.main import main
from tests.helpers.mapping_runs import World, records_of
from tests.naive.seeds import oriented


@pytest.fixture(scope="module")
def aligner(world: World) -> Iterator[mapper.Aligner]:
    with mapper.Aligner(
        world.index, device="cpu", threads=2, extended_cigar=True, read_group="@RG\tID:g\tSM:s"
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def hits(aligner: mapper.Aligner, world: World) -> mapper.Hits:
    return aligner.map([(r.name, r.letters, r.quals) for r in world.reads], interleaved=True)


@pytest.fixture(scope="module")
def records(world: World, tmp_path_factory: pytest.TempPathFactory) -> list[pysam.AlignedSegment]:
    target = tmp_path_factory.mktemp("hits") / "x.bam"
    options = ["--eqx", "-R", r"@RG\tID:g\tSM:s", "--quiet", "-t", "2"]
    argv = ["map", world.index_path, world.first, world.second, "-o", str(target), *options]
    assert main(argv) == 0
    return records_of(target)


def test_columns(hits, records) -> None:
    columns = hits.to_numpy()
    for name, column in columns.items():
        if name not in ("end", "nm", "score", "query_start", "query_end", "block_len", "read"):
            assert column is getattr(hits, name) or name == "strand"
    assert columns["flag"].tolist() == [r.flag for r in records]
    assert columns["contig"].tolist() == [r.reference_id for r in records]
    assert columns["start"].tolist() == [r.reference_start for r in records]
    assert columns["end"].tolist() == [-1 if r.is_unmapped else r.reference_end for r in records]
    assert columns["mapq"].tolist() == [r.mapping_quality for r in records]
    assert columns["nm"].tolist() == [r.get_tag("NM") if r.has_tag("NM") else -1 for r in records]
    assert columns["score"].tolist() == [
        r.get_tag("AS") if r.has_tag("AS") else -1 for r in records
    ]
    assert columns["next_contig"].tolist() == [r.next_reference_id for r in records]
    assert columns["next_start"].tolist() == [r.next_reference_start for r in records]
    assert columns["template_len"].tolist() == [r.template_length for r in records]
    assert hits.integer_tag("XS", -7).tolist() == [
        r.get_tag("XS") if r.has_tag("XS") else -7 for r in records
    ]
    assert set(hits.integer_tag("MD").tolist()) == {-1}  # text
    assert hits.read_num.tolist() == [2 if r.is_read2 else 1 for r in records]
    assert hits.is_proper.tolist() == [r.is_proper_pair for r in records]
    dtypes = {name: column.dtype.name for name, column in columns.items()}
    for name, dtype in re.findall(r"^    (\w[\w, ]+) : (u?int\d+(?:, int\d+)*)$",
                                  mapper.Hits.__doc__, re.MULTILINE):  # fmt: skip
        names, types = name.split(", "), dtype.split(", ")
        for column, told in zip(names, types * len(names), strict=False):
            assert dtypes[column] == told, column


def test_a_dict_for_data_frames(hits, records) -> None:
    table = hits.to_dict()
    assert {len(column) for column in table.values()} == {len(records)}
    assert table["name"].tolist() == [r.query_name for r in records]
    assert table["contig"].tolist() == [r.reference_name for r in records]
    assert table["cigar"].tolist() == [r.cigarstring or "*" for r in records]


def test_objects(hits, records, world) -> None:
    assert len(list(hits)) == len(hits) == len(records)
    kinds = set()
    for hit, record in zip(hits, records, strict=True):
        kinds.add(hit.flag & 0x914)
        assert hit.name == record.query_name
        assert hit.is_mapped != record.is_unmapped
        read = world.reads[hit.read]
        assert hit.seq == read.letters.upper()
        assert hit.tags == dict(record.get_tags())
        assert hit.read_num == hit.read % 2 + 1
        assert hit.is_supplementary == record.is_supplementary
        assert (hit.is_paired, hit.is_proper) == (True, record.is_proper_pair)
        if record.is_unmapped:
            assert (hit.ctg, hit.ctg_len, hit.r_st, hit.r_en, hit.strand) == (None, 0, -1, -1, 0)
            assert (hit.cigar, hit.cigar_str, hit.MD, hit.cs, hit.mlen) == ([], "", "", "", 0)
            assert not hit.is_primary
            assert str(hit).startswith("0\t0\t*\t*\t0")
            continue
        assert hit.is_primary == (not record.is_secondary)
        assert (hit.ctg, hit.r_st) == (record.reference_name, record.reference_start)
        assert hit.r_en == record.reference_end
        assert hit.ctg_len == len(world.genome[hit.ctg])
        assert hit.strand == (-1 if record.is_reverse else 1)
        assert (hit.mapq, hit.NM, hit.MD) == (
            record.mapping_quality, record.get_tag("NM"), record.get_tag("MD"),
        )  # fmt: skip
        clips = [(op, n) for op, n in record.cigartuples if op not in (4, 5)]
        assert hit.cigar == [[n, op] for op, n in clips]
        assert hit.blen == sum(n for _, n in clips)
        assert hit.mlen == sum(n for op, n in clips if op == 7)
        on_read = sum(n for op, n in clips if op != 2)
        assert hit.q_en - hit.q_st == on_read
        aligned = oriented(read.letters.upper()[hit.q_st : hit.q_en], int(hit.strand < 0))
        assert matches_of(hit.cs, aligned, world.genome[hit.ctg][hit.r_st : hit.r_en])
        paf = str(hit).split("\t")
        assert [int(paf[i]) for i in (0, 1, 4, 5, 6, 7, 8, 9)] == [
            hit.q_st, hit.q_en, hit.ctg_len, hit.r_st, hit.r_en, hit.mlen, hit.blen, hit.mapq,
        ]  # fmt: skip
        assert paf[-1] == f"cg:Z:{hit.cigar_str}"
    assert {0x0, 0x10, 0x4, 0x800, 0x810} <= kinds


def matches_of(cs: str, read: str, ref: str) -> bool:
    """Return True if a short cs describes how the read differs from the reference."""
    at = ref_at = 0
    for kind, text in re.findall(r"([:*+-])([a-z]+|\d+)", cs):
        if kind == ":":
            n = int(text)
            if read[at : at + n] != ref[ref_at : ref_at + n].upper():
                return False
            at, ref_at = at + n, ref_at + n
        elif kind == "*":
            # The index does not keep which ambiguous letter it was.
            own = ref[ref_at].upper()
            if text[0].upper() != (own if own in "ACGT" else "N") or text[1].upper() != read[at]:
                return False
            at, ref_at = at + 1, ref_at + 1
        elif kind == "+":
            if read[at : at + len(text)] != text.upper():
                return False
            at += len(text)
        else:
            if ref[ref_at : ref_at + len(text)].upper() != text.upper():
                return False
            ref_at += len(text)
    return at == len(read) and ref_at == len(ref)


def test_cs_without_equal_signs(world, aligner) -> None:
    """M covers matches and mismatches: MD tells them apart."""
    reads = [(r.name, r.letters, None) for r in world.reads[:200]]
    with mapper.Aligner(world.index, device="cpu", threads=1) as plain:
        texts = [hit.cs for hit in plain.map(reads)]
    assert texts == [hit.cs for hit in aligner.map(reads)]
    assert any("*" in text for text in texts)
    assert any("-" in text for text in texts)


def test_cs_of_ambiguous_bases_of_a_read(world, tmp_path) -> None:
    """As the tag has it: whatever is no base is n."""
    letters = list(next(r.letters for r in world.reads if set(r.letters) <= set("ACGT")))
    for place, letter in ((20, "M"), (40, "R"), (60, "N")):
        letters[place] = letter
    with mapper.Aligner(world.index, device="cpu", threads=1, cs="short") as aligner:
        (hit,) = [hit for hit in aligner.map(["".join(letters)]) if hit.is_primary]
    assert hit.cs == hit.tags["cs"] and hit.cs.count("n") == 3


def test_rows(hits) -> None:
    rows = np.flatnonzero(hits.mapq >= 30)
    sure = hits[hits.mapq >= 30]
    assert len(sure) == len(rows) < len(hits)
    assert sure.to_sam().splitlines() == [hits.to_sam().splitlines()[row] for row in rows]
    assert hits[rows[::-1]].to_bam() != sure.to_bam()
    assert [hit.name for hit in hits[rows[::-1]]] == [hit.name for hit in sure][::-1]
    assert hits[5:9].to_bam() == hits[[5, 6, 7, 8]].to_bam()
    assert hits[5:9:2].to_sam() == "".join(hits[[5, 7]].to_sam())
    assert len(hits[:0]) == len(hits[[]]) == 0
    assert hits[-1].name == hits[len(hits) - 1].name
    assert hits[np.int64(3)].name == hits[3].name
    for row in (len(hits), -len(hits) - 1):
        with pytest.raises(IndexError, match=f"record {row}"):
            hits[row]
    split = int(hits.read[np.flatnonzero(hits.flag & 0x800)[0]])
    own = hits.of_read(split)
    assert len(own) >= 2
    assert set(own.read.tolist()) == {split}
    assert len(hits.of_read(10**9)) == 0


def test_other_forms(hits, records, aligner, tmp_path) -> None:
    assert hits.to_sam().splitlines() == [record.to_string() for record in records]
    with pysam.AlignmentFile(str(tmp_path / "x.bam"), "wb", text=hits.header) as file:
        for segment in hits.to_pysam(file.header):
            file.write(segment)
    assert [r.to_string() for r in records_of(tmp_path / "x.bam")] == hits.to_sam().splitlines()
    with pytest.raises(mapper.UsageError, match="header"):
        hits.to_pysam(pysam.AlignmentHeader.from_references(["other"], [5]))
    lines = hits.to_paf().splitlines()
    assert len(lines) == hits.is_mapped.sum()
    with pytest.raises(mapper.UsageError, match="two characters"):
        hits.integer_tag("XSA")


def test_streams_number_reads_of_the_whole_call(world, tmp_path) -> None:
    with mapper.Aligner(world.index, device="cpu", threads=1, batch_bases=9_000) as small:
        batches = list(small.map(read.letters for read in world.reads).batches())
    assert len(batches) > 3
    numbers = np.unique(np.concatenate([hits.read for hits in batches]))
    assert numbers.tolist() == list(range(len(world.reads)))
    last = batches[-1]
    assert last[0].seq == world.reads[last[0].read].letters.upper()
    assert all(hit.cs for hit in last if hit.is_mapped)


def test_tags_of_every_type() -> None:
    header = pysam.AlignmentHeader.from_references(["c"], [1000])
    line = "r\t4\t*\t0\t0\t*\t*\t0\t0\tA\tI\t" + "\t".join(
        ["XA:A:x", "XB:B:c,-1,2", "XC:B:S,1,65535", "XD:B:f,0.5,2", "XE:f:1.5", "XF:Z:a b",
         "XG:i:-5",
         "XH:i:300", "XI:i:70000", "XJ:i:-70000", "XK:H:1AE3", "XL:Z:"]
    )  # fmt: skip
    record = pysam.AlignedSegment.fromstring(line, header)
    data = b""
    import struct

    data += b"XAAx" + b"XBBc" + struct.pack("<Ibb", 2, -1, 2)
    data += b"XCBS" + struct.pack("<IHH", 2, 1, 65535) + b"XDBf" + struct.pack("<Iff", 2, 0.5, 2)
    data += b"XEf" + struct.pack("<f", 1.5) + b"XFZa b\0" + b"XGc" + struct.pack("<b", -5)
    data += b"XHS" + struct.pack("<H", 300) + b"XII" + struct.pack("<I", 70000)
    data += b"XJi" + struct.pack("<i", -70000) + b"XKH1AE3\0" + b"XLZ\0"
    found = tags_of(data)
    assert list(found) == [name for name, _ in record.get_tags()]
    for name, value in record.get_tags():
        if isinstance(value, str | int | float):
            assert found[name] == value
        else:
            assert found[name].tolist() == list(value)


def test_what_is_shown(hits, aligner) -> None:
    assert repr(hits) == (
        f"<mapper.Hits: {len(hits)} records of {hits.reads.n_reads} reads, "
        f"{hits.is_mapped.sum()} mapped>"
    )
    assert repr(hits[0]).startswith(f"<mapper.Hit '{hits[0].name}' ")
    assert repr(aligner) == "<mapper.Aligner of genome.fa: cpu, 2 threads>"
