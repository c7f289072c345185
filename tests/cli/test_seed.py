"""``fmwave seed`` equals the oracle for every format, batch size and number of threads."""

from __future__ import annotations

import gzip
import os
import threading

import numpy as np
import pytest

from mapper.cli.main import main
from mapper.cli.seed import NO_LIMIT
from mapper.cuda.devices import find_devices
from mapper.kmers import pipeline
from mapper.kmers.pipeline import EXPECTED_HITS, FEWEST_KMERS, HITS_OF_BATCH, most_kmers
from mapper.params import KmerParams
from tests.helpers.read_batches import mutated, random_letters
from tests.naive import kmers as naive

HEADER = "read\toffset\tstrand\tcontig\tposition\tmismatches\n"
RNG = np.random.default_rng(5)
UNIT = random_letters(RNG, 60)
CONTIGS = {
    "chr1": random_letters(RNG, 400) + UNIT + "NNNN" + UNIT + "A" * 40,
    "chr2": mutated(RNG, UNIT, 0.05) + random_letters(RNG, 200),
    "tiny": "ACGTACGTACG",
}
READS = {
    "one": mutated(RNG, CONTIGS["chr1"][380:450], 0.03),
    "two": naive.opposite(CONTIGS["chr2"][:50]),
    "short": "ACGTA",
    "three": "A" * 20 + "N" + UNIT[:30],
}
K = 14


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    directory = tmp_path_factory.mktemp("index")
    fasta = directory / "ref.fa"
    fasta.write_text("".join(f">{name}\n{letters}\n" for name, letters in CONTIGS.items()))
    assert main(["index", str(fasta), "--quiet"]) == 0
    return str(directory / "ref.fmw")


def expected(reads, stride, most, max_hits):
    """Return the content of the two files that the command should write."""
    contigs, names = list(CONTIGS), list(reads)
    matches, skipped, _ = naive.search(
        list(CONTIGS.values()), list(reads.values()), K, stride, most, max_hits
    )
    lines = [
        f"{names[m.read]}\t{m.offset}\t{'+-'[m.strand]}\t{contigs[m.contig]}\t{m.position}"
        f"\t{m.mismatches}\n"
        for m in matches
    ]
    return HEADER + "".join(lines), "read\toffset\n" + "".join(
        f"{names[read]}\t{offset}\n" for read, offset in skipped
    )


def as_fastq(reads):
    return "".join(f"@{name} x\n{bases}\n+\n{'I' * len(bases)}\n" for name, bases in reads.items())


def as_wrapped_fasta(reads):
    return "".join(
        f">{name} x\r\n"
        + "".join(f"{bases[i : i + 7]}\r\n" for i in range(0, len(bases), 7))
        + "\n"
        for name, bases in reads.items()
    )


def seed(tmp_path, index, text, *options):
    """Run the command; return its two files."""
    given = tmp_path / "reads"
    given.write_bytes(text if isinstance(text, bytes) else text.encode())
    out, skipped = tmp_path / "out.tsv", tmp_path / "skipped.tsv"
    status = main(
        ["seed", index, str(given), "-k", str(K), "-o", str(out), "--skipped", str(skipped),
         "--device", "cpu", *options]
    )  # fmt: skip
    assert status == 0
    return out.read_text(), skipped.read_text()


@pytest.mark.parametrize("most", [0, 1, 2])
def test_output_is_the_oracle_whatever_threads_and_batches(tmp_path, index, most, monkeypatch):
    wanted = expected(READS, 3, most, 6)
    assert wanted[0].count("\n") > 10
    assert wanted[1].count("\n") > 1
    options = ["--stride", "3", "--mismatches", str(most), "--max-hits", "6"]
    for more in ([], ["-t", "2", "--batch-kmers", "1"], ["-t", "1", "--batch-kmers", "7"]):
        assert seed(tmp_path, index, as_fastq(READS), *options, *more) == wanted
    monkeypatch.setattr(pipeline, "HITS_OF_TEXT", 2)
    monkeypatch.setitem(pipeline.READ_BASES, "cpu", 60)
    assert seed(tmp_path, index, as_fastq(READS), *options, "-t", "2") == wanted


def test_fasta_list_and_gzip_are_read(tmp_path, index):
    wanted = expected(READS, 1, 1, 128)
    fasta = as_wrapped_fasta(READS)
    for text in (fasta, fasta.rstrip(), gzip.compress(fasta.encode())):
        assert seed(tmp_path, index, text, "--mismatches", "1") == wanted
    kmers = {READS["one"][i : i + K]: READS["one"][i : i + K] for i in range(0, 40, 9)}
    for text in ("\n".join(kmers), "".join(f"{kmer}\r\n\n" for kmer in kmers)):
        assert seed(tmp_path, index, text) == expected(kmers, 1, 0, 128)


def test_no_limit_and_standard_output(tmp_path, index, capfdbinary):
    reads = {"a": "A" * 20}
    given = tmp_path / "a.fa"
    given.write_text(as_wrapped_fasta(reads))
    options = ["-k", str(K), "--max-hits", "0", "--mismatches", "2", "--device", "cpu"]
    assert main(["seed", index, str(given), *options]) == 0
    wanted = expected(reads, 1, 2, 10**9)[0]
    assert wanted.count("\n") > 128
    out, err = capfdbinary.readouterr()
    assert out.decode() == wanted
    assert b"left out: 0 with an ambiguous base" in err  # none for the number of its matches


def test_batches_without_a_limit_are_sized_by_the_text():
    """One base has a quarter of the text on each strand: 4,096 such k-mers filled the memory."""
    few = KmerParams(kmer_len=1, max_hits=NO_LIMIT)
    assert most_kmers(few, 358_242) * 2 * 358_242 // 4 <= EXPECTED_HITS
    assert most_kmers(few, 3 * 10**9) == 1
    assert most_kmers(few._replace(kmer_len=2, max_mismatches=2), 1000) == EXPECTED_HITS // 2001
    assert most_kmers(few._replace(kmer_len=30), 3 * 10**9) == FEWEST_KMERS
    assert most_kmers(few._replace(max_hits=128), 3 * 10**9) == HITS_OF_BATCH // 128


def test_outputs_that_would_be_overwritten(tmp_path, index, capfd):
    reads = tmp_path / "reads.list"
    reads.write_text("ACGTACGTACGT\n")
    words = ["seed", str(index), str(reads), "-k", "10", "--device", "cpu"]
    (tmp_path / "link").symlink_to("out.tsv")
    out = str(tmp_path / "out.tsv")
    for options, message in (
        (["-o", str(reads)], "is the file of reads"),
        (["-o", out, "--skipped", str(reads)], "is the file of reads"),
        (["-o", out, "--skipped", str(tmp_path / "link")], "is the output"),
    ):
        assert main([*words, *options]) == 2
        assert message in capfd.readouterr().err
    assert reads.read_text() == "ACGTACGTACGT\n"
    assert not (tmp_path / "out.tsv").exists()


def test_a_pipe_is_read_once(tmp_path, index):
    """Reads of a pipe, as from ``<(zcat reads.fq.gz)``; FASTA is recognised too."""
    wanted = seed(tmp_path, index, as_fastq(READS))[0]
    for name, text in (("q", as_fastq(READS)), ("a", as_wrapped_fasta(READS))):
        pipe = tmp_path / name
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_text, args=(text,))
        writer.start()
        out = tmp_path / "out.tsv"
        words = ["seed", str(index), str(pipe), "-k", str(K), "--device", "cpu", "-o", str(out)]
        assert main(words) == 0
        writer.join()
        assert out.read_text() == wanted


def test_counts_are_reported(tmp_path, index, capfd):
    seed(tmp_path, index, as_fastq(READS), "--max-hits", "1")
    _, skipped, n_ambiguous = naive.search(list(CONTIGS.values()), list(READS.values()), K, 1, 0, 1)
    report = capfd.readouterr().err
    assert f"{len(skipped)} with more than 1 matches" in report
    assert f"{n_ambiguous} with an ambiguous base" in report


@pytest.mark.parametrize("text", ["", gzip.compress(b"")])
def test_an_empty_file_has_no_reads(tmp_path, index, text):
    assert seed(tmp_path, index, text) == expected({}, 1, 0, 128)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (">a\nACGT\n>\nACGT\n", "record 2: has no name"),
        (">a\nAC!GT\n", "record 1: character '!'"),
        ("ACGT\nAC GT\n", "record 2: character ' '"),
        ("@a\nACGT\n", "record 1"),
    ],
)
def test_bad_input_stops_and_leaves_no_output(tmp_path, index, capfd, text, message):
    given, out = tmp_path / "bad", tmp_path / "out.tsv"
    given.write_text(text)
    assert main(["seed", index, str(given), "-o", str(out), "--device", "cpu"]) == 1
    assert message in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == [given]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-k", "65"], "1 to 64"),
        (["-k", "0"], "1 to 64"),
        (["--mismatches", "3"], "0 to 2"),
        (["--stride", "0"], "--stride 0"),
        (["--max-hits", "-1"], "--max-hits -1"),
        (["--device", "gpu"], "cuda:0,2"),
        (["-o", "x", "--skipped", "x"], "is the output"),
    ],
)
def test_options_that_cannot_be_meant(index, capfd, options, message):
    assert main(["seed", index, "reads.fq", *options]) == 2
    assert message in capfd.readouterr().err


def test_cuda_without_a_device_is_status_3(tmp_path, index, capfd):
    if not find_devices().problem:
        pytest.skip("there is a device")
    assert main(["seed", index, "reads.fq", "--device", "cuda"]) == 3
    assert "--device cuda" in capfd.readouterr().err


@pytest.mark.gpu
def test_a_device_writes_what_the_cpu_writes(device, tmp_path, index, monkeypatch):
    """One device named twice works as two: results are put back in order."""
    from mapper.cuda.api import SIMULATED

    wanted = expected(READS, 5, 1, 6)
    options = ["--stride", "5", "--mismatches", "1", "--max-hits", "6"]
    several = ["--device", "cuda:0,0", "--batch-kmers", "9"]
    if SIMULATED:  # its kernels replace module globals while they run: one thread only
        monkeypatch.setattr(pipeline, "STREAMS_OF_DEVICE", 1)
        several[1] = "cuda:0"
    for more in (["--device", "cuda:0"], several):
        assert seed(tmp_path, index, as_fastq(READS), *options, *more, "-t", "2") == wanted
