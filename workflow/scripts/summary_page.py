"""Tables of samples, units and programs, as a page that needs no other file (Snakemake script)."""

from rule_log import start_log

start_log(globals().get("snakemake"))  # before imports that may fail

import html
import json
import re
from pathlib import Path

from html_tables import NA, read_table, table, write_page, write_table


def count(row: dict[str, str], column: str) -> str:
    return f"{int(row[column]):,}"


def part(row: dict[str, str], column: str, whole: str) -> str:
    """Return a count as percentage of another."""
    return f"{100 * int(row[column]) / int(row[whole]):.2f} %" if int(row[whole]) else "–"


def number(row: dict[str, str], column: str, form: str = "{:.0f}", factor: float = 1) -> str:
    return "–" if row[column] == NA else form.format(factor * float(row[column]))


def sample_cells(row: dict[str, str]) -> dict[str, str]:
    """Return the cells of a sample's line, by their headings."""
    cells = {
        "sample": row["sample"],
        "reads": count(row, "reads"),
        "mapped": part(row, "mapped", "reads"),
        "properly paired": part(row, "properly_paired", "reads"),
        "duplicates": part(row, "duplicates", "reads"),
        "MAPQ 0": part(row, "mapq0", "mapped"),
        "error rate": number(row, "error_rate", "{:.2f} %", 100),
        "mean insert": number(row, "insert_size_mean"),
        "mean depth": row["mean_depth"],
        "breadth": number(row, "breadth", "{:.1f} %", 100),
    }
    for column in row:
        if deep := re.fullmatch(r"breadth_(\d+)x", column):
            cells[f"≥ {deep[1]}×"] = number(row, column, "{:.1f} %", 100)
    return cells


def unit_cells(row: dict[str, str]) -> dict[str, str]:
    """Return the cells of a unit's line, by their headings."""
    size, deviation = number(row, "insert_size_mean"), number(row, "insert_size_sd")
    return {
        "sample": row["sample"],
        "unit": row["unit"],
        "library": row["library"],
        "reads": count(row, "reads"),
        "mapped": part(row, "mapped", "reads"),
        "properly paired": part(row, "properly_paired", "reads"),
        "MAPQ ≥ 30": part(row, "mapq30", "mapped"),
        "insert size of the library": size if size == "–" else f"{size} ± {deviation}",
    }


def versions(
    maps: list[str], stats: list[str], plots: list[str], multiqc: list[str], snakemake_version: str
) -> dict[str, str]:
    """Return the versions of all programs as the files tell that they wrote.

    Several, if jobs of one kind ran with different ones.
    """
    found: dict[str, set[str]] = {}

    def add(program: str, version: str) -> None:
        found.setdefault(program, set()).add(version)

    for path in maps:
        job = json.loads(Path(path).read_text())
        add("fmwave", job["fmwave"])
        for program, version in job.get("versions", {}).items():
            add({"python": "Python", "numpy": "NumPy"}.get(program, program), version)
    in_file = (
        (stats, ("samtools", "htslib"), r"by samtools stats \(([^\s+]+).*?\+htslib-([^\s)]+)\)"),
        (plots, ("Matplotlib",), r"Matplotlib v([\w.]+)"),
        (multiqc, ("MultiQC",), r"MultiQC v([\w.]+)"),
    )
    for paths, programs, pattern in in_file:
        for path in paths:
            match = re.search(pattern, Path(path).read_text())
            for program, version in zip(programs, match.groups() if match else [], strict=False):
                add(program, version)
    add("Snakemake", snakemake_version)
    return {program: ", ".join(sorted(several)) for program, several in found.items()}


def main() -> None:
    """Run as the rule says."""
    files = snakemake.input
    programs = versions(
        *(files.maps, files.stats, files.plots, files.multiqc, snakemake.params.snakemake)
    )
    rows = [{"program": program, "version": version} for program, version in programs.items()]
    write_table(snakemake.output.versions, list(rows[0]), rows)
    sections = (
        ("Samples", table([sample_cells(row) for row in read_table(files.samples)], "samples")),
        ("Units", table([unit_cells(row) for row in read_table(files.units)], "units")),
        ("Programs", table(rows, "text")),
    )
    body = "".join(f"<h2>{name}</h2>\n{text}" for name, text in sections)
    reference = html.escape(snakemake.params.reference)
    write_page(snakemake.output.page, "Samples", f"{body}<p>Reference: {reference}</p>\n")


if "snakemake" in globals():
    main()
