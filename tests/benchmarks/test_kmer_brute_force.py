"""The scan that k-mer seeding is compared with says what the oracle of the tests says."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies import kmer_brute_force as brute_force
from tests.helpers.read_batches import mutated, random_letters
from tests.naive import kmers as naive


def write(path: Path, contigs: dict[str, str]) -> Path:
    path.write_text("".join(f">{name} x\n{text}\n" for name, text in contigs.items()))
    return path


def test_the_scan_is_the_oracle(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    unit = random_letters(rng, 80)
    genome = {"one": unit + "NNNN" + mutated(rng, unit, 0.1), "two": "ac" * 20, "tiny": "ACG"}
    contigs = list(brute_force.read_contigs(write(tmp_path / "x.fa", genome)))
    text = np.concatenate([codes for _, codes in contigs])
    for k, most in ((5, 0), (9, 1), (12, 2)):
        kmers = brute_force.sample(rng, text, 70, k, most)
        letters = ["".join("ACGT"[code] for code in row) for row in kmers.tolist()]
        upper = [text.upper() for text in genome.values()]
        matches, _, _ = naive.search(upper, letters, k, k, most, 10**6)
        names = list(genome)
        assert brute_force.expected(kmers, contigs, most) == [
            f"k{m.read}\t0\t{'+-'[m.strand]}\t{names[m.contig]}\t{m.position}\t{m.mismatches}\n"
            for m in matches
        ]


@pytest.mark.parametrize("spoil", [False, True])
def test_a_line_that_differs_is_told(tmp_path: Path, monkeypatch, spoil: bool) -> None:
    genome = {"one": random_letters(np.random.default_rng(2), 500)}
    fasta = write(tmp_path / "x.fa", genome)
    run = brute_force.run

    def spoiling(command, log):
        seconds = run(command, log)
        if spoil:
            out = tmp_path / "out.tsv"
            out.write_text(out.read_text().replace("\t+\t", "\t-\t", 1))
        return seconds

    monkeypatch.setattr(brute_force, "run", spoiling)
    monkeypatch.setattr(brute_force, "SETS", ((12, 1),))
    index = brute_force.index_of(fasta, tmp_path)
    options = argparse.Namespace(kmers=20, device=["cpu"])
    contigs = list(brute_force.read_contigs(fasta))
    (row,) = brute_force.check(index, contigs, options, tmp_path)
    assert row["same"] is not spoil
    assert row["matches"] > 10
