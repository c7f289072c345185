"""``fmwave merge``: parts of a sample become the file of one run."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pysam
import pytest

from mapper.cli.main import main
from mapper.errors import UsageError
from tests.helpers.mapping_runs import World, lines_of

LIBRARIES = "@RG\\tID:{}\\tSM:s\\tLB:{}"


def run(*words: object) -> None:
    assert main([str(word) for word in words]) == 0


def failure(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Run a command that fails; return the one line that says why."""
    assert main([str(word) for word in words]) != 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    return line


class Parts:
    """The world's pairs in three lanes of two libraries, the third a copy of the first."""

    def __init__(self, world: World, folder: Path) -> None:
        self.folder = folder
        lanes = []
        for lane, source in ((1, 1), (2, 2), (3, 1)):
            files = []
            for mate, path in enumerate((world.first, world.second), 1):
                lines = Path(path).read_text().splitlines(keepends=True)
                half = len(lines) // 8 * 4
                files.append(folder / f"{lane}_{mate}.fq")
                files[-1].write_text("".join(lines[:half] if source == 1 else lines[half:]))
            lanes.append(files)
        groups = [LIBRARIES.format(lane, lane % 2) for lane in (1, 2, 3)]
        self.sorted, self.plain = [], []
        for lane, (files, group) in enumerate(zip(lanes, groups, strict=True), 1):
            for kind, options in ((self.sorted, ["--sort"]), (self.plain, [])):
                kind.append(folder / f"{lane}{''.join(options)}.bam")
                run("map", world.index_path, *files, "-R", group, "-o", kind[-1], "-I", "300,50",
                    *options)  # fmt: skip
        self.whole = folder / "whole.bam"
        self.counts = folder / "whole.json"
        more = [
            word
            for files, group in zip(lanes[1:], groups[1:], strict=True)
            for word in ("--lane", group, *files)
        ]
        run("map", world.index_path, *lanes[0], "-R", groups[0], *more, "-o", self.whole, "--sort",
            "-I", "300,50", *MARK, "--markdup-stats", self.counts)  # fmt: skip

    def check(self, path: Path, counts: Path) -> None:
        """Fail unless a file and its counts are those of the one run."""
        assert lines_of(path) == lines_of(self.whole)
        found, expected = (json.loads(p.read_text()) for p in (counts, self.counts))
        for report in (found, expected):
            del report["COMMAND"]
        assert found == expected
        assert found["DUPLICATE TOTAL"] > 100
        pysam.quickcheck(str(path))
        with pysam.AlignmentFile(str(path)) as one, pysam.AlignmentFile(str(self.whole)) as other:
            assert one.has_index()
            for contig, length in zip(one.references, one.lengths, strict=True):
                for start in range(0, length, max(length // 7, 1)):
                    names = [
                        [r.query_name for r in file.fetch(contig, start, start + 200)]
                        for file in (one, other)
                    ]
                    assert names[0] == names[1]


MARK = ("--markdup", "--mark-supplementary", "--optical-distance", "100")


@pytest.fixture(scope="module")
def parts(world: World, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return Parts(world, tmp_path_factory.mktemp("parts"))


def merged(parts: Sequence[Path], folder: Path, *options: object) -> tuple[Path, Path]:
    out, counts = folder / "out.bam", folder / "out.json"
    run("merge", *parts, "-o", out, *MARK, "--markdup-stats", counts, *options)
    return out, counts


@pytest.mark.medium
def test_parts_become_the_file_of_one_run(parts: Parts, tmp_path: Path) -> None:
    """Sorted, unsorted, and both; by one thread and by three."""
    mixed = [parts.plain[0], parts.sorted[1], parts.plain[2]]
    for given in (parts.sorted, parts.plain, mixed):
        for threads in (1, 3):
            parts.check(*merged(given, tmp_path, "-t", threads))
    # What is marked already is marked afresh.
    parts.check(*merged([parts.whole], tmp_path))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"out.bam", "out.bam.bai", "out.json"}


@pytest.mark.medium
def test_the_index_lies_beside_the_name_given(parts: Parts, tmp_path: Path) -> None:
    """As of samtools; one beside the file that a link leads to describes the older file."""
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "x.bam", tmp_path / "link.bam"
    (tmp_path / "real" / "x.bam.bai").write_bytes(b"of an older file")
    link.symlink_to(target)
    run("merge", *parts.sorted, "-o", link, "--quiet")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.bam", "link.bam.bai", "real"]
    assert [p.name for p in target.parent.iterdir()] == ["x.bam"] and link.is_symlink()
    with pysam.AlignmentFile(str(link)) as file:
        assert file.has_index()


@pytest.mark.medium
def test_names_without_coordinates_are_told(parts: Parts, tmp_path: Path, caplog) -> None:
    """Once a run, and only if optical duplicates are asked for."""
    named = tmp_path / "named.bam"
    with pysam.AlignmentFile(str(parts.sorted[0])) as source, pysam.AlignmentFile(
        str(named), "wb", template=source
    ) as out:  # fmt: skip
        for record in source:
            number = re.sub(r"\D", "", record.query_name)
            record.query_name = f"M1:7:F:1:1101:{number}:{number}"
            out.write(record)
    unnamed = parts.sorted[0]  # as simulated
    for part, options, n_told in (
        (named, MARK, 0),
        (unnamed, ["--markdup"], 0),
        (unnamed, MARK, 1),
    ):
        caplog.clear()
        run("merge", part, "-o", tmp_path / "x.bam", *options, "-t", "2")
        told = [m for m in caplog.messages if "where a read lay on the flow cell" in m]
        assert len(told) == n_told


@pytest.mark.medium
def test_header_of_a_merge(parts: Parts, tmp_path: Path) -> None:
    out, _ = merged(parts.plain, tmp_path)
    with pysam.AlignmentFile(str(out)) as file:
        header = file.header.to_dict()
    assert header["HD"]["SO"] == "coordinate"
    assert [group["ID"] for group in header["RG"]] == ["1", "2", "3"]
    lines = [program["CL"] for program in header["PG"]]
    assert sum(line.startswith("fmwave map ") for line in lines) == 3
    assert any(line.startswith("fmwave merge ") for line in lines)


@pytest.mark.medium
def test_sorted_records_to_standard_output(parts: Parts, tmp_path: Path, capfdbinary) -> None:
    run("merge", *parts.sorted, "-o", "-", "-O", "bam", *MARK, "--quiet")
    path = tmp_path / "piped.bam"
    path.write_bytes(capfdbinary.readouterr().out)
    assert lines_of(path) == lines_of(parts.whole)


def without_tag(source: Path, target: Path, tag: str) -> Path:
    with (
        pysam.AlignmentFile(str(source)) as given,
        pysam.AlignmentFile(str(target), "wb", header=given.header) as out,
    ):
        for record in given.fetch(until_eof=True):
            record.set_tag(tag, None)
            out.write(record)
    return target


@pytest.mark.medium
def test_parts_that_cannot_be_merged(parts: Parts, tmp_path: Path, capsys) -> None:
    """Each is told with what to do, and nothing is left."""
    first, second = parts.sorted[:2]
    cut = tmp_path / "cut.bam"
    cut.write_bytes(first.read_bytes()[:-2000])
    no_mc = without_tag(first, tmp_path / "no_mc.bam", "MC")
    no_ms = without_tag(first, tmp_path / "no_ms.bam", "ms")
    other = tmp_path / "other.bam"
    header = pysam.AlignmentHeader.from_references(["elsewhere"], [1000])
    with pysam.AlignmentFile(str(other), "wb", header=header):
        pass
    folder = tmp_path / "out"
    folder.mkdir()
    for part, message in (
        (cut, "cut.bam: "),
        (no_mc, f"{no_mc}: record of read "),
        (no_mc, "it has no tag MC, the CIGAR of the mate"),
        (no_ms, "it has no tag ms, the score of the mate, by which duplicates are found; add it "
         "with `samtools fixmate -m`"),
        (other, "other.bam"),
    ):  # fmt: skip
        words = ("merge", second, part, "-o", folder / "x.bam", *MARK, "--quiet")
        assert message in failure(capsys, *words)
        assert not list(folder.iterdir())
    run("merge", second, no_mc, "-o", folder / "x.bam", "--quiet")  # duplicates alone need them
    assert (folder / "x.bam.bai").exists()


def test_cram_of_another_reference(tmp_path: Path, capsys) -> None:
    """Contigs that are missing or of another length are refused; others may be there, too."""
    folder = tmp_path / "out"
    folder.mkdir()
    part = tmp_path / "part.bam"
    header = pysam.AlignmentHeader.from_references(["a", "b"], [30, 10])
    with pysam.AlignmentFile(str(part), "wb", header=header):
        pass
    reference = tmp_path / "ref.fa"
    words = ("merge", part, "-o", folder / "x.cram", "--reference", reference, "--quiet")
    for text, message in (
        (f">a\n{'A' * 30}\n", "contig 'b', of 10 bases in the header of the records, is not there"),
        (f">a\n{'A' * 30}\n>b\n{'C' * 11}\n", "contig 'b', of 10 bases in the header of the "
         "records, has 11 bases; give the FASTA file that the reads were mapped to"),
    ):  # fmt: skip
        reference.write_text(text)
        assert f"{reference}: {message}" in failure(capsys, *words)
        assert not list(folder.iterdir())
    reference.write_text(f">c\nG\n>b\n{'C' * 10}\n>a\n{'A' * 20}\n{'A' * 10}\n")
    run(*words)
    pysam.quickcheck(str(folder / "x.cram"))
    listed = tmp_path / "ref.fa.fai"  # which samtools believes
    listed.write_text("a\t30\t3\t30\t31\nb\t9\t3\t30\t31\n")
    assert f"{reference}: contig 'b', of 10 bases in" in failure(capsys, *words)
    listed.write_text("a 30\n")
    assert f"{listed}: no index of samtools faidx; remove it" in failure(capsys, *words)


def test_cram_needs_a_reference_that_samtools_reads(tmp_path: Path, capsys) -> None:
    part = tmp_path / "part.bam"
    header = pysam.AlignmentHeader.from_references(["a"], [30])
    with pysam.AlignmentFile(str(part), "wb", header=header):
        pass
    reference = tmp_path / "ref.fa.gz"
    reference.write_bytes(gzip.compress(b">a\n" + b"A" * 30 + b"\n"))
    words = ("merge", part, "-o", tmp_path / "x.cram", "--reference", reference, "--quiet")
    assert f"{reference}: compressed with gzip, and CRAM needs it plain" in failure(capsys, *words)


def test_a_read_group_described_in_two_ways_names_the_parts(tmp_path: Path, capsys) -> None:
    names = []
    for sample in "xy":
        header = {"SQ": [{"SN": "a", "LN": 30}], "RG": [{"ID": "1", "SM": sample}]}
        names.append(tmp_path / f"{sample}.bam")
        with pysam.AlignmentFile(str(names[-1]), "wb", header=header):
            pass
    message = failure(capsys, "merge", *names, "-o", tmp_path / "out.bam", "--quiet")
    for sample, name in zip("xy", names, strict=True):
        assert rf"'@RG\tID:1\tSM:{sample}' in {name}" in message


@pytest.mark.parametrize(("part", "name"), [("-", "standard input"), ("/dev/stdin",) * 2])
def test_supplementary_records_need_files(
    parts: Parts, tmp_path: Path, part: str, name: str
) -> None:
    program = [sys.executable, "-m", "mapper.cli.main"]
    command = [*program, "merge", part, "-o", tmp_path / "x.bam", *MARK]
    with subprocess.Popen(["cat", parts.sorted[0]], stdout=subprocess.PIPE) as cat:
        run = subprocess.run(command, stdin=cat.stdout, capture_output=True, text=True, check=False)
        cat.kill()
    assert run.returncode == UsageError.exit_status
    assert f"{name} can be read once; name a file" in run.stderr
    assert not list(tmp_path.iterdir())
