"""The extension stage: every alignment is true, whole, in its window, and the best."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.extend.cpu import extend_loci
from mapper.params import ExtendParams
from tests.helpers.alignment_views import Aligned, alignments_of, loci_of
from tests.helpers.extension_sides import SCORINGS, params_of
from tests.helpers.read_batches import Genome, genome_of, mutated, packed_reads, random_letters
from tests.naive.gotoh import Scoring, best_extension, replay
from tests.naive.seeds import oriented


def extended(
    genome: Genome,
    reads: list[str],
    places: list[list[tuple[int, int]]],
    params: ExtendParams | None = None,
) -> list[list[Aligned]]:
    batch = extend_loci(
        genome.fm.ref_planes, *packed_reads(reads), loci_of(genome, places),
        params or ExtendParams(),
    )  # fmt: skip
    return alignments_of(batch)


def check(found: Aligned, read: str, genome: Genome, scoring: Scoring) -> None:
    """The alignment replays, rescores, and stays in its contig."""
    start = genome.starts[found.ref_id]
    assert start <= found.text_start < found.text_end <= start + genome.lengths[found.ref_id]
    assert 0 <= found.query_start < found.query_end <= len(read)
    query = oriented(read, found.strand)[found.query_start : found.query_end]
    told = replay(found.cigar, query, genome.text[found.text_start : found.text_end], scoring)
    assert told == (found.score, found.edit_distance, len(query),
                    found.text_end - found.text_start)  # fmt: skip
    # Only the bonus for an end of the read pays for a mismatch there; a gap never pays.
    first, last = found.cigar.lstrip("0123456789")[0], found.cigar[-1]
    assert first == "=" or (first == "X" and found.query_start == 0)
    assert last == "=" or (last == "X" and found.query_end == len(read))


def gapped(rng: np.random.Generator, letters: str, max_size: int = 12) -> str:
    """Insert or delete a few bases somewhere."""
    at, size = int(rng.integers(5, len(letters) - 5)), int(rng.integers(1, max_size))
    if rng.random() < 0.5:
        return letters[:at] + random_letters(rng, size) + letters[at:]
    return letters[:at] + letters[at + size :]


def simulated(rng: np.random.Generator, n: int, read_len: int = 100):
    """Return a genome, reads with SNPs and gaps, and the places that they come from."""
    contigs = [random_letters(rng, int(size)) for size in rng.integers(300, 900, 4)]
    genome = genome_of(contigs)
    reads, places = [], []
    for _ in range(n):
        contig = int(rng.integers(len(contigs)))
        at = int(rng.choice([0, len(contigs[contig]) - read_len,
                             rng.integers(0, len(contigs[contig]) - read_len)]))  # fmt: skip
        piece = mutated(rng, contigs[contig][at : at + read_len], rng.choice([0, 0.02, 0.08]))
        # Around a kept middle, so that the diagonal of the middle is known.
        left, middle, right = piece[:40], contigs[contig][at + 40 : at + 60], piece[60:]
        shift = 0
        if rng.random() < 0.5:
            longer = gapped(rng, left)
            shift, left = len(longer) - len(left), longer
        if rng.random() < 0.5:
            right = gapped(rng, right)
        strand = int(rng.integers(2))
        reads.append(oriented(left + middle + right, strand))
        places.append([(strand, int(genome.starts[contig]) + at - shift)])
    return genome, reads, places


@pytest.mark.parametrize("scoring", SCORINGS[:5], ids=str)
def test_alignments_are_true(scoring: Scoring) -> None:
    rng = np.random.default_rng(1)
    genome, reads, places = simulated(rng, 120)
    found = extended(genome, reads, places, params_of(scoring))
    for read, alignments in zip(reads, found, strict=True):
        assert len(alignments) <= 1
        for alignment in alignments:
            check(alignment, read, genome, scoring)
    assert sum(map(len, found)) > 100
    text = "".join(a.cigar for alignments in found for a in alignments)
    assert "I" in text and "D" in text and "X" in text


@pytest.mark.parametrize("scoring", [SCORINGS[0], SCORINGS[3]], ids=str)
def test_a_single_locus_is_aligned_as_well_as_its_anchor_allows(scoring: Scoring) -> None:
    """Never below ungapped and the full matrix from the longest match on the diagonal."""
    rng = np.random.default_rng(2)
    genome, reads, places = simulated(rng, 40, read_len=90)
    found = extended(genome, reads, places, params_of(scoring))
    for read, place, alignments in zip(reads, places, found, strict=True):
        strand, diagonal = place[0]
        query = oriented(read, strand)
        contig = int(np.searchsorted(genome.starts, diagonal + 45, side="right")) - 1
        low = int(genome.starts[contig])
        high = low + int(genome.lengths[contig])
        runs, run = [], 0
        for i, base in enumerate(query + "N"):
            inside = low <= diagonal + i < high
            if inside and base == genome.text[diagonal + i]:
                run += 1
                runs.append((run, -(i + 1 - run)))
            else:
                run = 0
        length, start = max(runs)[0], -max(runs)[1]
        anchor = length * scoring.match
        right_side = query[start + length :], genome.text[diagonal + start + length : high][:250]
        left_side = query[:start][::-1], genome.text[low : diagonal + start][::-1][:250]
        # A side may lose what the anchor and the other side, without gaps, are worth.
        left, right = (
            best_extension(
                *side, scoring, reserve=2 * (anchor + best_extension(*other, scoring, band=0))
            )
            for side, other in ((left_side, right_side), (right_side, left_side))
        )
        best = anchor + left + right
        if not alignments:
            assert best < 30 + 2 * scoring.end_bonus
            continue
        (alignment,) = alignments
        bonus = (alignment.query_start == 0) + (alignment.query_end == len(read))
        assert alignment.score + bonus * scoring.end_bonus == best


def test_best_first_and_nothing_twice() -> None:
    """Loci on both sides of a gap give one alignment; copies elsewhere stay."""
    rng = np.random.default_rng(3)
    word = random_letters(rng, 120)
    worse = mutated(rng, word, 0.04)
    genome = genome_of([random_letters(rng, 200) + word + random_letters(rng, 200) + worse])
    read = word[10:50] + word[53:110]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]):
        places = [(0, 210), (0, 213), (0, 530), (0, 533)]
        (found,) = extended(genome, [read], [[places[i] for i in order]])
        assert [a.text_start for a in found] == [210, 530]
        assert found[0].score > found[1].score
        assert found[0].cigar.count("D") == 1
        for alignment in found:
            check(alignment, read, genome, Scoring())


def test_equals_come_by_strand_then_place() -> None:
    rng = np.random.default_rng(4)
    word = random_letters(rng, 80)
    contig = word + "ACGTACGA" + oriented(word, 1) + "CCATG" + word
    genome = genome_of([contig, word])
    places = [(0, 0), (1, 88), (0, 173), (0, 254)]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        (found,) = extended(genome, [word], [[places[i] for i in order]])
        assert [(a.strand, a.text_start) for a in found] == [(0, 0), (0, 173), (0, 254), (1, 88)]
        assert {a.score for a in found} == {80}
        assert [a.ref_id for a in found] == [0, 0, 1, 0]


def test_no_alignment_crosses_contigs() -> None:
    rng = np.random.default_rng(5)
    contigs = [random_letters(rng, 120) for _ in range(3)]
    genome = genome_of(contigs)
    reads, places = [], []
    for cut in (40, 50, 60):
        # One read over the border, as if there were none; anchored on either side.
        reads.append(contigs[0][-cut:] + contigs[1][: 100 - cut])
        places.append([(0, 120 - cut), (0, 121 - cut)])
    batches = loci_of(genome, places)
    ref_id = np.tile([0, 1], 3)
    loci = batches._replace(
        ref_id=ref_id.astype(np.int32),
        window_start=genome.starts[ref_id],
        window_end=genome.starts[ref_id] + genome.lengths[ref_id],
    )
    found = alignments_of(
        extend_loci(genome.fm.ref_planes, *packed_reads(reads), loci, ExtendParams())
    )
    for cut, read, alignments in zip((40, 50, 60), reads, found, strict=True):
        assert {(a.ref_id, a.score) for a in alignments} == {(0, cut), (1, 100 - cut)}
        for alignment in alignments:
            check(alignment, read, genome, Scoring())


def test_poor_alignments_are_not_kept_and_short_reads_have_a_lower_bar() -> None:
    rng = np.random.default_rng(6)
    contig = random_letters(rng, 400)
    genome = genome_of([contig])
    clip = "".join("CGTA"["ACGT".index(base)] for base in contig[118:200])
    reads = [contig[100:118] + clip, contig[100:120], contig[100:110] + "A" * 30, "", "N" * 50]
    found = extended(genome, reads, [[(0, 100)], [(0, 100)], [(0, 100)], [], []])
    assert [len(alignments) for alignments in found] == [0, 1, 0, 0, 0]
    assert found[1][0][2:] == (100, 120, 0, 20, 20, 0, "20=")


def test_gaps_are_sought_from_no_less_than_chance_brings() -> None:
    rng = np.random.default_rng(9)
    params = ExtendParams()
    for n in range(15, 22):
        contig = random_letters(rng, 100 + n) + "ACCCCG" + random_letters(rng, 150)
        genome = genome_of([contig])
        read = contig[100 : 100 + n] + contig[105 + n : 165 + n]
        (found,) = extended(genome, [read], [[(0, 100)]])
        (there,) = extended(genome, [read], [[(0, 105)]])  # from the other end of the gap
        assert there[0].score == n + 60 - 6 - 5 and "5D" in there[0].cigar
        assert found == (there if n >= params.min_ungapped else [])


def test_a_batch_is_its_reads() -> None:
    rng = np.random.default_rng(7)
    genome, reads, places = simulated(rng, 40)
    places = [[*own, *other] for own, other in zip(places, places[1:] + places[:1], strict=True)]
    together = extended(genome, reads, places)
    for i, read in enumerate(reads):
        assert extended(genome, [read], [places[i]]) == [together[i]]


def test_strands_are_symmetrical() -> None:
    rng = np.random.default_rng(8)
    genome, reads, places = simulated(rng, 40)
    swapped = [[(1 - strand, d) for strand, d in own] for own in places]
    there = extended(genome, reads, places)
    back = extended(genome, [oriented(read, 1) for read in reads], swapped)
    for one, other in zip(there, back, strict=True):
        assert [a._replace(strand=1 - a.strand) for a in other] == one
