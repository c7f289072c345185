"""What other tools reach at pairwise alignment, and what is asked of this one.

Measured for this project in one run on one H200 and the 16 cores of its host (driver 580, CUDA
13.0), pairs of the generator of ``benchmarks.align_cpu`` and penalties 2,3,1; from
``gpu-peers.md`` of the shared notes, which has versions and conditions. Only tools that find the
same exact result stand here: not Scrooge (a heuristic), and not nvbio's Myers (one word a band,
the text's ends free), whose kernel is the fastest of all.
"""

from __future__ import annotations

from typing import NamedTuple

COLUMNS = tuple((length, percent) for length in (150, 300, 1000, 10_000) for percent in (2, 5, 10))
"""Length in bases and edits in percent of what follows."""

EDIT, EDIT_CIGAR = "edit distance", "edit distance + CIGAR"
AFFINE, AFFINE_CIGAR = "affine penalty", "affine + CIGAR"
BAND, BAND_CIGAR = "affine penalty, adaptive", "affine + CIGAR, adaptive"

Rate = float | None
"""Millions of pairs a second; None where the tool did not run."""


class Rates(NamedTuple):
    """A tool, and its millions of pairs a second of each of COLUMNS."""

    tool: str
    task: str
    wall: tuple[Rate, ...]
    kernel: tuple[Rate, ...] = ()


_NONE = (None,) * 4

GPU = (
    Rates(
        "WFA-GPU", AFFINE,
        (16.3, 15.8, 14.9, 10.6, 10.4, 6.43, 3.34, 1.94, 0.626, 0.0907, 0.032, 0.0119),
        (103, 46.8, 25.9, 51.2, 22.7, 7.96, 10.1, 2.33, 0.659, 0.119, 0.0352, 0.0123),
    ),
    Rates(
        "WFA-GPU", AFFINE_CIGAR,
        (12, 7, 6.47, 6.07, 4.36, 2.35, 2.39, 1.07, 0.333, 0.0501, 0.016, 0.00474),
        (77.2, 32.2, 16.3, 37.8, 14.3, 4.81, 6.66, 1.38, 0.378, 0.0688, 0.0184, 0.00508),
    ),
    Rates(
        "eWFA-GPU", EDIT_CIGAR,
        (36.5, 32, 33, 18.5, 18.3, 17.3, 6.17, 5.93, *_NONE),
        (397, 263, 182, 212, 144, 95.2, 65.9, 40.3, *_NONE),
    ),
    Rates(
        "GenomeWorks", EDIT_CIGAR,
        (2.61, 2.24, 1.93, 1.72, 1.5, 1.17, 0.792, 0.643, 0.45, 0.0462, 0.0431, 0.0267),
        (13.7, 11.3, 7.69, 7.33, 6.65, 4.7, 2.18, 1.94, 1.4, 0.176, 0.163, 0.0906),
    ),
    Rates(
        "GASAL2", AFFINE,
        (None, 40.7, *_NONE, None, 1.71, *_NONE),
        (None, 91.2, *_NONE, None, 1.96, *_NONE),
    ),
    Rates(
        "nvbio", AFFINE,
        (None, 21.6, None, None, 7.07, None, None, 0.695, *_NONE),
        (None, 34.7, None, None, 8.96, None, None, 0.758, *_NONE),
    ),
    Rates(
        "nvbio", EDIT,
        (None, 26.1, None, None, 8.73, None, None, 0.919, *_NONE),
        (None, 47.2, None, None, 11.8, None, None, 1.05, *_NONE),
    ),
)  # fmt: skip

CORES = (
    Rates("WFA2-lib", EDIT,
          (53.8, 23, 16.1, 22, 12.1, 5.2, 6.94, 2.52, 0.97, 0.273, 0.0861, 0.0214)),
    Rates("WFA2-lib", EDIT_CIGAR,
          (43.8, 17.8, 12.3, 17.1, 10.1, 4.28, 5.98, 2.2, 0.906, 0.264, 0.0846, 0.0188)),
    Rates("WFA2-lib", AFFINE,
          (18, 4.73, 2.91, 4.94, 2.51, 0.925, 1.5, 0.432, 0.142, 0.0249, 0.00541, 0.00144)),
    Rates("WFA2-lib", AFFINE_CIGAR,
          (17.9, 5.21, 2.67, 4.91, 2.45, 0.825, 1.31, 0.361, 0.109, 0.0159, 0.00267, 0.000604)),
    Rates("edlib", EDIT,
          (5.74, 5.31, 5.65, 2.22, 2.84, 2.37, 0.772, 0.874, 0.446, 0.0321, 0.0349, 0.0179)),
    Rates("edlib", EDIT_CIGAR,
          (1.31, 1.24, 1.31, 0.559, 0.695, 0.554, 0.183, 0.208, 0.145, 0.00564, 0.00597, 0.00387)),
)  # fmt: skip
"""All 16 cores of the host, from C."""

BARS = {
    (150, 2, EDIT_CIGAR): (150, 150), (1000, 2, EDIT_CIGAR): (25, 50),
    (150, 2, AFFINE_CIGAR): (100, 100), (150, 5, AFFINE_CIGAR): (50, 50),
    (1000, 5, AFFINE_CIGAR): (5, 5), (10_000, 5, AFFINE_CIGAR): (0.05, 0.05),
    (10_000, 5, BAND_CIGAR): (0.2, 0.2),
}  # fmt: skip
"""Millions of pairs a second asked for, from host to host: from ASCII, and packed."""


def best(
    tools: tuple[Rates, ...], task: str, column: tuple[int, int], what: str
) -> tuple[str, float] | None:
    """Return the fastest tool for a task, and its millions of pairs a second; None without one.

    A tool that finds the CIGAR has found the score: it counts for the score alone too. An
    adaptive band is compared with what tools do that are exact.

    Parameters
    ----------
    column
        One of COLUMNS; there is no figure for others.
    what
        ``wall`` or ``kernel``.
    """
    if column not in COLUMNS:
        return None
    exact = {BAND: AFFINE, BAND_CIGAR: AFFINE_CIGAR}.get(task, task)
    tasks = {exact, {EDIT: EDIT_CIGAR, AFFINE: AFFINE_CIGAR}.get(exact, exact)}
    rates = [
        (rate, tool.tool)
        for tool in tools
        if tool.task in tasks and (rate := getattr(tool, what)[COLUMNS.index(column)]) is not None
    ]
    return max(rates)[::-1] if rates else None
