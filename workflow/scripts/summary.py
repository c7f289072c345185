"""One line per sample out of its statistics, as a table and as a page (Snakemake script)."""

import csv
import html
import re
from pathlib import Path

COUNTS = {  # column: key in flagstat, which counts empty reads too; stats leaves them out
    "reads": "primary",
    "mapped": "primary mapped",
    "properly_paired": "properly paired",
    "duplicates": "primary duplicates",
}
NA = "NA"  # as R and pandas read a number that is not there
MEASURES = ("mapq0", "error_rate", "insert_size_mean")
HEADINGS = (
    *("sample", "reads", "mapped", "properly paired", "duplicates", "MAPQ 0", "error rate"),
    *("mean insert", "mean depth", "breadth"),
)
STYLE = """<style>
body { font: 14px sans-serif; margin: 1.5em; }
table { border-collapse: collapse; }
th, td { padding: 0.35em 0.8em; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #64748b; position: sticky; top: 0; background: white; }
th:first-child, td:first-child { text-align: left; }
tr:nth-child(odd) td { background: #f1f5f9; }
</style>"""


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


def depth_and_breadth(path: str) -> tuple[str, str]:
    """Return mean depth, and the part of the reference that is covered; duplicates left out."""
    with Path(path).open() as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    lengths = [int(row["endpos"]) - int(row["startpos"]) + 1 for row in rows]
    bases = sum(float(row["meandepth"]) * n for row, n in zip(rows, lengths, strict=True))
    covered = sum(int(row["covbases"]) for row in rows)
    return f"{bases / sum(lengths):.4g}", f"{covered / sum(lengths):.4g}"


def for_people(row: dict[str, str]) -> list[str]:
    """Return the cells of the page, in the order of its HEADINGS."""

    def percent(part: str, whole: str) -> str:
        return f"{100 * int(part) / int(whole):.2f} %" if int(whole) else "–"

    def number(column: str, form: str, factor: float = 1) -> str:
        return "–" if row[column] == NA else form.format(factor * float(row[column]))

    reads = row["reads"]
    return [
        row["sample"],
        f"{int(reads):,}",
        percent(row["mapped"], reads),
        percent(row["properly_paired"], reads),
        percent(row["duplicates"], reads),
        percent(row["mapq0"], row["mapped"]),
        number("error_rate", "{:.2f} %", 100),
        number("insert_size_mean", "{:.0f}"),
        row["mean_depth"],
        f"{100 * float(row['breadth']):.1f} %",
    ]


def page(rows: list[dict[str, str]]) -> str:
    """Return the table as HTML that needs no other file."""
    lines = [[f"<th>{html.escape(name)}</th>" for name in HEADINGS]]
    lines += [[f"<td>{html.escape(cell)}</td>" for cell in for_people(row)] for row in rows]
    body = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in lines)
    return f"<!DOCTYPE html>\n<title>Samples</title>\n{STYLE}\n<table>\n{body}\n</table>\n"


def main() -> None:
    """Run as the rule says."""
    rows = []
    for sample, flagstat, stats, coverage in zip(
        snakemake.params.samples,
        snakemake.input.flagstat,
        snakemake.input.stats,
        snakemake.input.coverage,
        strict=True,
    ):
        counts = flagstat_counts(flagstat)
        row = {"sample": sample}
        row |= {column: counts[key] for column, key in COUNTS.items()}
        row |= stats_numbers(stats)
        row["mean_depth"], row["breadth"] = depth_and_breadth(coverage)
        rows.append(row)
    with Path(snakemake.output.table).open("w", newline="") as out:
        columns = ["sample", *COUNTS, *MEASURES, "mean_depth", "breadth"]
        table = csv.DictWriter(out, columns, delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    Path(snakemake.output.page).write_text(page(rows))


if "snakemake" in globals():
    main()
