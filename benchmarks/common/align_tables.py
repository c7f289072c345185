"""Tables of ``align_cuda``: rates beside the peers', bars, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common.align_peers import BARS, CORES, GPU, best
from benchmarks.common.harness import earlier, markdown_provenance, save_json, table

PARTS = (
    "call", "host: preparing", "host: waiting for staging", "host: queueing",
    "host: waiting for the device", "host: finishing", "host: closing", "host: pairs left",
    "host: rest", "device: copy in", "device: kernels", "device: waiting", "device: copy out",
)  # fmt: skip

HEADER = (
    "length", "edits", "task", "pairs", "wall, ASCII", "packed", "page-locked", "kernel",
    "left to the CPU", "not optimal", "cores, fmwave", "cores, edlib or pywfa",
    "best GPU peer, wall", "best GPU peer, kernel", "best on 16 cores", "asked, ASCII",
    "asked, packed", "kernel as the peer's",
)  # fmt: skip

EXPLANATION = """\
Millions of pairs a second (medians), k for thousands. *wall* is from host memory to host memory, *kernel* the kernels alone, of one stream,
without the pairs left to the CPU. *not optimal*: share of the distinct pairs whose penalty in the adaptive band ({band[0]} diagonals, every
{band[1]} penalties) is above the exact one; in brackets, from whose search the band cut cells off. *cores*: all {cores} of this run; edlib and
pywfa in a process for each core. *Best peers*: measured elsewhere on the same kind of card and host (`benchmarks/common/align_peers.py`),
exact ones; a peer's CIGAR counts for the score alone. *asked*: what is asked for, and whether the column is there.
"""  # noqa: E501  (one line of the page a line)


def shown(millions: float | None) -> str:
    """Return a rate with three digits."""
    if millions is None:
        return "–"
    if millions >= 100:
        return f"{millions:.0f}"
    return f"{millions:.3g}" if millions >= 1 else f"{1000 * millions:.3g} k"


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %" if part else "0"


def rates_of(run: dict[str, Any]) -> dict[str, float]:
    """Return the millions of pairs a second by what was given, and of the kernels."""
    rates = {what: run["pairs"] / median(s) / 1e6 for what, s in run["seconds"].items()}
    on_device = run["pairs"] - run["pairs_on_cpu"]
    seconds = sum(run["kernels"].values())
    if on_device and seconds:
        rates["kernel"] = on_device / seconds / 1e6
    return rates


def asked(rate: float | None, bar: float | None) -> str:
    """Say what is asked for, and whether it is there."""
    if rate is None or bar is None:
        return ""
    return f"{shown(bar)}: {'yes' if rate >= bar else '**no**'}"


def row_of(run: dict[str, Any]) -> list[str]:
    column, task, rates = (run["length"], run["percent"]), run["task"], rates_of(run)
    peers = [best(GPU, task, column, what) for what in ("wall", "kernel")]
    host = best(CORES, task, column, "wall")
    bars = BARS.get((*column, task), (None, None))
    fastest = max(rates["packed"], rates["page-locked"])
    kernel = rates.get("kernel")
    against = kernel / peers[1][1] if kernel and peers[1] else None
    optimal = "–"
    if "suboptimal" in run:
        optimal = f"{share(run['suboptimal'], run['distinct'])} "
        optimal += f"({share(run['cut'], run['distinct'])})"
    library = run.get("library_rate")
    return [
        f"{run['length']:,}", f"{run['percent']} %", task, f"{run['pairs']:,}",
        *(shown(rates[what]) for what in ("ASCII", "packed", "page-locked")),
        shown(kernel), share(run["pairs_on_cpu"], run["pairs"]), optimal, shown(run["cpu"] / 1e6),
        f"{run['library']} {shown(library / 1e6)}" if library else "–",
        *(f"{peer[0]} {shown(peer[1])}" if peer else "–" for peer in (*peers, host)),
        asked(rates["ASCII"], bars[0]), asked(fastest, bars[1]),
        "" if against is None else f"{against:.2f}×" if against >= 1 else f"**{against:.2f}×**",
    ]  # fmt: skip


def in_order(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return results by length and edits, tasks as they came."""
    return sorted(runs, key=lambda run: (run["length"], run["percent"]))


def lines_of(
    about: dict[str, Any], runs: Sequence[dict[str, Any]], left: Sequence[str]
) -> list[str]:
    """Return the whole page."""
    lines = ["# Pairwise alignment on CUDA", "", *markdown_provenance(about)]
    if about.get("resumed"):
        lines += [f"Parts of it in earlier runs: {', '.join(about['resumed'])}.", ""]
    if about.get("lacking"):
        lines += [f"Not installed there, and left out: {', '.join(about['lacking'])}.", ""]
    if left:
        lines += ["**Not measured, for want of time**: " + "; ".join(left) + ".", ""]
    lines += [EXPLANATION.format(band=about["options"]["band"], cores=about["machine"]["cores"])]
    lines += table(HEADER, [row_of(run) for run in in_order(runs)])
    lines += ["Milliseconds of one more call (the host's thread that queues work; what the streams",
              "of the device did is added up, and overlaps):", ""]  # fmt: skip
    lines += table(
        ["length", "edits", "task", "from", *PARTS],
        [
            [run["length"], f"{run['percent']} %", run["task"], what,
             *(f"{1000 * of.get(part, 0):.1f}" for part in PARTS)]
            for run in in_order(runs)
            for what, of in run["parts"].items()
        ],
    )  # fmt: skip
    return lines


class Report:
    """Results so far, on disk after each."""

    def __init__(self, folder: Path, about: dict[str, Any], *, resume: bool) -> None:
        self.path = folder / "align_cuda.json"
        self.about = about
        self.runs: list[dict[str, Any]] = []
        self.left: list[str] = []
        if resume and self.path.exists():
            before = earlier(self.path, about, ("commit", "versions", "options"))
            self.runs = before["runs"]
            about["resumed"] = [*before["about"].get("resumed", []), before["about"]["date"]]

    def has(self, row: tuple[int, int], task: str) -> bool:
        return any(
            ((run["length"], run["percent"]), run["task"]) == (row, task) for run in self.runs
        )

    def write(self) -> None:
        save_json(
            self.path, {"about": self.about, "runs": self.runs, "left": self.left}
        )  # fmt: skip
        lines = lines_of(self.about, self.runs, self.left)
        self.path.with_suffix(".md").write_text("\n".join(lines).rstrip() + "\n")
