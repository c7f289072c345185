"""Sequence pairs for the tests of the pairwise engines: random, adversarial, from other tools."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from tests.helpers.read_batches import random_letters
from tests.helpers.shared_data import shared_file
from tests.naive.pairwise import RULES, free_ends, penalty_of


def edited(rng: np.random.Generator, letters: str, rate: float, alphabet: str = "ACGT") -> str:
    """Apply ``rate * len(letters)`` edits at random places, a third of each kind."""
    symbols = list(letters)
    for _ in range(int(np.ceil(rate * len(letters)))):
        kind = rng.integers(3)
        if kind == 0 and symbols:
            symbols[rng.integers(len(symbols))] = str(rng.choice(list(alphabet)))
        elif kind == 1:
            symbols.insert(int(rng.integers(len(symbols) + 1)), str(rng.choice(list(alphabet))))
        elif symbols:
            del symbols[rng.integers(len(symbols))]
    return "".join(symbols)


def random_pairs(
    rng: np.random.Generator, n: int, max_len: int, alphabet: str = "ACGT"
) -> list[tuple[str, str]]:
    """Pairs of up to `max_len` symbols that differ by 0 to 60 %, or have nothing in common."""
    pairs = []
    for i in range(n):
        ref = random_letters(rng, int(rng.integers(max_len + 1)), alphabet)
        if i % 8 == 7:
            query = random_letters(rng, int(rng.integers(max_len + 1)), alphabet)
        else:
            query = edited(rng, ref, float(rng.choice([0, 0.02, 0.1, 0.3, 0.6])), alphabet)
        pairs.append((query, ref))
    return pairs


def adversarial_pairs(long: int = 700) -> list[tuple[str, str]]:
    rng = np.random.default_rng(31)
    text = random_letters(rng, long)
    sides = ["", "A", "N", "ACGT", "A" * long, "N" * long, "AC" * (long // 2), text, text[::-1],
             text[: long // 2], text[long // 2 :] + text[: long // 2], "A" + text, text + "A",
             text[:40] + "N" + text[40:]]  # fmt: skip
    return [(a, b) for a in sides for b in sides]


def check_cigars(found, pairs, *, symbols="dna", penalties=(1, 0, 1), span="global") -> None:
    """Assert that every CIGAR fills its span, replays and has its score; free ends are kept."""
    for i, (query, ref) in enumerate(pairs):
        if not found.has_result(i):
            continue
        one = found.pair(i)
        assert one.cigar is not None
        v, end_v, h, end_h = one[3:]
        assert 0 <= v <= end_v <= len(query) and 0 <= h <= end_h <= len(ref)
        assert (v == 0 or h == 0) and (end_v == len(query) or end_h == len(ref))
        free = free_ends(span, ref)
        left = (v, len(query) - end_v, h, len(ref) - end_h)
        assert all(a <= b for a, b in zip(left, free, strict=True)), (left, free)
        part = (query[v:end_v], ref[h:end_h])
        assert penalty_of(one.cigar, *part, RULES[symbols], penalties) == one.score, pairs[i]


def suite_file(name: str) -> Path:
    """Return a file of the pair suites, or skip the test."""
    return shared_file(f"pairs/{name}")


def suite_pairs(name: str = "wfa_utest.seq.gz") -> list[tuple[str, str]]:
    with gzip.open(suite_file(name), "rt") as lines:
        texts = [line.rstrip("\n") for line in lines]
    return [(q[1:], r[1:]) for q, r in zip(texts[::2], texts[1::2], strict=True)]


def fasta_sequence(name: str) -> str:
    path = suite_file(name)
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return "".join(line.strip() for line in text.splitlines() if not line.startswith(">"))
