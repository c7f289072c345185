"""flagstat, stats, idxstats and coverage of a sample, through pysam (Snakemake script).

Also the last check of the workflow: the primary records are as many as the reads that the
sample's mapping jobs took in.
"""

from rule_log import errors_in_one_line, named, start_log

start_log(globals().get("snakemake"))  # before imports that may fail

import json
import re
from pathlib import Path

import pysam

alignments = snakemake.input.alignments
reference = ["--reference", snakemake.input.reference] if snakemake.input.reference else []
WITH_SEQUENCES = ("stats", "coverage")  # of CRAM, these decode the bases


def primary_records(flagstat: str) -> int:
    """Return the primary records, of both quality classes."""
    found = re.search(r"^(\d+) \+ (\d+) primary$", flagstat, re.MULTILINE)
    if found is None:
        raise ValueError(f"{alignments}: flagstat names no primary records")
    return int(found[1]) + int(found[2])


def main() -> None:
    """Run as the rule says."""
    texts = {}
    for name in ("flagstat", "stats", "idxstats", "coverage"):
        options = reference if name in WITH_SEQUENCES else []
        texts[name] = getattr(pysam, name)(*options, alignments)
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
