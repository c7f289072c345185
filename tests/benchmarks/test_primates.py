"""Places of reads of one species on the genome of another, by an alignment."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from benchmarks.common import primates

MAF = b"""##maf version=1
#
a
s Hsap.22 100 6 + 900 ACG-TAC
s Ptro.22 200 6 + 900 ACGGT-C
s Ggor.22 300 4 + 900 AC--TA-

a
s Hsap.22 200 4 + 900 GG-TT
s Ptro.22 300 4 + 900 -GATT
s Ggor.22 400 5 + 900 GGATT
"""


@pytest.fixture
def alignment(tmp_path):
    path = tmp_path / "some.maf.gz"
    path.write_bytes(gzip.compress(MAF))
    return path


def test_genomes_are_the_bases_of_all_blocks(alignment, tmp_path):
    target = tmp_path / "some.fa.gz"
    primates.write_genome(alignment, ["human22", "gorilla22"], target)
    assert gzip.decompress(target.read_bytes()) == b">human22\nACGTACGGTT\n>gorilla22\nACTAGGATT\n"


def test_aligned_bases_have_the_same_place(alignment):
    places = primates.places_of(alignment, "chimp22", "human22")
    chimp, human = b"ACGGTCGATT", b"ACGTACGGTT"
    assert np.all(np.diff(places) >= 0)
    assert places[-1] == len(human)
    # Its fourth and eighth bases are aligned to none: they get the place of the next.
    assert places.tolist() == [0, 1, 2, 3, 3, 5, 7, 8, 8, 9, 10]
    aligned = [i for i in range(10) if i not in (3, 7)]
    assert all(chimp[i] == human[places[i]] for i in aligned)


def test_reads_get_their_places_on_the_other_genome(alignment, tmp_path):
    places = primates.places_of(alignment, "chimp22", "human22")
    reads = tmp_path / "reads.fq.gz"
    reads.write_bytes(
        gzip.compress(b"@S0!chimp22!0_5!3_9!+-\nACG\n+\nIII\n@S1!chimp22!4!7!+\nTCG\n+\n@@@\n")
    )
    primates.lift_reads(reads, places, "human22")
    assert gzip.decompress(reads.read_bytes()) == (
        b"@S0!human22!0_5!3_9!+-\nACG\n+\nIII\n@S1!human22!3!8!+\nTCG\n+\n@@@\n"
    )
