"""Print where the workflow's results are and their headline numbers: show_summary.py RESULTS."""

from __future__ import annotations

import csv
import sys
from pathlib import Path


def percent(part: str, whole: str) -> str:
    return f"{100 * int(part) / int(whole):.2f} %" if int(whole) else "-"


def main(results: Path) -> None:
    with (results / "summary.tsv").open() as table:
        for row in csv.DictReader(table, delimiter="\t"):
            unit, reads = row["unit"], row["reads"]
            bam = results / "mapped" / f"{unit}.bam"
            print(f"\n{bam}  ({bam.stat().st_size / 1000:,.0f} kB, index beside it)")
            print(f"  reads            {int(reads):,}")
            print(f"  mapped           {percent(row['mapped'], reads)}")
            print(f"  properly paired  {percent(row['properly_paired'], reads)}")
            print(f"  MAPQ 0           {percent(row['mapq0'], row['mapped'])} of the mapped")
            print(f"  error rate       {100 * float(row['error_rate']):.2f} %")
            print(f"  mean insert      {float(row['insert_size_mean']):.0f} bp")
            print(
                f"  statistics       {results / 'stats' / unit}.{{flagstat,stats}}.txt, "
                ".idxstats.tsv, .map.json"
            )
    print(f"\nAll units in one table: {results / 'summary.tsv'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
