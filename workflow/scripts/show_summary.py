"""Print where the workflow's results are and their headline numbers: show_summary.py RESULTS."""

from __future__ import annotations

import csv
import sys
from pathlib import Path


def percent(part: str, whole: str) -> str:
    return f"{100 * int(part) / int(whole):.2f} %" if int(whole) else "-"


def number(text: str, form: str, factor: float = 1) -> str:
    return "-" if text == "NA" else form.format(factor * float(text))


def main(results: Path) -> None:
    with (results / "summary.tsv").open() as table:
        for row in csv.DictReader(table, delimiter="\t"):
            sample, reads = row["sample"], row["reads"]
            (alignments,) = [
                path
                for path in (results / "mapped" / f"{sample}.{kind}" for kind in ("bam", "cram"))
                if path.exists()
            ]
            size = alignments.stat().st_size / 1000
            print(f"\n{alignments}  ({size:,.0f} kB, index beside it)")
            print(f"  reads            {int(reads):,}")
            print(f"  mapped           {percent(row['mapped'], reads)}")
            print(f"  properly paired  {percent(row['properly_paired'], reads)}")
            print(f"  duplicates       {percent(row['duplicates'], reads)}")
            print(f"  MAPQ 0           {percent(row['mapq0'], row['mapped'])} of the mapped")
            print(f"  error rate       {number(row['error_rate'], '{:.2f} %', 100)}")
            print(f"  mean insert      {number(row['insert_size_mean'], '{:.0f} bp')}")
            print(f"  mean depth       {float(row['mean_depth']):.2f}")
            print(f"  at 10x or more   {100 * float(row['breadth_10x']):.2f} % of the reference")
            print(
                f"  statistics       {results / 'stats' / sample}.{{flagstat,stats}}.txt, "
                ".{idxstats,coverage,depth}.tsv, .markdup.json"
            )
    print(f"\nAll samples in one table: {results / 'summary.tsv'}, units: {results / 'units.tsv'}")
    print(f"Plots: {results / 'plots'}")
    report = results / "report.html"
    if report.exists():
        print(f"The report, for a browser: {report}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
