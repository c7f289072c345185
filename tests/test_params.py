"""Choose default sizes of the k-mer table and the suffix array."""

from __future__ import annotations

from mapper.params import IndexParams


def test_default_table_sizes() -> None:
    # Bases of the text → k: a quarter of an entry a base at most, or up to 64 MB.
    expected = {
        0: 0, 1: 1, 100: 4, 29_904: 8, 358_242: 10, 4**10 - 1: 10, 4**10: 11, 4_641_652: 12,
        10**8: 12, 4**14 - 1: 12, 4**14: 13, 3_100_000_000: 14, 2**40: 14,
    }  # fmt: skip
    assert {n: IndexParams().table_kmer_len(n) for n in expected} == expected
    assert IndexParams(kmer_len=5).table_kmer_len(4_641_652) == 5


def test_default_sampling() -> None:
    expected = {0: 1, 4_641_652: 1, 2**24: 1, 2**24 + 1: 4, 3_100_000_000: 4}
    assert {n: IndexParams().sampling(n) for n in expected} == expected
    assert IndexParams(sa_sampling=8).sampling(4_641_652) == 8
