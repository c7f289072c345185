"""The parts of the whole-genome benchmark: its FASTA, reads, scores of far reads, time limit."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
from isal import igzip

from benchmarks.common.genome import contig_ends, contig_names, write_fasta
from benchmarks.common.harness import SHARED, BenchmarkError, kit
from benchmarks.common.score_first import count_far, first_pairs
from benchmarks.common.time_limit import OutOfTimeError, Steps
from benchmarks.common.whole_genome_data import far_contigs, first_lines, gzipped, simulate
from benchmarks.common.whole_genome_report import PEER, rate_lines
from mapper import dna
from mapper.io.bgzf import EOF_BLOCK


def text_of(n: int, n_contigs: int) -> np.ndarray:
    text = np.random.default_rng(1).integers(0, 4, n).astype(np.uint8)
    text[[end - 1 for end in contig_ends(n, n_contigs)]] = dna.AMBIGUOUS
    return text


@pytest.mark.parametrize(("n", "n_contigs"), [(5, 1), (101, 1), (102, 1), (2000, 7)])
def test_fasta_holds_the_text(tmp_path, n, n_contigs):
    text = text_of(n, n_contigs)
    write_fasta(text, tmp_path / "genome.fa", 2, n_contigs)
    records = (tmp_path / "genome.fa").read_text().split(">")[1:]
    assert [record.split("\n")[0] for record in records] == contig_names(n_contigs)
    joined = "N".join("".join(record.split("\n")[1:]) for record in records) + "N"
    assert joined == dna.decode(text)
    assert all(len(line) <= 100 for record in records for line in record.split("\n"))


def test_far_contigs_begin_at_the_boundary():
    assert contig_ends(100, 4) == [25, 50, 75, 100]
    assert far_contigs(100, 60, 4) == {"chr3": 10, "chr4": 0}
    assert far_contigs(100, 99, 4) == {}


@pytest.mark.parametrize(
    ("flag", "rname", "pos", "cigar", "counted"),
    [
        (99, "chr2", 1001, "150M", {"reads": 1, "mapped": 1, "right": 1}),
        (99, "chr2", 1001, "100M2D40M10S", {"reads": 1, "mapped": 1, "right": 1}),
        (83, "chr2", 1001, "150M", {"reads": 1, "mapped": 1}),  # other strand
        (99, "chr1", 1001, "150M", {"reads": 1, "mapped": 1}),
        (99, "chr2", 1200, "150M", {"reads": 1, "mapped": 1}),  # beside it
        (77, "*", 0, "*", {"reads": 1}),
        (99 | 0x800, "chr2", 1001, "150M", {}),
        (163, "chr2", 701, "150M", {}),  # the last of the pair is not far
    ],
)
def test_far_reads_are_counted_by_mapevals_rule(flag, rname, pos, cigar, counted):
    line = f"S5!chr2!1000_700!1150_850!+-\t{flag}\t{rname}\t{pos}\t29\t{cigar}\t*\n".encode()
    far: Counter[str] = Counter()
    count_far(line, {"chr2": 900}, far)
    assert {key: n for key, n in far.items() if n} == counted


def test_records_of_first_pairs():
    lines = [b"@HD\n", b"S0!a\n", b"S0!a\n", b"S1!a\n", b"S2!a\n", b"S10!a\n"]
    assert list(first_pairs(iter(lines), 2)) == lines[:4]


def test_the_first_lines_are_a_fasta(tmp_path):
    (tmp_path / "a.fa").write_text(">x\nACGT\nAC\n>y\nGG\n")
    for n_bytes, content in ((100, ">x\nACGT\nAC\n>y\nGG\n"), (14, ">x\nACGT\nAC\n"),
                             (12, ">x\nACGT\nAC\n"), (9, ">x\nACGT\n")):  # fmt: skip
        assert first_lines(tmp_path / "a.fa", tmp_path / "b.fa", n_bytes).read_text() == content


def test_reads_are_compressed_again_as_one_member(tmp_path):
    text = b"@r\nACGT\n+\nIIII\n" * 1000
    members = igzip.compress(text[:900]) + igzip.compress(text[900:])
    (tmp_path / "r.fq.gz").write_bytes(members)
    plain = gzipped(tmp_path / "r.fq.gz")
    assert plain != tmp_path / "r.fq.gz"
    one = zlib.decompressobj(wbits=31)
    assert one.decompress(plain.read_bytes()) == text
    assert one.eof
    assert not one.unused_data


def test_rates_are_of_whole_processes_and_without_their_start():
    def run(process_s: float, own: int) -> dict[str, Any]:
        return {"counts": {"reads": 3000}, "process_s": process_s, "reads_per_second": own}

    report = {
        "options": {"pairs": 1500}, "plain_runs": {"cuda": [run(3.0, 1200)]},
        "runs": {"cuda": [run(2.0, 1600), run(1.0, 3500), run(1.5, 2100)]},
        "steps": [{"step": PEER, "wall_s": 30.0}, {"step": "other", "wall_s": 1.0}],
    }  # fmt: skip
    lines = rate_lines(report)[2:-1]
    assert [line.split(" | ")[1:] for line in lines] == [
        ["3", "2,000 (1,500–3,000)", "2,100 (1,600–3,500) |"],
        ["1", "1,000 (1,000–1,000)", "1,200 (1,200–1,200) |"],
        ["1", "100", "– |"],
    ]


def test_steps_end_at_the_limit(tmp_path):
    steps = Steps(60)
    steps.run("true", [sys.executable, "-c", ""], tmp_path / "log")
    with pytest.raises(BenchmarkError, match="exit"):
        steps.run("fails", [sys.executable, "-c", "exit(3)"], tmp_path / "log")
    steps.limit_s = steps.elapsed() + 0.5
    with pytest.raises(OutOfTimeError, match="sleeps: ended"):
        steps.run("sleeps", ["sleep", "60"], tmp_path / "log")
    with pytest.raises(OutOfTimeError, match="late: not begun"):
        steps.run("late", ["true"], tmp_path / "log")
    assert [row["step"] for row in steps.rows] == ["true"]


@pytest.mark.slow
@pytest.mark.skipif(
    "FMWAVE_EVAL" not in os.environ and not (SHARED / "eval").is_dir(),
    reason="no evaluation kit: ../shared/eval is not there and FMWAVE_EVAL not set",
)
@pytest.mark.parametrize("bgzf", [False, True])
def test_reads_are_those_of_the_kit(tmp_path, bgzf):
    program = kit("simulate.py")
    text = text_of(40_000, 3)
    ends = contig_ends(len(text), 3)
    contigs = [text[a : b - 1] for a, b in zip([0, *ends], ends, strict=False)]
    write_fasta(text, tmp_path / "genome.fa", 1, 3)
    options = ["-n", "200", "--paired"]
    simulate(contig_names(3), contigs, tmp_path / "ours", options, 2, seed=5, bgzf=bgzf)
    command = [sys.executable, program, tmp_path / "genome.fa", tmp_path / "theirs", *options]
    subprocess.run([*command, "--seed", "5", "--threads", "2"], check=True)
    for mate in (1, 2):
        ours, theirs = (
            igzip.decompress((tmp_path / f"{who}_{mate}.fq.gz").read_bytes())
            for who in ("ours", "theirs")
        )
        assert ours == theirs
        assert (tmp_path / f"ours_{mate}.fq.gz").read_bytes().endswith(EOF_BLOCK) == bgzf
