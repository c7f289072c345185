"""Staged chunks of letters and of packed pairs: every row and symbol."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.align.affine.api import align_affine
from mapper.align.cuda import chunks as chunks_module
from mapper.align.cuda.pack_letters import BLOCK_LETTERS, LINE, LINE_LETTERS, pack_blocks, pack_line
from mapper.align.cuda.sources import LetterSource, PackedSource
from mapper.align.cuda.staging import Staging, buffer_words
from mapper.align.dispatch import packed_pairs
from mapper.align.edit.api import edit_distance
from mapper.align.pairs import PairBatch, batch_of
from mapper.errors import UsageError
from mapper.jit.accelerate import driver
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited, random_pairs


@driver
def pack_some(letters, at, codes, doubts):
    for i in range(len(at)):
        doubts[i] = pack_line(letters, at[i], codes, LINE * i, False)


CODES = {"A": 0, "C": 1, "T": 2, "U": 2, "G": 3, "a": 0, "c": 1, "t": 2, "u": 2, "g": 3}


def staged_rows(
    source, most_pairs: int = 1000, n_buffers: int = 2, threads: int = 3, byte: int = 0
):
    """Stage every chunk; return the symbols of each pair, None if unfit, and the chunk count."""
    rows = []
    chunks = source.chunks(most_pairs)
    buffers = buffers_at(byte, n_buffers, buffer_words(source, chunks))
    staging = Staging(source, chunks, buffers, threads)
    try:
        _collect(staging, chunks, n_buffers, rows)
    finally:
        staging.close()
    return rows, len(chunks)


def buffers_at(byte: int, n_buffers: int, n_words: int) -> np.ndarray:
    """Return buffers that start `byte` bytes after a line of 64."""
    room = np.full(n_buffers * n_words * 8 + 128, 255, np.uint8)
    first = -room.ctypes.data % 64 + byte
    return room[first : first + n_buffers * n_words * 8].view(np.uint64).reshape(n_buffers, n_words)


def _collect(staging: Staging, chunks, n_buffers: int, rows: list) -> None:
    for c, chunk in enumerate(chunks):
        for _ in range(n_buffers if c == 0 else 1):
            staging.begin()
        staging.wait(c)
        n, staged = chunk.n_pairs, staging.buffer(c).copy()
        columns = staged.view(np.int32)[: 4 * n].reshape(4, n)
        for query_at, ref_at, query_len, ref_len in columns.T.tolist():
            assert (query_len < 0) == (ref_len < 0)
            sides = ((query_at, query_len), (ref_at, ref_len))
            rows.append(None if query_len < 0 else tuple(symbols(staged, *s) for s in sides))


def symbols(words: np.ndarray, at: int, n: int) -> list[int]:
    return [int(words[i >> 5]) >> (2 * (i & 31)) & 3 for i in range(at, at + n)]


def expected_rows(pairs):
    def row(pair):
        if any(letter not in CODES for side in pair for letter in side):
            return None
        return tuple([CODES[letter] for letter in side] for side in pair)

    return [row(pair) for pair in pairs]


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return pairs of all lengths around a word, some with other letters; chunks are small."""
    monkeypatch.setattr(chunks_module, "CHUNK_SYMBOLS", 900)
    rng = np.random.default_rng(3)
    made = random_pairs(rng, 30, 80) + random_pairs(rng, 10, 60, "ACGTNacgtu")
    made += [("", ""), ("ACGT" * 600, "A"), ("", "ACGT")]
    for n in range(65):
        made.append((random_letters(rng, n), random_letters(rng, 64 - n)))
    return made


@pytest.mark.medium
@pytest.mark.parametrize("byte", [0, 8])  # at a line: non-temporal stores
def test_letters_are_staged(pairs, byte: int) -> None:
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    rows, n_chunks = staged_rows(LetterSource(batch_of(queries, refs)), most_pairs=25, byte=byte)
    assert rows == expected_rows(pairs)
    assert n_chunks > 4
    assert rows.count(None) > 3  # pairs with other letters


@pytest.mark.medium
def test_every_byte_is_classified() -> None:
    """In each of four positions of a word, and in the rest at the end."""
    texts = ["".join("A" if i != at else chr(byte) for i in range(9))
             for byte in range(256) for at in (0, 1, 2, 3, 8)]  # fmt: skip
    letters = np.frombuffer("".join(texts).encode("latin-1"), np.uint8)
    bounds = np.arange(len(texts) + 1) * 9
    batch = PairBatch(letters, bounds[:-1], bounds[1:], letters, bounds[:-1], bounds[1:])
    assert staged_rows(LetterSource(batch))[0] == expected_rows([(s, s) for s in texts])
    for i in (
        4 * 5,
        ord("T") * 5 + 2,
        ord("u") * 5,
        0xD4 * 5,
    ):  # the only doubtful letter
        one = PairBatch(*[letters, bounds[i : i + 1], bounds[i + 1 : i + 2]] * 2)
        assert staged_rows(LetterSource(one))[0] == expected_rows([(texts[i], texts[i])])


@pytest.mark.parametrize("byte", [0, 8])
def test_every_byte_is_classified_at_any_position_of_a_line(byte: int) -> None:
    """Blocks with one byte of each kind, each at 16 positions."""
    rng = np.random.default_rng(13)
    blocks = rng.choice(np.frombuffer(b"ACGTUacgtu", np.uint8), (4096, BLOCK_LETTERS))
    number = np.arange(len(blocks))
    values = number % 256
    positions = (5 * number + number // 256) % 64 + 64 * rng.integers(
        0, BLOCK_LETTERS // 64, len(blocks)
    )
    blocks[number, positions] = values
    letters = np.frombuffer(b"N" + blocks.tobytes() + b"N", np.uint8)
    codes = buffers_at(byte, 1, letters.size // 32)[0].view(np.uint8)
    noted = np.zeros(len(blocks), np.bool_)
    pack_blocks(letters, 1, len(letters) - 1, 0, len(blocks), codes, noted, byte == 0)
    assert (noted == ~np.isin(values, [ord(letter) for letter in CODES])).all()
    code_of = np.array([CODES.get(chr(i), 0) for i in range(256)], np.uint8)
    good = ~noted
    found = codes.reshape(len(blocks), -1)[good]
    found = np.stack([found >> (2 * i) & 3 for i in range(4)], axis=2)
    assert (found.reshape(-1, BLOCK_LETTERS) == code_of[blocks[good]]).all()


def test_compiled_lines_equal_their_python_body() -> None:
    rng = np.random.default_rng(14)
    letters = rng.choice(np.frombuffer(b"ACGTUacgtu", np.uint8), 3 * LINE_LETTERS)
    letters[LINE_LETTERS + 9] = ord("N")
    at = np.arange(0, 2 * LINE_LETTERS, 37)
    compiled, plain = np.zeros((2, LINE * len(at)), np.uint8)
    doubts = np.zeros(len(at), np.int64)
    pack_some(letters, at, compiled, doubts)
    for i in range(len(at)):
        doubt = pack_line(letters, at[i], plain, LINE * i, False)
        assert (doubt == 0) == (doubts[i] == 0)
    assert (compiled == plain).all()
    assert (doubts == 0).any() and (doubts != 0).any()


def test_nothing_after_the_letters_is_read(pairs) -> None:
    """Arrays without padding, between other letters in memory."""
    pairs = [pair for pair in pairs if expected_rows([pair]) != [None]]
    sides = []
    for side in zip(*pairs, strict=True):
        text = "".join(side)
        letters = np.frombuffer(f"N{text}N".encode(), np.uint8)[1:-1]
        sides += [letters, np.cumsum([0, *map(len, side)])]
    batch = PairBatch(sides[0], sides[1][:-1], sides[1][1:], sides[2], sides[3][:-1], sides[3][1:])
    assert staged_rows(LetterSource(batch))[0] == expected_rows(pairs)


@pytest.mark.parametrize("as_table", [False, True], ids=["columns", "columns of a table"])
def test_sequences_may_lie_anywhere(as_table: bool) -> None:
    rng = np.random.default_rng(4)
    made = [(edited(rng, r, 0.05), r) for r in (random_letters(rng, 50) for _ in range(6))]
    letters = np.frombuffer("".join(f">{q}\n<{r}\n" for q, r in made).encode(), np.uint8)
    ends = np.cumsum([len(side) + 2 for pair in made for side in pair]) - 1
    starts = ends - [len(side) for pair in made for side in pair]
    order = np.array([3, 3, 0, 5, 3, 1])
    query, ref = order, order[::-1]
    bounds = [starts[::2][query], ends[::2][query], starts[1::2][ref], ends[1::2][ref]]
    if as_table:  # the bounds of each sequence are neighbours
        bounds = [*np.stack(bounds[:2], axis=1).T, *np.stack(bounds[2:], axis=1).T]
    batch = PairBatch(letters, *bounds[:2], letters, *bounds[2:])
    rows, _ = staged_rows(LetterSource(batch), most_pairs=4)
    assert rows == expected_rows(
        [(made[a][0], made[b][1]) for a, b in zip(query, ref, strict=True)]
    )


@pytest.mark.medium
@pytest.mark.parametrize("byte", [0, 8])
def test_packed_pairs_are_staged(pairs, byte: int) -> None:
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    rows, n_chunks = staged_rows(PackedSource(packed_pairs(queries, refs)), 25, byte=byte)
    assert rows == expected_rows(pairs)
    assert n_chunks > 4


@pytest.mark.parametrize("most_pairs", [1, 2, 9])
@pytest.mark.parametrize(
    ("ends", "what"),
    [([5, 3, 8, 12], "offsets must begin with 0, not fall"), ([5, 9, 12, 13], "lie in"),
     ([-1, 3, 8, 12], "offsets must"), ([0, 2**31, 8, 12], "offsets must")],
)  # fmt: skip
def test_staging_finds_invalid_lengths(ends, what, most_pairs: int) -> None:
    bad = np.array([0, *ends])
    good = np.array([0, 3, 6, 9, 12])
    letters = np.frombuffer(b"ACGTNCGTACGT", np.uint8)
    for side, (first, second) in (("queries", (bad, good)), ("refs", (good, bad))):
        source = LetterSource(
            PairBatch(letters, first[:-1], first[1:], letters, second[:-1], second[1:])
        )
        with pytest.raises(UsageError, match=what) as error:
            staged_rows(source, most_pairs)
        assert side in str(error.value) or "pairs: sequences" in str(error.value)


@pytest.mark.parametrize("most_pairs", [1, 9])
def test_staging_finds_misplaced_packed_pairs(most_pairs: int) -> None:
    packed = packed_pairs(["ACGT" * 10] * 5, ["ACG" * 20] * 5)
    for field, value, side in (
        ("query_start", 2**40, "queries"), ("query_start", 0, "queries"),
        ("ref_len", 65, "references"), ("ref_len", -1, "references"), ("shift", 4, "queries"),
    ):  # fmt: skip
        column = getattr(packed, field).copy()
        column[2] = value
        with pytest.raises(UsageError, match=f"{side} must lie one behind the other"):
            staged_rows(PackedSource(packed._replace(**{field: column})), most_pairs)


@pytest.mark.parametrize("engine", [edit_distance, align_affine])
def test_packed_pairs_align_as_their_letters(engine) -> None:
    made = random_pairs(np.random.default_rng(5), 12, 40, "ACGTN")
    sides = [q for q, _ in made], [r for _, r in made]
    for symbols_rule in ("dna", "iupac", "bytes"):
        expected = engine(*sides, symbols=symbols_rule, cigar=True, device="cpu")
        packed = packed_pairs(*sides, symbols=symbols_rule)
        found = engine(packed, cigar=True, device="cpu")
        for a, b in zip(expected, found, strict=True):
            assert (a == b).all()


def test_invalid_packed_pairs_are_refused() -> None:
    packed = packed_pairs(["ACGT"] * 3, ["ACG"] * 3)
    moved = packed.query_start.copy()
    moved[1] = 0
    for broken, what in (
        (packed._replace(query_start=moved), "queries must lie one behind the other.* pair 0 "),
        (packed._replace(ref_words=packed.ref_words[:-2]), "references must lie.* pair 2 "),
        (packed._replace(shift=packed.shift[:2]), "2 pairs, but 3 in query_start"),
        (packed._replace(ref_len=packed.ref_len.astype(np.int32)), "ref_len is no flat array"),
    ):
        with pytest.raises(UsageError, match=what):
            edit_distance(broken, device="cpu")
    with pytest.raises(UsageError, match="give no others"):
        edit_distance(packed, ["ACGT"], device="cpu")
