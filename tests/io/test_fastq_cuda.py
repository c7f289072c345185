"""FASTQ parsed on a device (or in the simulator): the host's columns, or left to the host."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.batch import ReadBatch
from mapper.errors import InputFormatError
from mapper.io.batch_reader import FastqText
from tests.helpers.fastq_texts import by_host
from tests.helpers.stage_batches import small_genome, some_pairs

pytestmark = pytest.mark.gpu

LETTERS = "ACGTacgtNRYKMSWBVDHUu."


@pytest.fixture
def space(device):
    from mapper.cuda.memory import Workspace

    return Workspace()


def record(name: str, bases: str, quals: str, plus: str = "") -> str:
    return f"@{name}\n{bases}\n+{plus}\n{quals}\n"


def text_of(records: Sequence[str]) -> np.ndarray:
    return np.frombuffer("".join(records).encode("latin-1"), np.uint8)


def batch(files: Sequence[Sequence[str]], paired: bool) -> FastqText:
    return FastqText(tuple(map(text_of, files)), len(files[0]), paired)


def by_device(space, texts: Sequence[FastqText]) -> list[ReadBatch] | None:
    """Return the batches that a device parses; None if it leaves them to the host."""
    from mapper.io.fastq_cuda import parse_on_device

    parsed = parse_on_device(space, texts)
    if parsed is None:
        return None
    columns = [space.download(f"test {i}", column) for i, column in enumerate(parsed.columns)]
    words = space.download("test words", parsed.word_offsets)
    space.synchronize()
    if parsed.is_odd[0]:
        return None
    bases, quals, base_offsets, names, name_offsets = (column.copy() for column in columns)
    lengths = np.diff(base_offsets)
    assert words.tolist() == np.append(0, np.cumsum(2 * -(-lengths // 64))).tolist()
    assert parsed.n_words == words[-1]
    assert parsed.longest == lengths.max()
    batches, first = [], 0
    for i, text in enumerate(texts):
        end = first + text.n_reads
        (start, stop), (name, name_end) = base_offsets[[first, end]], name_offsets[[first, end]]
        assert parsed.ends[i : i + 2].tolist() == [start, stop]
        batches.append(
            ReadBatch(
                bases[start:stop],
                quals[start:stop],
                base_offsets[first : end + 1] - start,
                names[name:name_end],
                name_offsets[first : end + 1] - name,
                0,
                text.paired,
            )
        )
        first = end
    return batches


def assert_same(found: Sequence[ReadBatch] | None, expected: Sequence[ReadBatch]) -> None:
    assert found is not None
    for ours, theirs in zip(found, expected, strict=True):
        for name in ("bases", "quals", "base_offsets", "names", "name_offsets"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
        assert ours.paired == theirs.paired


def random_record(rng: np.random.Generator, name: str, longest: int = 200) -> str:
    n = int(rng.integers(0, longest))
    bases = "".join(rng.choice(list(LETTERS), n, p=[0.2] * 4 + [0.2 / 18] * 18))
    quals = "".join(map(chr, rng.integers(33, 127, n)))
    return record(name, bases, quals, str(rng.choice(["", name, f"{name} x"])))


@pytest.mark.parametrize("layout", ["single", "interleaved", "two files"])
def test_columns_are_those_of_the_host(space, layout: str) -> None:
    rng = np.random.default_rng(5)
    endings = [("", ""), ("/1", "/2"), (".1", ".2"), ("_1", "_2"), (" 1:N:0:A", " 2:Y:0:A"),
               ("\tx", " y")]  # fmt: skip
    texts = []
    for n in (7, 1, 12):
        ones, twos = [], []
        for i in range(n):
            name = "r" * int(rng.integers(1, 70)) + str(i)
            first, second = endings[i % len(endings)]
            ones.append(random_record(rng, name + first))
            twos.append(random_record(rng, name + second))
        if layout == "two files":
            texts.append(batch([ones, twos], True))
        elif layout == "interleaved":
            texts.append(FastqText((text_of([r for pair in zip(ones, twos, strict=True)
                                             for r in pair]),), 2 * n, True))  # fmt: skip
        else:
            texts.append(batch([ones], False))
    assert_same(by_device(space, texts), [by_host(text) for text in texts])


def test_text_of_many_tiles(space) -> None:
    """Lines are found across the words and tiles of a text, however long they are."""
    from mapper.io.fastq_cuda import TILE

    genome = small_genome(np.random.default_rng(1))
    reads = some_pairs(np.random.default_rng(2), genome, 40)
    records = [record(f"r{i}", bases, "I" * len(bases)) for i, bases in enumerate(reads)]
    records.insert(3, record("long", "A" * (20 * TILE), "#" * (20 * TILE)))
    text = batch([records], False)
    assert len(text.texts[0]) > 6 * 8 * TILE  # which are words of 8 bytes
    assert_same(by_device(space, [text]), [by_host(text)])


ODD = {
    "no @": ("rx\nACGT\n+\nIIII\n", True),
    "line ends with CR": ("@r\r\nACGT\r\n+\r\nIIII\r\n", False),
    "a quality line that ends with CR": ("@r\nACGT\n+\nIIII\r\n", False),
    "no name": ("@\nACGT\n+\nIIII\n", True),
    "a name of a slash and a number": ("@/1\nACGT\n+\nIIII\n", True),
    "a name that begins with @": ("@@r\nACGT\n+\nIIII\n", True),
    "a name that is too long": (f"@{'n' * 255}\nACGT\n+\nIIII\n", True),
    "a letter that no name has": ("@r\x7f\nACGT\n+\nIIII\n", True),
    "a control letter behind the name": ("@r\x0bx\nACGT\n+\nIIII\n", True),
    "a letter that is no base": ("@r\nACXT\n+\nIIII\n", True),
    "a space in the bases": ("@r\nACG \n+\nIIII\n", True),
    "no +": ("@r\nACGT\nx\nIIII\n", True),
    "another name behind +": ("@r\nACGT\n+s\nIIII\n", False),
    "a longer name behind +": ("@r\nACGT\n+rr\nIIII\n", False),
    "too few qualities": ("@r\nACGT\n+\nIII\n", True),
    "too many qualities": ("@r\nACGT\n+\nIIIII\n", True),
    "a space among the qualities": ("@r\nACGT\n+\nII I\n", True),
    "a quality above ~": ("@r\nACGT\n+\nII\x7fI\n", True),
    "an empty line": ("\n@r\nACGT\n+\nIIII\n@s\nACGT\n+\n", True),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("at", [0, 2])
def test_odd_text_is_left_to_the_host(space, what: str, at: int) -> None:
    odd, is_error = ODD[what]
    plain = [record(f"p{i}", "ACGT" * 20, "I" * 80) for i in range(2)]
    records = [*plain[:at], odd, *plain[at:]]
    text = FastqText((text_of(records),), "".join(records).count("\n") // 4, False)
    assert by_device(space, [batch([plain], False), text]) is None
    if is_error:
        with pytest.raises(InputFormatError):
            by_host(text)
    else:
        by_host(text)


@pytest.mark.parametrize(
    ("first", "second"),
    [("a", "b"), ("a", "aa"), ("a.1", "b.2"), ("a.2", "a.1"), (".1", ".2"), ("a/2", "a/1"),
     ("a/1", "a/1"), ("a 2:N:0:A", "a 1:N:0:A"), ("a-1", "a-2")],
)  # fmt: skip
def test_mates_that_differ_are_left_to_the_host(space, first: str, second: str) -> None:
    good = record("p", "ACGT", "IIII")
    text = batch(
        [[good, record(first, "ACGT", "IIII")], [good, record(second, "ACGT", "IIII")]], True
    )
    assert by_device(space, [text]) is None
    with pytest.raises(InputFormatError):
        by_host(text)


def test_a_wrong_number_of_records_is_left_to_the_host(space) -> None:
    records = [record(f"p{i}", "ACGT", "IIII") for i in range(5)]
    text = text_of(records)
    assert by_device(space, [FastqText((text,), 5, False)]) is not None
    for n in (4, 6):
        assert by_device(space, [FastqText((text,), n, False)]) is None
    assert by_device(space, [FastqText((text[:-1],), 5, False)]) is None
    # As many lines in all, but not in each text.
    texts = [text_of(records[:2]), text_of(records[2:])]
    assert (
        by_device(space, [FastqText((t,), n, False) for t, n in zip(texts, (3, 2), strict=True)])
        is None
    )


NAMES = ["r", "r/1", "r/2", "r.1", "r.2", "r 1:N:0:A", "r 2:N:0:A", "r\tx", "s"]


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_what_is_parsed_is_what_the_host_parses(space, data) -> None:
    """Text with a few bytes changed: the host's columns, without a warning, or left to the host."""
    layout = data.draw(st.sampled_from(["single", "interleaved", "two files"]))
    texts = []
    for _ in range(data.draw(st.integers(1, 2))):
        names = st.sampled_from(NAMES)
        files: list[list[str]] = [[], []]
        for i in range(data.draw(st.integers(1, 3))):
            for mate, pairs in (("1", files[0]), ("2", files[1])):
                name = f"r{i}/{mate}" if data.draw(st.booleans()) else data.draw(names)
                plus = data.draw(st.sampled_from(["", name, name.split()[0]]))
                n = data.draw(st.integers(0, 12))
                pairs.append(record(name, "ACGTN" * n, "I" * 5 * n, plus))
        if layout == "two files":
            text = batch(files, True)
        elif layout == "single":
            text = batch([files[0]], False)
        else:
            both = [one for pair in zip(*files, strict=True) for one in pair]
            text = FastqText((text_of(both),), len(both), True)
        for column in (columns := [part.copy() for part in text.texts]):
            for _ in range(data.draw(st.sampled_from([0, 0, 0, 1, 2]))):
                at = data.draw(st.integers(0, len(column) - 1))
                column[at] = data.draw(st.sampled_from(b"\n\r\t @+/12AIx~!\x00\x7f\xff."))
        texts.append(text._replace(texts=tuple(columns)))
    found = by_device(space, texts)
    if found is None:
        return
    warnings = count()
    assert_same(found, [by_host(text, warnings) for text in texts])
    assert next(warnings) == 0
