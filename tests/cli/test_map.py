"""``fmwave map``: what each option does to the output."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pysam
import pytest

from mapper import __version__
from mapper.cli.main import main
from mapper.mapping.stats import STAGES
from tests.helpers.mapping_runs import World, lines_of, records_of
from tests.naive.gotoh import parse_cigar
from tests.naive.sam_check import Checker


def run(world: World, output: Path, *options: str, reads: tuple[str, ...] | None = None) -> list:
    """Run ``fmwave map`` on the pairs of `world`, and return the records."""
    reads = (world.first, world.second) if reads is None else reads
    argv = ["map", world.index_path, *reads, "-o", str(output), "-t", "2", "--quiet", *options]
    assert main(argv) == 0
    return records_of(output)


@pytest.fixture(scope="module")
def default(world: World, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the records of a run without options, as SAM lines."""
    path = tmp_path_factory.mktemp("default") / "x.bam"
    run(world, path)
    return lines_of(path)


def primary(records: list[Any]) -> list[Any]:
    return [record for record in records if not record.flag & 0x900]


def check(world: World, path: Path, **options: Any) -> list[str]:
    return Checker(world.genome, world.reads, paired=True, **options).check_file(path)


def header_of(path: Path) -> Any:
    with pysam.AlignmentFile(str(path)) as file:
        return file.header.to_dict()


def test_formats_and_places(world, tmp_path, default, capfdbinary):
    """The format is that of the option, or of the name; standard output is SAM by default."""
    run(world, tmp_path / "x.sam")
    assert lines_of(tmp_path / "x.sam") == default
    assert (tmp_path / "x.sam").read_bytes().startswith(b"@HD\t")
    run(world, tmp_path / "x.txt", "-O", "bam")
    pysam.quickcheck(str(tmp_path / "x.txt"))
    assert lines_of(tmp_path / "x.txt") == default
    capfdbinary.readouterr()
    for options in ([], ["-o", "-"], ["-O", "bam"]):
        argv = ["map", world.index_path, world.first, world.second, "--quiet", *options]
        assert main(argv) == 0
        out, err = capfdbinary.readouterr()
        assert err == b""
        (tmp_path / "stdout").write_bytes(out)
        assert out.startswith(b"\x1f\x8b" if "bam" in options else b"@HD\t")
        assert lines_of(tmp_path / "stdout") == default


def test_the_report_is_three_lines_and_the_stages_are_told_on_demand(world, tmp_path, capfd):
    """The JSON has everything."""
    stats = tmp_path / "x.json"
    argv = ["map", world.index_path, world.first, world.second, "-o", str(tmp_path / "x.bam")]
    capfd.readouterr()
    assert main([*argv, "--json-stats", str(stats), "-t", "1"]) == 0
    lines = capfd.readouterr().err.splitlines()
    start = next(i for i, line in enumerate(lines) if " reads, " in line)
    assert [line.split()[2] for line in lines[start:]] == ["reads,", "size", "s"]
    assert len(json.loads(stats.read_text())["seconds"]["stages"]) == len(STAGES)
    assert main([*argv, "--verbose", "-t", "1"]) == 0
    *report, head = capfd.readouterr().err.partition("µs/read")[0].splitlines()[-4:]
    assert [line.split()[2] for line in report] == ["reads,", "size", "s"]
    assert head.split()[1] == "stage"


def test_header(world, tmp_path):
    path = tmp_path / "a name.bam"
    run(world, path, "-R", r"@RG\tID:run 1\tSM:s")
    header = header_of(path)
    assert header["HD"] == {"VN": "1.6", "SO": "unsorted", "GO": "query"}
    assert header["SQ"] == [{"SN": name, "LN": len(t)} for name, t in world.genome.items()]
    assert header["RG"] == [{"ID": "run 1", "SM": "s"}]
    (program,) = header["PG"]
    assert (program["ID"], program["PN"], program["VN"]) == ("fmwave", "fmwave", __version__)
    assert program["CL"].startswith(f"fmwave map {world.index_path} {world.first} ")
    assert f"-o '{path}'" in program["CL"]


def test_read_group_is_in_every_record(world, tmp_path):
    path = tmp_path / "x.bam"
    run(world, path, "-R", r"@RG\tID:a:b\tSM:s\tPL:ILLUMINA")
    assert check(world, path, read_group="a:b") == []


def test_interleaved_and_single(world, tmp_path, default):
    run(world, tmp_path / "p.bam", "-p", reads=(world.both,))
    assert lines_of(tmp_path / "p.bam") == default
    assert not any(r.is_paired for r in run(world, tmp_path / "s.bam", reads=(world.both,)))


def test_standard_input(world, tmp_path, default):
    kept = os.dup(0)
    with Path(world.both).open("rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        run(world, tmp_path / "x.bam", "-p", reads=("-",))
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert lines_of(tmp_path / "x.bam") == default


def test_all_writes_what_xa_lists(world, tmp_path, default):
    path = tmp_path / "x.bam"
    records = run(world, path, "-a")
    assert check(world, path) == []
    secondary = [r for r in records if r.is_secondary]
    assert secondary and not any(r.has_tag("XA") for r in records)
    shown = {(r.query_name, r.is_read1, r.reference_name, r.reference_start) for r in secondary}
    listed = set()
    run(world, tmp_path / "xa.bam")
    for r in records_of(tmp_path / "xa.bam"):
        for entry in (r.get_tag("XA") if r.has_tag("XA") else "").split(";")[:-1]:
            name, place, _, _ = entry.rsplit(",", 3)
            listed.add((r.query_name, r.is_read1, name, int(place[1:]) - 1))
    assert listed and listed <= shown
    plain = [r.to_string().split("\t")[:11] for r in records if not r.is_secondary]
    assert plain == [line.split("\t")[:11] for line in default]


def test_eqx_says_the_same_as_m(world, tmp_path, default):
    path = tmp_path / "x.bam"
    records = run(world, path, "--eqx")
    assert check(world, path) == []

    def joined(cigar: str) -> str:
        letters = "".join(n * ("M" if op in "=X" else op) for n, op in parse_cigar(cigar))
        runs = []
        for letter in letters:
            if runs and runs[-1][1] == letter:
                runs[-1][0] += 1
            else:
                runs.append([1, letter])
        return "".join(f"{n}{letter}" for n, letter in runs)

    for record, line in zip(records, default, strict=True):
        fields = line.split("\t")
        assert joined(record.cigarstring or "") == fields[5].replace("*", "")
        assert record.reference_start + 1 == int(fields[3])


def test_soft_clips_of_supplementary_records(world, tmp_path, default):
    path = tmp_path / "x.bam"
    records = run(world, path, "-Y")
    assert check(world, path) == []
    assert any(r.is_supplementary for r in records)
    for record, line in zip(records, default, strict=True):
        assert "H" not in (record.cigarstring or "")
        fields = line.split("\t")
        assert (record.cigarstring or "*") == fields[5].replace("H", "S")
        assert len(record.query_sequence) >= len(fields[9])


def test_sort_writes_an_index_that_fetches(world, tmp_path, default):
    path = tmp_path / "x.bam"
    records = run(world, path, "--sort", "--memory", "550M")
    assert sorted(r.to_string() for r in records) == sorted(default)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.bam", "x.bam.bai"]
    assert header_of(path)["HD"]["SO"] == "coordinate"
    with pysam.AlignmentFile(str(path)) as file:
        found = {r.to_string() for r in file.fetch("chr3", 1000, 1500)}
    wanted = {
        r.to_string() for r in records
        if r.reference_name == "chr3" and r.reference_start < 1500
        and (r.reference_end or r.reference_start + 1) > 1000
    }  # fmt: skip
    assert found == wanted != set()


def test_compression_changes_bytes_and_not_records(world, tmp_path, default):
    sizes = []
    for level in ("0", "1", "3"):
        run(world, tmp_path / f"{level}.bam", "--compression", level)
        assert lines_of(tmp_path / f"{level}.bam") == default
        sizes.append((tmp_path / f"{level}.bam").stat().st_size)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


@pytest.mark.parametrize("options", [["--device", "cpu"], ["--device", "auto"], ["-t", "1"],
                                     ["--batch-bases", "5000"], ["--memory", "2G"]])  # fmt: skip
def test_options_that_change_nothing(world, tmp_path, default, options):
    run(world, tmp_path / "x.bam", *options)
    assert lines_of(tmp_path / "x.bam") == default


COUNTS = {"reads", "paired", "bases", "mapped", "proper", "mapq_30", "records"}


def test_statistics(world, tmp_path, capsys):
    path = tmp_path / "x.bam"
    argv = ["map", world.index_path, world.first, world.second, "-o", str(path)]
    assert main([*argv, "--json-stats", str(tmp_path / "x.json"), "--verbose"]) == 0
    report = json.loads((tmp_path / "x.json").read_text())
    assert set(report) == {
        "fmwave", "versions", "counts", "insert_size", "duplicates", "seconds",
        "reads_per_second", "peak_memory_bytes",
    }  # fmt: skip
    assert report["fmwave"] == __version__
    assert report["versions"] == {
        "python": platform.python_version(), "numba": numba.__version__, "numpy": np.__version__,
    }  # fmt: skip
    assert set(report["counts"]) == COUNTS
    assert set(report["insert_size"]) == {"mean", "std", "low", "high", "pairs"}
    assert set(report["seconds"]) == {
        "wall", "start", "compile", "writing", "stages", "stages_cpu",
    }  # fmt: skip
    assert set(report["seconds"]["stages"]) == set(report["seconds"]["stages_cpu"]) == set(STAGES)
    numbers = [report["reads_per_second"], report["peak_memory_bytes"], report["seconds"]["wall"]]
    assert all(number > 0 for number in numbers)
    counts, records = report["counts"], records_of(path)
    heads = primary(records)
    assert counts["records"] == len(records)
    assert counts["reads"] == counts["paired"] == len(heads) == len(world.reads)
    assert counts["mapped"] == sum(r.is_mapped for r in heads)
    assert counts["proper"] == sum(r.is_proper_pair for r in heads)
    err = capsys.readouterr().err
    assert f"{counts['reads']} reads, {counts['mapped']} mapped (" in err
    assert f"{counts['proper']} in proper pairs" in err
    assert f"insert size {report['insert_size']['mean']:.1f} ± " in err
    assert all(f"{stage} " in err for stage in STAGES)


def test_given_insert_size_is_the_model(world, tmp_path, default):
    def inserts(path: Path, *options: str) -> tuple[dict[str, float], set[int]]:
        json_path = path.with_suffix(".json")
        records = run(world, path, "--json-stats", str(json_path), *options)
        proper = {abs(r.template_length) for r in primary(records) if r.is_proper_pair}
        return json.loads(json_path.read_text())["insert_size"], proper

    model, proper = inserts(tmp_path / "a.bam", "-I", "350,40")
    assert model == {"mean": 350.0, "std": 40.0, "low": 190, "high": 510, "pairs": 0}
    assert proper and max(proper) <= 510 + 24  # an insertion of up to 12 in each mate
    model, narrow = inserts(tmp_path / "b.bam", "-I", "350,40,380,320")
    assert (model["low"], model["high"]) == (320, 380)
    assert narrow and max(narrow) <= 380 + 24 < max(proper)
    model, _ = inserts(tmp_path / "c.bam", "-I", "400")
    assert model == {"mean": 400.0, "std": 40.0, "low": 240, "high": 560, "pairs": 0}
    model, _ = inserts(tmp_path / "d.bam")
    exact = f"{model['mean']},{model['std']},{model['high']},{model['low']}"
    run(world, tmp_path / "e.bam", "-I", exact)
    assert lines_of(tmp_path / "e.bam") == default


def test_insert_size_of_single_reads_is_told_to_be_useless(world, tmp_path, capsys):
    run(world, tmp_path / "x.bam", "-I", "300", reads=(world.first,))
    assert "--insert-size has no effect" in capsys.readouterr().err


def scores(records: list[Any]) -> list[int]:
    return [r.get_tag("AS") for r in records if not r.is_unmapped]


def without_scores(record: Any) -> list[str]:
    fields = record.to_string().split("\t")
    return [field for field in fields if not field.startswith(("AS:", "XS:"))]


def cigars(records: list[Any]) -> str:
    return "".join(r.cigarstring or "" for r in records)


def test_scores(world, tmp_path):
    """Each score option moves the output the way it should."""
    reads = (world.both,)

    def mapped(*options: str) -> list[Any]:
        return run(world, tmp_path / "x.bam", "--eqx", *options, reads=reads)

    plain = mapped()
    unbound = mapped("-L", "0")
    assert cigars(unbound).count("S") > cigars(plain).count("S")
    assert cigars(mapped("-L", "100")).count("S") < cigars(plain).count("S")
    assert cigars(mapped("-G", "40")).count("I") < cigars(plain).count("I")
    assert cigars(mapped("-E", "40")).count("D") < cigars(plain).count("D")
    assert cigars(mapped("-B", "1", "-L", "0")).count("S") < cigars(unbound).count("S")
    strict = mapped("-T", "100")
    assert min(scores(strict)) >= 100 > min(scores(plain))
    assert sum(r.is_unmapped for r in strict) > sum(r.is_unmapped for r in plain)


def test_the_match_score_scales_all_others(world, tmp_path):
    """Doubled scores, by -A or by every option, change only the scores in the records."""
    given = ["-B", "8", "-G", "12", "-E", "2", "-L", "10", "-T", "60", "-U", "34"]
    plain = run(world, tmp_path / "plain.bam")
    for options in (["-A", "2"], ["-A", "2", *given]):
        doubled = run(world, tmp_path / "doubled.bam", *options)
        assert scores(doubled) == [2 * score for score in scores(plain)]
        assert [without_scores(r) for r in doubled] == [without_scores(r) for r in plain]


def test_unpaired_penalty_and_seeds(world, tmp_path, default):
    proper = []
    for penalty in ("0", "17", "100"):
        path = tmp_path / f"{penalty}.bam"
        run(world, path, "-U", penalty)
        assert check(world, path) == []
        proper.append(sum(r.is_proper_pair for r in primary(records_of(path))))
    assert proper == sorted(proper)
    for options in (["-k", "12"], ["-k", "31"], ["-c", "1"]):
        path = tmp_path / "seeds.bam"
        run(world, path, *options)
        assert check(world, path) == []
        assert sum(not r.is_unmapped for r in records_of(path)) > 0.95 * len(default)


def test_progress_and_report_are_silent_when_asked(world, tmp_path, capsys):
    run(world, tmp_path / "x.bam")
    assert capsys.readouterr() == ("", "")
