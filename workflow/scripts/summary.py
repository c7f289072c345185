"""One line per sample out of its statistics, and one per unit (Snakemake script)."""

from rule_log import start_log

start_log(globals().get("snakemake"))  # before imports that may fail

import json
import re
from pathlib import Path

from html_tables import NA, read_table, write_table

COUNTS = {  # column: key in flagstat, which counts empty reads too; stats leaves them out
    "reads": "primary",
    "mapped": "primary mapped",
    "properly_paired": "properly paired",
    "duplicates": "primary duplicates",
}
DEPTHS = (10, 20, 30)
UNIT_COUNTS = {  # column: key in the counts of fmwave map
    "reads": "reads",
    "mapped": "mapped",
    "properly_paired": "proper",
    "mapq30": "mapq_30",
}


def flagstat_counts(path: str) -> dict[str, str]:
    """Return the sums of reads that passed the vendor's filter and reads that failed it, by key."""
    line = re.compile(r"(\d+) \+ (\d+) ([a-z0-9 ]+?)(?: \(.*)?$", re.MULTILINE)
    found = line.findall(Path(path).read_text())
    return {key: str(int(passed) + int(failed)) for passed, failed, key in found}


def stats_numbers(path: str) -> dict[str, str]:
    """Return the measures of a sample from the SN section of a samtools stats file.

    Where nothing is mapped, or nothing is a pair, samtools writes 0 for what has no value.
    """
    rows = (line.split("\t") for line in Path(path).read_text().splitlines())
    found = {row[1].rstrip(":"): row[2] for row in rows if row[0] == "SN"}
    insert_size = found["insert size average"]
    return {
        "mapq0": found["reads MQ0"],
        "error_rate": found["error rate"] if int(found["bases mapped (cigar)"]) else NA,
        "insert_size_mean": insert_size if float(insert_size) else NA,
    }


def depth_and_breadth(path: str) -> dict[str, str]:
    """Return mean depth, and the part of the reference that is covered; duplicates left out."""
    rows = read_table(path)
    lengths = [int(row["endpos"]) - int(row["startpos"]) + 1 for row in rows]
    bases = sum(float(row["meandepth"]) * n for row, n in zip(rows, lengths, strict=True))
    covered = sum(int(row["covbases"]) for row in rows)
    return {
        "mean_depth": f"{bases / sum(lengths):.4g}",
        "breadth": f"{covered / sum(lengths):.4g}",
    }


def breadths(path: str) -> dict[str, str]:
    """Return the part of the reference that has at least each of DEPTHS; duplicates left out."""
    rows = [(int(row["depth"]), int(row["positions"])) for row in read_table(path)]
    length = sum(positions for _, positions in rows)
    deep = {least: sum(n for depth, n in rows if depth >= least) for least in DEPTHS}
    return {f"breadth_{least}x": f"{deep[least] / length:.4g}" for least in DEPTHS}


def unit_row(unit: dict, jobs: list[dict]) -> dict[str, str]:
    """Return the line of a unit from the statistics of its mapping jobs.

    The insert size is the one that all jobs of the library took for usual.
    """
    row = {column: str(unit[column]) for column in ("sample", "unit", "library")}
    for column, key in UNIT_COUNTS.items():
        row[column] = str(sum(job["counts"].get(key, 0) for job in jobs))
    sizes = [job["insert_size"] for job in jobs if job["insert_size"] is not None]
    known = [size for size in sizes if size["mean"]]  # null: too few pairs to tell
    row["insert_size_mean"] = f"{known[0]['mean']:.1f}" if known else NA
    row["insert_size_sd"] = f"{known[0]['std']:.1f}" if known else NA
    return row


def main() -> None:
    """Run as the rule says."""
    files = snakemake.input
    samples = [
        {"sample": sample}
        | {column: flagstat_counts(flagstat)[key] for column, key in COUNTS.items()}
        | stats_numbers(stats)
        | depth_and_breadth(coverage)
        | breadths(depth)
        for sample, flagstat, stats, coverage, depth in zip(
            *(snakemake.params.samples, files.flagstat, files.stats, files.coverage, files.depth),
            strict=True,
        )
    ]
    write_table(snakemake.output.samples, list(samples[0]), samples)
    jobs = iter([json.loads(Path(path).read_text()) for path in files.maps])
    units = [
        unit_row(unit, [next(jobs) for _ in range(unit["parts"])])
        for unit in snakemake.params.units
    ]
    write_table(snakemake.output.units, list(units[0]), units)


if "snakemake" in globals():
    main()
