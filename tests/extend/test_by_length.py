"""Parameters that change with the length of a read."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.extend.by_length import by_length, shortness
from mapper.jit.accelerate import driver
from mapper.mapping.stages import align_long_reads
from mapper.mapping.stats import RunStats
from mapper.params import PRESETS, SHARES, MapParams
from mapper.seed.exact import resolve_all
from tests.helpers.read_batches import genome_of, mutated, random_letters, reads_of
from tests.helpers.stage_batches import index_of


@driver
def _shortness(read_len):
    return shortness(read_len)


@driver
def _by_length(of_short, of_long, read_len):
    return by_length(of_short, of_long, read_len)


def test_halvings() -> None:
    assert _shortness(1) == _shortness(100) == SHARES
    assert [_shortness(100 + k * 1900) for k in range(12)] == [SHARES >> k for k in range(11)] + [0]
    shares = [_shortness(n) for n in range(100, 30_000)]
    assert shares == sorted(shares, reverse=True)
    # minibwa's own share, within what straight lines leave.
    own = [SHARES * 2 ** (-(n - 100) / 1900) for n in range(100, 30_000)]
    assert max(abs(a - b) for a, b in zip(shares, own, strict=True)) < 0.05 * SHARES


@pytest.mark.parametrize("read_len", [1, 100, 2_000_000, (1 << 27) - 1])
def test_values_at_the_ends(read_len: int) -> None:
    assert _by_length(50, 5, read_len) == (50 if read_len <= 100 else 5)


@pytest.mark.parametrize(("read_len", "expected"), [(1200, 12), (12_000, 6)])
def test_more_copies_of_a_repeat_are_aligned_for_shorter_reads(
    read_len: int, expected: int
) -> None:
    """A read of one of twelve copies: five compete with the best one at most, if it is long."""
    rng = np.random.default_rng(read_len)
    unit = random_letters(rng, read_len)
    copies = [mutated(rng, unit, 0.02) for _ in range(12)]
    text = "".join(random_letters(rng, 300) + copy for copy in copies)
    index = index_of(genome_of([text]))
    params = resolve_all(MapParams(long=PRESETS["ont"]), index.fm.n_rows - 1)
    found = align_long_reads(index, reads_of([copies[7]]), params, RunStats()).alignments
    assert found.alignment_offsets[1] == expected
