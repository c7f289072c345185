"""Statistics of a sample, through pysam (Snakemake script).

flagstat, stats, idxstats, coverage, depths, and of long reads their identity to the reference.

Also the last check of the workflow: the primary records are as many as the reads that the
sample's mapping jobs took in, and each record has a read group. A BAM of unaligned reads brings its
own, of which check_read_groups.py has seen the header alone.
"""

from rule_log import errors_in_one_line, named, start_log

start_log(globals().get("snakemake"))  # before imports that may fail

import json
import re
from collections import Counter
from pathlib import Path

import pysam

alignments = snakemake.input.alignments
reference = ["--reference", snakemake.input.reference] if snakemake.input.reference else []
OPTIONS = {
    "flagstat": [],
    "stats": reference,
    "idxstats": [],
    # Of CRAM, htslib decodes no qualities at -Q 0, the default: their mean would be 255. -1 keeps
    # every base, as 0 does.
    "coverage": ["-Q", "-1", *reference],
}
MAX_DEPTH = 100_000  # and more, in one line of the table
NOT_PRIMARY = 0x904  # unmapped, secondary, supplementary
UNCOUNTED = "UNMAP,SECONDARY,QCFAIL,DUP"  # by samtools coverage


def primary_records(flagstat: str) -> int:
    """Return the primary records, of both quality classes."""
    found = re.search(r"^(\d+) \+ (\d+) primary$", flagstat, re.MULTILINE)
    if found is None:
        raise ValueError(f"{alignments}: flagstat names no primary records")
    return int(found[1]) + int(found[2])


def depth_distribution(length: int) -> str:
    """Return the table of the positions of each depth, of the reads that samtools coverage counts.

    Parameters
    ----------
    length
        Bases of the reference: those that `samtools stats` does not list have depth 0.
    """
    options = ("-F", UNCOUNTED, "-c", f"1,{MAX_DEPTH},1", "--sparse", *reference)
    lines = pysam.stats(*options, alignments).splitlines()
    rows = [line.split("\t")[2:] for line in lines if line.startswith("COV\t")]
    covered = sum(int(positions) for _, positions in rows)
    rows.insert(0, ["0", str(length - covered)])
    return "\n".join(map("\t".join, [["depth", "positions"], *rows])) + "\n"


def identities(is_long: bool) -> str:
    """Return the table of the primary alignments of each identity, in hundredths of a percent.

    That is 1 - de: of the columns of an alignment, a gap counted once, the share of matches. Short
    reads have no de, and no lines here.
    """
    counts: Counter[int] = Counter()
    if is_long:
        name = snakemake.input.reference or None
        with pysam.AlignmentFile(alignments, reference_filename=name) as file:
            for record in file.fetch(until_eof=True):
                if not record.flag & NOT_PRIMARY:
                    counts[round(10_000 * (1 - record.get_tag("de")))] += 1
    rows = [f"{value}\t{n}" for value, n in sorted(counts.items())]
    return "\n".join(["identity\treads", *rows]) + "\n"


def check_each_has_read_group() -> None:
    """End with a message if a record has none."""
    n_without = int(pysam.view("-c", "-e", "![RG]", *reference, alignments))
    if n_without:
        raise ValueError(
            f"{alignments}: {n_without} records have no read group; give one to those "
            "in the bam of the sheet (samtools addreplacerg -m orphan_only)"
        )


def main() -> None:
    """Run as the rule says."""
    if snakemake.params.has_own_groups:
        check_each_has_read_group()
    texts = {name: getattr(pysam, name)(*options, alignments) for name, options in OPTIONS.items()}
    length = sum(int(line.split("\t")[1]) for line in texts["idxstats"].splitlines())
    texts["depth"] = depth_distribution(length)
    texts["identity"] = identities(snakemake.params.is_long)
    n_primary = primary_records(texts["flagstat"])
    n_reads = sum(
        json.loads(Path(path).read_text())["counts"].get("reads", 0)
        for path in snakemake.input.maps
    )
    if n_primary != n_reads:
        raise ValueError(
            f"{alignments}: {n_primary} primary records, of {n_reads} reads that were mapped; "
            "delete this file and run again, and please report it"
        )
    for name, text in texts.items():
        Path(snakemake.output[name]).write_text(text)


with errors_in_one_line(), named(alignments, pysam.SamtoolsError):
    main()
