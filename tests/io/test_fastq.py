"""Read any valid FASTQ text, cut into batches anywhere."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pysam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.batch import ReadBatch
from mapper.errors import InputFormatError
from mapper.io import fastq
from mapper.io.fastq import FastqReader
from mapper.io.record_ends import FASTQ, whole_records
from tests.helpers.record_batches import as_reads
from tests.naive.fastq import pair_up, parse_fastq

BASES = "ACGTUNacgtunRYKMSWBDHVrykmswbdhv."
NAME_CHARACTERS = "".join(chr(c) for c in range(33, 127))
NAMES = st.text(NAME_CHARACTERS, min_size=1, max_size=30).filter(
    lambda name: not name.startswith("@") and name not in ("/1", "/2")
)
QUALITY_CHARACTERS = NAME_CHARACTERS


def read_all(*paths: Path | str, **options) -> list[ReadBatch]:
    batches = []
    with FastqReader([str(path) for path in paths], **options) as reader:
        while (batch := reader.next_batch()) is not None:
            assert batch.n_reads > 0
            assert batch.first_read == sum(b.n_reads for b in batches)
            batches.append(batch)
        assert reader.next_batch() is None
        assert reader.n_reads == sum(b.n_reads for b in batches)
    return batches


@st.composite
def fastq_texts(draw, names=None, min_length=0, mate=1) -> bytes:
    """Draw valid FASTQ text with all variations that the format allows."""
    eol = draw(st.sampled_from(["\n", "\r\n"]))
    text = ""
    if names is None:
        names = draw(st.lists(NAMES, max_size=12))
    for name in names:
        comment = draw(st.sampled_from(["", f" {mate}:N:0:ACGT", "\tx=y z", " "]))
        sequence = draw(st.text(BASES, min_size=min_length, max_size=60))
        quality = draw(st.text(QUALITY_CHARACTERS, min_size=len(sequence), max_size=len(sequence)))
        repeat = draw(st.sampled_from(["", name]))
        text += f"@{name}{comment}{eol}{sequence}{eol}+{repeat}{eol}{quality}{eol}"
    end = draw(st.sampled_from(["", "none", eol, eol * 3]))
    # Without its line end, an empty quality line would not be there at all.
    if end == "none" and not text.endswith(eol * 2):
        text = text.removesuffix(eol)
    elif end != "none":
        text += end
    return text.encode()


@given(fastq_texts(), st.integers(1, 300), st.integers(1, 500))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_any_chunk(tmp_path, text, chunk_bytes, batch_bases):
    path = tmp_path / "r.fq"
    path.write_bytes(text)
    batches = read_all(path, chunk_bytes=chunk_bytes, batch_bases=batch_bases)
    assert as_reads(batches) == parse_fastq(text)
    assert [batch.n_reads for batch in batches] == batch_sizes(text, batch_bases)


def test_lines_of_any_length(tmp_path):
    """64 or more characters of names, comments and bases are parsed in vectors."""
    rng = np.random.default_rng(4)
    text = b""
    for n in range(255):
        # The longest names end the file: behind them is no room for a run.
        name = rng.integers(33, 127, n or 1).astype(np.uint8).tobytes().replace(b"/", b"|")
        comment = (b" ", b"\t", b"")[n % 3] + b"c" * ((7 * n) % 200 if n % 3 < 2 else 0)
        bases = np.frombuffer(b"ACGTacgt", np.uint8)[rng.integers(0, 8, n)].copy()
        if n % 5 == 0:
            bases[rng.integers(0, n, min(n, 1))] = ord("N")
        text += b"@%b%b\n%b\n+\n%b\n" % (name, comment, bases.tobytes(), b"I" * n)
    path = tmp_path / "r.fq"
    for whole in (text, text.replace(b"\n", b"\r\n"), text.removesuffix(b"\n")):
        path.write_bytes(whole)
        assert as_reads(read_all(path)) == parse_fastq(whole)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 127, 128, 150, 200])
def test_a_wrong_base_anywhere(tmp_path, n):
    path = tmp_path / "r.fq"
    first = b"@r\n" + b"A" * n + b"\n+\n" + b"I" * n + b"\n"
    for wrong in range(n):
        bases = bytearray(b"C" * n)
        bases[wrong] = ord("!")
        path.write_bytes(first + b"@s\n" + bases + b"\n+\n" + b"I" * n + b"\n")
        with pytest.raises(InputFormatError, match="record 2: character '!'"):
            read_all(path)


def batch_sizes(text: bytes, batch_bases: int) -> list[int]:
    """Return expected sizes: at most one record per 32 bases in twice `batch_bases` bytes."""
    lines = text.split(b"\n")
    records = [lines[i : i + 4] for i in range(0, len(lines), 4)]
    records = [record for record in records if record[0].startswith(b"@")]
    sizes, room = [0], 2 * batch_bases
    for number, record in enumerate(records, 1):
        n_bytes = len(b"\n".join(record)) + (number < len(records) or text.endswith(b"\n"))
        if sizes[-1] and (n_bytes > room or 32 * (sizes[-1] + 1) > batch_bases):
            sizes.append(0)
            room = 2 * batch_bases
        sizes[-1] += 1
        room -= n_bytes
    return sizes if records else []


@given(st.data(), st.lists(NAMES, max_size=9))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_agrees_with_htslib(tmp_path, data, names):
    """With names and bases in every record: htslib differs for others (CRLF)."""
    text = data.draw(fastq_texts(names=names, min_length=1))
    path = tmp_path / "r.fq"
    path.write_bytes(text)
    with pysam.FastxFile(str(path)) as file:
        theirs = [(r.name, r.sequence, r.quality) for r in file]
    ours = as_reads(read_all(path, chunk_bytes=50))
    assert len(ours) == len(theirs)
    for read, (name, sequence, quality) in zip(ours, theirs, strict=True):
        assert read.name in (name, name.removesuffix("/1"), name.removesuffix("/2"))
        assert read.sequence == sequence.upper().replace("U", "T").replace(".", "N")
        assert read.quality == [ord(c) - 33 for c in quality]


MATE_STYLES = [("", ""), ("/1", "/2"), (".1", ".2"), ("_1", "_2")]


@given(
    st.data(),
    st.lists(st.tuples(st.text("abc:", min_size=1, max_size=9), st.sampled_from(MATE_STYLES))),
    st.integers(1, 200),
    st.integers(1, 300),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pairs_from_two_files_and_interleaved(tmp_path, data, stems, chunk_bytes, batch_bases):
    names = [[stem + style[mate] for stem, style in stems] for mate in (0, 1)]
    texts = [data.draw(fastq_texts(names=n, mate=mate)) for mate, n in enumerate(names, 1)]
    paths = [tmp_path / "r1.fq", tmp_path / "r2.fq.gz"]
    paths[0].write_bytes(texts[0])
    paths[1].write_bytes(gzip.compress(texts[1]))
    expected = pair_up(*(parse_fastq(text) for text in texts))
    assert [read.name for read in expected[::2]] == [stem for stem, _ in stems]
    options = {"chunk_bytes": chunk_bytes, "batch_bases": batch_bases}

    batches = read_all(*paths, **options)
    assert all(batch.paired and batch.n_reads % 2 == 0 for batch in batches)
    assert as_reads(batches) == expected

    woven = tmp_path / "woven.fq"
    woven.write_bytes(interleave(*texts))
    assert same_batches(read_all(woven, interleaved=True, **options), batches)


def interleave(*texts: bytes) -> bytes:
    lines = [text.replace(b"\r", b"").split(b"\n") for text in texts]
    records = [[b"\n".join(x[i : i + 4]) for i in range(0, len(x) - 3, 4)] for x in lines]
    pairs = zip(*([r for r in x if r.startswith(b"@")] for x in records), strict=True)
    return b"".join(record + b"\n" for pair in pairs for record in pair)


def same_batches(a: list[ReadBatch], b: list[ReadBatch]) -> bool:
    return len(a) == len(b) and all(
        np.array_equal(x, y) for one, other in zip(a, b, strict=True)
        for x, y in zip(one, other, strict=True)
    )  # fmt: skip


def simple_text(n: int, length: int = 50, suffix: str = "") -> bytes:
    rng = np.random.default_rng(n)
    return "".join(
        f"@r{i}{suffix}\n{''.join(rng.choice(list('ACGT'), length))}\n+\n{'I' * length}\n"
        for i in range(n)
    ).encode()


def bgzf(text: bytes, tmp_path: Path) -> bytes:
    path = tmp_path / "text.bgzf"
    with pysam.BGZFile(str(path), "wb", None) as file:
        file.write(text)
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["gzip", "members", "bgzf", "bgzf cat gzip"])
def test_gzip_kinds(tmp_path, kind):
    text = simple_text(3000)
    half = len(text) // 2 + 7
    packed = {
        "gzip": lambda: gzip.compress(text),
        "members": lambda: b"".join(
            gzip.compress(text[i : i + 1001]) for i in range(0, len(text), 1001)
        ),
        "bgzf": lambda: bgzf(text, tmp_path),
        "bgzf cat gzip": lambda: bgzf(text[:half], tmp_path) + gzip.compress(text[half:]),
    }[kind]()
    path = tmp_path / "misnamed.fq"
    path.write_bytes(packed)
    for chunk_bytes in (1 << 20, 4099, 64):
        assert as_reads(read_all(path, chunk_bytes=chunk_bytes)) == parse_fastq(text)


@pytest.mark.parametrize("zipped", [False, True])
def test_standard_input(tmp_path, zipped):
    text = simple_text(2000)
    code = (
        "from mapper.io.fastq import FastqReader\n"
        "reader = FastqReader(['-'])\n"
        "import sys\n"
        "sys.exit(0 if reader.next_batch().n_reads == 2000 and not reader.next_batch() else 9)"
    )
    data = gzip.compress(text) if zipped else text
    done = subprocess.run([sys.executable, "-c", code], input=data, check=False)
    assert done.returncode == 0


def test_pipe_that_delivers_single_bytes(tmp_path):
    text = simple_text(3)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def feed():
        with io.FileIO(str(fifo), "w") as pipe:
            for i in range(len(text)):
                pipe.write(text[i : i + 1])

    thread = threading.Thread(target=feed)
    thread.start()
    assert as_reads(read_all(fifo)) == parse_fastq(text)
    thread.join()


def test_closing_ends_the_reading_threads(tmp_path):
    path = tmp_path / "r.fq"
    path.write_bytes(simple_text(1000))
    fifo = tmp_path / "idle"
    os.mkfifo(fifo)
    idle = os.open(fifo, os.O_RDWR)
    os.write(idle, b"@r\nACGTACGT")
    reader = FastqReader([str(path), str(fifo)], chunk_bytes=64)
    reader.close()
    os.write(idle, b"@")
    threads = [t for t in threading.enumerate() if t.name.startswith(f"read {tmp_path}")]
    assert len(threads) <= 1  # none for a regular file
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    os.close(idle)


@pytest.mark.parametrize("text", [b"", b"\n", b"\r\n\n"])
def test_empty_input_gives_no_batch(tmp_path, text):
    path = tmp_path / "empty.fq"
    path.write_bytes(text)
    other = tmp_path / "empty2.fq.gz"
    other.write_bytes(gzip.compress(text))
    assert read_all(path) == read_all(other) == read_all(path, other) == []
    assert read_all(path, interleaved=True) == []


def test_names_at_the_limit(tmp_path):
    path = tmp_path / "r.fq"
    path.write_text(f"@{'n' * 254}/1 {'c' * 5000}\nA\n+\nI\n")
    assert as_reads(read_all(path, chunk_bytes=16))[0].name == "n" * 254


def test_read_longer_than_batch_and_chunk(tmp_path):
    path = tmp_path / "r.fq"
    text = simple_text(2, 100) + simple_text(1, 50_000) + simple_text(2, 100)
    path.write_bytes(text)
    batches = read_all(path, batch_bases=210, chunk_bytes=100)
    assert [batch.n_reads for batch in batches] == [2, 1, 2]
    assert as_reads(batches) == parse_fastq(text)


@pytest.mark.parametrize("layout", ["single", "interleaved", "two files"])
def test_the_first_batch_has_its_own_limit(tmp_path, layout):
    paths = [tmp_path / "a.fq", tmp_path / "b.fq"][: 2 if layout == "two files" else 1]
    for path in paths:
        path.write_bytes(b"".join(b"@r%d\nACGT\n+\nIIII\n" % (i // 2) for i in range(40)))
    options = {"interleaved": layout == "interleaved", "batch_bases": 1000}
    whole = read_all(*paths, **options)
    for most in (6, 7, 1):
        found = read_all(*paths, most_first=most, **options)
        assert found[0].n_reads == (most if layout == "single" else max(most // 2 * 2, 2))
        assert len(found) > len(whole)
        assert sum(batch.n_reads for batch in found) == sum(batch.n_reads for batch in whole)
    assert [b.n_reads for b in read_all(*paths, most_first=10**6, **options)] == [
        b.n_reads for b in whole
    ]


def test_empty_reads_do_not_fill_a_batch_endlessly(tmp_path):
    path = tmp_path / "r.fq"
    path.write_bytes(b"@r\n\n+\n\n" * 100)
    assert max(batch.n_reads for batch in read_all(path, batch_bases=320)) == 10


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=80), data=st.data())
def test_the_end_of_some_records_of_a_window(lengths, data):
    """The end of a number of records is the same if searched from either end."""
    records = [b"@r\n%b\n+\n%b\n" % (b"A" * n, b"F" * n) for n in lengths]
    text = np.frombuffer(b"".join(records) + b"@cut off\nAC", np.uint8)
    n_wanted = data.draw(st.integers(1, len(records)))
    n_records, end = whole_records(FASTQ, text, False, 1000, -1)
    window = fastq._Window(text, n_records, end, False)
    expected = sum(map(len, records[:n_wanted]))
    assert fastq._end_of(window, FASTQ, n_wanted) == expected
