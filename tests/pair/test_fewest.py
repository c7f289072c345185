"""The bound for mismatches on diagonals side by side, beside counts base by base."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.pair.fewest import LONGEST, MOST_BY_TWO, least_mismatches
from tests.helpers.read_batches import mutated, packed_reads, random_letters, text_planes
from tests.naive.gotoh import same


@pytest.mark.parametrize("read_len", [1, 63, 64, 65, 128, 150, 192, 220, LONGEST])
def test_bound_for_mismatches(read_len: int) -> None:
    """Anywhere in the text, its ends included, beside other reads, with ambiguous bases."""
    rng = np.random.default_rng(read_len)
    n_exact = 0
    for rate in (0.05, 0.4, 0.9):
        piece = random_letters(rng, read_len, "ACGTACGTACGTN" if rate == 0.4 else "ACGT")
        text = (
            random_letters(rng, 70) + piece + random_letters(rng, int(rng.integers(0, 80)), "ACGTN")
        )
        read = mutated(rng, piece.replace("N", "C"), rate)[:read_len].ljust(read_len, "N")
        _, packed = packed_reads(["ACGT" * 20, read])
        planes = text_planes(text)
        last = len(text) - read_len
        whole = [
            sum(not same(a, b) for a, b in zip(read, text[d:], strict=False))
            for d in range(last + 1)
        ]
        certain = [
            sum(a != b and "N" not in (a, b) for a, b in zip(read, text[d:], strict=False))
            for d in range(last + 1)
        ]
        for first in {0, 5, 63, 64, 70, last, *rng.integers(0, last + 1, 5).tolist()}:
            if first > last:
                continue
            for n in {1, min(64 - first % 64, last - first + 1)}:
                fewest, at_least = min(whole[first : first + n]), min(certain[first : first + n])
                for most in (0, MOST_BY_TWO - 1, MOST_BY_TWO, read_len):
                    found = least_mismatches(
                        packed.planes, int(packed.word_offsets[1]), read_len, planes, first, n,
                        most,
                    )  # fmt: skip
                    assert at_least <= found or most < found
                    assert found <= fewest
                    n_exact += found == fewest
    assert n_exact > 0
