"""``fmwave map --batch``: one process, and the same outputs as of one run for each sample."""

from __future__ import annotations

import gzip
import json
import os
import re
import struct
import threading
from pathlib import Path
from typing import Any

import pysam
import pytest

from mapper.cli import map_sheet
from mapper.cli.main import main
from mapper.errors import MapperError
from mapper.io.reference_fasta import check_reference
from mapper.mapping import pipeline
from mapper.mapping import pipeline as run
from mapper.mapping.session import Session
from tests.helpers.mapping_runs import World, lines_of, thirds

COLUMNS = (
    "output", "reads1", "reads2", "interleaved", "read_group", "ID", "LB", "SM", "insert_size",
    "insert_size_from", "json_stats",
)  # fmt: skip


def write_sheet(path: Path, rows: list[dict[str, Any]], columns: tuple[str, ...] = COLUMNS) -> str:
    lines = [columns, *([str(row.get(column, "")) for column in columns] for row in rows)]
    path.write_text("".join("\t".join(line) + "\n" for line in lines))
    return str(path)


def batch(index: str, sheet: str, *options: str) -> int:
    return main(["map", index, "--batch", sheet, "-t", "2", "--quiet", *options])


def test_records_are_those_of_separate_runs(world: World, tmp_path: Path) -> None:
    rows = [
        {"output": "a.bam", "reads1": world.first, "reads2": world.second, "ID": "a", "SM": "x y"},
        {"output": "b.sam", "reads1": world.both, "interleaved": "yes", "json_stats": "b.json",
         "insert_size": "350,40"},
    ]  # fmt: skip
    for where in ("alone", "together"):
        (tmp_path / where).mkdir()
    apart = (
        [world.first, world.second, "-R", "@RG\\tID:a\\tSM:x y"],
        [world.both, "-p", "-I", "350,40", "--json-stats", str(tmp_path / "alone" / "b.json")],
    )
    for row, options in zip(rows, apart, strict=True):
        alone = str(tmp_path / "alone" / row["output"])
        argv = ["map", world.index_path, "-o", alone, "-t", "2", "--quiet", *options]
        assert main(argv) == 0
        for column in ("output", "json_stats"):
            if column in row:
                row[column] = str(tmp_path / "together" / row[column])
    assert batch(world.index_path, write_sheet(tmp_path / "s.tsv", rows)) == 0
    for name in ("a.bam", "b.sam"):
        assert lines_of(tmp_path / "together" / name) == lines_of(tmp_path / "alone" / name)
    stats = [
        json.loads((tmp_path / where / "b.json").read_text()) for where in ("alone", "together")
    ]
    for key in ("counts", "insert_size"):
        assert stats[0][key] == stats[1][key]
    assert sorted(path.name for path in (tmp_path / "together").iterdir()) == [
        "a.bam", "b.json", "b.sam",
    ]  # fmt: skip


def test_what_runs_share_is_made_once(world: World, tmp_path: Path, monkeypatch: Any) -> None:
    """The index is opened once, a reference compared once, and the threads stay."""
    seen: dict[str, list[Any]] = {"open": [], "check": [], "threads": []}
    from mapper.index import storage as index_format

    whole_open, whole_cut = index_format.open_index, run.Run.cut

    def opening(path: Any) -> Any:
        seen["open"].append(path)
        return whole_open(path)

    def checking(*arguments: Any) -> Any:
        seen["check"].append(arguments[0])
        return check_reference(*arguments)

    def cutting(self: Any, reader: Any) -> Any:
        seen["threads"].append(threading.get_ident())
        return whole_cut(self, reader)

    monkeypatch.setattr(index_format, "open_index", opening)
    monkeypatch.setattr("mapper.mapping.session.check_reference", checking)
    monkeypatch.setattr(run.Run, "cut", cutting)
    # No thread is started again, so no identifier can be reused.
    started: list[str] = []
    whole_start = threading.Thread.start

    def starting(thread: threading.Thread) -> None:
        started.append(thread.name)
        whole_start(thread)

    monkeypatch.setattr(threading.Thread, "start", starting)
    fasta = Path(world.index_path).with_name("genome.fa")
    rows = [
        {"output": tmp_path / f"{i}.cram", "reads1": name}
        for i, name in enumerate((world.first, world.second))
    ]
    sheet = write_sheet(tmp_path / "s.tsv", rows, ("output", "reads1"))
    assert batch(world.index_path, sheet, "--reference", str(fasta)) == 0
    assert (len(seen["open"]), len(seen["check"])) == (1, 1)
    # Two threads, less one for the samtools process of CRAM; the same for both runs.
    assert sorted(name for name in started if name.startswith("worker")) == ["worker 0"]
    assert len(set(seen["threads"])) == 1
    assert [len(lines_of(tmp_path / f"{i}.cram")) >= 600 for i in range(2)] == [True, True]


def test_a_changed_reference_is_compared_again(world: World, tmp_path: Path) -> None:
    fasta = tmp_path / "genome.fa"
    fasta.write_bytes(Path(world.index_path).with_name("genome.fa").read_bytes())
    with Session(world.index) as session:
        session.check_reference(str(fasta))
        fasta.write_text(">other\nACGT\n")
        with pytest.raises(MapperError, match="contig"):
            session.check_reference(str(fasta))


SHEETS = {
    "empty": ("", "is empty"),
    "header only": ("output\treads1\n", "has a header line only"),
    "no header": ("a.bam\tr.fq\n", "line 1: unknown column 'a.bam'; known are output, reads1"),
    "unknown column": ("output\treads1\tsample\n", "unknown column 'sample'"),
    "twice": ("output\treads1\toutput\n", "column output stands there twice"),
    "no output": ("reads1\tSM\nr.fq\tx\n", "there is no column 'output'"),
    "cells": ("output\treads1\tSM\n\na.bam\tr.fq\n", "line 3: 2 cells, and the header has 3"),
    "no reads": ("output\treads1\na.bam\t \n", "line 2: reads1 is empty"),
    "interleaved": ("output\treads1\tinterleaved\na.bam\tr.fq\tmaybe\n", "'maybe': yes or no"),
    "two groups": ("output\treads1\tread_group\tSM\na.bam\tr.fq\t@RG\tx\n", "read_group and SM"),
    "stdout": ("output\treads1\n-\tr.fq\n", "'-' is no output here"),
    "stdin": ("output\treads1\na.bam\t-\n", "'-' is no input here"),
    "same reads": ("output\treads1\na.bam\tr.fq\nb.bam\tr.fq\n", "line 3: .*r.fq is read by "),
    "statistics": ("output\treads1\tjson_stats\na.bam\tr.fq\t\nb.bam\ts.fq\ta.bam\n",
                   "line 3: .*a.bam is written by "),
    "statistics named as an index": (
        "output\treads1\tjson_stats\na.bam\tr.fq\t\nb.bam\ts.fq\ta.bai\n",
        "line 3: a.bai has the name of an index of .*a.bam, the output of .*line 2"),
    "statistics of two outputs": (
        "output\treads1\tjson_stats\na.bam\tr.fq\tx\na.bam\ts.fq\tx\nb.bam\tt.fq\tx\n",
        "line 4: x is written by .*lines 2 and 3 already"),
    "same reads in one output": ("output\treads1\na.bam\tr.fq\n./a.bam\tr.fq\n",
                                 "line 3: r.fq is read by .*line 2 already"),
    "reads of a later lane, written": ("output\treads1\na.bam\tr.fq\na.bam\ts.fq\ns.fq\tt.fq\n",
                                       "line 4: .*s.fq is written, and read by .*line 3"),
    "read, written": ("output\treads1\na.bam\tr.fq\nr.fq\ts.fq\n",
                      "line 3: .*r.fq is written, and read by .*line 2"),
    "insert size of another run, written": (
        "output\treads1\tjson_stats\tinsert_size_from\na.bam\tr.fq\ta.json\t\n"
        "b.bam\ts.fq\t\t./a.json\nc.bam\tt.fq\t\ta.json\n",
        "line 2: .*a.json is written, and read by .*line 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHEETS)
def test_sheets_that_are_refused(name, tmp_path, capsys):
    text, message = SHEETS[name]
    (tmp_path / "s.tsv").write_text(text)
    assert batch("no index is looked at", str(tmp_path / "s.tsv")) == 2
    assert re.search(message, capsys.readouterr().err)


def test_sheets_that_cannot_be_read(tmp_path, capsys):
    (tmp_path / "s.tsv").write_bytes(b"output\treads1\n\xff.bam\tx\n")
    assert batch("x", str(tmp_path / "s.tsv")) == 2
    assert "byte 15 is not UTF-8" in capsys.readouterr().err
    assert batch("x", str(tmp_path / "none.tsv")) == 2
    assert "none.tsv: cannot be read: No such file" in capsys.readouterr().err


def test_sheets_as_spreadsheets_write_them(tmp_path):
    """A byte-order mark, CR LF, comments, empty lines and blanks around cells do no harm."""
    text = "\ufeffoutput\treads1\tPL\tID\r\n# two lanes\r\n\r\n a b.bam \tr.fq\tILLUMINA\t1:2 \r\n"
    (tmp_path / "s.tsv").write_bytes(text.encode())
    ((row,), errors) = map_sheet.read_sheet(str(tmp_path / "s.tsv"))
    assert not errors
    assert (row.number, row.output, row.reads) == (4, "a b.bam", ("r.fq",))
    assert row.read_group == "@RG\tID:1:2\tPL:ILLUMINA"
    assert row.interleaved is None and row.insert_size is None and row.json_stats is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["reads.fq"], "READS and --batch"),
        (["-R", "@RG"], "-R and --batch"),
        (["-o", "x.bam"], "-o and --batch"),
        (["--json-stats", "x"], "--json-stats and --batch"),
        (["--lane", "@RG", "x.fq"], "--lane and --batch"),
    ],
)
def test_the_command_line_leaves_the_sheet_its_say(options, message, tmp_path, capsys):
    sheet = write_sheet(tmp_path / "s.tsv", [{"output": "a.bam", "reads1": "r.fq"}])
    assert main(["map", "x", *options, "--batch", sheet]) == 2
    assert message in capsys.readouterr().err


def test_reads_or_a_sheet_are_needed(capsys):
    assert main(["map", "x"]) == 2
    assert "are required: READS" in capsys.readouterr().err


def test_all_errors_are_found_before_the_first_run(world: World, tmp_path: Path, capsys) -> None:
    """Each bad line is named; nothing is mapped, and the index is not opened."""
    (tmp_path / "text.fq").write_text("not reads\n")
    good = {"output": tmp_path / "good.bam", "reads1": world.first}
    bad: list[tuple[dict[str, Any], str]] = [
        ({"reads1": tmp_path / "none.fq"}, "none.fq"),
        ({"insert_size": "many"}, "--insert-size many"),
        ({"ID": "a\xe4"}, "not ASCII"),
        ({"SM": "x"}, "no ID"),
        ({"output": tmp_path / "none" / "x.bam"}, "does not exist"),
        ({"output": tmp_path / "x.txt"}, "x.txt"),
        ({"output": tmp_path / "x.cram"}, "--reference"),
        ({"reads2": world.both, "interleaved": "yes"}, "interleaved"),
        ({"json_stats": tmp_path / "none" / "x.json"}, "does not exist"),
    ]
    rows = [good]
    for i, (fields, _) in enumerate(bad):
        own = tmp_path / f"{i}.fq"
        own.write_bytes(Path(world.second).read_bytes())
        rows.append({"output": tmp_path / f"{i}.bam", "reads1": own} | fields)
    assert batch("no index", write_sheet(tmp_path / "s.tsv", rows)) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(bad)
    for number, (line, (_, message)) in enumerate(zip(lines, bad, strict=True), 3):
        assert f"s.tsv, line {number}: " in line and message in line
    assert not list(tmp_path.glob("*.bam"))


def test_errors_of_the_sheet_do_not_hide_those_of_files(world, tmp_path, capsys) -> None:
    """Nor is standard input read, which is no input here."""
    cells = [
        (tmp_path / "none.fq", "none.fq: no such file"), ("-", "'-' is no input here"),
        (world.first, ""), (world.first, "is read by"), ("x\ty", "cells, and the header has"),
    ]  # fmt: skip
    rows = [{"output": tmp_path / f"{i}.bam", "reads1": name} for i, (name, _) in enumerate(cells)]
    assert batch("no index", write_sheet(tmp_path / "s.tsv", rows)) == 2
    lines = capsys.readouterr().err.splitlines()
    for number, (_, message) in enumerate(cells, 2):
        found = [line for line in lines if f"s.tsv, line {number}: " in line]
        assert len(found) == bool(message) and all(message in line for line in found)


def test_a_failing_run_stops_the_batch_and_leaves_what_is_done(
    world: World, tmp_path: Path, capsys
) -> None:
    text = Path(world.second).read_text().splitlines()
    text[4 * 400 + 3] = "I"  # one quality of record 401
    broken = tmp_path / "broken.fq"
    broken.write_text("\n".join(text) + "\n")
    out = tmp_path / "out"
    out.mkdir()
    reads = (world.first, str(broken), world.both)
    rows = [{"output": out / f"{i}.bam", "reads1": name} for i, name in enumerate(reads)]
    sheet = write_sheet(tmp_path / "s.tsv", rows)
    assert batch(world.index_path, sheet) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"s.tsv, line 3 ({out / '1.bam'}): {broken}: record 401" in line
    assert line.endswith("1 of 3 outputs are done, and stay")
    assert [path.name for path in out.iterdir()] == ["0.bam"]
    argv = ["map", world.index_path, world.first, "-o", str(tmp_path / "x.bam"), "--quiet"]
    assert main(argv) == 0
    assert lines_of(out / "0.bam") == lines_of(tmp_path / "x.bam")


def test_an_interrupted_batch_says_where(world: World, tmp_path: Path, monkeypatch, capsys) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "map_reads", interrupt)
    rows = [{"output": tmp_path / "a.bam", "reads1": world.first}]
    assert batch(world.index_path, write_sheet(tmp_path / "s.tsv", rows)) == 130
    err = capsys.readouterr().err
    assert "line 2" in err and "0 of 1 outputs are done, and stay" in err


def test_a_pipe_is_not_read_before_its_turn(world: World, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = Path(world.first).read_bytes()
    writer = threading.Thread(target=lambda: pipe.write_bytes(content), daemon=True)
    writer.start()
    rows = [{"output": tmp_path / "a.sam", "reads1": pipe}]
    assert batch(world.index_path, write_sheet(tmp_path / "s.tsv", rows)) == 0
    writer.join()
    assert len(lines_of(tmp_path / "a.sam")) >= len(world.reads) // 2


def content_of(path: Path) -> tuple[str, bytes]:
    """Return the header of a BAM file without its command line, and the bytes that follow it."""
    raw = gzip.decompress(path.read_bytes())
    (n_bytes,) = struct.unpack_from("<i", raw, 4)
    return re.sub("\tCL:.*", "", raw[8 : 8 + n_bytes].decode()), raw[8 + n_bytes :]


def test_lines_of_one_output_are_its_lanes(world: World, tmp_path: Path, monkeypatch: Any) -> None:
    """Three lines of one sample and two of another, by turns: the files of two runs with --lane."""
    monkeypatch.chdir(tmp_path)
    firsts, seconds = thirds(world.first, tmp_path), thirds(world.second, tmp_path)
    both = thirds(world.both, tmp_path)
    sheet = write_sheet(tmp_path / "s.tsv", [
        {"output": "x.bam", "reads1": firsts[0], "reads2": seconds[0], "ID": "a", "LB": "1",
         "SM": "x", "json_stats": "x.json"},
        {"output": "y.bam", "reads1": both[0], "interleaved": "yes", "ID": "a", "SM": "y",
         "insert_size": "350,40"},
        {"output": tmp_path / "x.bam", "reads1": firsts[1], "reads2": seconds[1], "ID": "b",
         "LB": "2", "SM": "x", "json_stats": "x.json", "interleaved": "no"},
        {"output": "./y.bam", "reads1": both[1], "read_group": r"@RG\tID:a\tSM:y"},
        {"output": "x.bam", "reads1": firsts[2], "ID": "c", "LB": "2", "SM": "x"},
    ])  # fmt: skip
    assert batch(world.index_path, sheet) == 0
    group = r"@RG\tID:{}\tLB:{}\tSM:x"
    lanes = [
        [firsts[0], seconds[0], "-R", group.format("a", 1),
         "--lane", group.format("b", 2), firsts[1], seconds[1],
         "--lane", group.format("c", 2), firsts[2], "-o", "x.lanes.bam",
         "--json-stats", "lanes.json"],
        [both[0], "-p", "-R", r"@RG\tID:a\tSM:y", "--lane", r"@RG\tID:a\tSM:y", both[1],
         "-I", "350,40", "-o", "y.lanes.bam"],
    ]  # fmt: skip
    for options in lanes:
        assert main(["map", world.index_path, *options, "-t", "2", "--quiet"]) == 0
    for name in "xy":
        assert content_of(Path(f"{name}.bam")) == content_of(Path(f"{name}.lanes.bam"))
    with pysam.AlignmentFile("x.bam") as file:
        groups = file.header.to_dict()["RG"]
        assert {record.get_tag("RG") for record in file} == {"a", "b", "c"}
    assert [(group["ID"], group["LB"]) for group in groups] == [("a", "1"), ("b", "2"), ("c", "2")]
    stats = [json.loads(Path(name).read_text()) for name in ("x.json", "lanes.json")]
    for key in ("counts", "insert_size"):
        assert stats[0][key] == stats[1][key]


def unaligned(path: Path, reads: str, header: str, group: str) -> str:
    """Write single reads of a FASTQ file as an unaligned BAM file with a read group."""
    with pysam.FastxFile(reads) as file:
        lines = [
            f"{read.name}\t4\t*\t0\t0\t*\t*\t0\t0\t{read.sequence}\t{read.quality}\tRG:Z:{group}\n"
            for read in file
        ]
    sam = path.with_suffix(".sam")
    sam.write_text(f"@HD\tVN:1.6\n{header}\n" + "".join(lines))
    pysam.view("-b", "-o", str(path), str(sam), catch_stdout=False)
    return str(path)


def test_lines_of_bam_have_their_own_read_groups(world: World, tmp_path: Path) -> None:
    parts = thirds(world.first, tmp_path)
    names = ("own1", "own2")
    bams = [
        unaligned(tmp_path / f"{name}.bam", part, f"@RG\tID:{name}\tSM:s", name)
        for name, part in zip(names, parts, strict=False)
    ]
    out = tmp_path / "out.bam"
    rows = [{"output": out, "reads1": bam} for bam in bams]
    rows.insert(1, {"output": out, "reads1": parts[2], "ID": "c", "SM": "s"})
    assert batch(world.index_path, write_sheet(tmp_path / "s.tsv", rows)) == 0
    with pysam.AlignmentFile(str(out)) as file:
        assert {group["ID"] for group in file.header.to_dict()["RG"]} == {"own1", "c", "own2"}
        groups = [record.get_tag("RG") for record in file]
    assert list(dict.fromkeys(groups)) == ["own1", "c", "own2"]


LANES = {
    "no group": ({}, {"ID": ""}, "line 3: has no read group, and lines of one output need one"),
    "no group in the first": ({"ID": "", "SM": ""}, {}, "line 2: has no read group"),
    "one ID": ({}, {"ID": "a", "LB": "x"}, "line 3: read group 'a' is described in another way in "
               ".*line 2; give each"),
    "two samples": ({}, {"SM": "t"}, "line 3: SM is t, and s in .*line 2; an output is one sample"),
    "two samples, one ID": ({}, {"ID": "a", "SM": "t"}, "line 3: SM is t, and s in .*line 2; "),
    "no sample": ({}, {"SM": ""}, "line 3: SM is not given, and s in .*line 2; "),
    "no sample in the first": ({"SM": ""}, {}, "line 3: SM is s, and not given in .*line 2; "),
    "malformed group": ({}, {"ID": "a\xe4"}, "line 3: .*not ASCII"),
    "sample of a BAM": ({}, {"reads1": "u.bam", "ID": "", "SM": ""}, "line 3: SM is other, and s "),
    "group of a BAM": ({}, {"reads1": "u.bam"}, "line 3: u.bam has read groups of its own; drop"),
    "group of one BAM of two": ({}, {"reads1": "u.bam", "reads2": "bare.bam", "ID": ""},
                                "line 3: has no read group"),
    "pipe without group": ({}, {"reads1": "pipe", "ID": "", "SM": ""}, "line 3: has no read group"),
    "no such file": ({}, {"reads1": "none.fq"}, "line 3: none.fq: "),
    "interleaved": ({"interleaved": "yes"}, {"interleaved": "no"}, "line 3: interleaved is no, and "
                    "yes in .*line 2, of the same output out.bam; leave it empty"),
    "interleaved later": ({}, {"interleaved": "yes"}, "line 3: interleaved is yes, and no in "),
    "two files in an interleaved run": ({"interleaved": "yes"}, {"reads2": "3.fq"},
                                        "line 3: two read files cannot be interleaved"),
    "insert size": ({"insert_size": "350"}, {"insert_size": "300"},
                    "line 3: insert_size is 300, and 350 in .*line 2, of"),
    "two insert sizes": ({"insert_size": "350"}, {"insert_size_from": "x.json"},
                         "line 3: insert_size_from is x.json, and not given in .*line 2, of"),
    "statistics": ({}, {"json_stats": "x.json"},
                   "line 3: json_stats is x.json, and not given in .*line 2, of"),
    "options": ({"insert_size": "many"}, {}, "lines 2 and 3: --insert-size many"),
    "output": ({"output": "none/out.bam"}, {"output": "none/out.bam"},
               "lines 2 and 3: .*does not exist"),
}  # fmt: skip


@pytest.mark.parametrize("name", LANES)
def test_lines_of_one_output_that_contradict(
    name: str, world: World, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for target, reads in (("1.fq", world.first), ("2.fq", world.second), ("3.fq", world.both)):
        Path(target).write_bytes(Path(reads).read_bytes())
    unaligned(Path("u.bam"), world.first, "@RG\tID:u\tSM:other", "u")
    unaligned(Path("bare.bam"), world.second, "@CO\tno read group", "none")
    os.mkfifo("pipe")
    first, second, message = LANES[name]
    rows = [
        {"output": "out.bam", "reads1": "1.fq", "ID": "a", "SM": "s"} | first,
        {"output": "out.bam", "reads1": "2.fq", "ID": "b", "SM": "s"} | second,
    ]
    if not rows[1]["ID"]:
        rows[1]["SM"] = ""
    assert batch("no index", write_sheet(Path("s.tsv"), rows)) in (1, 2, 4)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(f"s.tsv, {message}", line)
    assert not Path("out.bam").exists()


def test_a_failing_lane_names_the_lines_of_its_output(
    world: World, tmp_path: Path, capsys: Any
) -> None:
    text = Path(world.second).read_text().splitlines()
    text[4 * 400 + 3] = "I"  # one quality of record 401
    broken = tmp_path / "broken.fq"
    broken.write_text("\n".join(text) + "\n")
    out = tmp_path / "x.bam"
    rows = [
        {"output": out, "reads1": world.first, "ID": "a"},
        {"output": tmp_path / "y.bam", "reads1": world.second},
        {"output": out, "reads1": broken, "ID": "b"},
        {"output": out, "reads1": world.both, "ID": "c"},
    ]
    assert batch(world.index_path, write_sheet(tmp_path / "s.tsv", rows)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"s.tsv, lines 2, 4 and 5 ({out}): {broken}: record 401" in line
    assert line.endswith("0 of 2 outputs are done, and stay")
    assert not list(tmp_path.glob("*.bam"))
