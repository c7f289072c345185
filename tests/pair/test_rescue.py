"""Mate rescue: planted mates are proposed, known alignments and random diagonals are not.

The lower bound of mismatches is compared with counts base by base.
"""

from __future__ import annotations

import numpy as np
import pytest

from mapper.batch import SeedBatch
from mapper.extend.cpu import extend_loci
from mapper.jit.lanes import ONE_LANE
from mapper.pair.insert_size import InsertSizeModel, model_from
from mapper.pair.rescue import (
    HIDDEN_MARGIN,
    LONGEST,
    MOST_BY_TWO,
    MOST_IN_WINDOW,
    RESCUE_MISMATCHES,
    STRONG_MISMATCHES,
    least_mismatches,
    near_diagonals,
    propose_loci,
)
from mapper.params import ExtendParams, PairParams
from mapper.seed.pack import pack_reads
from tests.helpers.alignment_views import Aligned, alignments_of, batch_of
from tests.helpers.placements import no_seeds
from tests.helpers.read_batches import (
    Genome,
    genome_of,
    mutated,
    packed_reads,
    random_letters,
    reads_of,
    text_planes,
)
from tests.naive.gotoh import same
from tests.naive.seeds import oriented


@pytest.mark.parametrize("read_len", [1, 63, 64, 65, 128, 150, 192, 220, LONGEST])
def test_bound_for_mismatches(read_len: int) -> None:
    """Anywhere in the text, its ends included, among other reads, with ambiguous bases."""
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


FR = model_from(400.0, 60.0, 160, 700, 1000)
RF = model_from(-400.0, 60.0, -700, -160, 1000)
READ_LEN = 150


def propose(genome: Genome, sequences: list[str], alignments: list[list[Aligned]],
            model: InsertSizeModel, params: PairParams | None = None,
            seeds: SeedBatch | None = None):  # fmt: skip
    reads = reads_of(sequences, paired=True)
    packed = pack_reads(reads)
    loci = propose_loci(
        genome.fm.ref_planes, reads, packed, genome.starts, genome.lengths,
        seeds or no_seeds(reads.n_reads), batch_of(alignments), model, params or PairParams(),
        ExtendParams(),
    )  # fmt: skip
    assert loci.locus_offsets[-1] == len(loci.strand) == len(loci.diagonal) == len(loci.ref_id)
    return reads, packed, loci


def anchor(strand: int, ref_id: int, start: int, length: int = READ_LEN) -> Aligned:
    return Aligned(strand, ref_id, start, start + length, 0, length, length, 0, f"{length}=")


def guaranteed(*guarantee: int) -> SeedBatch:
    """Return a SeedSummary of reads whose positions with fewer substitutions were all found."""
    return no_seeds(len(guarantee))._replace(guarantee=np.array(guarantee, np.int32))


@pytest.mark.parametrize("model", [FR, RF], ids=["FR", "RF"])
@pytest.mark.parametrize("mate_strand", [0, 1])
@pytest.mark.parametrize("gap", ["none", "insertion", "deletion"])
def test_a_damaged_mate_is_found(model: InsertSizeModel, mate_strand: int, gap: str) -> None:
    """One mate has an alignment; the other a gap in its middle and 20 % mismatches."""
    rng = np.random.default_rng(1)
    genome = genome_of([random_letters(rng, 4000), random_letters(rng, 4000)])
    start, n_found, n = int(genome.starts[1]), 0, 20
    for _ in range(n):
        pos = start + int(rng.integers(1000, 2500))
        size = int(rng.integers(200, 600))
        # 5' ends of the two mates: the distance is the insert, signed by the orientation.
        anchor_forward = mate_strand == 1
        outward = model is RF
        if not outward:
            mate_pos = pos + size - READ_LEN if anchor_forward else pos + READ_LEN - size
        else:
            mate_pos = pos - size - READ_LEN if anchor_forward else pos + READ_LEN + size
        piece = mutated(rng, genome.text[mate_pos : mate_pos + READ_LEN + 4], 0.2)
        middle = int(rng.integers(60, 90))
        if gap == "insertion":
            piece = piece[:middle] + random_letters(rng, 3) + piece[middle:]
        elif gap == "deletion":
            piece = piece[:middle] + piece[middle + 4 :]
        mate = oriented(piece[:READ_LEN], mate_strand)
        strand = 0 if anchor_forward else 1
        first = oriented(genome.text[pos : pos + READ_LEN], strand)
        reads, packed, loci = propose(genome, [first, mate], [[anchor(strand, 1, pos)], []], model)
        assert loci.locus_offsets.tolist() in ([0, 0, 0], [0, 0, 1])
        if len(loci.strand) == 0:
            continue
        assert loci.strand[0] == mate_strand and loci.ref_id[0] == 1
        assert (loci.window_start[0], loci.window_end[0]) == (start, start + 4000)
        n_found += abs(loci.diagonal[0] - mate_pos) <= 4
        params = ExtendParams(mismatch=2, gap_open=3, min_score=20)
        found = alignments_of(extend_loci(genome.fm.ref_planes, reads, packed, loci, params))
        for alignment in found[1]:
            assert alignment.ref_id == 1
    assert n_found >= n - 1


def test_a_proper_pair_needs_no_rescue() -> None:
    rng = np.random.default_rng(2)
    genome = genome_of([random_letters(rng, 3000)])
    sequences = [genome.text[1000:1150], oriented(genome.text[1300:1450], 1)]
    alignments = [[anchor(0, 0, 1000)], [anchor(1, 0, 1300)]]
    assert len(propose(genome, sequences, alignments, FR, seeds=guaranteed(7, 7))[2].strand) == 0
    # Mates too far apart: both are looked for, near the other.
    alignments = [[anchor(0, 0, 1000)], [anchor(1, 0, 2800)]]
    _, _, loci = propose(genome, sequences, alignments, FR)
    assert (1, 1300) in set(zip(loci.strand.tolist(), loci.diagonal.tolist(), strict=True))


def test_nothing_is_proposed_where_the_read_lies_already() -> None:
    """On the diagonal with which an alignment of its strand begins, or ends."""
    rng = np.random.default_rng(6)
    word = random_letters(rng, READ_LEN)
    genome = genome_of([random_letters(rng, 1300) + word + word + random_letters(rng, 900)])
    sequences = [genome.text[1000:1150], oriented(word, 1)]
    near = anchor(0, 0, 1000)

    def proposed(*read: Aligned) -> list[int]:
        # A bad score, so that the pair does not stop the search.
        alignments = [[near], [a._replace(score=1) for a in read]]
        _, _, loci = propose(genome, sequences, alignments, FR, seeds=guaranteed(9, 0))
        return loci.diagonal[loci.locus_offsets[1] :].tolist()

    copies = [1300, 1300 + READ_LEN]
    assert proposed() == copies
    for i in range(2):
        assert proposed(anchor(1, 0, copies[i])) == copies[1 - i :][:1]
        assert proposed(anchor(0, 0, copies[i])) == copies  # the other strand
    # Clipped, and with an insertion of 3: it begins on one diagonal and ends on another.
    begins = Aligned(1, 0, 1310, 1400, 10, 103, 80, 3, "40=3I50=")
    ends = Aligned(1, 0, 1350, 1440, 47, 140, 80, 3, "40=3I50=")
    assert proposed(begins) == proposed(ends) == [1450]
    assert proposed(begins, anchor(1, 0, 1450)) == []


def test_pairs_without_any_alignment_and_empty_reads() -> None:
    genome = genome_of(["ACGTTGCA" * 200])
    sequences = ["ACGTAACC" * 10, "ACCTTGGC" * 10, "", genome.text[300:400]]
    alignments = [[], [], [], [anchor(0, 0, 300, 100)]]
    assert len(propose(genome, sequences, alignments, FR)[2].strand) == 0


@pytest.mark.parametrize("pos", [0, 5, 100, 350, 845, 850])
def test_proposals_stay_in_the_contig(pos: int) -> None:
    rng = np.random.default_rng(3)
    genome = genome_of([random_letters(rng, 1000), random_letters(rng, 1000), "ACGTAC"])
    start = int(genome.starts[1])
    for strand in (0, 1):
        mate = random_letters(rng, READ_LEN)
        alignments = [[anchor(strand, 1, start + pos)], []]
        # Any diagonal will do: what counts is that only whole ones in the contig are tried.
        _, _, loci = propose(genome, ["A" * READ_LEN, mate], alignments, FR)
        for diagonal in loci.diagonal.tolist():
            assert start <= diagonal <= start + 1000 - READ_LEN
    # A mate longer than the contig of its anchor lies nowhere on it.
    tiny = int(genome.starts[2])
    _, _, loci = propose(genome, ["ACGTAC", mate], [[anchor(0, 2, tiny, 6)], []], FR)
    assert len(loci.strand) == 0


def test_near_diagonals_are_all_the_good_ones_or_the_best() -> None:
    rng = np.random.default_rng(4)
    n_single = n_several = 0
    for trial in range(60):
        read_len = int(rng.choice([20, 63, 64, 65, 128, 150, 256, 257]))
        piece = random_letters(rng, read_len)
        # Copies of the read at 0 to 60 % mismatches, among random letters.
        text = "".join(
            mutated(rng, piece, rate) + random_letters(rng, int(rng.integers(0, 30)), "ACGTN")
            for rate in rng.choice([0.0, 0.03, 0.06, 0.2, 0.6], 4)
        )
        _, packed = packed_reads([piece])
        last = len(text) - read_len
        counts = {
            d: sum(not same(a, b) for a, b in zip(piece, text[d : d + read_len], strict=True))
            for d in range(last + 1)
        }
        good = [d for d, count in counts.items() if count <= int(STRONG_MISMATCHES * read_len)]
        fewest = min(counts.values())
        expected = good
        if not good and fewest <= int(RESCUE_MISMATCHES * read_len):
            expected = [min(d for d, count in counts.items() if count == fewest)]
        for room in (MOST_IN_WINDOW, 1):
            found = np.empty(room, np.int64)
            n = near_diagonals(
                packed.planes, 0, read_len, text_planes(text), 0, last, found, ONE_LANE
            )
            assert found[:n].tolist() == expected[:room], trial
        n_single += len(expected) == 1
        n_several += len(expected) > 1
    assert n_single > 5 and n_several > 5


def test_a_read_is_looked_for_where_a_better_pair_may_hide() -> None:
    """The pair is proper, but its read's places with `guarantee` differences may be unseen."""
    rng = np.random.default_rng(5)
    word = random_letters(rng, READ_LEN)
    copies = [mutated(rng, word, rate) for rate in (0.03, 0.0)]
    spacers = [random_letters(rng, 1500) for _ in range(3)]
    genome = genome_of([spacers[0] + copies[0] + spacers[1] + copies[1] + spacers[2]])
    there, hidden = 1500, 3000 + READ_LEN
    sequences = [genome.text[there - 300 : there - 150], oriented(word, 1)]
    n_proposed = 0
    for score in (READ_LEN, READ_LEN - 15, READ_LEN - 30):
        read = [anchor(1, 0, there)._replace(score=score)]
        for lead in (0, 5, 12):
            # The mate has another alignment, `lead` worse, beside which the read has a place.
            mate = [
                anchor(0, 0, there - 300),
                anchor(0, 0, hidden - 300)._replace(score=READ_LEN - lead),
            ]
            for guarantee in range(9):
                _, _, loci = propose(
                    genome, sequences, [mate, read], FR, seeds=guaranteed(9, guarantee)
                )
                found = loci.diagonal[loci.locus_offsets[1] :].tolist()
                unseen = READ_LEN - 5 * guarantee
                # The insert size costs less than 5.
                behind = score - unseen + lead - HIDDEN_MARGIN
                if not 0 < behind <= 5:
                    assert (hidden in found) == (behind <= 0), (score, lead, guarantee)
                n_proposed += hidden in found
                assert loci.locus_offsets[1] == 0
    assert 10 < n_proposed < 70
