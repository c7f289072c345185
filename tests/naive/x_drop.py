"""Gap-affine extension with X-drop: sets of cells by penalty, from letters alone.

A cell is a state (M, I, D), the symbols of the read and of the reference consumed. Its score is
``match * (i + j) / 2`` less half of its penalty; everything is doubled, so that it is whole.
"""

from __future__ import annotations

from tests.naive.gotoh import Scoring, same


def extension_with_x_drop(read: str, ref: str, scoring: Scoring, x_drop: int) -> tuple[int, bool]:
    """Best score, and True if any cell was dropped.

    In the order of rising penalties; on each diagonal and in each state only the farthest cell of a
    penalty counts. After all cells of a penalty, those go whose score is more than `x_drop` below
    the best score so far. In penalties a mismatch costs ``2 (a + b)``, opening a gap ``2 o``, and
    each of its symbols ``2 e + a``.
    """
    a, b, o, e, _ = scoring
    x, opening, extend = 2 * (a + b), 2 * o, 2 * e + a
    n, m = len(read), len(ref)
    rows: list[dict[str, dict[int, int]]] = []  # by penalty and state: diagonal -> j
    best = -1
    dropped = False
    for s in range(a * (n + m) + 1):
        if a * (n + m) - s <= best:
            break

        def offset(penalty: int, state: str, k: int) -> int:
            return rows[penalty][state].get(k, -1) if penalty >= 0 else -1

        row: dict[str, dict[int, int]] = {"M": {}, "I": {}, "D": {}}
        for k in range(-n, m + 1):
            ins = max(offset(s - opening - extend, "M", k + 1), offset(s - extend, "I", k + 1))
            into = max(offset(s - opening - extend, "M", k - 1), offset(s - extend, "D", k - 1))
            deletion = into + 1 if into >= 0 else -1
            mismatch = offset(s - x, "M", k)
            here = max(mismatch + 1 if mismatch >= 0 else -1, -1)
            if ins >= 0 and ins - k <= n:
                row["I"][k] = ins
            if 0 <= deletion <= m:
                row["D"][k] = deletion
            here = max(here, row["I"].get(k, -1), row["D"].get(k, -1), 0 if s == k == 0 else -1)
            if here < 0 or here > m or here - k > n:
                continue
            while here < m and here - k < n and same(read[here - k], ref[here]):
                here += 1
            row["M"][k] = here
        for k, j in row["M"].items():
            best = max(best, a * (2 * j - k) - s)
        for cells in row.values():
            low = [k for k, j in cells.items() if a * (2 * j - k) - s < best - 2 * x_drop]
            dropped |= bool(low)
            for k in low:
                del cells[k]
        rows.append(row)
        if len(rows) > x + opening + extend and not any(
            cells for kept in rows[-(x + opening + extend) :] for cells in kept.values()
        ):
            break
    return best // 2, dropped
