"""One line per sample out of its statistics (Snakemake script)."""

import csv
import re
from pathlib import Path

COUNTS = {  # column: key in flagstat, which counts empty reads too; stats leaves them out
    "reads": "primary",
    "mapped": "primary mapped",
    "properly_paired": "properly paired",
    "duplicates": "primary duplicates",
}
MEASURES = {  # column: key in the SN section of stats
    "mapq0": "reads MQ0",
    "error_rate": "error rate",  # mismatches / bases mapped
    "insert_size_mean": "insert size average",
}


def flagstat_counts(path: str) -> dict[str, str]:
    """Return the reads that passed the vendor's filter plus those that did not, by key."""
    line = re.compile(r"(\d+) \+ (\d+) ([a-z0-9 ]+?)(?: \(.*)?$", re.MULTILINE)
    found = line.findall(Path(path).read_text())
    return {key: str(int(passed) + int(failed)) for passed, failed, key in found}


def stats_numbers(path: str) -> dict[str, str]:
    """Return the SN section of a samtools stats file, key to value."""
    rows = (line.split("\t") for line in Path(path).read_text().splitlines())
    return {row[1].rstrip(":"): row[2] for row in rows if row[0] == "SN"}


def depth_and_breadth(path: str) -> tuple[str, str]:
    """Return mean depth, and the part of the reference that is covered; duplicates left out."""
    with Path(path).open() as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    lengths = [int(row["endpos"]) - int(row["startpos"]) + 1 for row in rows]
    bases = sum(float(row["meandepth"]) * n for row, n in zip(rows, lengths, strict=True))
    covered = sum(int(row["covbases"]) for row in rows)
    return f"{bases / sum(lengths):.4g}", f"{covered / sum(lengths):.4g}"


with Path(snakemake.output[0]).open("w", newline="") as out:
    table = csv.writer(out, delimiter="\t", lineterminator="\n")
    table.writerow(["sample", *COUNTS, *MEASURES, "mean_depth", "breadth"])
    for sample, flagstat, stats, coverage in zip(
        snakemake.params.samples,
        snakemake.input.flagstat,
        snakemake.input.stats,
        snakemake.input.coverage,
        strict=True,
    ):
        counts, numbers = flagstat_counts(flagstat), stats_numbers(stats)
        cells = [counts[key] for key in COUNTS.values()]
        cells += [numbers[key] for key in MEASURES.values()]
        table.writerow([sample, *cells, *depth_and_breadth(coverage)])
