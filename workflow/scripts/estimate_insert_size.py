"""The insert size of a library, from its units' first pairs (Snakemake script).

``fmwave map`` estimates it from the first pairs of a run. A library that is mapped by several
jobs, of units or of chunks, gets here what one run on all its units would find: a run on the
first reads of its units, in the order of the sheet, as far as that estimate looks. All jobs then
take the model from this run's statistics.

Units without a pair among their first reads count as single reads, which have no insert size.
They are passed over, lest a long one hide the pairs behind it.
"""

from rule_log import errors_in_one_line, named, start_log

start_log(globals().get("snakemake"))  # before imports that may fail

import json
import shlex
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO, cast

import pysam
from isal import igzip, igzip_lib

from mapper.pair.insert_size import ESTIMATION_PAIRS, ESTIMATION_READS

LINES = 4  # of a FASTQ record
ALIGNMENT_FILES = (".bam", ".cram", ".sam")
PAIRED, FIRST, LAST, NOT_PRIMARY = 0x1, 0x40, 0x80, 0x900
UNALIGNED = {True: 0xC, False: 0x4}  # by whether there is a mate


class Head(NamedTuple):
    """The first reads of a unit."""

    unit: str
    paths: list[Path]
    n_reads: int
    n_pairs: int


def head_of_fastq(unit: str, paths: list[Path], n_pairs: int, directory: Path) -> Head:
    """Copy the first pairs of two files of mates, as they are, under names that tell the unit."""
    targets, n_taken = [], 0
    for mate, path in enumerate(paths, start=1):
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
        opened = igzip.open(path, "rb") if is_gzip else path.open("rb")
        targets.append(directory / f"{unit}_R{mate}.fq")
        with (
            named(path, igzip_lib.IsalError),
            cast(BinaryIO, opened) as reads,
            targets[-1].open("wb") as out,
        ):
            head = list(islice(reads, LINES * n_pairs))
            out.writelines(head)
        n_taken = -(-len(head) // LINES)
    return Head(unit, targets, 2 * n_taken, n_taken)


def head_of_bam(unit: str, path: Path, n_reads: int, directory: Path) -> Head:
    """Write the first reads, as the instrument gave them, without read groups and tags.

    fmwave map takes FASTQ and BAM in one run, but no read groups of a file beside given ones.
    """
    target = directory / f"{unit}.bam"
    taken = paired = 0
    half = False  # a pair lacks its mate
    header = pysam.AlignmentHeader.from_dict({"HD": {"VN": "1.6"}})
    with (
        named(path),
        pysam.AlignmentFile(str(path), check_sq=False) as reads,
        pysam.AlignmentFile(str(target), "wb", header=header) as out,
    ):
        for read in reads.fetch(until_eof=True):
            if read.flag & NOT_PRIMARY:
                continue
            if taken >= n_reads and not half:
                break
            has_mate = bool(read.flag & PAIRED)
            record = pysam.AlignedSegment(header)
            record.query_name = read.query_name
            record.flag = UNALIGNED[has_mate] | read.flag & (PAIRED | FIRST | LAST)
            record.query_sequence = read.get_forward_sequence()
            record.query_qualities = read.get_forward_qualities()
            out.write(record)
            taken += 1
            paired += has_mate
            half = has_mate and not half
    return Head(unit, [target], taken, paired // 2)


def heads(units: dict[str, list[Path]], directory: Path) -> list[Head]:
    """Return the first reads of units, until they are as many as the estimate looks at.

    Parameters
    ----------
    units
        The files of each unit, in the order of the sheet: two of FASTQ, or one of BAM, CRAM, SAM.
    directory
        Where to write.

    Returns
    -------
    At least one. Without pairs only if no unit has any.
    """
    found: list[Head] = []
    single: list[Head] = []
    for unit, paths in units.items():
        n_pairs = ESTIMATION_PAIRS - sum(head.n_pairs for head in found)
        if n_pairs <= 0 or sum(head.n_reads for head in found) >= ESTIMATION_READS:
            break
        if paths[0].suffix in ALIGNMENT_FILES:
            head = head_of_bam(unit, paths[0], ESTIMATION_READS, directory)
        else:
            head = head_of_fastq(unit, paths, n_pairs, directory)
        (found if head.n_pairs else single).append(head)
    return found or single[:1]


def command(index: str, heads: list[Head], threads: int, stats: str, extra: str) -> str:
    """Return the shell command of the run on these reads, one lane each."""
    lanes = [(rf"@RG\tID:{head.unit}\tSM:any", map(str, head.paths)) for head in heads]
    (line, files), *more = lanes
    words = ["fmwave", "map", index, *files, "-R", line]
    for line, files in more:
        words += ["--lane", line, *files]
    words += ["--device", "cpu", "-t", str(threads), "--json-stats", stats]
    return f"{shlex.join(words)} {extra} > /dev/null"


def run(command: str, given: dict[Path, Path]) -> None:
    """Run a shell command; its messages name the given files, not the copies of their first reads.

    Parameters
    ----------
    command
        As of :func:`command`.
    given
        By the path of each copy.
    """
    with subprocess.Popen(["bash", "-c", command], stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr or ():
            for copy, path in given.items():
                line = line.replace(str(copy), str(path))
            print(line, end="", flush=True)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def tell(log: TextIO, heads: list[Head], stats: Path) -> None:
    """Log the number of pairs of the estimate, or that there is none."""
    log.write("".join(f"{head.unit}: its first {head.n_pairs} pairs\n" for head in heads))
    size = json.loads(stats.read_text())["insert_size"]
    if size is None or size["pairs"] == 0:
        log.write(
            "Too few pairs lie so that they tell their insert size: all jobs of the library take "
            "any up to 1000 for proper. Give one to all, by map.extra: -I MEAN,SD\n"
        )


def main() -> None:
    """Run as the rule says."""
    files = iter(map(Path, snakemake.input.reads))
    units = {unit: list(islice(files, n)) for unit, n in snakemake.params.units.items()}
    stats = Path(snakemake.output.json)
    with tempfile.TemporaryDirectory(prefix=f".{stats.name}-", dir=stats.parent) as scratch:
        found = heads(units, Path(scratch))
        text = command(
            str(snakemake.input.index), found, snakemake.threads, str(stats), snakemake.params.extra
        )
        given = {}
        for head in found:
            given |= dict(zip(head.paths, units[head.unit], strict=True))
        run(text, given)
        tell(sys.stdout, found, stats)


if "snakemake" in globals():
    with errors_in_one_line():
        main()
