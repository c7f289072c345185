"""A large text with mammal-like repeats, made by all cores: 3.1 Gbp in seconds.

Unique sequence (41 % GC) with interspersed families (old short ones, younger long ones truncated
at their 5' end, 150 others), microsatellites, duplications of 5 to 100 kb at 0 to 3 %, and
in each contig an array of 171-base monomers in higher-order repeats, 1 to 2 % apart. Of the kind
of the evaluation kit's synth_genome.py, which makes a FASTA file, one core and minutes for it.
The same arguments give the same text, whatever the number of threads.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from mapper.dna import AMBIGUOUS, ASCII_OF_CODE
from mapper.jit.accelerate import core, driver
from mapper.jit.hashing import splitmix64
from mapper.parallel.map import map_in_threads

PIECE = 1 << 21
POOL, POOL_LEN = 200, 100_000
WEIGHTS = np.cumsum(np.array([0.10 / 285, 0.15 / 1400, 0.12 / 900, 0.015 / 45, 0.05 / 26000]))
WEIGHTS /= WEIGHTS[-1]
CENTROMERE = 50
"""One of so many pieces is an array of satellites."""


@core
def draw(state):
    """Next number of ``[0, 1)``; `state` is uint64 (1,)."""
    state[0] += np.uint64(1)
    return np.float64(splitmix64(state[0], 1) >> np.uint64(11)) / 9007199254740992.0


@core
def draw_below(state, n):
    return np.int64(draw(state) * n)


@core
def unique(out, at, end, state):
    for i in range(at, end):
        x = draw(state)
        out[i] = 1 if x < 0.205 else 2 if x < 0.41 else 0 if x < 0.705 else 3
    return end


@core
def copy_diverged(out, at, end, source, start, stop, reverse, divergence, state):
    """Write a copy with substitutions, and some indels, to ``out[at:end]``; return its end."""
    i = start
    while i < stop and at < end:
        base = 3 - source[stop - 1 - (i - start)] if reverse else source[i]
        i += 1
        if divergence > 0.0:
            x = draw(state)
            if x < 0.85 * divergence:
                base = (base + 1 + draw_below(state, 3)) & 3
            elif x < 0.925 * divergence:
                i += draw_below(state, 4)
                continue
            elif x < divergence:
                out[at] = draw_below(state, 4)
                at += 1
                if at >= end:
                    break
        out[at] = base
        at += 1
    return at


@driver
def fill_piece(out, seed, families, offsets, pool, weights):
    """Fill `out` with one piece; `pool` (n, POOL_LEN) may be empty."""
    state = np.array([seed], np.uint64) << np.uint64(32)
    n = len(out)
    n_families = len(offsets) - 1
    at = 0
    while at < n:
        at = unique(out, at, min(n, at + 1 + np.int64(-590 * np.log(1 - draw(state)))), state)
        kind = np.searchsorted(weights, draw(state), side="right")
        reverse = draw(state) < 0.5
        if kind == 4:
            if len(pool):
                length = min(5000 + np.int64(-22000 * np.log(1 - draw(state))), pool.shape[1])
                start = draw_below(state, pool.shape[1] - length + 1)
                x = draw(state)
                divergence = 0.0 if x < 0.1 else 0.001 + 0.03 * draw(state) * x
                own = pool[draw_below(state, len(pool))]
                at = copy_diverged(
                    out, at, n, own, start, start + length, reverse, divergence, state
                )
            continue
        if kind == 3:
            unit = 1 + draw_below(state, 6)
            for i in range(at, min(n, at + 20 + draw_below(state, 60))):
                out[i] = out[i - unit] if i >= at + unit else 3 * draw_below(state, 2)
                at = i
            at += 1
            continue
        if kind == 0:
            family, keep, divergence = draw_below(state, 12), 1.0, 0.06 + 0.1 * draw(state)
        elif kind == 1:
            family, divergence = 12 + draw_below(state, 6), 0.01 + 0.14 * draw(state)
            keep = 1.0 if draw(state) < 0.06 else 0.03 + 0.3 * draw(state)
        else:
            family = 18 + draw_below(state, n_families - 18)
            divergence, keep = 0.03 + 0.25 * draw(state), draw(state)
        stop = offsets[family + 1]
        start = stop - np.int64((stop - offsets[family]) * keep)
        at = copy_diverged(out, at, n, families, start, stop, reverse, divergence, state)


@driver
def fill_satellites(out, seed, monomer):
    """Fill `out` with copies of a unit of twelve diverged monomers."""
    state = np.array([seed], np.uint64) << np.uint64(32)
    unit = np.empty(2 * 12 * len(monomer), np.uint8)
    size = 0
    for _ in range(12):
        size = copy_diverged(unit, size, len(unit), monomer, 0, len(monomer), False, 0.22, state)
    at = 0
    while at < len(out):
        at = copy_diverged(
            out, at, len(out), unit, 0, size, False, 0.01 + 0.01 * draw(state), state
        )


def make_text(n: int, seed: int, n_threads: int, n_contigs: int = 24) -> np.ndarray:
    """Return a text of `n` bases: uint8 codes, a separator after each of `n_contigs` contigs."""
    rng = np.random.default_rng(seed)
    lengths = [310] * 12 + [6000] * 6 + np.exp(rng.uniform(5, 8.8, 150)).astype(int).tolist()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    families = rng.integers(0, 4, offsets[-1], dtype=np.uint8)
    monomer = rng.integers(0, 4, 171, dtype=np.uint8)
    pool = np.empty((POOL, POOL_LEN), np.uint8)
    no_pool = np.empty((0, POOL_LEN), np.uint8)
    first = seed << 20

    def fill_pool(i: int) -> None:
        fill_piece(pool[i], first + i, families, offsets, no_pool, WEIGHTS)

    text = np.empty(n, np.uint8)

    def fill(i: int) -> None:
        out, own = text[i * PIECE : (i + 1) * PIECE], first + POOL + i
        if i % CENTROMERE == CENTROMERE // 2:
            fill_satellites(out, own, monomer)
        else:
            fill_piece(out, own, families, offsets, pool, WEIGHTS)

    map_in_threads(fill_pool, range(POOL), n_threads)
    map_in_threads(fill, range((n + PIECE - 1) // PIECE), n_threads)
    for end in contig_ends(n, n_contigs):
        text[max(0, end - 5001) : end] = AMBIGUOUS  # a gap, and the separator
    return text


def contig_ends(n: int, n_contigs: int = 24) -> list[int]:
    """Return where each contig ends with its separator."""
    return np.linspace(0, n, n_contigs + 1)[1:].astype(int).tolist()


def contig_names(n_contigs: int = 24) -> list[str]:
    """Return the names of the contigs in the FASTA file."""
    return [f"chr{number}" for number in range(1, n_contigs + 1)]


def write_fasta(text: np.ndarray, path: Path, n_threads: int = 1, n_contigs: int = 24) -> None:
    """Write the contigs of :func:`make_text`, 100 bases a line; each thread writes some."""
    ends = contig_ends(len(text), n_contigs)
    bounds = zip([0, *ends], ends, strict=False)
    contigs = []
    offset = 0
    for name, (start, end) in zip(contig_names(n_contigs), bounds, strict=True):
        head = f">{name}\n".encode()
        contigs.append((offset, head, start, end - 1))
        offset += len(head) + (end - 1 - start) + (end - 1 - start + 99) // 100
    with path.open("wb") as file:
        map_in_threads(
            lambda contig: _write_contig(file.fileno(), text, contig), contigs, n_threads
        )


_LINES = 1 << 17


def _write_contig(descriptor: int, text: np.ndarray, contig: tuple[int, bytes, int, int]) -> None:
    """Write ``text[start:end]``, under its head, at an offset of the file."""
    offset, head, start, end = contig
    offset += _write_at(descriptor, head, offset)
    for at in range(start, end, 100 * _LINES):
        letters = ASCII_OF_CODE[text[at : min(end, at + 100 * _LINES)]]
        whole = len(letters) // 100
        lines = np.full((whole, 101), ord("\n"), np.uint8)
        lines[:, :100] = letters[: 100 * whole].reshape(-1, 100)
        rest = letters[100 * whole :].tobytes()
        data = lines.tobytes() + (rest + b"\n" if rest else b"")
        offset += _write_at(descriptor, data, offset)


def _write_at(descriptor: int, data: bytes, offset: int) -> int:
    """Write all of `data` at an offset; return its length. One call writes 2 GB at most."""
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)
    return written
