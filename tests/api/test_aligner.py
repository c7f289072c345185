"""Mapping from Python gives the records of the command, whatever form the reads have."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pysam
import pytest

import mapper
from mapper.api import aligner as aligner_module
from mapper.batch import ReadBatch
from mapper.cli.main import main
from mapper.mapping import pipeline
from tests.helpers.mapping_runs import DATA, World

PHIX = DATA / "phix174.fa"
START = "GAGTTTTATCGCTTCCATGACGCAGAAGTTAACACTTTC"
"""The first bases of phiX."""


def command_bam(world: World, target: Path, *arguments: str) -> bytes:
    """Return the records that the command writes, uncompressed, without the header."""
    argv = ["map", world.index_path, *arguments, "-o", str(target), "-t", "2", "--quiet"]
    assert main(argv) == 0
    return records_of_bam(target)


def records_of_bam(path: Path) -> bytes:
    import gzip
    import struct

    data = gzip.decompress(path.read_bytes())
    (n_text,) = struct.unpack_from("<i", data, 4)
    at = 8 + n_text
    (n_contigs,) = struct.unpack_from("<i", data, at)
    at += 4
    for _ in range(n_contigs):
        (n_name,) = struct.unpack_from("<i", data, at)
        at += 8 + n_name
    return data[at:]


def triples(world: World, rows: slice = slice(None)) -> list[tuple[str, str, str]]:
    return [(r.name, r.letters, r.quals) for r in world.reads[rows]]


FIRST, SECOND = slice(0, None, 2), slice(1, None, 2)


@pytest.fixture
def early_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeze the insert size after 200 pairs, so that most batches come after that."""
    monkeypatch.setattr(pipeline, "ESTIMATION_PAIRS", 200)


@pytest.fixture(scope="module")
def phix() -> Iterator[mapper.Aligner]:
    with mapper.Aligner(PHIX, device="cpu", threads=2) as opened:
        yield opened


OPTIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "default": ({}, ()),
    "all, = and X, read group": (
        {"all_alignments": True, "extended_cigar": True, "read_group": "@RG\tID:g\tSM:s"},
        ("-a", "--eqx", "-R", "@RG\\tID:g\\tSM:s"),
    ),
    "scores, soft clips": (
        {"match": 2, "mismatch": 6, "min_score": 50, "soft_clip_supplementary": True},
        ("-A", "2", "-B", "6", "-T", "50", "-Y"),
    ),
}


@pytest.mark.usefixtures("early_estimate")
@pytest.mark.parametrize(("options", "flags"), OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("batch_bases", [5_000, None])
def test_the_records_of_the_command(world, tmp_path, options, flags, batch_bases) -> None:
    single = command_bam(world, tmp_path / "s.bam", world.both, *flags)
    pairs = command_bam(world, tmp_path / "p.bam", world.first, world.second, *flags)
    assert single != pairs
    with mapper.Aligner(
        world.index_path, device="cpu", threads=2, batch_bases=batch_bases, **options
    ) as aligner:
        assert aligner.map(triples(world)).to_bam() == single
        first, second = triples(world, FIRST), triples(world, SECOND)
        assert aligner.map(first, second).to_bam() == pairs
        assert aligner.map(triples(world), interleaved=True).to_bam() == pairs
        assert aligner.map(list(zip(first, second, strict=True))).to_bam() == pairs
        for stream in (
            aligner.map(iter(triples(world)), interleaved=True),
            aligner.map(iter(first), iter(second)),
            aligner.map(zip(first, second, strict=True)),
            aligner.map(Path(world.first), Path(world.second)),
            aligner.map(Path(world.both), interleaved=True),
        ):
            assert b"".join(hits.to_bam() for hits in stream.batches()) == pairs
            assert stream.insert_size is not None
            assert 340 < stream.insert_size.mean < 360


def test_records_of_dnaio_and_pysam(world, tmp_path, phix) -> None:
    """Objects with a name, a sequence and qualities; names with comments, and /1."""
    single = command_bam(world, tmp_path / "s.bam", world.both)
    with mapper.Aligner(world.index, device="cpu", threads=1) as aligner:
        likes_dnaio = (
            SimpleNamespace(name=f"{name}/1 1:N:0:ACGT", sequence=sequence, qualities=qualities)
            for name, sequence, qualities in triples(world)
        )
        stream = aligner.map(likes_dnaio)
        assert b"".join(hits.to_bam() for hits in stream.batches()) == single
        with pysam.FastxFile(world.both) as reads:
            stream = aligner.map(reads)
            assert b"".join(hits.to_bam() for hits in stream.batches()) == single
        mapped = aligner.map(triples(world))
        primary = mapped[(mapped.flag & 0x900) == 0].to_pysam()
        assert any(record.is_reverse for record in primary)
        again = aligner.map(iter(primary))
        assert b"".join(hits.to_bam() for hits in again.batches()) == single
        supplementary = mapped[(mapped.flag & 0x800) != 0].to_pysam()
        with pytest.raises(mapper.UsageError, match="secondary or supplementary"):
            aligner.map([supplementary[0]])


def test_reads_without_names_are_numbered_and_have_no_qualities(world, tmp_path) -> None:
    letters = [read.letters for read in world.reads]
    fasta = tmp_path / "reads.fa"
    fasta.write_text("".join(f">{i}\n{read}\n" for i, read in enumerate(letters)))
    single = command_bam(world, tmp_path / "s.bam", str(fasta))
    flat = np.frombuffer("".join(letters).encode(), np.uint8)
    offsets = np.cumsum([0, *map(len, letters)])
    with mapper.Aligner(world.index, device="cpu", threads=2) as aligner:
        for reads in (letters, [read.encode() for read in letters], (flat, offsets)):
            assert aligner.map(reads).to_bam() == single
        halves = [(letters[0::2], letters[1::2]), (letters, None)]
        pairs = [
            aligner.map(reads, mates, interleaved=mates is None).to_bam() for reads, mates in halves
        ]
        sides = []
        for own in (letters[0::2], letters[1::2]):
            sides.append((np.frombuffer("".join(own).encode(), np.uint8),
                          np.cumsum([0, *map(len, own)])))  # fmt: skip
        pairs.append(aligner.map(*sides).to_bam())
        pairs.append(aligner.map((flat, offsets), interleaved=True).to_bam())
        assert all(records == pairs[0] for records in pairs)
        hits = aligner.map(letters[:2], interleaved=True)
        assert {hit.name for hit in hits} == {"0"}


def test_a_batch_of_reads(world, tmp_path) -> None:
    pairs = command_bam(world, tmp_path / "p.bam", world.first, world.second)
    for batch_bases in (7_000, None):
        with mapper.Aligner(
            world.index, device="cpu", threads=2, batch_bases=batch_bases
        ) as aligner:
            first = aligner.map(triples(world), interleaved=True)
            assert isinstance(first.reads, ReadBatch)
            assert aligner.map(first.reads).to_bam() == pairs
    with pytest.raises(mapper.UsageError, match="codes below 15"):
        aligner_of_letters = first.reads._replace(bases=first.reads.bases + 65)
        mapper.Aligner(world.index, device="cpu", threads=1).map(aligner_of_letters)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"flags": np.ones(2, np.uint16)}, "flags are uint16, one for each read"),
        ({"flags": np.array([1, 0, 0], np.uint16)}, "an odd number of reads has the flag of pairs"),
        ({"tag_offsets": [0, 4, 8]}, "tags are flat uint8"),
        ({"tag_offsets": [0, 4, 8, 10**9]}, "tags are flat uint8"),
        ({"tag_offsets": [0, 10**9, 4, 8]}, "tags are flat uint8"),
        ({"tag_offsets": [0, 8, 4, 8]}, "tags are flat uint8"),
        ({"tag_offsets": [0, 4, 7, 8]}, "tags are flat uint8"),
        ({"tags": np.frombuffer(b"XAAxXBZy", np.uint8)}, "tags are flat uint8"),
    ],
    ids=str,
)
def test_flags_and_tags_of_a_batch_are_checked(phix, columns, message) -> None:
    batch = phix.map(["ACGT"] * 3).reads
    tags = {"tags": np.frombuffer(b"XAAxXBAy", np.uint8), "tag_offsets": [0, 4, 8, 8]} | columns
    tags["tag_offsets"] = np.array(tags["tag_offsets"], np.int64)
    with pytest.raises(mapper.UsageError, match=message):
        phix.map(batch._replace(**tags))


def test_some_reads_have_qualities(phix) -> None:
    records = phix.map([("a", START, "I" * 39), ("b", START, None), START]).to_pysam()
    assert [record.query_name for record in records] == ["a", "b", "2"]
    assert [record.qual for record in records] == ["I" * 39, None, None]


def test_no_reads(phix) -> None:
    for hits in (phix.map([]), phix.map([], []), phix.map(np_nothing())):
        assert len(hits) == 0
        assert list(hits) == []
        assert hits.to_bam() == b""
    assert list(phix.map(iter([]))) == []
    assert [hit.is_mapped for hit in phix.map("")] == [False]


def np_nothing() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(0, np.uint8), np.zeros(1, np.int64)


# --- the insert size ---


def test_the_insert_size_is_that_of_a_call_unless_it_is_given(world, tmp_path) -> None:
    pairs = command_bam(world, tmp_path / "p.bam", world.first, world.second)
    with mapper.Aligner(world.index, device="cpu", threads=2) as aligner:
        whole = aligner.map(triples(world), interleaved=True)
        assert whole.to_bam() == pairs
        assert whole.insert_size is not None
        cut = len(world.reads) // 4 * 2
        parts = [
            aligner.map(reads, interleaved=True, insert_size=whole.insert_size).to_bam()
            for reads in (triples(world, slice(cut)), triples(world, slice(cut, None)))
        ]
        assert b"".join(parts) == pairs
        few = aligner.map(triples(world, slice(4)), interleaved=True).insert_size
        assert few is not None
        assert (few.low, few.high, few.n_pairs) == (1, 1000, 0)
        given = aligner.map(triples(world), interleaved=True, insert_size=(350, 40))
        assert given.to_bam() == command_bam(
            world, tmp_path / "i.bam", world.first, world.second, "-I", "350,40"
        )
        assert aligner.map(START).insert_size is None


# --- streams ---


def test_a_stream_takes_reads_while_it_is_read(phix) -> None:
    """Some batches are in work, whatever the length of the input, which may have no end."""
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield START

    with mapper.Aligner(phix.index, device="cpu", threads=1, batch_bases=20_000) as aligner:
        stream = aligner.map(endless())
        assert taken <= 1
        hits = iter(stream)
        for _ in range(2000):
            assert next(hits).r_st == 0
        in_work = taken - 2000
        assert in_work < 5 * (20_000 // 39 + 256)
        # Others are mapped meanwhile, and the stream goes on.
        assert len(aligner.map([START] * 10)) == 10
        assert next(hits).is_mapped
        stream.close()
        assert list(stream) == []


def test_an_error_of_the_iterable_comes_out(phix) -> None:
    def failing() -> Iterator[str]:
        yield START
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(phix.map(failing()))
    assert len(phix.map(START)) == 1


def test_calls_of_several_threads_do_not_meet(world) -> None:
    with mapper.Aligner(world.index, device="cpu", threads=2, batch_bases=20_000) as aligner:
        expected = [aligner.map(triples(world, rows)).to_bam() for rows in (FIRST, SECOND)]
        found: dict[int, bytes] = {}

        def work(i: int) -> None:
            found[i] = aligner.map(triples(world, (FIRST, SECOND)[i % 2])).to_bam()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(found[i] == expected[i % 2] for i in range(4))


def _map_in_child(aligner: mapper.Aligner, results: Any) -> None:
    results.put(aligner.map([START] * 5).to_bam())
    aligner.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(phix) -> None:
    expected = phix.map([START] * 5).to_bam()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_map_in_child, args=(phix, results))
    child.start()
    assert results.get(timeout=100) == expected
    child.join()
    assert child.exitcode == 0
    assert phix.map([START] * 5).to_bam() == expected


# --- files ---


def test_a_file_as_the_command_writes_it(world, tmp_path) -> None:
    seen: list[int] = []
    with mapper.Aligner(
        world.index_path, device="cpu", threads=2, batch_bases=30_000, read_group="@RG\tID:g\tSM:s"
    ) as aligner:
        stream = iter(aligner.map(iter(triples(world))))
        first = next(stream)
        stats = aligner.map_file(
            world.first, Path(world.second), output=tmp_path / "x.bam", sort=True, markdup=True,
            progress=seen.append,
        )  # fmt: skip
        assert first.name == world.reads[0].name
        assert len(list(stream)) >= len(world.reads) - 1  # the stream is not disturbed
    flags = ("-R", r"@RG\tID:g\tSM:s", "--sort", "--markdup")
    expected = command_bam(world, tmp_path / "c.bam", world.first, world.second, *flags)
    assert records_of_bam(tmp_path / "x.bam") == expected
    assert (tmp_path / "x.bam.bai").exists()
    assert stats["counts"]["reads"] == len(world.reads)
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert seen[-1] == len(world.reads)


def test_what_ends_a_file_leaves_nothing(world, tmp_path, phix) -> None:
    def stop(n_reads: int) -> None:
        raise ZeroDivisionError

    with mapper.Aligner(world.index, device="cpu", threads=2, batch_bases=30_000) as aligner:
        with pytest.raises(ZeroDivisionError):
            aligner.map_file(world.first, output=tmp_path / "x.bam", progress=stop)
        assert list(tmp_path.iterdir()) == []
        for options, message in (
            ({"markdup": True}, "markdup=True needs sort=True"),
            ({"optical_distance": 100, "sort": True}, "need markdup=True"),
            ({"orphans": "lose"}, "orphans='lose'"),
            ({"compression": 11}, "compression=11: 0 to 9"),
            ({"memory": "1G"}, "memory='1G': a number of bytes"),
            ({"memory": 10}, "memory=10: a number of bytes is expected, 1000000 at least"),
            ({"optical_distance": "9"}, "optical_distance='9': a whole number"),
            ({"barcode_tag": 3}, "barcode_tag=3: the two characters"),
            ({"tmp_dir": tmp_path / "no"}, "tmp_dir='.*no': no such directory"),
            ({"output": "-"}, "output='-'"),
            ({"output": None}, "output=None: the path of a file"),
            ({"mates": [world.second]}, "mates=.*: the path of a file"),
            ({"tmp_dir": 3}, "tmp_dir=3: the path of a file"),
            ({"reference": 3}, "reference=3: the path of a file"),
            ({"output": tmp_path / "x.txt"}, r"name it \.bam"),
            ({"output": world.first, "output_format": "bam"}, "one of the read files"),
            ({"output": tmp_path / "x.cram"}, "name its FASTA file with reference"),
        ):
            with pytest.raises(mapper.UsageError, match=message):
                aligner.map_file(world.first, **{"output": tmp_path / "x.bam"} | options)
        with pytest.raises(mapper.UsageError, match=r"reads=\['a\.fq'\]: the path of a file"):
            aligner.map_file(["a.fq"], output=tmp_path / "x.bam")
        with pytest.raises(mapper.InputFormatError, match=r"no\.fq"):
            aligner.map_file(tmp_path / "no.fq", output=tmp_path / "x.bam")
        assert list(tmp_path.iterdir()) == []
        assert aligner.map_file(world.first, output=tmp_path / "x.bam")["counts"]["reads"] == 600


# --- interrupts ---


def interrupt_soon() -> threading.Thread:
    def send() -> None:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.fixture
def python_handler() -> Iterator[None]:
    """Set Python's own handler, as in a notebook; the command's stays after a run in a test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("python_handler")
@pytest.mark.parametrize("call", ["list", "stream", "file"])
def test_an_interrupt_ends_the_call_and_no_more(phix, tmp_path, call) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    many = tmp_path / "in" / "many.fq"
    many.parent.mkdir()
    (tmp_path / "out").mkdir()
    if call == "file":
        many.write_text(f"@r\n{START}\n+\n{'I' * 39}\n" * 400_000)
    with mapper.Aligner(phix.index, device="cpu", threads=2) as aligner:
        sender = interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            if call == "list":
                while True:
                    aligner.map([START] * 100_000)
            elif call == "stream":
                for _ in aligner.map(START for _ in range(1 << 40)):
                    pass
            else:
                while True:
                    aligner.map_file(many, output=tmp_path / "out" / "x.bam")
                    (tmp_path / "out" / "x.bam").unlink()
        sender.join()
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)] == before
        assert list((tmp_path / "out").iterdir()) == []
        assert len(aligner.map([START] * 3)) == 3


def test_calls_of_other_threads_leave_signals_alone(phix, tmp_path, monkeypatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a handler was set")

    errors: list[BaseException] = []

    def work() -> None:
        try:
            phix.map([START] * 3)
            phix.map_file(DATA / "phix_R1.fq", output=tmp_path / "x.bam")
        except BaseException as error:
            errors.append(error)

    monkeypatch.setattr(signal, "signal", refuse)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == []


# --- errors ---


BAD_READS = [
    ("ACGX", "record 1: character 'X' in the sequence is no IUPAC nucleotide letter$"),
    ([START, "ACG\nT"], "record 2 has a line end in it"),
    ([START, ">ACGT"], "record 2 has a line end in it, or '>'"),
    ([START, ("a", "ACGT", "II")], "record 2: 2 quality characters for 4 bases$"),
    ([("a\nb", "ACGT", None)], "record 1"),
    ([("A" * 1001, "ACGT")], "read '0' has 1001 bases, and mates of a pair may have 1000"),
    ([("x" * 300, "ACGT", None)], "name longer than 254"),
    ((np.frombuffer(b"ACGTAC!T", np.uint8), np.array([0, 4, 8])), "record 2: character '!'"),
]


@pytest.mark.parametrize(("reads", "message"), BAD_READS)
def test_reads_that_cannot_be_mapped(phix, reads, message) -> None:
    with pytest.raises(mapper.InputFormatError, match=message) as caught:
        phix.map(reads)
    assert str(caught.value).startswith("reads")
    assert isinstance(caught.value, mapper.MapperError)
    assert len(phix.map(START)) == 1


def test_mates_that_cannot_be(phix) -> None:
    for reads, mates, message in (
        ([START] * 3, [START] * 2, "mates end after 2, reads go on"),
        ([START] * 2, [START] * 3, "reads end after 2, mates go on"),
        ([("a", START, None)], [("b", START, None)], "mates out of step"),
        ([START], ["ACGX"], "mates: record 1: character 'X'"),
    ):
        with pytest.raises(mapper.InputFormatError, match=message):
            phix.map(reads, mates)
    with pytest.raises(mapper.InputFormatError, match="3 reads, an odd number"):
        phix.map([START] * 3, interleaved=True)
    flat = np.frombuffer(START.encode(), np.uint8)
    with pytest.raises(mapper.InputFormatError, match="1 reads and 0 mates"):
        phix.map((flat, np.array([0, 39])), (flat, np.array([0])))
    for reads in ([START, START], iter([START])):
        with pytest.raises(mapper.UsageError, match="mates: one read, where reads are several"):
            phix.map(reads, START)
    for mates, message in (({"a": START}, "mates: a dict is no list"), (str(PHIX), "mates: a str")):
        with pytest.raises(mapper.UsageError, match=message):
            phix.map([START], mates)
    with pytest.raises(mapper.UsageError, match="a pair is expected"):
        phix.map([(START, START), START])
    with pytest.raises(mapper.UsageError, match="give one of them"):
        phix.map([START], [START], interleaved=True)


NO_READS = [
    (5, "reads: 5: str, bytes"),
    (str(DATA / "phix_R1.fq"), r"reads: a str is a read; for the file give pathlib\.Path"),
    ({"a": START}, r"reads: a dict is no list of reads; give \[\(name, sequence, None\)"),
    ({START}, "reads: a set has no order"),
    ([5], "record 1 is 5; str, bytes"),
    ([START, None], "record 2 is None"),
    ([("a", 5, None)], "record 1 is"),
    ((START, START, START, START), "put reads into a list"),
    ((np.zeros(4), np.array([0, 4])), "flat uint8 array"),
    ((np.zeros(4, np.uint8), np.array([0, 9])), "offsets must begin with 0"),
]


@pytest.mark.parametrize(("reads", "message"), NO_READS)
def test_what_is_no_read(phix, reads, message) -> None:
    with pytest.raises(mapper.UsageError, match=message):
        phix.map(reads)


OPTIONS_THAT_ARE_NOT = [
    ({"eqx": True}, "no option 'eqx'; did you mean extended_cigar"),
    ({"mismach": 3}, "did you mean mismatch"),
    ({"n_threads": 3}, "did you mean threads"),
    ({"zzzz": 3}, "there are match, mismatch"),
    ({"threads": 0}, "threads"),
    ({"threads": "2"}, "threads='2': 1 to 4096"),
    ({"match": 0}, "match=0: 1 to 20 is expected"),
    ({"match": "2"}, "match='2': 1 to 20"),
    ({"match": True}, "match=True"),
    ({"seed_len": 5}, "seed_len=5: 0 or at least 10"),
    ({"preset": "map-ont"}, "preset='map-ont'"),
    ({"device": "gpu"}, "device='gpu': auto, cpu"),
    ({"batch_bases": 0}, "batch_bases=0"),
    ({"read_group": "ID:1"}, "does not begin with '@RG'"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS_THAT_ARE_NOT)
def test_options_that_are_refused(phix, options, message) -> None:
    with pytest.raises(mapper.UsageError, match=message):
        mapper.Aligner(phix.index, **{"device": "cpu"} | options)


@pytest.mark.parametrize("index", [None, 3, b"x.fmw"])
def test_an_index_is_a_path(index: Any) -> None:
    with pytest.raises(mapper.UsageError, match=r"index=.*: the path of an index, or an Index"):
        mapper.Aligner(index, device="cpu")


@pytest.mark.parametrize(
    ("size", "message"),
    [((), "MEAN"), (5, "insert_size=5: MEAN of at least 20"), ("350", "insert_size='350'"),
     ((350, -1), "SD must be positive")],
)  # fmt: skip
def test_insert_sizes_that_are_refused(phix, size, message) -> None:
    with pytest.raises(mapper.UsageError, match=message):
        phix.map([START, START], interleaved=True, insert_size=size)


def test_a_reference_that_is_not_there(tmp_path) -> None:
    for name, error in (("no.fa", mapper.InputFormatError), ("no.fmw", mapper.IndexFormatError)):
        with pytest.raises(error, match=name):
            mapper.Aligner(tmp_path / name, device="cpu")


def test_files_that_are_not_there(phix, tmp_path) -> None:
    """Told by the call, not when the stream is read."""
    for reads, mates in (
        (tmp_path / "no.fq", None), (Path(DATA / "phix_R1.fq"), tmp_path / "no.fq"),
    ):  # fmt: skip
        with pytest.raises(mapper.InputFormatError, match=r"no\.fq"):
            phix.map(reads, mates)
    with pytest.raises(mapper.UsageError, match="mates: the path of a file"):
        phix.map(Path(DATA / "phix_R1.fq"), [START])
    with pytest.raises(mapper.UsageError, match="given twice"):
        phix.map(Path(DATA / "phix_R1.fq"), Path(DATA / "phix_R1.fq"))
    stream = phix.map(Path(DATA / "phix_R1.fq"))
    stream.close()
    assert list(stream) == []


def test_hits_can_be_pickled(phix) -> None:
    hits = phix.map([START] * 3)
    again = pickle.loads(pickle.dumps(hits))
    assert again.to_bam() == hits.to_bam()
    assert [str(hit) for hit in again] == [str(hit) for hit in hits]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"memory": "1G"}, "memory='1G': a number of bytes"),
     ({"threads": "two"}, "threads='two': 1 to 4096 is expected"),
     ({"threads": 0}, "threads=0: 1 to 4096 is expected")],
)  # fmt: skip
def test_numbers_that_build_refuses(tmp_path, options, message) -> None:
    fasta = tmp_path / "x.fa"
    fasta.write_text(f">x\n{START}\n")
    with pytest.raises(mapper.UsageError, match=message):
        mapper.Index.build(fasta, **options)


def test_a_closed_aligner(phix) -> None:
    aligner = mapper.Aligner(phix.index, device="cpu", threads=1, batch_bases=5_000)
    stream = iter(aligner.map(START for _ in range(100_000)))
    next(stream)
    aligner.close()
    aligner.close()
    with pytest.raises(mapper.UsageError, match="closed"):
        aligner.map(START)
    with pytest.raises(mapper.UsageError, match="closed before all reads were mapped"):
        list(stream)
    assert "closed" in repr(aligner)


def test_a_stream_of_a_closed_aligner_that_was_not_begun(phix, tmp_path) -> None:
    path = tmp_path / "reads.fa"
    path.write_text(f">r\n{START}\n")
    aligner = mapper.Aligner(phix.index, device="cpu", threads=1)
    streams = [aligner.map(path), aligner.map(START for _ in range(3))]
    aligner.close()
    for stream in streams:
        with pytest.raises(mapper.UsageError, match="closed before all reads were mapped"):
            list(stream)


def test_an_aligner_that_is_dropped_ends_its_threads(phix) -> None:
    def workers() -> int:
        return sum(thread.name.startswith("worker") for thread in threading.enumerate())

    before = workers()
    aligner = mapper.Aligner(phix.index, device="cpu", threads=3)
    assert workers() == before + 3
    del aligner
    assert workers() == before


def test_errors_in_the_constructor_end_its_threads(phix, monkeypatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    before = threading.active_count()
    monkeypatch.setattr(aligner_module, "compile_stages", fail)
    with pytest.raises(ZeroDivisionError):
        mapper.Aligner(phix.index, device="cpu", threads=3)
    assert threading.active_count() == before
