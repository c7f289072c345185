"""Unusual reads: one primary record for each, in order, complete and valid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mapper.errors import InputFormatError
from mapper.params import MAX_READ_LEN
from tests.helpers.mapping_runs import World, map_to, records_of
from tests.helpers.read_batches import random_letters
from tests.helpers.simulate import Read, write_fastq
from tests.naive.sam_check import Checker
from tests.naive.seeds import oriented


def named(sequences: Sequence[str], *, paired: bool = False) -> list[Read]:
    return [
        Read(f"r{i // 2 if paired else i}", letters, "F" * len(letters))
        for i, letters in enumerate(sequences)
    ]


def mapped(world: World, directory: Path, reads: Sequence[Read], *, paired: bool = False) -> list:
    """Map reads, check every record, and return the primary ones."""
    directory.mkdir(exist_ok=True)
    fastq = write_fastq(directory / "odd.fq", reads)
    for threads, batch_bases in ((1, 1), (2, 10_000)):
        path = directory / f"{threads}.bam"
        map_to(
            world.index, path, fastq, interleaved=paired, threads=threads, batch_bases=batch_bases
        )
        assert Checker(world.genome, reads, paired=paired).check_file(path) == []
    assert (directory / "1.bam").read_bytes() == (directory / "2.bam").read_bytes()
    return [r for r in records_of(directory / "1.bam") if not r.flag & 0x900]


def place(record) -> tuple[str | None, int, bool]:
    return record.reference_name, record.reference_start, record.is_reverse


@pytest.mark.parametrize("paired", [False, True])
def test_reads_that_cannot_map(world, tmp_path, paired):
    sequences = ["", "", "N", "A", "NNNN", "", "N" * 150, "N" * 600, "n" * 40, "A" * 100]
    sequences += ["ACGT", "AC" * 9, "RYSWKMBVDHN", "ryswkmbvdhn" * 10]
    sequences += [random_letters(np.random.default_rng(9), n) for n in range(1, 20)]
    sequences += [""] * (len(sequences) % 2)
    for record in mapped(world, tmp_path, named(sequences, paired=paired), paired=paired):
        if len(record.query_sequence or "") < 20 or set(record.query_sequence) <= set("NA"):
            assert record.is_unmapped


@pytest.mark.parametrize("strand", [0, 1])
def test_every_length_from_20_to_600(world, tmp_path, strand):
    text = world.genome["chr3"].upper()
    lengths = [*range(20, 60), *range(60, 600, 27), 599, 600, MAX_READ_LEN]
    starts = [200 + 13 * i for i in range(len(lengths))]
    reads = named(
        [oriented(text[at : at + n], strand) for at, n in zip(starts, lengths, strict=True)]
    )
    for record, at, n in zip(mapped(world, tmp_path, reads), starts, lengths, strict=True):
        assert place(record) == ("chr3", at, bool(strand))
        assert record.cigarstring == f"{n}M"
        assert record.mapping_quality >= (60 if n >= 60 else 30 if n >= 40 else 1)


def test_reads_shorter_than_a_seed_do_not_end_the_run(world, tmp_path):
    text = world.genome["chr3"].upper()
    reads = named([text[500 : 500 + n] for n in range(20)])
    for record in mapped(world, tmp_path, reads):
        assert record.is_unmapped or record.reference_name in world.genome


def test_mates_of_a_few_bases_are_not_placed_by_chance(world, tmp_path):
    """From 12 bases on, the shortest seed of a read alone, they are; in reach of the other mate."""
    text = world.genome["chr3"].upper()
    lengths, starts = range(1, 20), range(500, 8100, 400)
    sequences = []
    for n, at in zip(lengths, starts, strict=True):
        sequences += [text[at : at + 120], oriented(text[at + 300 - n : at + 300], 1)]
    ordinary = range(400, 8000, 37)  # from which the insert size is learnt
    for at in ordinary:
        sequences += [text[at : at + 120], oriented(text[at + 180 + at % 50 : at + 300], 1)]
    records = mapped(world, tmp_path, named(sequences, paired=True), paired=True)
    for i, (n, at) in enumerate(zip(lengths, starts, strict=True)):
        first, mate = records[2 * i : 2 * i + 2]
        assert first.reference_start == at
        assert first.is_proper_pair == (n >= 12)
        assert mate.is_unmapped == (n < 12)
        if n >= 12:
            assert place(mate) == ("chr3", at + 300 - n, True)


@pytest.mark.parametrize("change", [str.lower, lambda s: s.replace("T", "U"), str.swapcase])
def test_letters_of_other_kinds_are_the_same_bases(world, tmp_path, change):
    text = world.genome["chr3"].upper()
    reads = named([change(text[i : i + 100]) for i in range(0, 1000, 100)])
    for i, record in enumerate(mapped(world, tmp_path, reads)):
        assert place(record) == ("chr3", 100 * i, False)
        assert record.query_sequence == text[100 * i : 100 * i + 100]


def test_ambiguous_letters_are_kept_and_match_nothing(world, tmp_path):
    text = world.genome["chr3"].upper()
    letters = text[100:250]
    for i, code in enumerate("RYSWKMBVDHN"):
        at = 50 + 4 * i  # not in a row: replacing all of them at once would be cheaper
        letters = letters[:at] + code + letters[at + 1 :]
    reads = named([letters, oriented(letters, 1)])
    for strand, record in enumerate(mapped(world, tmp_path, reads)):
        assert place(record) == ("chr3", 100, bool(strand))
        assert record.query_sequence == letters
        assert record.get_tag("NM") == 11


@pytest.mark.parametrize("strand", [0, 1])
def test_reads_at_contig_ends(world, tmp_path, strand):
    """Reads are aligned up to a contig's last base, clipped beyond it, never over two contigs."""
    sequences, wanted = [], []
    for name, text in world.genome.items():
        text = text.upper()
        if len(text) < 50:
            continue
        n = min(len(text), 100)
        sequences += [text[:n], text[-n:]]
        wanted += [(name, 0, f"{n}M"), (name, len(text) - n, f"{n}M")]
        outside = random_letters(np.random.default_rng(3), 30)
        sequences += [outside + text[:70], text[-70:] + outside]
        wanted += [(name, 0, "30S70M"), (name, len(text) - 70, "70M30S")]
    names = [name for name, text in world.genome.items() if len(text) > 1000]
    for before, after in pairwise(names):
        letters = world.genome[before].upper()[-60:] + world.genome[after].upper()[:50]
        sequences.append(letters)
        wanted.append((before, len(world.genome[before]) - 60, "60M50S"))
    reads = named([oriented(letters, strand) for letters in sequences])
    for record, (name, at, cigar) in zip(mapped(world, tmp_path, reads), wanted, strict=True):
        assert (place(record), record.cigarstring) == ((name, at, bool(strand)), cigar)


def test_reads_beside_a_run_of_n(world, tmp_path):
    text = world.genome["HLA*01:01"]
    first, last = text.index("N"), text.rindex("N")
    sequences = [text[first - 80 : first] + "ACGTACGTAC", "ACGTACGTAC" + text[last + 1 : last + 81]]
    left, right = mapped(world, tmp_path, named(sequences))
    assert (left.reference_start, left.cigarstring) == (first - 80, "80M10S")
    assert (right.reference_start, right.cigarstring) == (last + 1, "10S80M")


def test_pairs_with_an_empty_or_hopeless_mate(world, tmp_path):
    text = world.genome["chr3"].upper()
    good, other = text[600:700], oriented(text[800:900], 1)
    sequences = ["", good, good, "", "N" * 100, other, good, "N", "", "", good, other]
    records = mapped(world, tmp_path, named(sequences, paired=True), paired=True)
    assert [r.is_unmapped for r in records] == [not set(s) & set("ACGT") for s in sequences]
    for i, letters in enumerate(sequences[:8]):
        at = 800 if other in (letters, sequences[i ^ 1]) else 600
        assert records[i].reference_start == at  # the unmapped mate is where the other one is
        assert not records[i].is_proper_pair
    assert records[8].reference_id == records[9].reference_id == -1


def test_names_may_repeat(world, tmp_path):
    text = world.genome["chr3"].upper()
    reads = [Read("same", text[i : i + 100], "I" * 100) for i in range(0, 2000, 100)]
    records = mapped(world, tmp_path, reads)
    assert [r.reference_start for r in records] == list(range(0, 2000, 100))
    pairs = [Read("same", oriented(r.letters, i % 2), r.quals) for i, r in enumerate(reads)]
    records = mapped(world, tmp_path, pairs, paired=True)
    assert [r.reference_start for r in records] == list(range(0, 2000, 100))


def test_longest_names(world, tmp_path):
    text = world.genome["chr3"].upper()
    reads = [Read(letter * 254, text[100:200], "I" * 100) for letter in "ab"]
    assert [r.query_name for r in mapped(world, tmp_path, reads)] == ["a" * 254, "b" * 254]


def test_mates_that_are_too_long_are_refused_by_name(world, tmp_path):
    text = world.genome["chr1"]
    reads = named([text[: MAX_READ_LEN + (i in (5, 7))] for i in range(10)], paired=True)
    fastq = write_fastq(tmp_path / "long.fq", reads)
    wanted = rf"long.fq: record 6: read '{reads[5].name}' has {MAX_READ_LEN + 1} bases, and mates"
    for batch_bases in (1, 1_000_000):
        with pytest.raises(InputFormatError, match=wanted):
            map_to(
                world.index, tmp_path / "x.bam", fastq, interleaved=True, batch_bases=batch_bases
            )
    single = named([read.letters for read in reads])
    first = write_fastq(tmp_path / "long.fq", single)
    second = write_fastq(
        tmp_path / "2.fq", [r._replace(letters="ACGT", quals="IIII") for r in single]
    )
    wanted = rf"long.fq: record 6: read '{single[5].name}' has {MAX_READ_LEN + 1} bases"
    with pytest.raises(InputFormatError, match=wanted):
        map_to(world.index, tmp_path / "x.bam", second, first)
    assert {path.name for path in tmp_path.iterdir()} <= {"long.fq", "2.fq"}
