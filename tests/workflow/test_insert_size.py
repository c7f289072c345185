"""One insert size for all jobs of a library: records do not depend on how it is cut into units."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pysam
import pytest

from mapper.cli.main import main
from mapper.mapping import pipeline
from tests.helpers.workflow_runs import (
    CONFIG,
    PORTIERA,
    UNIT,
    UNITS_HEADER,
    copied,
    needs_snakemake,
    project,
    records,
    script_module,
    snakemake,
    unaligned,
)

LINES = [gzip.decompress(path.read_bytes()).splitlines(keepends=True) for path in PORTIERA]
N_PAIRS = len(LINES[0]) // 4
FEW = 8  # pairs; too few for an estimate
DUPLICATE = 0x400


def pairs(directory: Path, name: str, start: int, end: int) -> tuple[Path, Path]:
    """Write some of the pairs."""
    paths = directory / f"{name}_R1.fq", directory / f"{name}_R2.fq"
    for path, lines in zip(paths, LINES, strict=True):
        path.write_bytes(b"".join(lines[4 * start : 4 * end]))
    return paths


def of_pairs(path: Path) -> list[str]:
    """Return the records of paired reads, without duplicate flags and tags of unaligned BAM."""
    kept = []
    for line in records(path):
        fields = [field for field in line.split("\t") if not field.startswith("RX:Z:")]
        if int(fields[1]) & 1:
            fields[1] = str(int(fields[1]) & ~DUPLICATE)
            kept.append("\t".join(fields))
    return kept


@pytest.mark.medium
@needs_snakemake
@pytest.mark.timeout(520)  # a busy machine, on which numba has yet to compile
def test_units_and_chunks_of_a_library_give_the_records_of_the_whole(tmp_path):
    """As one unit; as two, one of them in chunks; behind single reads and unaligned BAM.

    A first unit as small as here would by itself call any insert up to 1000 proper.
    """

    def cut(name: str, start: int, end: int) -> str:
        return "\t".join(path.name for path in pairs(tmp_path, name, start, end))

    unaligned(tmp_path / "lone.bam", "many", PORTIERA, single=lambda number: True)
    unaligned(tmp_path / "few.bam", "many", pairs(tmp_path, "few", 0, FEW))
    units = "\n".join(
        [
            "sample\tunit\tfq1\tfq2\tbam\tchunks",
            f"one\ta\t{copied(tmp_path, 'one', *PORTIERA)}",
            f"two\ta\t{cut('two-a', 0, FEW)}",
            f"two\tb\t{cut('two-b', FEW, N_PAIRS)}\t\t2",
            f"many\ta\t{copied(tmp_path, 'single', PORTIERA[0])}",
            "many\tb\t\t\tlone.bam",
            "many\tc\t\t\tfew.bam",
            f"many\td\t{cut('many-d', FEW, N_PAIRS)}\n",
        ]
    )
    samples = "sample\none\ntwo\nmany\n"
    config = CONFIG.replace("phix174.fa", "portiera.fa.gz") + "map: {threads: 1}\n"

    directory = project(tmp_path, config, samples, units)
    run = snakemake(directory, "--until", "finish_sample", "map_sample", timeout=500)

    assert run.returncode == 0, run.stdout
    results = tmp_path / "results"
    one, two, many = (results / "mapped" / f"{name}.bam" for name in samples.split()[1:])
    assert len(records(one)) >= 2 * N_PAIRS
    assert records(two) == records(one)
    assert of_pairs(many) == of_pairs(one)
    assert len(records(many)) >= 4 * N_PAIRS

    sizes = {
        path.name.removesuffix(".map.json"): json.loads(path.read_text())["insert_size"]
        for path in (results / "stats").glob("*.map.json")
    }
    of_whole = sizes["one"]
    assert of_whole["pairs"] > 1000
    assert sizes["many-a.1-of-1"] is None  # single reads
    same = ("two-a.1-of-1", "two-b.1-of-2", "two-b.2-of-2", "many-c.1-of-1", "many-d.1-of-1")
    assert [sizes[part] for part in same] == 5 * [of_whole]

    # No job where one is enough; each is named after the first unit that may have pairs.
    assert {p.name for p in (results / "insert_size").iterdir()} == {"two-a.json", "many-b.json"}
    told = (results / "logs" / "estimate_insert_size" / "many-b.log").read_text()
    assert f"many-c: its first {FEW} pairs\nmany-d: its first {N_PAIRS - FEW} pairs" in told
    assert "map.extra" not in told


@needs_snakemake
def test_each_library_of_a_sample_has_its_own(tmp_path):
    """Of x, two units; of y, one in chunks; of z, one; and single reads of x, which have none."""
    units = UNITS_HEADER
    for unit, library, chunks, mates in (
        ("a", "x", "", 2), ("b", "y", "3", 2), ("c", "x", "", 2), ("d", "z", "", 2),
        ("e", "x", "2", 1),
    ):  # fmt: skip
        cells = copied(tmp_path, unit, *PORTIERA[:mates])
        units += f"phix\t{unit}\t{cells}\t{library}\t{chunks}\n"
    run = snakemake(project(tmp_path, units=units), "--dry-run", "--printshellcmds")
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("rule estimate_insert_size:") == 2
    from_a, from_b = (f"results/insert_size/phix-{unit}.json" for unit in "ab")
    found = {
        part: size[1] if (size := re.search(r"--insert-size-from (\S+)", line)) else None
        for line, part in re.findall(r"(.* -o results/parts/phix-(\S+)\.bam .*)", run.stdout)
    }
    assert found == {
        "a.1-of-1": from_a, "c.1-of-1": from_a,
        "b.1-of-3": from_b, "b.2-of-3": from_b, "b.3-of-3": from_b,
        "d.1-of-1": None, "e.1-of-2": None, "e.2-of-2": None,
    }  # fmt: skip
    inputs = re.findall(r"rule estimate_insert_size:\n    input: (.*)\n", run.stdout)
    reads = sorted(", ".join(line.split(", ")[1:-1]) for line in inputs)  # index first, code last
    assert reads == [
        ", ".join(f"{unit}_R{mate}.fq.gz" for unit in units for mate in (1, 2))
        for units in ("ac", "b")
    ]


@needs_snakemake
def test_a_given_insert_size_is_not_estimated(tmp_path):
    extra = "map: {chunks: 2, extra: '-aI 300,30'}\n"
    run = snakemake(project(tmp_path, CONFIG + extra), "--dry-run")
    assert run.returncode == 0, run.stdout
    assert run.stdout.count(" -aI 300,30\n") == 2
    assert "insert_size_from" not in run.stdout.replace("-", "_")
    assert "estimate_insert_size" not in run.stdout


@pytest.mark.medium
@needs_snakemake
def test_mates_out_of_step_are_told_of_by_the_given_names(tmp_path):
    """The estimate finds them first, in copies of the first reads."""
    text = (tmp_path / "b_R1.fq", tmp_path / "b_R2.fq")
    for path, letters in zip(text, ("x/1 y/1", "x/2 z/2"), strict=True):
        path.write_text("".join(f"@{name}\nACGT\n+\nIIII\n" for name in letters.split()))
    units = UNITS_HEADER + f"phix\tb\t{text[0].name}\t{text[1].name}\t\t\n" + UNIT
    run = snakemake(project(tmp_path, units=units), "--until", "fmwave_map")
    assert run.returncode != 0
    log = (tmp_path / "results" / "logs" / "estimate_insert_size" / "phix-b.log").read_text()
    assert "of b_R1.fq is 'y/1', record 2 of b_R2.fq is" in log
    assert "phix-b_R1.fq" not in log
    assert not (tmp_path / "results" / "parts").exists()


@pytest.fixture(scope="module")
def script():
    return script_module("estimate_insert_size")


def names(path: Path) -> list[str]:
    """Return what distinguishes the reads of a file."""
    if path.suffix in (".bam", ".cram", ".sam"):
        with pysam.AlignmentFile(str(path), check_sq=False) as bam:
            return [f"{r.query_name} {r.flag}" for r in bam.fetch(until_eof=True)]
    text = path.read_bytes()
    return (gzip.decompress(text) if path.suffix == ".gz" else text).decode().splitlines()[::4]


def test_the_first_reads_are_those_that_the_estimate_looks_at(script, tmp_path, monkeypatch):
    """20 pairs among 50 reads, however they lie in units; single reads are passed over."""
    monkeypatch.setattr(script, "ESTIMATION_PAIRS", 20)
    monkeypatch.setattr(script, "ESTIMATION_READS", 50)
    fastq = {n: list(pairs(tmp_path, f"p{n}", 0, n)) for n in (0, 7, 13, 30)}
    packed = [tmp_path / "g_1.fq.gz", tmp_path / "g_2.fq.gz"]
    for path, plain in zip(packed, fastq[30], strict=True):
        path.write_bytes(gzip.compress(plain.read_bytes()))
    bam = {}
    for kind, single in {
        "lone": lambda number: True,
        "pairs": lambda number: False,
        "mixed": lambda number: number % 10 != 0,  # 1 pair in 11 reads
    }.items():
        bam[kind] = tmp_path / f"{kind}.bam"
        unaligned(bam[kind], "s", PORTIERA, single)
    for kind, mode in (("cram", "wc"), ("sam", "w")):
        bam[kind] = tmp_path / f"other.{kind}"
        with (
            pysam.AlignmentFile(str(bam["pairs"]), check_sq=False) as source,
            pysam.AlignmentFile(str(bam[kind]), mode, header=source.header) as target,
        ):
            for record in source.fetch(until_eof=True):
                target.write(record)
    cases = [
        ([fastq[30]], [(40, 20)]),
        ([packed], [(40, 20)]),
        ([fastq[7], fastq[13], fastq[30]], [(14, 7), (26, 13)]),
        ([fastq[7], packed], [(14, 7), (26, 13)]),
        ([fastq[0], fastq[7]], [(14, 7)]),
        ([fastq[0]], [(0, 0)]),
        ([[bam["pairs"]], fastq[7]], [(50, 25)]),
        ([fastq[7], [bam["pairs"]]], [(14, 7), (50, 25)]),
        ([[bam["cram"]]], [(50, 25)]),
        ([[bam["sam"]]], [(50, 25)]),
        ([[bam["mixed"]], fastq[30]], [(50, 5)]),
        ([[bam["lone"]], fastq[7]], [(14, 7)]),
        ([[bam["lone"]]], [(50, 0)]),
    ]
    for number, (units, expected) in enumerate(cases):
        directory = tmp_path / str(number)
        directory.mkdir()
        heads = script.heads({f"u{n}": paths for n, paths in enumerate(units)}, directory)
        assert [(head.n_reads, head.n_pairs) for head in heads] == expected, number
        for head in heads:
            for source, target in zip(units[int(head.unit[1:])], head.paths, strict=True):
                assert target.stem.removesuffix(f"_R{head.paths.index(target) + 1}") == head.unit
                taken, all_names = names(target), names(source)
                assert taken == all_names[: len(taken)]
                assert len(taken) == head.n_reads // len(head.paths)


def test_the_estimate_from_the_first_reads_is_that_of_one_run_on_all(
    script, world, tmp_path, monkeypatch
):
    """Of 600 pairs in two units, the estimate looks at 200 in the first 500 reads."""
    for module in (pipeline, script):
        monkeypatch.setattr(module, "ESTIMATION_PAIRS", 200)
        monkeypatch.setattr(module, "ESTIMATION_READS", 500)
    text = [
        Path(path).read_text().splitlines(keepends=True) for path in (world.first, world.second)
    ]

    def unit(name: str, start: int, end: int, single: Callable | None) -> list[Path]:
        fastq = tmp_path / f"{name}_R1.fq", tmp_path / f"{name}_R2.fq"
        for path, lines in zip(fastq, text, strict=True):
            path.write_text("".join(lines[4 * start : 4 * end]))
        if single is None:
            return list(fastq)
        unaligned(tmp_path / f"{name}-rg.bam", "s", fastq, single)
        return script.head_of_bam(name, tmp_path / f"{name}-rg.bam", 10**6, tmp_path).paths

    def size(heads: list) -> dict:
        stats = tmp_path / "stats.json"
        words = shlex.split(script.command(world.index_path, heads, 1, str(stats), "--quiet"))
        assert words[0] == "fmwave"
        assert main([*words[1:-2], "-o", str(tmp_path / "x.bam")]) == 0
        return json.loads(stats.read_text())["insert_size"]

    found = []
    for first, second, cut in (
        (None, None, 30),
        (None, None, 300),
        (lambda number: False, None, 30),
        (None, lambda number: number % 3 == 0, 30),
        (lambda number: number % 3 != 0, None, 150),  # 100 single reads, 50 pairs
        (lambda number: number % 3 != 0, lambda number: number % 2 == 0, 450),
    ):
        units = {"a": unit("a", 0, cut, first), "b": unit("b", cut, 600, second)}
        directory = tmp_path / str(len(found))
        directory.mkdir()
        found.append(size(script.heads(units, directory)))
        whole = [script.Head(name, paths, 0, 0) for name, paths in units.items()]
        assert found[-1] == size(whole), len(found)
    assert found[0] == found[1] == found[2]  # the same reads
    assert len({json.dumps(size) for size in found}) == 4
    assert all(100 <= size["pairs"] <= 200 for size in found[:5])
    assert 50 < found[5]["pairs"] < 150  # of 500 reads, one in two or three is one of a pair


def test_a_pair_is_not_cut_and_reads_are_as_the_instrument_gave_them(script, tmp_path):
    """Of aligned reads, too: reversed ones turned back, further records of a read left out."""
    path = tmp_path / "aligned.bam"
    header = pysam.AlignmentHeader.from_dict(
        {"HD": {"VN": "1.6"}, "SQ": [{"SN": "c", "LN": 99}], "RG": [{"ID": "g", "SM": "s"}]}
    )
    with pysam.AlignmentFile(str(path), "wb", header=header) as bam:
        for flag in (0, 0x100, 0x53, 0x843, 0x83):
            record = pysam.AlignedSegment(header)
            record.query_name, record.flag = f"r{bool(flag & 1):d}", flag
            record.query_sequence = "AACGT"
            record.query_qualities = pysam.qualitystring_to_array("ABCDE")
            record.reference_id, record.reference_start = 0, 5
            record.cigarstring = "5M"
            record.set_tag("RG", "g")
            bam.write(record)
    for wanted, n_reads, n_pairs in ((1, 1, 0), (2, 3, 1), (3, 3, 1), (9, 3, 1)):
        head = script.head_of_bam("u", path, wanted, tmp_path)
        assert (head.n_reads, head.n_pairs) == (n_reads, n_pairs)
    with pysam.AlignmentFile(str(head.paths[0]), check_sq=False) as bam:
        assert "RG" not in bam.header
        found = [r.to_string().split("\t") for r in bam.fetch(until_eof=True)]
    assert [(r[0], int(r[1]), r[9], r[10]) for r in found] == [
        ("r0", 0x4, "AACGT", "ABCDE"),
        ("r1", 0x4D, "ACGTT", "EDCBA"),
        ("r1", 0x8D, "AACGT", "ABCDE"),
    ]
    assert {tuple(r[2:9]) for r in found} == {("*", "0", "0", "*", "*", "0", "0")}


@pytest.mark.parametrize(
    ("size", "is_told"),
    [(None, True), ({"pairs": 0}, True), ({"pairs": 16}, False)],
)
def test_it_is_told_that_there_is_no_estimate(script, tmp_path, size, is_told):
    stats = tmp_path / "stats.json"
    stats.write_text(json.dumps({"insert_size": size}))
    log = io.StringIO()
    script.tell(log, [script.Head("s-a", [], 14, 7)], stats)
    assert log.getvalue().startswith("s-a: its first 7 pairs\n")
    assert ("any up to 1000 for proper" in log.getvalue()) == is_told


@pytest.mark.parametrize("n_units", [1, 2])
def test_the_command_takes_each_unit_as_a_lane(script, n_units):
    heads = [
        script.Head(unit, [Path(f"my reads/{unit}_R{m}.fq") for m in (1, 2)], 2, 1)
        for unit in itertools.islice("ab", n_units)
    ]
    text = script.command("i.fmw", heads, 3, "s.json", "-k 20")
    first = r"fmwave map i.fmw 'my reads/a_R1.fq' 'my reads/a_R2.fq' -R '@RG\tID:a\tSM:any'"
    second = r" --lane '@RG\tID:b\tSM:any' 'my reads/b_R1.fq' 'my reads/b_R2.fq'"
    options = " --device cpu -t 3 --json-stats s.json -k 20 > /dev/null"
    assert text == first + (second if n_units == 2 else "") + options
