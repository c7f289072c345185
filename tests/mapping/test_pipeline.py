"""Whole runs: the same bytes for any batch size and number of threads, and every record valid."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pysam
import pytest

from mapper.errors import InputFormatError, OutputError
from mapper.index import huge_pages
from mapper.mapping import backend, pipeline
from mapper.pair.insert_size import model_from
from mapper.params import BATCH_BASES, MapParams, RecordParams
from mapper.sorting.options import SortOptions
from tests.helpers.mapping_runs import DATA, World, build_index, lines_of, map_to, records_of
from tests.helpers.simulate import Read, interleaved, read_fastq
from tests.naive.sam_check import Checker

LAYOUTS = ("paired", "interleaved", "single")
BATCHES = (4_000, 50_001, BATCH_BASES)


def inputs(world: World, layout: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return read files and options that give the reads in the order of the sample."""
    if layout == "paired":
        return (world.first, world.second), {}
    return (world.both,), {"interleaved": layout == "interleaved"}


@pytest.fixture
def early_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeze the insert size after 200 pairs, so that most batches come after that."""
    monkeypatch.setattr(pipeline, "ESTIMATION_PAIRS", 200)


@pytest.mark.usefixtures("early_estimate")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("suffix", [".bam", ".sam"])
def test_threads_and_batches_do_not_show(world, tmp_path, layout, suffix):
    files, options = inputs(world, layout)
    outputs, sizes = [], []
    for threads, batch_bases in itertools.product((1, 2), BATCHES):
        path = tmp_path / f"{threads}-{batch_bases}{suffix}"
        stats = map_to(
            world.index, path, *files, threads=threads, batch_bases=batch_bases, **options
        )
        outputs.append(path.read_bytes())
        sizes.append((stats.counts, stats.insert_size))
    assert all(output == outputs[0] for output in outputs)
    assert all(size == sizes[0] for size in sizes)
    assert len(lines_of(path)) > len(world.reads)


@pytest.mark.usefixtures("early_estimate")
def test_a_copy_of_the_index_does_not_show(world, tmp_path, monkeypatch):
    copies = []
    use = huge_pages.IndexInUse._use

    def watched(in_use, arrays):
        copies.append(sorted(arrays))
        use(in_use, arrays)

    monkeypatch.setattr(huge_pages.IndexInUse, "_use", watched)
    monkeypatch.setattr(huge_pages, "gives_huge_pages", lambda: True)
    outputs = []
    for least, memory in ((1 << 40, None), (0, 500_000_000), (0, None)):
        monkeypatch.setattr(huge_pages, "LEAST_BYTES", least)
        monkeypatch.setattr(huge_pages, "_LEAST_ARRAY", least)
        path = tmp_path / f"{least}-{memory}.bam"
        map_to(
            world.index, path, world.first, world.second, threads=2, batch_bases=4_000,
            memory=memory,
        )  # fmt: skip
        outputs.append(path.read_bytes())
        assert len(copies) == (least == 0 and memory is None)
    assert {"blocks", "sa_samples", "kmer_starts", "ref_planes"} <= set(copies[0])
    assert all(output == outputs[0] for output in outputs)


@pytest.mark.usefixtures("early_estimate")
def test_threads_and_batches_do_not_show_in_sorted_files(world, tmp_path):
    files = []
    for threads, batch_bases in ((1, BATCH_BASES), (2, 4_000)):
        path = tmp_path / f"{threads}.bam"
        map_to(
            world.index, path, world.first, world.second, threads=threads,
            batch_bases=batch_bases, sort=SortOptions(),
        )  # fmt: skip
        files.append((path.read_bytes(), path.with_name(f"{path.name}.bai").read_bytes()))
    assert files[0] == files[1]
    records = records_of(path)
    keys = [(r.reference_id % (1 << 32), r.reference_start, r.is_reverse) for r in records]
    assert keys == sorted(keys)
    map_to(world.index, tmp_path / "u.bam", world.first, world.second)
    assert Counter(lines_of(path)) == Counter(lines_of(tmp_path / "u.bam"))


def test_batches_of_one_pair(phix, tmp_path):
    for batch_bases in (1, BATCH_BASES):
        path = tmp_path / f"{batch_bases}.sam"
        map_to(phix, path, *PHIX_READS, batch_bases=batch_bases, threads=2)
    assert lines_of(tmp_path / "1.sam") == lines_of(path)


def test_two_files_and_one_interleaved_give_the_same(world, tmp_path):
    for layout in ("paired", "interleaved"):
        files, options = inputs(world, layout)
        map_to(world.index, tmp_path / f"{layout}.bam", *files, **options)
    assert (tmp_path / "paired.bam").read_bytes() == (tmp_path / "interleaved.bam").read_bytes()


def test_a_part_of_the_sample_gives_the_same_with_the_frozen_insert_size(world, tmp_path):
    """Parts of a sample mapped with the insert size of the whole give the records of the whole."""
    model = model_from(350.0, 40.0, 190, 510, 0)
    cut = 4 * len(world.reads) // 10
    whole = tmp_path / "whole.sam"
    map_to(world.index, whole, world.both, interleaved=True, insert_size=model)
    shards = []
    for i, reads in enumerate((world.reads[:cut], world.reads[cut:])):
        path = tmp_path / f"{i}.sam"
        fastq = tmp_path / f"{i}.fq"
        fastq.write_text("".join(f"@{r.name}\n{r.letters}\n+\n{r.quals}\n" for r in reads))
        map_to(world.index, path, str(fastq), interleaved=True, insert_size=model)
        shards += lines_of(path)
    assert shards == lines_of(whole)


RECORDS = {
    "default": RecordParams(),
    "all": RecordParams(all_alignments=True),
    "soft clips, = and X": RecordParams(extended_cigar=True, soft_clip_supplementary=True),
}


@pytest.mark.parametrize("layout", ["paired", "single"])
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_every_record_is_valid(world, tmp_path, layout, record):
    files, options = inputs(world, layout)
    path = tmp_path / "x.bam"
    params = MapParams(record=record)
    map_to(world.index, path, *files, params=params, read_group="@RG\tID:g\tSM:s", **options)
    checker = Checker(world.genome, world.reads, paired=layout == "paired", read_group="g")
    assert checker.check_file(path) == []
    records = records_of(path)
    cigars = "".join(r.cigarstring or "" for r in records)
    assert ("M" in cigars) != record.extended_cigar
    assert "I" in cigars and "D" in cigars and "S" in cigars
    assert any(r.is_secondary for r in records) == record.all_alignments
    assert any(r.has_tag("XA") for r in records) != record.all_alignments
    supplementary = [r for r in records if r.is_supplementary]
    assert len(supplementary) > 10
    hard = {"H" in r.cigarstring for r in supplementary}
    assert hard == {not record.soft_clip_supplementary}
    assert any(r.is_unmapped for r in records)


PHIX_READS = (str(DATA / "phix_R1.fq"), str(DATA / "phix_R2.fq"))


@pytest.fixture(scope="module")
def phix(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build_index(DATA / "phix174.fa", tmp_path_factory.mktemp("phix") / "phix.fmw")


def real_reads(name: str) -> tuple[str, list[str], list[Read]]:
    """Return the reference, the read files, and the reads in order."""
    suffix = ".fq" if name == "phix" else ".fq.gz"
    files = [str(DATA / f"{name}_R{mate}{suffix}") for mate in (1, 2)]
    if name == "phix":
        first, second = (read_fastq(Path(file)) for file in files)
    else:
        first, second = (
            [Read(r.name, r.sequence or "", r.quality or "") for r in pysam.FastxFile(file)]
            for file in files
        )
    fasta = DATA / ("phix174.fa" if name == "phix" else "portiera.fa.gz")
    return str(fasta), files, interleaved(first, second)


# bwa mem 0.7.17 maps 85 of the 90 phiX reads and 3473 of the 3500 of Portiera.
@pytest.mark.parametrize(("name", "least_mapped"), [("phix", 85), ("portiera", 3465)])
def test_real_reads(tmp_path, phix, name, least_mapped):
    fasta, files, reads = real_reads(name)
    index = phix if name == "phix" else build_index(Path(fasta), tmp_path / "x.fmw")
    path = tmp_path / "x.bam"
    map_to(index, path, *files, threads=2)
    with pysam.FastxFile(fasta) as contigs:
        genome = {contig.name: contig.sequence or "" for contig in contigs}
    assert Checker(genome, reads, paired=True).check_file(path) == []
    primary = [r for r in records_of(path) if not r.flag & 0x900]
    assert sum(not r.is_unmapped for r in primary) >= least_mapped
    pysam.quickcheck(str(path))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_statistics_agree_with_the_records(world, tmp_path, layout):
    files, options = inputs(world, layout)
    stats = map_to(world.index, tmp_path / "x.bam", *files, threads=2, **options)
    records = records_of(tmp_path / "x.bam")
    primary = [r for r in records if not r.flag & 0x900]
    assert stats.counts == {
        "reads": len(world.reads),
        "paired": 0 if layout == "single" else len(world.reads),
        "bases": sum(len(read.letters) for read in world.reads),
        "mapped": sum(not r.is_unmapped for r in primary),
        "proper": sum(r.is_proper_pair for r in primary),
        "mapq_30": sum(r.mapping_quality >= 30 for r in primary),
        "records": len(records),
    }
    if layout == "single":
        assert stats.insert_size is None
    else:
        assert stats.insert_size is not None
        assert 340 < stats.insert_size["mean"] < 360
        assert 30 < stats.insert_size["std"] < 50
        assert stats.insert_size["pairs"] > 400


@pytest.mark.parametrize("files", [1, 2])
def test_no_reads_give_a_header_and_no_records(world, tmp_path, files):
    empty = [tmp_path / f"{i}.fq" for i in range(files)]
    for path in empty:
        path.write_text("")
    stats = map_to(world.index, tmp_path / "x.bam", *map(str, empty))
    with pysam.AlignmentFile(str(tmp_path / "x.bam")) as file:
        assert file.references == tuple(world.genome)
        assert list(file.fetch(until_eof=True)) == []
    assert stats.counts.get("reads", 0) == 0
    assert "0 reads" in stats.report()
    assert "seed" in stats.stage_table()


def test_a_lost_read_is_noticed(world, tmp_path, monkeypatch):
    """The last line of defence: a stage that drops a record ends the run without output."""
    whole = pipeline.place_batch

    def dropping(*arguments: Any) -> Any:
        placements, records = whole(*arguments)
        flags = records.flag.copy()
        flags[0] |= 0x800
        return placements, records._replace(flag=flags)

    monkeypatch.setattr(pipeline, "place_batch", dropping)
    with pytest.raises(OutputError, match=r"1200 reads came in and 1199 primary records"):
        map_to(world.index, tmp_path / "x.bam", world.both)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["cut", "align", "finish"])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_task_ends_the_run_without_output(
    world, tmp_path, monkeypatch, step, threads
):
    n_calls = itertools.count()
    owner = backend.CpuBackend if step == "align" else pipeline.Run
    whole = getattr(owner, step)

    def failing(*arguments: Any) -> Any:
        if next(n_calls) == 3:
            raise ZeroDivisionError(step)
        return whole(*arguments)

    monkeypatch.setattr(owner, step, failing)
    for estimation_pairs in (1, 100_000):  # the error comes after the estimate, and during it
        monkeypatch.setattr(pipeline, "ESTIMATION_PAIRS", estimation_pairs)
        n_calls = itertools.count()
        with pytest.raises(ZeroDivisionError, match=step):
            map_to(
                world.index, tmp_path / "x.bam", world.first, world.second, batch_bases=10_000,
                threads=threads,
            )  # fmt: skip
        assert list(tmp_path.iterdir()) == []


def test_bad_input_in_the_middle_ends_the_run_without_output(world, tmp_path):
    text = Path(world.first).read_text().splitlines()
    text[4 * 400 + 3] = "I"  # one quality of record 401
    (tmp_path / "in").mkdir()
    broken = tmp_path / "in" / "broken.fq"
    broken.write_text("\n".join(text) + "\n")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputFormatError, match=r"broken.fq: record 401: 1 quality"):
        map_to(
            world.index, tmp_path / "out" / "x.bam", str(broken), world.second, batch_bases=4_000
        )
    assert list((tmp_path / "out").iterdir()) == []
