"""Records, field by field, against a naive writer that works on letters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from mapper.batch import AlignmentBatch, ReadBatch, RecordBatch
from mapper.extend.cpu import extend_loci
from mapper.index.reference import make_contigs
from mapper.pair.insert_size import assumed_model
from mapper.pair.placement import PlacementBatch
from mapper.pair.records import make_names, make_records, next_turn, tag_room
from mapper.params import LONG_CS, NO_CS, SHORT_CS, ExtendParams, RecordParams
from mapper.seed.pack import pack_reads
from tests.helpers.alignment_views import Aligned, alignments_of, batch_of, loci_of
from tests.helpers.placements import no_seeds, place
from tests.helpers.read_batches import Genome, genome_of, mutated, random_letters, reads_of
from tests.naive.records import Contig, Options, PlacedRead, Writer
from tests.naive.sam import sam_lines
from tests.naive.seeds import oriented

NAMES = ("chr1", "HLA*01:01", "c3")


class Sample(NamedTuple):
    genome: Genome
    reads: ReadBatch
    alignments: AlignmentBatch
    placements: PlacementBatch


def sample(seed: int, *, paired: bool, n_pairs: int = 60) -> Sample:
    """Aligned and placed reads: from repeats, split, clipped, without qualities, unmapped."""
    rng = np.random.default_rng(seed)
    word = random_letters(rng, 400)
    contigs = [
        random_letters(rng, 300) + mutated(rng, word, 0.01) + random_letters(rng, 700),
        word + random_letters(rng, 200) + mutated(rng, word, 0.02) + "N" * 5 + word,
        random_letters(rng, 500),
    ]
    genome = genome_of(contigs)
    n = 2 * n_pairs
    sequences, quals, places = [], [], []
    for i in range(n):
        length = int(rng.integers(60, 120))
        parts = []
        kind = rng.random()
        for part_len in (length,) if kind < 0.7 else (length // 2, length - length // 2):
            at = int(rng.integers(0, len(genome.text) - part_len))
            if i % 2 and rng.random() < 0.5:
                at = min(places[-1][0][1] + int(rng.integers(0, 300)), len(genome.text) - 130)
                at = max(at, 0)
            strand = int(rng.integers(2)) if i % 2 == 0 or not places[-1] else 1 - places[-1][0][0]
            parts.append((strand, at, oriented(genome.text[at : at + part_len], strand)))
        letters = "".join(part for _, _, part in parts).replace("N", "A")
        letters = mutated(rng, letters, 0.03)
        if rng.random() < 0.3:
            cut = int(rng.integers(20, length - 20))
            letters = letters[:cut] + ("" if rng.random() < 0.5 else "GATTA") + letters[cut + 4 :]
        if rng.random() < 0.05:
            letters = "N" + letters[1:]
        found = []
        offset = 0
        for strand, at, part in parts:  # the diagonal of each part, and of its copies
            before = offset if strand == 0 else len(letters) - offset - len(part)
            for shift in (0, 300 - 1706, 1706 - 300, 600, -600, 1005):
                if 0 <= at + shift < len(genome.text) - 130 and at + shift - before >= 0:
                    found.append((strand, at + shift - before))
            offset += len(part)
        sequences.append(letters)
        unmapped = rng.random() < 0.15
        places.append(found or [(0, 100)])
        quals.append([255] * len(letters) if rng.random() < 0.1
                     else rng.integers(0, 45, len(letters)).tolist())  # fmt: skip
        if unmapped:
            sequences[-1] = random_letters(rng, length) if rng.random() < 0.8 else ""
            quals[-1] = quals[-1][:length] + [20] * (length - len(quals[-1]))
            quals[-1] = quals[-1][: len(sequences[-1])]
    reads = reads_of(sequences, quals=quals, paired=paired,
                     names=[f"r{i // 2 if paired else i}" for i in range(n)])  # fmt: skip
    places = [p if s else [] for p, s in zip(places, sequences, strict=True)]
    alignments = extend_loci(
        genome.fm.ref_planes, reads, pack_reads(reads), loci_of(genome, places),
        ExtendParams(min_score=25),
    )  # fmt: skip
    placements = place(reads, no_seeds(n), alignments, assumed_model())
    return Sample(genome, reads, alignments, placements)


def objects_of(given: Sample) -> list[PlacedRead]:
    reads, placements = given.reads, given.placements
    placed, first = [], 0
    for i, rows in enumerate(alignments_of(given.alignments)):
        where = slice(first, first + len(rows))
        bases = slice(reads.base_offsets[i], reads.base_offsets[i + 1])
        name = reads.names[reads.name_offsets[i] : reads.name_offsets[i + 1]]
        placed.append(
            PlacedRead(
                name=bytes(name).decode(),
                letters="".join("ACGTN"[c] for c in reads.bases[bases]),
                quals=reads.quals[bases].tolist(),
                alignments=rows,
                roles=placements.role[where].tolist(),
                heads=(placements.head[where] - first).tolist(),
                mapq=placements.mapq[where].tolist(),
                sub_score=placements.sub_score[where].tolist(),
                proper=bool(placements.proper[i]),
            )
        )
        first += len(rows)
    return placed


def records_of(given: Sample, options: Options) -> RecordBatch:
    genome = given.genome
    contigs = make_contigs(NAMES, ["*"] * len(NAMES), genome.lengths.tolist())
    names = make_names(contigs, options.read_group)
    values = options._asdict()
    del values["read_group"]
    return make_records(
        given.reads, given.alignments, given.placements, names, genome.fm.ref_planes,
        RecordParams(**values),
    )  # fmt: skip


OPTIONS = {
    "default": Options(),
    "extended": Options(extended_cigar=True, read_group="unit.1"),
    "soft": Options(soft_clip_supplementary=True, max_xa=1),
    "all": Options(all_alignments=True, read_group="x"),
    "few": Options(xa_ratio=0.99, max_xa=0),
}


@pytest.mark.medium
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("paired", [True, False], ids=["paired", "single"])
def test_lines_are_those_of_the_rules(paired: bool, options: Options) -> None:
    seen = ""
    for seed in range(4):
        given = sample(seed, paired=paired)
        contigs = [Contig(*c) for c in zip(NAMES, given.genome.starts.tolist(), strict=True)]
        writer = Writer(contigs, given.genome.text, options)
        expected = writer.lines(objects_of(given), paired)
        found = sam_lines(records_of(given, options), given.reads, list(NAMES))
        for one, other in zip(found, expected, strict=True):
            assert one == other
        seen += "\n".join(found)
    for text in ("SA:Z:", "\t*\t0\t", "I", "D", "^"):
        assert text in seen
    assert ("XA:Z:" in seen) == (not options.all_alignments and options.max_xa > 0)
    assert ("MC:Z:" in seen) == paired


def noisy_alignment(rng: np.random.Generator, genome: Genome) -> Aligned:
    """An alignment with a difference at nearly each base."""
    ops, on_query, on_text = "", 0, 0
    for _ in range(int(rng.integers(1, 30))):
        length = int(rng.integers(1, 9))
        op = "=XID"[rng.integers(4)]
        ops += f"1={length}{op}" if op != "=" else "3=2X"
        on_query += 1 + length * (op != "D") if op != "=" else 5
        on_text += 1 + length * (op != "I") if op != "=" else 5
    start = int(rng.integers(0, 40))
    contig = int(rng.integers(2))
    at = int(genome.starts[contig] + rng.integers(0, genome.lengths[contig] - on_text))
    score = int(rng.integers(40, 60))
    return Aligned(
        int(rng.integers(2)), contig, at, at + on_text, start, start + on_query, score, 9, ops
    )


@pytest.mark.parametrize("all_alignments", [False, True])
@pytest.mark.parametrize("cs", [NO_CS, SHORT_CS, LONG_CS])
def test_tags_have_room(all_alignments: bool, cs: int) -> None:
    """A device reserves it before the tags are written: beyond it begin those of the next read."""
    rng = np.random.default_rng(6)
    genome = sample(5, paired=True).genome
    for paired, short_sa in ((True, False), (False, True)):
        params = RecordParams(
            all_alignments=all_alignments, cs=cs, ds=cs != NO_CS, short_sa=short_sa, max_xa=50,
            soft_clip_supplementary=paired, extended_cigar=not paired, xa_ratio=0.1,
        )  # fmt: skip
        # The read may be longer than the alignment, and clipped at both ends.
        found = [[noisy_alignment(rng, genome) for _ in range(k % 9)] for k in range(60)]
        at = int(genome.starts[0])
        found += [[Aligned(k, 0, at, at + 800, 50, 850, 800, 0, "800=")] for k in range(2)]
        length = 900  # which --cs=long and --ds spell, each
        reads = reads_of([random_letters(rng, length) for _ in found], paired=paired)
        alignments = batch_of(found)
        placed = place(reads, no_seeds(len(found)), alignments, assumed_model())
        layout = make_contigs(["x" * 200, "y" * 40, "z"], ["*"] * 3, genome.lengths.tolist())
        names = make_names(layout, "a group")
        records = make_records(reads, alignments, placed, names, genome.fm.ref_planes, params)
        sizes = np.diff(records.tag_offsets)
        row = 0
        for read in range(reads.n_reads):
            first, end = alignments.alignment_offsets[read : read + 2]
            mate_primary = placed.primary[read ^ 1] if paired else -1
            turn = first - 1
            while turn < end:
                this = placed.primary[read] if turn < first else turn
                room = tag_room(
                    reads.base_offsets, alignments, placed.role, read, this, mate_primary,
                    len(names.read_group), names.longest, params,
                )  # fmt: skip
                assert sizes[row] <= room
                row += 1
                turn = next_turn(placed.role, turn, end, all_alignments)
        assert row == records.n_records
        assert sizes.max() > 500  # more than is reserved for any record


@pytest.mark.parametrize("all_alignments", [False, True])
def test_mate_fields_agree(all_alignments: bool) -> None:
    given = sample(9, paired=True, n_pairs=150)
    records = records_of(given, Options(all_alignments=all_alignments))
    primary = [
        [i for i in np.flatnonzero(records.read == read) if not records.flag[i] & 0x900]
        for read in range(given.reads.n_reads)
    ]
    assert all(len(rows) == 1 for rows in primary)
    n_half = n_both = 0
    for read in range(0, given.reads.n_reads, 2):
        (a,), (b,) = primary[read], primary[read + 1]
        assert records.flag[a] & 0xC1 == 0x41 and records.flag[b] & 0xC1 == 0x81
        assert records.template_len[a] + records.template_len[b] == 0
        for one, other in ((a, b), (b, a)):
            assert bool(records.flag[one] & 8) == bool(records.flag[other] & 4)
            assert bool(records.flag[one] & 32) == bool(records.flag[other] & 16)
            assert records.next_ref_id[one] == records.ref_id[other]
            assert records.next_pos[one] == records.ref_pos[other]
        mapped = [not records.flag[i] & 4 for i in (a, b)]
        if sum(mapped) == 1:
            n_half += 1
            assert records.ref_id[a] == records.ref_id[b] >= 0
            assert records.ref_pos[a] == records.ref_pos[b] >= 0
            lost = a if records.flag[a] & 4 else b
            assert records.mapq[lost] == 0
            assert records.cigar_offsets[lost] == records.cigar_offsets[lost + 1]
        elif not any(mapped):
            assert records.ref_id[a] == records.ref_id[b] == -1
            assert records.ref_pos[a] == records.next_pos[a] == -1
        else:
            n_both += 1
            assert bool(records.flag[a] & 2) == bool(records.flag[b] & 2)
            if records.flag[a] & 2:
                assert records.template_len[a] != 0
    assert n_half > 20 and n_both > 60
    # Mates in input order, supplementary and secondary records after their primary.
    assert (np.diff(records.read) >= 0).all()
    starts = np.flatnonzero(np.diff(records.read, prepend=-1))
    assert not (records.flag[starts] & 0x900).any()


def test_nothing_to_write() -> None:
    genome = genome_of(["ACGTACGTAC", "ACG", "AC"])
    for sequences in ([], ["", ""], ["N", ""]):
        reads = reads_of(sequences, paired=True)
        alignments = batch_of([[] for _ in sequences])
        placements = place(reads, no_seeds(len(sequences)), alignments, assumed_model())
        given = Sample(genome, reads, alignments, placements)
        lines = sam_lines(records_of(given, Options()), reads, list(NAMES))
        expected = [
            f"read0\t{flag}\t*\t0\t0\t*\t*\t0\t0\t{letters or '*'}\t{'?' * len(letters) or '*'}"
            for flag, letters in zip((77, 141), sequences, strict=False)
        ]
        assert [line.split("\tms:")[0] for line in lines] == expected


def test_records_do_not_depend_on_batch_cuts() -> None:
    given = sample(5, paired=True)
    whole = sam_lines(records_of(given, Options()), given.reads, list(NAMES))
    rows = alignments_of(given.alignments)
    sequences = [read.letters for read in objects_of(given)]
    quals = [read.quals for read in objects_of(given)]
    parts = []
    for i in range(0, len(rows), 14):
        part = slice(i, i + 14)
        reads = reads_of(
            sequences[part], quals=quals[part], paired=True,
            names=[f"r{j // 2}" for j in range(i, min(i + 14, len(rows)))],
        )  # fmt: skip
        alignments = batch_of(rows[part])
        placements = place(reads, no_seeds(reads.n_reads), alignments, assumed_model())
        cut = Sample(given.genome, reads, alignments, placements)
        parts += sam_lines(records_of(cut, Options()), reads, list(NAMES))
    assert parts == whole
