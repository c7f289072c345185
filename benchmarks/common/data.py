"""Reference genomes and simulated reads of the benchmarks, made once with fixed seeds.

    python -m benchmarks.common.data [--data DIR]

Needs the evaluation kit and, for E. coli, the shared data (benchmarks/README.md).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from benchmarks.common import primates, real_genomes
from benchmarks.common.harness import DATA, SHARED, BenchmarkError, kit, reports_errors

SYNTH_SEED = 1


@dataclass(frozen=True)
class DataSet:
    """Simulated reads; ``n`` counts pairs or single reads."""

    name: str
    reference: str
    """Of the shared data ("ecoli_k12"), of ``real_genomes``, or "synth" and a size: "synth20M"."""
    n: int
    length: int
    paired: bool
    seed: int
    snp: float = 0.001
    indel: float = 0.0002
    """Indels of the donor for each base, of 1 to 50 bases."""
    errors: tuple[float, float] = (0.001, 0.01)
    """Substitutions of the instrument, at the first base of a read and at its last."""
    donor: str = ""
    """Genome that the reads come from, if not the reference: a contig of it, or of another species,
    whose places are then those of the alignment of both."""

    @property
    def n_reads(self) -> int:
        return self.n * (2 if self.paired else 1)

    @property
    def prefix(self) -> str:
        return f"{self.name}.{self.reference}.n{self.n}.seed{self.seed}"


@dataclass(frozen=True)
class Files:
    """A data set on disk."""

    reference: Path
    reads: tuple[Path, ...]
    truth: Path
    variants: Path
    """VCF of the donor."""
    repeats: Path | None
    """BED of a synthetic genome's repeats."""


def real_sets(n_pairs: int, n_singles: int) -> dict[str, DataSet]:
    """Return the sets of reads of real sequence, by name."""

    def human(name: str, length: int, paired: bool, seed: int, **options: Any) -> DataSet:
        n = n_pairs if paired else n_singles
        return DataSet(f"human_{name}", "human126", n, length, paired, seed, **options)

    sets = (
        human("pe150", 150, True, 1),
        human("se75", 75, False, 2),
        human("se100", 100, False, 3),
        human("pe100_noisy", 100, True, 4, errors=(0.01, 0.02)),
        human("pe250", 250, True, 5),
        human("pe150_snp5", 150, True, 6, snp=0.05),
        human("se100_snp5", 100, False, 7, snp=0.05),
        DataSet("falciparum_pe150", "falciparum", n_pairs, 150, True, 8),
        human("se50", 50, False, 9),
        human("pe150_sim4", 150, True, 10, snp=0.005, indel=0.0005),
        human("pe150_sim6", 150, True, 11, snp=0.05, indel=0.002),
        human("pe100_sim6", 100, True, 12, snp=0.05, indel=0.002),
        DataSet("human_among_primates", "primates22", n_pairs, 150, True, 13, donor="human22"),
        DataSet("chimp_on_human", "human22", n_pairs, 150, True, 14, donor="chimp22"),
        DataSet("real545_pe150", "real545", n_pairs, 150, True, 15),
    )
    return {data_set.name: data_set for data_set in sets}


def is_real(data_set: DataSet) -> bool:
    """Return True if the reference is to be fetched."""
    return data_set.reference in real_genomes.GENOMES


def data_sets(
    ecoli_pairs: int, ecoli_singles: int, synth_pairs: int, synth_size: str
) -> dict[str, DataSet]:
    """Return the data sets at the given sizes, by name."""
    synth = f"synth{synth_size}"
    sets = (
        DataSet("ecoli_pe150", "ecoli_k12", ecoli_pairs, 150, paired=True, seed=11),
        DataSet("ecoli_se100", "ecoli_k12", ecoli_singles, 100, paired=False, seed=12),
        DataSet(f"{synth.removesuffix('M')}_pe150", synth, synth_pairs, 150, paired=True, seed=13),
    )
    return {data_set.name: data_set for data_set in sets}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the data lie and how large they are."""
    group = parser.add_argument_group("data")
    group.add_argument("--data", type=Path, default=DATA, help="folder of the data [%(default)s]")
    group.add_argument("--ecoli-pairs", type=int, default=1_000_000, help="[%(default)s]")
    group.add_argument("--ecoli-singles", type=int, default=1_000_000, help="[%(default)s]")
    group.add_argument("--synth-pairs", type=int, default=500_000, help="[%(default)s]")
    group.add_argument("--synth-size", default="100M", help="bases, e.g. 20M, 100M [%(default)s]")
    group.add_argument(
        "--real-pairs", type=int, default=500_000, help="of each set of pairs [%(default)s]"
    )
    group.add_argument(
        "--real-singles",
        type=int,
        default=500_000,
        help="of each set of single reads [%(default)s]",
    )


def data_sets_of(options: argparse.Namespace) -> dict[str, DataSet]:
    """Return all data sets, by name, at the sizes of the options."""
    return data_sets(
        options.ecoli_pairs, options.ecoli_singles, options.synth_pairs, options.synth_size
    ) | real_sets(options.real_pairs, options.real_singles)


def run_kit(script: str, *arguments: object) -> None:
    command = [sys.executable, str(kit(script)), *map(str, arguments)]
    print("making:", " ".join(command[1:]), flush=True)
    run = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if run.returncode:
        raise BenchmarkError(f"{script} ended with status {run.returncode}")


def shared_file(path: str) -> Path:
    """Return a file of the shared data; FMWAVE_DATA names their folder."""
    full = Path(os.environ.get("FMWAVE_DATA", SHARED / "data")) / path
    if not full.is_file():
        raise BenchmarkError(
            f"{full} is not there. The shared data are looked for in ../shared/data beside the "
            "checkout, or where FMWAVE_DATA says."
        )
    return full


def open_plain(path: Path) -> IO[bytes]:
    """Open a file for reading, through gzip where the name says so."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def unpack(source: Path, target: Path) -> Path:
    """Write a plain copy of a FASTA file, gzip or not; under its final name when complete."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".part")
        with open_plain(source) as content, partial.open("wb") as plain:
            shutil.copyfileobj(content, plain)
        partial.rename(target)
    return target


def make_reference(name: str, folder: Path) -> Path:
    """Return the FASTA file of a reference, made if it is not there."""
    target = folder / f"{name}.fa"
    synthetic = name.startswith("synth")
    bed = target.with_suffix(".bed")
    if target.exists() and (bed.exists() or not synthetic):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    if synthetic:
        partial = folder / f"{name}.part.fa"
        size = name.removeprefix("synth")
        run_kit("synth_genome.py", partial, "-s", size, "--seed", SYNTH_SEED, "--bed", bed)
        return partial.rename(target)
    if name in real_genomes.GENOMES:
        return unpack(real_genomes.fetch(name, folder), target)
    return unpack(shared_file(f"ref/{name}.fa.gz"), target)


def make(data_set: DataSet, folder: Path) -> Files:
    """Return the files of a data set, made if they are not there or of other options."""
    reference = make_reference(data_set.reference, folder)
    prefix = folder / data_set.prefix
    ends = ("_1.fq.gz", "_2.fq.gz") if data_set.paired else (".fq.gz",)
    files = Files(
        reference=reference,
        reads=tuple(folder / (data_set.prefix + end) for end in ends),
        truth=folder / f"{data_set.prefix}.json",
        variants=folder / f"{data_set.prefix}.vcf",
        repeats=reference.with_suffix(".bed") if data_set.reference.startswith("synth") else None,
    )
    complete = all(path.exists() for path in (*files.reads, files.variants))
    if not (is_made_as(data_set, files.truth) and complete):
        # simulate.py writes the .json last: with it the reads are complete.
        files.truth.unlink(missing_ok=True)
        options: list[object] = ["-n", data_set.n, "-l", data_set.length, "--seed", data_set.seed]
        options += ["--paired"] if data_set.paired else []
        options += ["--snp", data_set.snp, "--vcf", files.variants]
        options += ["--sub-start", data_set.errors[0], "--sub-end", data_set.errors[1]]
        options += ["--indel", data_set.indel]
        donor = make_reference(data_set.donor or data_set.reference, folder)
        run_kit("simulate.py", donor, prefix, *options)
        if data_set.donor and data_set.donor not in primates_of(data_set.reference):
            lift(data_set, folder, files)
    return files


def primates_of(reference: str) -> Sequence[str]:
    """Return the contigs of a genome that is part of the primates' alignment."""
    return real_genomes.ALIGNED.get(reference, ())


def lift(data_set: DataSet, folder: Path, files: Files) -> None:
    """Give reads of another species their places on the reference."""
    alignment = real_genomes.fetch_alignment(folder)
    places = primates.places_of(alignment, data_set.donor, data_set.reference)
    truth = files.truth.read_text()
    files.truth.unlink()  # written again when the reads are complete
    for reads in files.reads:
        primates.lift_reads(reads, places, data_set.reference)
    # Variants of a donor are places of its own.
    header = [line for line in files.variants.read_text().splitlines(True) if line[0] == "#"]
    files.variants.write_text("".join(header))
    files.truth.write_text(truth)


def is_made_as(data_set: DataSet, truth: Path) -> bool:
    if not truth.exists():
        return False
    made = json.loads(truth.read_text())
    wanted = {
        "n": data_set.n,
        "len": data_set.length,
        "paired": data_set.paired,
        "seed": data_set.seed,
        "profile": "illumina",
        "snp": data_set.snp,
        "indel": data_set.indel,
        "sub_start": data_set.errors[0],
        "sub_end": data_set.errors[1],
    }
    return all(made.get(key) == value for key, value in wanted.items())


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser)
    options = parser.parse_args(arguments)
    for data_set in data_sets_of(options).values():
        files = make(data_set, options.data)
        print(data_set.name, files.reference, *files.reads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
