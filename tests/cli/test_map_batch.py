"""``fmwave map --batch``: one process, and the same outputs as of one run for each sample."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from mapper.cli import map_sheet
from mapper.cli.main import main
from mapper.errors import MapperError
from mapper.io.reference_fasta import check_reference
from mapper.mapping import pipeline
from mapper.mapping import pipeline as run
from mapper.mapping.session import Session
from tests.helpers.mapping_runs import World, lines_of

COLUMNS = ("output", "reads1", "reads2", "interleaved", "ID", "SM", "insert_size", "json_stats")


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
    "same output": ("output\treads1\na.bam\tr.fq\n./a.bam\ts.fq\n", "line 3: .*a.bam is written "
                    "by .*line 2 already"),
    "same reads": ("output\treads1\na.bam\tr.fq\nb.bam\tr.fq\n", "line 3: .*r.fq is read by "),
    "statistics": ("output\treads1\tjson_stats\na.bam\tr.fq\t\nb.bam\ts.fq\ta.bam\n",
                   "line 3: .*a.bam is written by "),
    "read, written": ("output\treads1\na.bam\tr.fq\nr.fq\ts.fq\n",
                      "line 3: .*r.fq is written, and read by .*line 2"),
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
    assert line.endswith("1 of 3 lines are done, and their outputs stay")
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
    assert "line 2" in err and "0 of 1 lines are done, and their outputs stay" in err


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
