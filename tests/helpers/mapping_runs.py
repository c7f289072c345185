"""Whole mapping runs for tests: a genome, its index and reads, and calls of the mapper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pysam

from tests.helpers.simulate import Read, Sample, make_genome, sample_pairs, write_fasta, write_fastq

if TYPE_CHECKING:
    from mapper.index.index import Index
    from mapper.mapping.stats import RunStats

DATA = Path(__file__).parents[1] / "data"
N_PAIRS = 600


class World(NamedTuple):
    """A genome with its index and reads, shared by the tests of whole runs."""

    genome: dict[str, str]
    index_path: str
    index: Index
    sample: Sample  # pairs with errors, indels, chimeras and foreign mates
    first: str  # FASTQ of first mates, of second mates, of all
    second: str
    both: str

    @property
    def reads(self) -> list[Read]:
        return self.sample.reads


def build_index(fasta: Path, target: Path) -> Index:
    from mapper.index.index import Index

    Index.build(fasta).save(target)
    return Index.open(target)


def build_world(directory: Path) -> World:
    genome = make_genome()
    write_fasta(directory / "genome.fa", genome)
    index = build_index(directory / "genome.fa", directory / "genome.fmw")
    sample = sample_pairs(genome, N_PAIRS, seed=2, chimeras=0.08, foreign=0.03)
    return World(
        genome,
        str(directory / "genome.fmw"),
        index,
        sample,
        write_fastq(directory / "1.fq", sample.reads[::2]),
        write_fastq(directory / "2.fq", sample.reads[1::2]),
        write_fastq(directory / "both.fq", sample.reads),
    )


def thirds(path: str, directory: Path) -> list[str]:
    """Cut a FASTQ file into three."""
    lines = Path(path).read_text().splitlines(keepends=True)
    n = len(lines) // 12 * 4
    parts = [lines[:n], lines[n : 2 * n], lines[2 * n :]]
    paths = [directory / f"{Path(path).stem}.{i}.fq" for i in range(3)]
    for part, target in zip(parts, paths, strict=True):
        target.write_text("".join(part))
    return [str(target) for target in paths]


def map_to(index: Index, output: Path, *reads: str, **options: Any) -> RunStats:
    """Map with options of ``MapJob``; the command line in the header is always the same."""
    from mapper.mapping.job import MapJob
    from mapper.mapping.pipeline import map_reads

    output_format = options.pop("output_format", output.suffix.removeprefix("."))
    return map_reads(index, MapJob(list(reads), str(output), output_format, **options))


def records_of(path: Path) -> list[Any]:
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        return list(file.fetch(until_eof=True))


def lines_of(path: Path) -> list[str]:
    """Return the records as SAM lines."""
    return [record.to_string() for record in records_of(path)]
