"""The mappers, how each is called, and where their programs are."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.common.harness import BenchmarkError, Measurement, measure, tail

READ_GROUP = r"@RG\tID:bench\tSM:bench\tPL:ILLUMINA"


@dataclass(frozen=True)
class Mapper:
    """How one tool is called.

    The first word of a command is, or begins with, `program`. In the commands {ref}, {index},
    {threads}, {rg}, {out} and {len} (of the reads) are replaced, {reads} by one path or two,
    {1} and {2} by the first and the second. A command without {out} writes SAM to standard
    output.
    """

    name: str
    program: str
    version: str
    index: str
    pairs: str
    single: str = ""
    """Command for one file of reads, where it differs."""
    suffix: str = ".sam"  # of the output
    indexes_copy: bool = False
    """True if the index is made beside a copy of the FASTA file, which has to stay."""
    per_length: bool = False
    """True if the index is made for reads of one length."""
    path: str = ""
    """The program, if it is not the one on the PATH."""

    @property
    def executable(self) -> str:
        return self.path or self.program

    def version_command(self) -> list[str]:
        return self._fill(self.version, {})

    def index_command(self, ref: Path, index: Path, threads: int, read_len: int) -> list[str]:
        return self._fill(
            self.index, {"ref": ref, "index": index, "threads": threads, "len": read_len}
        )

    def map_command(
        self, index: Path, reads: Sequence[Path], threads: int, out: Path, read_len: int,
        *, sort: bool = False,
    ) -> list[str]:  # fmt: skip
        template = self.single if len(reads) == 1 and self.single else self.pairs
        values = {"index": index, "threads": threads, "out": out, "rg": READ_GROUP,
                  "len": read_len, "1": reads[0], "2": reads[-1]}  # fmt: skip
        words = self._fill(template, values)
        if "{reads}" in words:
            at = words.index("{reads}")
            words[at : at + 1] = [str(path) for path in reads]
        return words + (["--sort"] if sort and self.suffix == ".bam" else [])

    def _fill(self, template: str, values: dict[str, object]) -> list[str]:
        """Split into words, then replace {name}: a value with blanks stays one word."""
        first, *words = template.split()
        for name, value in values.items():
            words = [word.replace(f"{{{name}}}", str(value)) for word in words]
        return [self.executable + first.removeprefix(self.program), *words]


_KNOWN = (
    Mapper(
        name="fmwave",
        program="fmwave",
        version="fmwave --version",
        index="fmwave index {ref} -o {index}",
        pairs="fmwave map {index} {reads} -o {out} -t {threads} -R {rg}",
        suffix=".bam",
    ),
    Mapper(
        name="bwa mem",
        program="bwa",
        version="bwa",
        index="bwa index -p {index} {ref}",
        pairs="bwa mem -t {threads} -R {rg} {index} {reads}",
    ),
    Mapper(
        name="minimap2 -ax sr",
        program="minimap2",
        version="minimap2 --version",
        index="minimap2 -x sr -t {threads} -d {index} {ref}",
        pairs="minimap2 -ax sr -t {threads} -R {rg} {index} {reads}",
    ),
    Mapper(
        name="bowtie2",
        program="bowtie2",
        version="bowtie2 --version",
        index="bowtie2-build -q --threads {threads} {ref} {index}",
        # -X: fragments of 400 ± 80 pass its default of 500.
        pairs="bowtie2 -p {threads} -X 800 --rg-id bench -x {index} -1 {1} -2 {2}",
        single="bowtie2 -p {threads} --rg-id bench -x {index} -U {1}",
    ),
    Mapper(
        name="bwa-mem2",
        program="bwa-mem2",
        version="bwa-mem2 version",
        index="bwa-mem2 index -p {index} {ref}",
        pairs="bwa-mem2 mem -t {threads} -R {rg} {index} {reads}",
    ),
    Mapper(
        name="minibwa",
        program="minibwa",
        version="minibwa version",
        index="minibwa index -t {threads} {ref} {index}",
        pairs="minibwa map -t {threads} {index} {reads}",
    ),
    Mapper(
        name="strobealign",
        program="strobealign",
        version="strobealign --version",
        index="strobealign --create-index -t {threads} -r {len} {index}",
        pairs="strobealign -t {threads} --use-index -r {len} {index} {reads}",
        indexes_copy=True,
        per_length=True,
    ),
    Mapper(
        name="SNAP",
        program="snap-aligner",
        version="snap-aligner",
        index="snap-aligner index {ref} {index} -t{threads}",
        pairs="snap-aligner paired {index} {reads} -t {threads} -o {out}",
        single="snap-aligner single {index} {reads} -t {threads} -o {out}",
    ),
)
MAPPERS = {mapper.name: mapper for mapper in _KNOWN}
USUAL = ("fmwave", "bwa mem", "minimap2 -ax sr")
"""What is compared if nothing else is asked for."""


def add_options(parser: argparse.ArgumentParser, default: Sequence[str] = USUAL) -> None:
    """Add the options that choose mappers and say where their programs are."""
    group = parser.add_argument_group("mappers")
    group.add_argument(
        "--mappers", nargs="+", default=list(default), choices=list(MAPPERS), metavar="NAME",
        help=f"of: {', '.join(MAPPERS)} [{', '.join(default)}]",
    )  # fmt: skip
    group.add_argument(
        "--binary", nargs="+", default=[], metavar="NAME=PATH",
        help="where the program of a mapper is, if not on the PATH; what is named takes part",
    )  # fmt: skip


def chosen(options: argparse.Namespace) -> list[Mapper]:
    """Return the mappers of ``--mappers`` and ``--binary`` that are there; say which are not.

    Raises
    ------
    BenchmarkError
        If ``--binary`` names an unknown mapper or no program, or no mapper is there.
    """
    programs = {}
    for given in options.binary:
        name, _, path = given.partition("=")
        if name not in MAPPERS:
            raise BenchmarkError(f"--binary {given}: known are {', '.join(MAPPERS)}")
        if not shutil.which(path):
            raise BenchmarkError(f"--binary {given}: {path!r} is no program")
        programs[name] = path
    found = []
    for name in dict.fromkeys([*options.mappers, *programs]):
        mapper = replace(MAPPERS[name], path=programs.get(name, ""))
        if shutil.which(mapper.executable):
            found.append(mapper)
        else:
            print(f"{name}: skipped, {mapper.program} is not on the PATH")
    if not found:
        raise BenchmarkError("No mapper to run.")
    return found


def version_of(mapper: Mapper) -> str:
    """Return the first thing like a version number that the tool prints about itself."""
    run = subprocess.run(
        mapper.version_command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    match = re.search(r"\d+\.\d+\S*", run.stdout)
    return match.group() if match else "unknown"


def versions_of(mappers: Sequence[Mapper]) -> dict[str, str]:
    return {mapper.name: version_of(mapper) for mapper in mappers}


def run_mapper(
    mapper: Mapper, index: Path, reads: Sequence[Path], threads: int, out: Path,
    *, read_len: int = 150, sort: bool = False,
) -> tuple[Measurement, Path]:  # fmt: skip
    """Map; returns the cost and the log."""
    log = out.with_suffix(".log")
    command = mapper.map_command(index, reads, threads, out, read_len, sort=sort)
    return measure(command, log, None if str(out) in command else out), log


def index_path(mapper: Mapper, ref: Path, directory: Path) -> Path:
    """Return where :func:`build_index` puts an index."""
    return directory / f"{ref.name}.{mapper.program}"


def build_index(
    mapper: Mapper, ref: Path, directory: Path, threads: int = 1, read_len: int = 150
) -> tuple[Path, Measurement]:
    """Build an index in ``directory``, under the reference's and the mapper's name."""
    index = index_path(mapper, ref, directory)
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / f"{index.name}.log"
    if mapper.indexes_copy:
        shutil.copyfile(ref, index)
    cost = measure(mapper.index_command(ref, index, threads, read_len), log)
    if cost.exit_status:
        raise BenchmarkError(f"{mapper.name}: indexing {ref} failed:\n{tail(log)}")
    return index, cost


def index_bytes(index: Path) -> int:
    """Return what an index takes on disk: all files whose names begin with its own."""
    n_bytes = 0
    for path in index.parent.glob(index.name + "*"):
        if path.is_dir():
            n_bytes += sum(Path(at, name).stat().st_size for at, _, names in os.walk(path)
                           for name in names)  # fmt: skip
        elif path.suffix != ".log":
            n_bytes += path.stat().st_size
    return n_bytes
