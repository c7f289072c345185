"""What the loci of one read ask of each other."""

from __future__ import annotations

from mapper.extend.filter import as_given
from mapper.extend.locus import Ungapped
from mapper.extend.read import target_of
from mapper.params import ExtendParams

PARAMS = ExtendParams()
READ_LEN = 100


def test_positions_on_the_read_as_given() -> None:
    letters = [*range(READ_LEN)]
    for start, end in ((0, 0), (0, 100), (10, 37), (60, 100)):
        assert as_given(start, end, 0, READ_LEN) == (start, end)
        first, last = as_given(start, end, 1, READ_LEN)
        assert letters[first:last] == letters[::-1][start:end][::-1]


def test_a_locus_competes_for_the_bases_it_shares_on_either_strand() -> None:
    # The best alignment takes bases 0:60 of the read, whatever its strand.
    best = 2 * 60
    to_beat = best - 2 * PARAMS.match * PARAMS.score_margin
    for strand in (0, 1):
        same, others = as_given(5, 50, strand, READ_LEN), as_given(60, 100, strand, READ_LEN)
        for (start, end), target in ((same, to_beat), (others, 0)):
            ungapped = Ungapped(start, end, start, end, 0, 0, 1, 1)
            assert target_of(ungapped, strand, READ_LEN, best, 0, 60, 0, PARAMS) == target
            last = PARAMS.most_gapped
            assert target_of(ungapped, strand, READ_LEN, best, 0, 60, last, PARAMS) > 10**6
