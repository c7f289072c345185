"""The check of planted k-mers: it finds the letters by arithmetic, and whatever is wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.common import planted
from benchmarks.common.genome import contig_ends, write_fasta
from benchmarks.common.harness import BenchmarkError
from benchmarks.whole_genome import WholeGenome, parser
from mapper import dna
from mapper.cli.main import main as fmwave

SIZE, K = 6011, 12
HEADER = "read\toffset\tstrand\tcontig\tposition\tmismatches\n"


@pytest.fixture
def genome(tmp_path):
    """24 contigs of random bases, a stretch of N in some."""
    text = np.random.default_rng(1).integers(0, 4, SIZE).astype(np.uint8)
    text[1000:1020] = dna.AMBIGUOUS
    text[[end - 1 for end in contig_ends(SIZE)]] = dna.AMBIGUOUS
    write_fasta(text, tmp_path / "genome.fa")
    return planted.Genome(tmp_path / "genome.fa", SIZE), dna.decode(text)


def test_letters_are_found_by_arithmetic(genome) -> None:
    fasta, text = genome
    contigs, positions, letters = fasta.cut(500, K, 900, 1)
    assert 400 < len(contigs) < 500
    for contig, position, kmer in zip(contigs, positions, letters, strict=True):
        start = fasta.starts[contig] + position
        assert start >= 900
        assert kmer.tobytes().decode() == text[start : start + K]
    with pytest.raises(BenchmarkError, match="beyond the end"):
        fasta.at(np.array([0]), np.array([fasta.lengths[0] - K + 1]), K)
    with pytest.raises(BenchmarkError, match="no genome of"):
        planted.Genome(fasta.letters.filename, SIZE + 100)


@pytest.mark.medium
def test_the_whole_program_and_what_it_refuses(genome, tmp_path, capsys) -> None:
    fasta, _ = genome
    index, out = tmp_path / "genome.fmw", tmp_path / "planted.json"
    assert fmwave(["index", str(tmp_path / "genome.fa"), "-o", str(index), "--device", "cpu"]) == 0
    given = [str(tmp_path / "genome.fa"), str(index), "--size", str(SIZE), "--device", "cpu"]
    given += ["--json", str(out), "-n", "60", "-k", str(K), "--from", "3000"]
    assert planted.main(given) == 0
    found = json.loads(out.read_text())
    assert (found["left_out"], found["first"]) == (0, 3000)
    assert 50 < found["planted"] <= found["beyond"] <= found["hits"]

    *where, letters = fasta.cut(60, K, 3000, 3)
    kmers = planted.turned(letters, np.arange(len(letters)) % 2 == 1)
    tsv, skipped = out.with_suffix(".tsv"), out.with_suffix(".skipped.tsv")
    lines = tsv.read_text().splitlines(keepends=True)

    def check(*rows: str) -> dict[str, int]:
        tsv.write_text("".join(rows))
        return planted.check(fasta, tuple(where), kmers, tsv, skipped, 3000)

    assert check(*lines)["hits"] == found["hits"]
    with pytest.raises(BenchmarkError, match="1 k-mers are not found"):
        check(*lines[:-1])
    read, offset, strand, contig, position, mismatches = lines[5].split("\t")
    for other in (
        [read, offset, strand, contig, str(int(position) + 1), mismatches],
        [read, offset, "+-"[strand == "+"], contig, position, mismatches],
        [str(int(read) ^ 1), offset, strand, contig, position, mismatches],
    ):
        with pytest.raises(BenchmarkError, match="another k-mer is there"):
            check(*lines, "\t".join(other))
    with pytest.raises(BenchmarkError, match="beyond the end"):
        check(*lines, "\t".join([read, offset, strand, contig, str(SIZE), mismatches]))
    skipped.write_text("read\toffset\n" + lines[-1].split("\t")[0] + "\t0\n")
    assert check(*lines[:-1])["left_out"] == 1


def test_what_does_not_fit_the_time_is_left_out_and_named(tmp_path) -> None:
    given = ["4.4G", "--work", str(tmp_path), "--limit-s", "60", "--score-pairs", "100000"]
    genome = WholeGenome(parser().parse_args([*given, "--commit", "0123456"]))
    assert genome.fits("a load", "load")  # 40 s
    assert not genome.fits("a peer", "peer")  # 102 s
    (dropped,) = genome.report["dropped"]
    assert dropped.startswith("a peer (102 s expected, ")
    genome.steps.rows.append({"step": "fmwave map --device cuda", "wall_s": 59.0})
    assert not genome.fits("a round", "round")
