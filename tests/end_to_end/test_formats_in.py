"""Whole runs from every input format: the same records, and no read lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pysam
import pytest

from mapper.errors import UsageError
from mapper.io.reads import Lane
from mapper.sorting.options import SortOptions
from tests.helpers.mapping_runs import World, lines_of, map_to, records_of, thirds

READ_GROUP = r"@RG\tID:a\tSM:s"


@pytest.fixture(scope="module")
def from_fastq(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fastq") / "out.bam"
    map_to(world.index, path, world.first, world.second, read_group=READ_GROUP)
    return path


def import_pairs(world: World, path: Path, extra: str = "", kinds: str = "p") -> Path:
    """Unaligned records of the pairs, of kinds in turn: p pair, P last first, s single reads.

    `extra` are tags for each; read n gets the tag ``nr:i:n`` as well.
    """
    header = "@HD\tVN:1.6\n@RG\tID:a\tSM:s\n@PG\tID:old\tPN:old\n@PG\tID:older\tPN:x\n@CO\tkept\n"
    lines = []
    for i, (a, b) in enumerate(zip(world.reads[::2], world.reads[1::2], strict=True)):
        kind = kinds[i % len(kinds)]
        flags = (4, 4) if kind == "s" else (77, 141)
        names = (a.name, b.name) if kind != "s" else (a.name + "x", b.name + "y")
        mates = [
            f"{name}\t{flag}\t*\t0\t0\t*\t*\t0\t0\t{read.letters}\t{read.quals}\tRG:Z:a"
            f"\tnr:i:{2 * i + k}{extra}"
            for k, (name, flag, read) in enumerate(zip(names, flags, (a, b), strict=True))
        ]
        lines += mates if kind != "P" else mates[::-1]
    text = path.with_suffix(".text")
    text.write_text(header + "".join(f"{line}\n" for line in lines))
    option = {".bam": "-b", ".sam": "-h", ".cram": "-C"}[path.suffix]
    pysam.view("--no-PG", option, "-o", str(path), str(text), catch_stdout=False)
    text.unlink()
    return path


def without(lines: list[str], *tags: str) -> list[str]:
    return [
        "\t".join(field for field in line.split("\t") if field[:3] not in [f"{t}:" for t in tags])
        for line in lines
    ]


@pytest.mark.parametrize("kinds", ["p", "P", "pP"])
@pytest.mark.parametrize("suffix", ["bam", "sam", "cram"])
def test_unaligned_files_give_what_fastq_gives(world, tmp_path, from_fastq, suffix, kinds):
    path = import_pairs(world, tmp_path / f"u.{suffix}", kinds=kinds)
    map_to(world.index, tmp_path / "out.bam", str(path), batch_bases=30_000, threads=2)
    assert without(lines_of(tmp_path / "out.bam"), "nr") == lines_of(from_fastq)


def test_single_reads_give_what_fastq_gives(world, tmp_path):
    path = import_pairs(world, tmp_path / "u.bam", kinds="s")
    map_to(world.index, tmp_path / "out.bam", str(path))
    fastq = tmp_path / "s.fq"
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        fastq.write_text(
            "".join(f"@{r.query_name}\n{r.query_sequence}\n+\n{r.qual}\n" for r in file)
        )
    map_to(world.index, tmp_path / "fastq.bam", str(fastq), read_group=READ_GROUP)
    assert without(lines_of(tmp_path / "out.bam"), "nr") == lines_of(tmp_path / "fastq.bam")


@pytest.mark.parametrize("batch_bases", [2_000, 50_000, 10_000_000])
def test_mixed_reads_give_what_their_kinds_give(world, tmp_path, batch_bases):
    """Pairs and single reads in one file: the same records as from two files."""
    kinds = "psPpppps"
    path = import_pairs(world, tmp_path / "u.bam", kinds=kinds)
    stats = map_to(
        world.index, tmp_path / "out.bam", str(path), batch_bases=batch_bases, threads=2,
        insert_size=None,
    )  # fmt: skip
    mixed = lines_of(tmp_path / "out.bam")
    assert stats.counts["reads"] == len(world.reads)
    assert stats.counts["paired"] == len(world.reads) * 6 // 8
    expected: dict[str, list[str]] = {}
    for name, flags in (("pairs", "-f"), ("singles", "-F")):
        part, out = tmp_path / f"{name}.bam", tmp_path / f"{name}.out.bam"
        pysam.view("-b", flags, "1", "-o", str(part), str(path), catch_stdout=False)
        map_to(world.index, out, str(part))
        for line in lines_of(out):
            expected.setdefault(line.split("\t")[0], []).append(line)
    names = list(dict.fromkeys(line.split("\t")[0] for line in mixed))
    assert mixed == [line for name in names for line in expected[name]]
    ordinals = [tag_of(line, "nr") for line in mixed if not int(line.split("\t")[1]) & 0x900]
    assert ordinals == list(map(str, range(len(world.reads))))


@pytest.mark.parametrize("batch_bases", [2_000, 10_000_000])
def test_orphans_are_mapped_as_single_reads(world, tmp_path, batch_bases):
    """The same records as from a file in which they are not flagged paired."""
    header = pysam.view("-H", "--no-PG", str(import_pairs(world, tmp_path / "u.bam")))
    lines = pysam.view(str(tmp_path / "u.bam")).splitlines()
    orphans = range(0, len(lines) - 2, 6)
    single = {i: re.sub(r"\t(77|141)\t", "\t4\t", lines[i + i // 6 % 2]) for i in orphans}
    paths = []
    for name in ("orphans", "single"):
        text = header
        for i in range(0, len(lines), 2):
            if i not in single:
                text += "".join(f"{line}\n" for line in lines[i : i + 2])
            else:
                text += (lines[i + i // 6 % 2] if name == "orphans" else single[i]) + "\n"
        paths.append(tmp_path / f"{name}.sam")
        paths[-1].write_text(text)
    outs = [tmp_path / f"{path.stem}.bam" for path in paths]
    for path, out, threads in zip(paths, outs, (2, 1), strict=True):
        stats = map_to(world.index, out, str(path), batch_bases=batch_bases, threads=threads)
        assert stats.counts.get("orphans_mapped", 0) == (len(single) if out is outs[0] else 0)
    assert lines_of(outs[0]) == lines_of(outs[1])
    map_to(
        world.index, tmp_path / "skip.bam", str(paths[0]), orphans="skip", batch_bases=batch_bases
    )
    pairs = [line for line in lines_of(outs[0]) if int(line.split("\t")[1]) & 1]
    assert lines_of(tmp_path / "skip.bam") == pairs


def tag_of(line: str, tag: str) -> str | None:
    for field in line.split("\t")[11:]:
        if field.startswith(f"{tag}:"):
            return field[5:]
    return None


@pytest.mark.parametrize("suffix", ["bam", "sam"])
def test_tags_go_along(world, tmp_path, suffix):
    extra = "\tRX:Z:ACGT-TT\tBC:Z:AC GT\tML:B:C,1,2\tMM:Z:C+m,0,1;\txf:f:0.25\tNM:i:77\tAS:i:-3"
    path = import_pairs(world, tmp_path / "u.bam", extra)
    out = tmp_path / f"out.{suffix}"
    map_to(world.index, out, str(path))
    n_clipped = 0
    for record in records_of(out):
        tags = dict(record.get_tags())
        assert tags["RX"] == "ACGT-TT"
        assert tags["BC"] == "AC GT"
        assert tags["xf"] == 0.25
        assert tags.get("NM") != 77
        assert tags.get("AS") != -3
        hard_clipped = "H" in (record.cigarstring or "")
        n_clipped += hard_clipped
        # Base modifications count along the whole read.
        assert ("MM" in tags) == ("ML" in tags) == (not hard_clipped)
        assert len({tag for tag, _ in record.get_tags()}) == len(record.get_tags())
    assert n_clipped > 0


def test_tags_of_bases_follow_them(world, tmp_path):
    path = tmp_path / "u.sam"
    lines = []
    for i, read in enumerate(world.reads[:200]):
        lines.append(
            f"r{i}\t{0x204 if i % 2 else 4}\t*\t0\t0\t*\t*\t0\t0\t{read.letters}\t{read.quals}"
            f"\tOQ:Z:{read.quals}\tE2:Z:{read.letters}"
        )
    path.write_text("@HD\tVN:1.6\n" + "".join(f"{line}\n" for line in lines))
    map_to(world.index, tmp_path / "out.bam", str(path))
    strands = set()
    for record in records_of(tmp_path / "out.bam"):
        strands.add(record.is_reverse)
        assert record.is_qcfail == bool(int(record.query_name[1:]) % 2)
        if "H" in (record.cigarstring or ""):
            assert not record.has_tag("OQ")
            continue
        assert record.get_tag("OQ") == pysam.qualities_to_qualitystring(record.query_qualities)
        assert record.get_tag("E2") == record.query_sequence
    assert strands == {True, False}


def test_mapping_again_changes_nothing(world, tmp_path, from_fastq):
    """Our own output, with its reversed reads and supplementary records, as input."""
    map_to(world.index, tmp_path / "again.bam", str(from_fastq))
    assert lines_of(tmp_path / "again.bam") == lines_of(from_fastq)
    map_to(world.index, tmp_path / "sorted.bam", str(from_fastq), sort=SortOptions())
    with pytest.raises(Exception, match="the file is sorted by coordinate; group mates"):
        map_to(world.index, tmp_path / "no.bam", str(tmp_path / "sorted.bam"))
    collated = tmp_path / "collated.bam"
    pysam.collate("-o", str(collated), str(tmp_path / "sorted.bam"), catch_stdout=False)
    map_to(world.index, tmp_path / "collated.out.bam", str(collated), insert_size=model_of(world))
    map_to(world.index, tmp_path / "fixed.bam", str(from_fastq), insert_size=model_of(world))
    assert sorted(lines_of(tmp_path / "collated.out.bam")) == sorted(
        lines_of(tmp_path / "fixed.bam")
    )


def model_of(world: World) -> Any:
    from mapper.pair.insert_size import model_from

    return model_from(300.0, 50.0, 100, 600, 0)


def test_headers_go_along(world, tmp_path, from_fastq):
    path = import_pairs(world, tmp_path / "u.bam")
    map_to(world.index, tmp_path / "out.bam", str(path), str(from_fastq))
    with pysam.AlignmentFile(str(tmp_path / "out.bam")) as file:
        header = file.header.to_dict()
    assert header["RG"] == [{"ID": "a", "SM": "s"}]
    assert header["CO"] == ["kept"]
    assert [(p["ID"], p.get("PP")) for p in header["PG"]] == [
        ("old", None), ("older", None), ("fmwave", None),
        ("fmwave.1", "old"), ("fmwave.2", "older"), ("fmwave.3", "fmwave"),
    ]  # fmt: skip
    assert [sq["SN"] for sq in header["SQ"]] == list(world.genome)


def test_lanes_are_one_sample_with_a_read_group_each(world, tmp_path, from_fastq):
    firsts, seconds = thirds(world.first, tmp_path), thirds(world.second, tmp_path)
    lanes = [
        Lane((first, second), rf"@RG\tID:{name}\tSM:s")
        for name, first, second in zip("abc", firsts, seconds, strict=True)
    ]
    for threads in (1, 2):
        map_to(
            world.index, tmp_path / f"{threads}.bam", lanes=lanes, threads=threads,
            batch_bases=20_000,
        )  # fmt: skip
    assert (tmp_path / "1.bam").read_bytes() == (tmp_path / "2.bam").read_bytes()
    lines = lines_of(tmp_path / "1.bam")
    assert without(lines, "RG") == without(lines_of(from_fastq), "RG")
    groups = [tag_of(line, "RG") for line in lines]
    assert set(groups) == {"a", "b", "c"}
    assert groups == sorted(groups)
    n_reads = [len(Path(path).read_text().splitlines()) // 2 for path in firsts]
    primary = [line for line in lines if not int(line.split("\t")[1]) & 0x900]
    assert [sum(tag_of(line, "RG") == name for line in primary) for name in "abc"] == n_reads
    with pysam.AlignmentFile(str(tmp_path / "1.bam")) as file:
        assert file.header.to_dict()["RG"] == [{"ID": name, "SM": "s"} for name in "abc"]


def test_lanes_of_several_kinds(world, tmp_path, from_fastq):
    """Pairs in two files, single reads with comments in none, and an unaligned BAM."""
    firsts, seconds = thirds(world.first, tmp_path), thirds(world.second, tmp_path)
    bam = tmp_path / "u.bam"
    pysam.fqimport("-1", firsts[2], "-2", seconds[2], "-o", str(bam), catch_stdout=False)
    lanes = [
        Lane((firsts[0], seconds[0]), r"@RG\tID:pairs"),
        Lane((firsts[1],), r"@RG\tID:single"),
        Lane((str(bam),), r"@RG\tID:bam"),
    ]
    map_to(world.index, tmp_path / "out.sam", lanes=lanes)
    flags: dict[str | None, set[int]] = {}
    for line in lines_of(tmp_path / "out.sam"):
        flags.setdefault(tag_of(line, "RG"), set()).add(int(line.split("\t")[1]) & 1)
    assert flags == {"pairs": {1}, "single": {0}, "bam": {1}}


def test_read_groups_of_the_input_stay(world, tmp_path):
    path = import_pairs(world, tmp_path / "u.bam")
    with pytest.raises(UsageError, match="has read groups of its own; drop the one given"):
        map_to(world.index, tmp_path / "out.bam", str(path), read_group=READ_GROUP)
    assert not (tmp_path / "out.bam").exists()


def test_comments_go_along(world, tmp_path):
    path = tmp_path / "r.fq"
    path.write_text(
        "".join(
            f"@{r.name}{i} RX:Z:{i}\tNM:i:9\n{r.letters}\n+\n{r.quals}\n"
            for i, r in enumerate(world.reads)
        )
    )
    map_to(world.index, tmp_path / "out.bam", str(path), keep_comments=True)
    for line in lines_of(tmp_path / "out.bam"):
        assert line.split("\t")[0].endswith(tag_of(line, "RX"))
        assert line.count("\tNM:i:") <= 1
    map_to(world.index, tmp_path / "plain.bam", str(path))
    assert not any("RX:Z:" in line for line in lines_of(tmp_path / "plain.bam"))


def test_fasta_reads(world, tmp_path):
    """As FASTQ of good qualities: where there are none, every mismatch counts in full."""
    for name, form in (("fa", ">{}\n{}\n"), ("fq", "@{}\n{}\n+\n{}\n")):
        (tmp_path / f"r.{name}").write_text(
            "".join(form.format(r.name, r.letters, "I" * len(r.letters)) for r in world.reads)
        )
        map_to(world.index, tmp_path / f"{name}.bam", str(tmp_path / f"r.{name}"), interleaved=True)
    fasta, fastq = (
        [line.split("\t") for line in without(lines_of(tmp_path / f"{name}.bam"), "ms")]
        for name in ("fa", "fq")
    )
    assert all(fields[10] == "*" for fields in fasta)
    assert [f[:10] + f[11:] for f in fasta] == [f[:10] + f[11:] for f in fastq]


def test_lanes_on_the_command_line(world, tmp_path):
    from mapper.cli.main import main

    firsts, seconds = thirds(world.first, tmp_path), thirds(world.second, tmp_path)
    out = tmp_path / "x.bam"
    argv = ["map", world.index_path, firsts[0], seconds[0], "-R", READ_GROUP, "-o", str(out)]
    for name, first, second in zip("bc", firsts[1:], seconds[1:], strict=True):
        argv += ["--lane", rf"@RG\tID:{name}\tSM:s", first, second]
    assert main([*argv, "--quiet"]) == 0
    for line in lines_of(out):
        assert line.count("\tRG:Z:") == 1
    assert {tag_of(line, "RG") for line in lines_of(out)} == {"a", "b", "c"}
    with pysam.AlignmentFile(str(out)) as file:
        assert [group["ID"] for group in file.header.to_dict()["RG"]] == ["a", "b", "c"]


def test_insert_size_is_estimated_from_the_first_reads(world, tmp_path, monkeypatch):
    """However few of them are pairs, and wherever batches are cut."""
    from mapper.mapping import pipeline

    monkeypatch.setattr(pipeline, "ESTIMATION_READS", 300)
    path = import_pairs(world, tmp_path / "u.bam", kinds="ssp")  # 50 pairs in 300 reads
    found = []
    for batch_bases in (3_000, 40_000, 10_000_000):
        out = tmp_path / f"{batch_bases}.bam"
        stats = map_to(world.index, out, str(path), batch_bases=batch_bases, threads=2)
        assert stats.insert_size is not None
        found.append((stats.insert_size, lines_of(out)))
    assert found[0] == found[1] == found[2]
    assert 16 <= found[0][0]["pairs"] <= 50
