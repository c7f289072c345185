"""Tables of text in pages that need no other file (imported by the scripts that make them)."""

from __future__ import annotations

import csv
import html
from pathlib import Path

NA = "NA"  # as R and pandas read a number that is not there
STYLE = """<style>
body { font: 14px sans-serif; margin: 1.5em; }
h2 { font-size: 1.1em; margin: 2em 0 0.5em; }
h2:first-of-type { margin-top: 0; }
table { border-collapse: collapse; }
th, td { padding: 0.35em 0.8em; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #64748b; position: sticky; top: 0; background: white; }
th:first-child, td:first-child, .text th, .text td { text-align: left; }
.units th:nth-child(-n+3), .units td:nth-child(-n+3) { text-align: left; }
.jobs th:nth-child(2), .jobs td:nth-child(2), .jobs th:last-child, .jobs td:last-child
{ text-align: left; }
tr:nth-child(odd) td { background: #f1f5f9; }
</style>"""


def read_table(path: str | Path) -> list[dict[str, str]]:
    with Path(path).open() as rows:
        return list(csv.DictReader(rows, delimiter="\t"))


def write_table(path: str | Path, columns: list[str], rows: list[dict[str, str]]) -> None:
    with Path(path).open("w", newline="") as out:
        table = csv.DictWriter(out, columns, delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def table(rows: list[dict[str, str]], kind: str) -> str:
    """Return an HTML table of lines that have the same headings; nothing of no line."""
    if not rows:
        return ""
    lines = [[f"<th>{html.escape(name)}</th>" for name in rows[0]]]
    lines += [[f"<td>{html.escape(cell)}</td>" for cell in row.values()] for row in rows]
    body = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in lines)
    return f'<table class="{kind}">\n{body}\n</table>\n'


def write_page(path: str | Path, title: str, body: str) -> None:
    Path(path).write_text(f"<!DOCTYPE html>\n<title>{title}</title>\n{STYLE}\n{body}")
