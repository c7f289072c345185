"""Edit distance against the full matrix, edlib and the costs of CIGARs."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.align.affine.api import align_extension
from mapper.align.dispatch import packed_pairs
from mapper.align.edit import cpu
from mapper.align.edit.api import edit_distance
from mapper.align.edit.cpu import new_rows
from mapper.align.edit.wavefront import FINISHED, Ends, trace_edit
from mapper.align.matches import pair_at
from mapper.align.packing import pack_pairs
from mapper.align.pairs import PADDING, PairBatch, batch_of
from mapper.align.result import OK, OVER_LIMIT
from mapper.errors import UsageError
from mapper.jit.accelerate import driver
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import (
    adversarial_pairs,
    check_cigars,
    edited,
    fasta_sequence,
    random_pairs,
    suite_file,
    suite_pairs,
)
from tests.naive.pairwise import RULES, free_ends, lowest_penalty

SPANS = ["global", "semiglobal", "prefix", (3, 0, 0, 5), (0, 9, 2, 0), (99, 99, 99, 99)]


def both(pairs, **options):
    """Align with and without CIGARs; scores and statuses agree."""
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    found = edit_distance(queries, refs, cigar=True, threads=1, **options)
    alone = edit_distance(queries, refs, threads=2, **options)
    assert (found.score == alone.score).all()
    assert (found.status == alone.status).all()
    for with_cigar, without in ((found.query_end, alone.query_end), (found.ref_end, alone.ref_end)):
        assert (with_cigar == without).all()
    assert alone.cigar(0) is None
    check_cigars(found, pairs, span=options.get("span", "global"),
                 symbols=options.get("symbols", "dna"))  # fmt: skip
    return found


@pytest.mark.parametrize("span", SPANS, ids=str)
@pytest.mark.parametrize("symbols", RULES)
def test_distance_is_that_of_the_full_matrix(span, symbols: str) -> None:
    rng = np.random.default_rng(1)
    alphabet = {"dna": "ACGTNacgtuR", "iupac": "ACGTNnRY", "bytes": "ACxyz~"}[symbols]
    pairs = random_pairs(rng, 40, 40, "ACGT") + random_pairs(rng, 30, 30, alphabet)
    found = both(pairs, span=span, symbols=symbols)
    for i, (query, ref) in enumerate(pairs):
        free = free_ends(span, ref)
        assert found.score[i] == lowest_penalty(query, ref, RULES[symbols], free=free), pairs[i]


@given(st.text("ACGTN", max_size=70), st.text("ACGTN", max_size=70), st.sampled_from(SPANS))
def test_any_two_strings(query: str, ref: str, span) -> None:
    found = both([(query, ref)], span=span)
    free = free_ends(span, ref)
    assert found.score[0] == lowest_penalty(query, ref, RULES["dna"], free=free)


def test_adversarial_pairs() -> None:
    edlib = pytest.importorskip("edlib", reason="edlib is not installed")
    pairs = adversarial_pairs()
    found = both(pairs, symbols="iupac")
    for i, (query, ref) in enumerate(pairs):
        # edlib refuses empty sequences.
        expected = edlib.align(query, ref)["editDistance"] if query and ref else len(query + ref)
        assert found.score[i] == expected, pairs[i]
    # Ambiguous bases match nothing: replace them by different letters in query and reference.
    strict = both(pairs, symbols="dna")
    for i, (query, ref) in enumerate(pairs):
        q, r = query.replace("N", "x"), ref.replace("N", "y")
        expected = edlib.align(q, r)["editDistance"] if query and ref else len(query + ref)
        assert strict.score[i] == expected, pairs[i]


@pytest.mark.parametrize("length", [150, 1000, 4000, 10_000])
def test_long_pairs_equal_edlib(length: int) -> None:
    """Beyond the small workspace: bidirectional search, growing rows, divide and conquer."""
    edlib = pytest.importorskip("edlib", reason="edlib is not installed")
    rng = np.random.default_rng(length)
    pairs = []
    for rate in (0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6)[: 5 if length > 4000 else 7]:
        ref = random_letters(rng, length)
        pairs.append((edited(rng, ref, rate), ref))
    pairs.append((random_letters(rng, 1), random_letters(rng, length)))
    pairs.append((random_letters(rng, length), random_letters(rng, 3)))
    for span, mode in (("global", "NW"), ("semiglobal", "HW"), ("prefix", "SHW")):
        shown = pairs if span == "global" else [(q[: length // 3], r) for q, r in pairs[:4]]
        found = both(shown, span=span)
        for i, (query, ref) in enumerate(shown):
            expected = edlib.align(query, ref, mode=mode)
            assert found.score[i] == expected["editDistance"], (span, i)
            if span != "global":
                assert found.ref_end[i] == expected["locations"][0][1] + 1


def test_limit_gives_a_status_and_no_score() -> None:
    rng = np.random.default_rng(4)
    pairs = [*random_pairs(rng, 30, 50), (random_letters(rng, 2000), random_letters(rng, 2000))]
    exact = both(pairs)
    for limit in (0, 3, 20, 300, int(exact.score[-1]) - 1, int(exact.score[-1])):
        found = both(pairs, max_distance=limit)
        over = exact.score > limit
        assert (found.status == np.where(over, OVER_LIMIT, OK)).all()
        assert (found.score == np.where(over, -1, exact.score)).all()
        assert found.pair(int(np.argmax(over)))[:3] == (None, "over_limit", None) or not over.any()


def test_threads_and_order_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    pairs = random_pairs(rng, 50, 300)
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    whole = edit_distance(queries, refs, cigar=True, threads=1)
    monkeypatch.setattr("mapper.align.threads.CHUNK_SYMBOLS", 700)
    for threads in (1, 2):
        cut = edit_distance(queries, refs, cigar=True, threads=threads)
        assert all((a == b).all() for a, b in zip(whole, cut, strict=True))
    back = edit_distance(queries[::-1], refs[::-1], cigar=True)
    assert [back.pair(i) for i in range(50)] == [whole.pair(49 - i) for i in range(50)]


def test_packing_by_many_threads_names_the_first_bad_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mapper.errors import InputFormatError

    pairs = random_pairs(np.random.default_rng(7), 40, 90, "ACGTN")
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    whole = edit_distance(queries, refs, cigar=True, threads=1)
    monkeypatch.setattr("mapper.align.packing._PAIRS_A_THREAD", 3)
    cut = edit_distance(queries, refs, cigar=True, threads=4)
    assert all((a == b).all() for a, b in zip(whole, cut, strict=True))
    queries[17], queries[31] = "A-", "C!"
    with pytest.raises(InputFormatError, match="pair 17: character '-' at position 1"):
        edit_distance(queries, refs, threads=4)


def test_one_rule_decides_ties() -> None:
    """In the traceback a mismatch is preferred to a deletion, and that to an insertion."""
    found = edit_distance(["GATTACA", "AC", "AAT"], ["GAATA", "AAC", "AT"], cigar=True)
    assert [found.cigar(i) for i in range(3)] == ["2=1X2=2I", "1=1D1=", "1=1I1="]
    assert found.pair(0).pretty("GATTACA", "GAATA") == "GATTACA\n||*||  \nGAATA--"


def test_the_aligned_parts_are_shown() -> None:
    for ref in ("ACGTACGTAAAAAA", "ACGTACGT"):  # five letters of the query are clipped
        clipped = align_extension("ACGTACGTTTTTT", ref, cigar=True)
        assert clipped.pretty("ACGTACGTTTTTT", ref) == "ACGTACGT\n||||||||\nACGTACGT"
    for without, message in (
        (edit_distance("ACGT", "TTTT", cigar=True, max_distance=1), "status is over_limit"),
        (edit_distance(["A"], ["A"]).pair(0), "align with cigar=True"),
    ):
        with pytest.raises(ValueError, match=message):
            without.pretty("ACGT", "TTTT")


def test_arrays_lists_and_bytes_are_the_same() -> None:
    flat, offsets = np.frombuffer(b"ACGTTT", np.uint8), np.array([0, 4, 4, 6])
    mixed = [bytearray(b"ACGT"), memoryview(b""), flat[4:]]
    for queries in (["ACGT", "", "TT"], [b"ACGT", b"", b"TT"], mixed, (flat, offsets)):
        found = edit_distance(queries, ["AGT", "A", "TT"])
        assert found.score.tolist() == [1, 1, 0]
    assert edit_distance([], [], cigar=True).n_pairs == 0


@pytest.mark.parametrize(
    ("queries", "refs", "options", "message"),
    [
        (["A"], ["A", "C"], {}, "1 queries and 2 references"),
        ("ACGT", ["A"], {}, "queries is one sequence, and refs is not"),
        (["A"], None, {}, "references are missing"),
        (["é"], ["A"], {}, "not ASCII"),
        (["A!"], ["A"], {}, "pair 7: character '!' at position 1 of the query"),
        (["A"], ["A*A"], {}, "character '*' at position 1 of the reference"),
        (["A"], ["A"], {"span": "local"}, "span 'local'"),
        (["A"], ["A"], {"span": (1, 2, 3)}, "four whole numbers"),
        (["A"], ["A"], {"span": (1.5, 0, 0, 0)}, "four whole numbers"),
        (["A"], ["A"], {"symbols": "rna"}, "symbols 'rna'"),
        (["A"], ["A"], {"max_distance": -1}, "max_distance -1"),
        (["A"], ["A"], {"max_distance": 1.5}, "max_distance 1.5: a whole number"),
        (["A"], ["A"], {"max_distance": float("nan")}, "max_distance nan"),
        ([3], ["A"], {"symbols": "bytes"}, "queries.0.: 3 is no sequence"),
        (["A", "A"], ["A", None], {}, "refs.1.: None is no sequence"),
        (["A", "A"], np.array([1, 2]), {}, "is no sequence; str, bytes"),
        (["A"], ["A"], {"device": "tpu"}, "device='tpu'"),
        (["A"], ["A"], {"threads": 0}, "threads=0"),
        ((np.zeros(3, np.uint8), np.array([0, 4])), ["A"], {}, "lie in the array"),
        ((np.zeros(3, np.int32), np.array([0, 3])), ["A"], {}, "uint8"),
    ],
)
def test_invalid_options_are_refused(queries, refs, options, message: str) -> None:
    from mapper.errors import MapperError

    with pytest.raises(MapperError, match=message.replace("*", r"\*")):
        edit_distance(queries, refs, first_pair=7, **options)
    assert issubclass(UsageError, MapperError)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (([0], [10**12], [0], [4]), "longer than"),
        (([0], [10**6], [0], [4]), "queries: sequences must lie in their arrays"),
        (([0], [4], [10**12], [10**12 + 4]), "refs: sequences must lie in their arrays"),
        (([-(10**12)], [4 - 10**12], [0], [4]), "queries: sequences must lie in their arrays"),
        (([0, 5], [4, 2], [0, 0], [4, 4]), "queries: offsets must"),
        (([0, 0], [4], [0], [4]), "the columns of bounds differ in length"),
    ],
)
def test_bounds_of_a_batch_are_checked(bounds: tuple[list[int], ...], message: str) -> None:
    letters = np.frombuffer(b"ACGTACGT", np.uint8)
    columns = [np.array(column, np.int64) for column in bounds]
    batch = PairBatch(letters, *columns[:2], letters, *columns[2:])
    for call in (edit_distance, packed_pairs):
        with pytest.raises(UsageError, match=message):
            call(batch, device="cpu")


def test_a_batch_without_padding_is_packed() -> None:
    """What stands behind the last sequence is not read."""
    memory = np.frombuffer(b"ACGTACGTAC" + b"!" * PADDING, np.uint8)
    letters, start, end = memory[:10], np.array([0, 3]), np.array([7, 10])
    packed = packed_pairs(PairBatch(letters, start, end, letters, start, end), device="cpu")
    assert packed.shift.tolist() == [1, 1]
    assert edit_distance(packed).score.tolist() == [0, 0]


def traced_as_a_whole(query: str, ref: str) -> list[int]:
    """Return the operations of the path from a search that keeps all rows."""
    pair = pair_at(pack_pairs(batch_of([query], [ref])), 0)
    rows = new_rows(1 << 22, 1 << 11)
    status, s, k = cpu.search(pair, Ends(0, 0, 0, 0), 2**30, rows, 1, 1)
    assert status == FINISHED
    ops = np.empty(2 * s + 4, np.uint32)
    n_ops, _ = traced(rows, s, k, len(ref), ops)
    return ops[:n_ops][::-1].tolist()


@driver
def traced(rows, s, k, end, ops):
    return trace_edit(rows, s, k, end, ops, 0)


@pytest.mark.parametrize("order", ["even", "edits first", "edits last"])
def test_paths_of_a_limited_distance_are_traced_as_a_whole(order: str) -> None:
    """Whatever distance the first rows predict."""
    rng = np.random.default_rng(36)
    refs = [random_letters(rng, 2500), random_letters(rng, 9000)]
    queries = [edited(rng, refs[0], 0.6), refs[1]]
    if order == "even":
        refs, queries = [refs[1]], [edited(rng, refs[1], 0.1)]
    elif order == "edits last":
        refs, queries = refs[::-1], queries[::-1]
    query, ref = "".join(queries), "".join(refs)
    found = edit_distance([query], [ref], cigar=True, device="cpu")
    assert cpu.ROWS_BEFORE_GUESS < found.score[0] < 1020
    assert found.cigar_ops is not None
    assert found.cigar_ops.tolist() == traced_as_a_whole(query, ref)


def test_wfa_suite() -> None:
    pairs = suite_pairs()
    found = both(pairs)
    with gzip.open(suite_file("wfa_utest.edit.alg.gz"), "rt") as lines:
        expected = [int(line.split("\t")[0]) for line in lines]
    assert found.score.tolist() == expected


def test_real_mitochondria_and_phages() -> None:
    expected = suite_file("expected_edit_distance.tsv").read_text().splitlines()[1:]
    for line in expected:
        a, b, _, _, distance = line.split("\t")
        if int(distance) > 7000:
            continue  # seconds each; in benchmarks/
        pair = (fasta_sequence(a), fasta_sequence(b))
        found = edit_distance([pair[0]], [pair[1]], cigar=True, threads=1)
        assert found.score[0] == int(distance)
        check_cigars(found, [pair])


def test_a_whole_limit_may_be_a_float() -> None:
    """For example a fraction of the length."""
    found = edit_distance(["AAAA", "AAAA"], ["AACC", "ACCC"], max_distance=0.5 * 4)  # type: ignore[arg-type]
    assert found.status.tolist() == [OK, OVER_LIMIT]
