"""Put tables of committed results into the documentation.

    python -m benchmarks.common.document benchmarks/results/{compare,real_reads,variants}.json
    python -m benchmarks.common.document benchmarks/results/index_trade_off.json

Each table stands in docs/*.md between ``<!-- table NAME -->`` and ``<!-- end -->``; what is
between them is replaced. Names: compare-accuracy, real_reads, variants, index_trade_off (with its
plot). Of several results of one kind the last given counts.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import real_reads, variants
from benchmarks.common import compare_tables, harness
from benchmarks.studies import index_trade_off

DOCS = harness.ROOT / "docs"


def tables_of(path: Path) -> dict[str, list[str]]:
    """Return the tables that a result file has for the documentation, by name."""
    report: dict[str, Any] = json.loads(path.read_text())
    source = [f"From `benchmarks/results/{path.with_suffix('.md').name}`.", ""]
    if path.name.startswith("compare"):
        return {"compare-accuracy": source + compare_tables.accuracy_lines(report)}
    if path.name.startswith("real_reads"):
        return {"real_reads": source + real_reads.result_lines(report)}
    if path.name.startswith("variants"):
        return {"variants": source + variants.result_lines(report)}
    if path.name.startswith("index_trade_off"):
        return {"index_trade_off": source + index_trade_off.in_docs(report)}
    raise harness.BenchmarkError(
        f"{path.name}: results of compare, real_reads, variants or index_trade_off are expected"
    )


def fill(text: str, tables: dict[str, list[str]]) -> str:
    """Replace what is between the marks of each table."""
    for name, lines in tables.items():
        marks = rf"(<!-- table {re.escape(name)} -->\n).*?(<!-- end -->)"
        body = "\n".join(lines).strip("\n") + "\n"
        text = re.sub(marks, r"\g<1>" + body.replace("\\", r"\\") + r"\g<2>", text, flags=re.S)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the tables of every page; 1 if a result cannot be used."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT.json")
    options = parser.parse_args(arguments)
    tables: dict[str, list[str]] = {}
    try:
        for path in options.results:
            tables |= tables_of(path)
    except (OSError, ValueError, harness.BenchmarkError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for page in sorted(DOCS.glob("*.md")):
        before = page.read_text()
        after = fill(before, tables)
        if after != before:
            page.write_text(after)
            print(f"written: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
