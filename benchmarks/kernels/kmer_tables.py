"""Tables of `kmer_seeding`."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import table


def lines_of(report: dict[str, Any]) -> list[str]:
    """Return the rates and the paper's sets in markdown."""
    own = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [
        f"# k-mer seeding: {report['reference']}", "",
        f"Commit {report['commit']}; {report['gpu']}; {own['cpu']}, {own['cores']} cores; "
        f"{versions}. {report['text_bases']:,} bases.", "",
        "k-mers/s, both strands searched, all hits located and sorted. Dependent random 4-byte "
        f"reads of the same card: {report['random_reads_per_s'] / 1e9:.1f} G/s. Backward search "
        "alone (no table, no locating) of 20-mers in 3.1 Gbp, measured earlier on a card of this "
        "kind: 2.10 G/s in plain numba.cuda, 1.94 G/s in CUDA C++ with 128-bit loads.", "",
    ]  # fmt: skip
    if report["rates"]:
        names = ["kernel", "device"]
        names += [n for n in next(iter(report["rates"].values())) if n.startswith("transfers")]
        lines += table(
            ["k-mers", *names, "hits"],
            [
                [what, *(f"{rates[name] / 1e6:,.0f} M" for name in names), f"{rates['hits']:,}"]
                for what, rates in report["rates"].items()
            ],
        )
    if report.get("paper_sets"):
        first = report["paper_sets"][0]
        rows = [[shown(value) for value in row.values()] for row in report["paper_sets"]]
        lines += table(list(first), rows)
    return lines


def shown(value: Any) -> str:
    """Return a value of a set: seconds to the millisecond, counts in groups of three."""
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
