"""The table of awkward input in docs/input-and-output.md, row by row, as a user meets it.

Whatever would lose reads ends with exit status 1, one line that names file, record and
reason, and nothing under the final name; standard output then has no end-of-file block.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pysam
import pytest

from mapper.cli.main import main
from mapper.io.bgzf import EOF_BLOCK
from tests.helpers.mapping_runs import World, lines_of, records_of

ODD = Path(__file__).parents[3] / "shared" / "data" / "odd"


class Files:
    """The two FASTQ files of a sample, to be damaged by tests."""

    def __init__(self, world: World, directory: Path) -> None:
        self.directory = directory
        self.texts = [Path(path).read_text() for path in (world.first, world.second)]

    def records(self, mate: int) -> list[str]:
        lines = self.texts[mate - 1].splitlines(keepends=True)
        return ["".join(lines[i : i + 4]) for i in range(0, len(lines), 4)]

    def write(self, name: str, data: bytes | str) -> str:
        path = self.directory / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return str(path)

    def both(self, **spoiled: bytes | str) -> list[str]:
        """Write both files, one of them changed; return their paths."""
        data = {"first": self.texts[0], "second": self.texts[1], **spoiled}
        return [
            self.write(f"{name}.fq" + (".gz" if bytes(raw[:2]) == b"\x1f\x8b" else ""), raw)
            for name, raw in (
                (name, text.encode() if isinstance(text, str) else text)
                for name, text in data.items()
            )
        ]


def truncated(files: Files) -> list[str]:
    packed = [gzip.compress(text.encode()) for text in files.texts]
    return files.both(first=packed[0][: len(packed[0]) // 2], second=packed[1][:-5000])


def flipped(files: Files) -> list[str]:
    data = bytearray(gzip.compress(files.texts[1].encode()))
    data[len(data) // 2] ^= 0x10
    return files.both(second=bytes(data))


def out_of_step(files: Files) -> list[str]:
    records = files.records(2)
    return files.both(second="".join(records[:100] + records[101:]))


def unequal(files: Files) -> list[str]:
    return files.both(second="".join(files.records(2)[:400]))


def short_quality(files: Files) -> list[str]:
    records = files.records(1)
    records[299] = records[299][:-2] + "\n"
    return files.both(first="".join(records))


def ends_inside(files: Files) -> list[str]:
    records = files.records(2)
    return files.both(second="".join(records[:599]) + records[599][: len(records[599]) // 2])


def noise(files: Files) -> list[str]:
    return [files.write("noise.fq", np.random.default_rng(3).bytes(100_000))]


def absent(files: Files) -> list[str]:
    return [files.both()[0], str(files.directory / "none.fq")]


def long_mates(files: Files) -> list[str]:
    short = "@short\nACGT\n+\nIIII\n"
    long = f"@m1/2/ccs\n{'ACGT' * 3000}\n+\n{'~' * 12_000}\n"
    second = files.write("short.fq", short + short.replace("short", "m1/2/ccs"))
    return [files.write("hifi.fq", short + long), second]


def bam_of(files: Files, change: Callable[[list[str]], None]) -> list[str]:
    """Write a BAM file of 20 pairs; `change` edits its records."""
    lines = [
        f"p{i // 2}\t{141 if i % 2 else 77}\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII" for i in range(40)
    ]
    change(lines)
    text = files.write("u.sam", "@HD\tVN:1.6\n" + "\n".join(lines) + "\n")
    path = files.directory / "u.bam"
    pysam.view("-b", "--no-PG", "-o", str(path), text, catch_stdout=False)
    return [str(path)]


def mates_apart(files: Files) -> list[str]:
    return bam_of(files, lambda lines: lines.append(lines.pop(21)))


def repeated(files: Files) -> list[str]:
    return bam_of(files, lambda lines: lines.insert(22, lines[20]))


def third_read(files: Files) -> list[str]:
    return bam_of(files, lambda lines: lines.insert(22, lines[20].replace("\t77\t", "\t13\t")))


def at_names(files: Files) -> list[str]:
    return files.both(second=files.texts[1].replace("@pair300\n", "@@pair300\n"))


def no_name(files: Files) -> list[str]:
    return files.both(first=files.texts[0].replace("@pair9\n", "@\n"))


def swapped(files: Files) -> list[str]:
    return same_reads(files, lambda text, mate: suffixed("/")(text, 3 - mate))


def doubled(files: Files) -> list[str]:
    text = suffixed(" ")(files.texts[0], 1)
    return files.both(first=text, second=text)


def bytes_behind(files: Files) -> list[str]:
    return files.both(first=gzip.compress(files.texts[0].encode()) + b"\n")


def bam_without_end(files: Files) -> list[str]:
    path = Path(bam_of(files, lambda lines: None)[0])
    lines = pysam.view("-h", "--no-PG", "-f", "64", str(path))
    text = files.write("s.sam", re.sub(r"\t77\t", "\t4\t", lines))
    pysam.view("-b", "--no-PG", "-o", str(path), text, catch_stdout=False)
    path.write_bytes(path.read_bytes().removesuffix(EOF_BLOCK))
    return [str(path)]


ROWS: dict[str, tuple[Callable[[Files], list[str]], str]] = {
    "both gz truncated": (truncated, r"first.fq.gz: .*truncated.* \(found after record \d+"),
    "one gz byte flipped": (flipped, r"second.fq.gz: the gzip data are damaged .*after record \d+"),
    "mates out of step by one": (
        out_of_step, r"step: record 101 of .*first.fq is 'pair100', record 101 of .*second.fq"
    ),
    "unequal numbers of mates": (unequal, r"second.fq ends after 400 reads, .*first.fq goes on"),
    "short quality": (short_quality, r"first.fq: record 300: \d+ quality characters for \d+ bases"),
    "file ends inside a record": (ends_inside, r"second.fq: record 600: .*"),
    "random bytes": (noise, r"noise.fq: not FASTQ: it begins with "),
    "no such file": (absent, r"none.fq: no such file"),
    "long mates": (long_mates, r"hifi.fq: record 2: read 'm1/2/ccs' has 12000 bases, and mates"),
    "BAM with mates apart": (mates_apart, r"u.bam: record 40: 'p10': .* but not next to it; gr"),
    "BAM with repeated records": (repeated, r"u.bam: record 23: 'p10': a primary record of a r"),
    "BAM with a third read": (third_read, r"u.bam: record 23: 'p10': .* template of three or m"),
    "read names that begin with @": (at_names, r"second.fq: record 301: read name '@pair300' b"),
    "read without a name": (no_name, r"first.fq: record 10: has no name"),
    "mates in swapped files": (swapped, r"mates in the wrong order: record 1 .*give .*second.fq"),
    "R1 twice, marked": (doubled, r"no first and second read of a pair: .*'pair0 1:N:0:ACGT'"),
    "bytes behind the end of gzip": (bytes_behind, r"first.fq.gz: other bytes follow the end of"),
    "BAM without its last block": (bam_without_end, r"u.bam: no end-of-file block after record 20"),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_nothing_is_lost(world, tmp_path, capfdbinary, row):
    make, message = ROWS[row]
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    reads = make(Files(world, tmp_path / "in"))
    for options in (["-o", str(tmp_path / "out" / "x.bam")], []):
        argv = ["map", world.index_path, *reads, "--quiet", "--batch-bases", "9000", *options]
        assert main(argv) == 1
        out, err = capfdbinary.readouterr()
        (line,) = err.decode().splitlines()
        assert re.match(f"fmwave: error: .*{message}", line)
        assert list((tmp_path / "out").iterdir()) == []
        assert not out.endswith(EOF_BLOCK)


def same_reads(files: Files, change: Callable[[str, int], str]) -> list[str]:
    return files.both(
        first=change(files.texts[0], 1).encode(), second=change(files.texts[1], 2).encode()
    )


def suffixed(separator: str) -> Callable[[str, int], str]:
    end = f"{separator}{{}}" if separator != " " else " {}:N:0:ACGT"
    return lambda text, mate: re.sub(r"(?m)^@(pair\S*)$", rf"@\1{end.format(mate)}", text)


HARMLESS: dict[str, Callable[[str, int], str]] = {
    "names with /1 /2": suffixed("/"),
    "names with .1 .2": suffixed("."),
    "names with _1 _2": suffixed("_"),
    "Casava comments": suffixed(" "),
    "CRLF": lambda text, mate: text.replace("\n", "\r\n"),
    "lower case": lambda text, mate: re.sub(r"(?m)^[ACGTN]+$", lambda m: m[0].lower(), text),
    "no last line end": lambda text, mate: text.rstrip("\n"),
}


def test_harmless_forms_give_the_same(world, tmp_path):
    files = Files(world, tmp_path)
    argv = ["map", world.index_path, "--quiet", "-O", "sam", "-o"]
    assert main([*argv, str(tmp_path / "expected.sam"), *files.both()]) == 0
    expected = lines_of(tmp_path / "expected.sam")
    for name, change in HARMLESS.items():
        out = tmp_path / "x.sam"
        assert main([*argv, str(out), *same_reads(files, change)]) == 0, name
        assert lines_of(out) == expected, name


def test_odd_reads_stay(world, tmp_path):
    """All N, IUPAC letters, no bases: one record each, with the bases as given."""
    letters = ["N" * 100, "RYKMSWBDHVN", "", world.reads[0].letters]
    path = tmp_path / "r.fq"
    path.write_text("".join(f"@r{i}\n{s}\n+\n{'I' * len(s)}\n" for i, s in enumerate(letters)))
    out = tmp_path / "x.bam"
    assert main(["map", world.index_path, str(path), "-o", str(out), "--quiet"]) == 0
    records = records_of(out)
    assert [record.query_name for record in records] == ["r0", "r1", "r2", "r3"]
    assert [record.get_forward_sequence() or "" for record in records] == letters
    assert [record.is_unmapped for record in records] == [True, True, True, False]


def test_empty_file(world, tmp_path):
    path = tmp_path / "r.fq"
    for data in (b"", gzip.compress(b"")):
        path.write_bytes(data)
        out = tmp_path / "x.bam"
        assert main(["map", world.index_path, str(path), "-o", str(out), "--quiet"]) == 0
        assert records_of(out) == []


REFUSED_BAM = {
    "dnaio_missing_header_no_bgzip_raw_bam_bytes": "not FASTQ",
    "htsjdk_empty_no_empty_gzip_block.bam": "no end-of-file block after record 0",
    "samtools_1.quickcheck.badeof.bam": "record 2: 'r000': flagged paired (0x1), and neither",
    "samtools_3.quickcheck.ok.bam": "record 2: 'r000': flagged paired (0x1), and neither",
    "samtools_test_input_1_a.bam": "record 2: 'r000': flagged paired (0x1), and neither",
}


@pytest.mark.skipif(not ODD.is_dir(), reason="needs ../shared/data/odd")
@pytest.mark.parametrize("name", [path.name for path in sorted(ODD.glob("*bam*"))])
def test_bam_files_of_other_projects(world, tmp_path, capfd, name):
    """Every primary record comes out with its own bases, or the file is refused by name."""
    out = tmp_path / "x.bam"
    argv = ["map", world.index_path, str(ODD / name), "-o", str(out), "--quiet"]
    if name in REFUSED_BAM:
        assert main(argv) == 1
        (line,) = capfd.readouterr().err.splitlines()
        assert re.match(rf"fmwave: error: .*{re.escape(name)}: ", line)
        assert REFUSED_BAM[name] in line
        assert not out.exists()
        return
    assert main(argv) == 0
    with pysam.AlignmentFile(str(ODD / name), check_sq=False) as file:
        given = [r for r in file.fetch(until_eof=True) if not r.flag & 0x900]
    got = [r for r in records_of(out) if not r.flag & 0x900]
    names = [record.query_name for record in given]
    for record in given:
        if names.count(record.query_name) == 1:  # an orphan becomes a single read
            record.is_read2 = False
    assert sorted(map(bases_of, got)) == sorted(map(bases_of, given))


def bases_of(record: pysam.AlignedSegment) -> tuple[str, str, bool]:
    return record.query_name, record.get_forward_sequence() or "", record.is_read2


def test_orphans_in_bam(world, tmp_path, capsys):
    """Mapped and counted, left out and counted, or refused by name."""
    paths = bam_of(Files(world, tmp_path), lambda lines: lines.pop(21))
    out, stats = tmp_path / "x.bam", tmp_path / "x.json"
    argv = ["map", world.index_path, *paths, "-o", str(out), "--json-stats", str(stats)]
    for options, n_reads, counter, done in (
        ([], 39, "orphans_mapped", "mapped as single reads"),
        (["--orphans", "skip"], 38, "orphans_skipped", "left out"),
    ):
        assert main([*argv, *options]) == 0
        assert f"1 reads of pairs have no mate in the file: {done}\n" in capsys.readouterr().err
        records = records_of(out)
        assert len(records) == n_reads
        singles = [record.query_name for record in records if not record.is_paired]
        assert singles == (["p10"] if n_reads == 39 else [])
        counts = json.loads(stats.read_text())["counts"]
        assert (counts[counter], counts["reads"], counts["paired"]) == (1, n_reads, 38)
        out.unlink()
    assert main([*argv, "--orphans", "refuse", "--quiet"]) == 1
    assert "u.bam: record 21: 'p10' is flagged paired, and its mate" in capsys.readouterr().err
    assert not out.exists()
