"""Results of the CUDA backend, on a device or in the simulator, equal those of the CPU exactly."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numba import types

from mapper.align.affine.api import align_affine, align_extension
from mapper.align.affine.wavefront import AffinePenalties, AffineRows, Band, Origins
from mapper.align.dispatch import packed_pairs
from mapper.align.edit.api import edit_distance
from mapper.align.edit.wavefront import Ends, Rows, small_search
from mapper.align.matches import Strings
from mapper.align.packing import pack_pairs
from mapper.align.pairs import PADDING, PairBatch, batch_of
from mapper.align.result import HEURISTIC, OK
from mapper.errors import DeviceMemoryError, InputFormatError, UsageError
from mapper.jit.accelerate import driver
from mapper.parallel import buffers
from tests.helpers.offline_compile import array, compile_offline, require_compiler, type_of
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import adversarial_pairs, edited, random_pairs
from tests.naive.pairwise import RULES, lowest_penalty

SIMULATED = bool(numba.config.ENABLE_CUDASIM)


def check(pairs, device: str, engine=edit_distance, **options) -> None:
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    for cigar in (False, True):
        cpu = engine(queries, refs, cigar=cigar, device="cpu", **options)
        cuda = engine(queries, refs, cigar=cigar, device=device, **options)
        for name, a, b in zip(cpu._fields, cpu, cuda, strict=True):
            assert (a is None and b is None) or (a.dtype == b.dtype and (a == b).all()), name


@pytest.mark.gpu
@pytest.mark.parametrize("span", ["global", "semiglobal", "prefix", (3, 0, 0, 5), (9, 9, 9, 9)])
@pytest.mark.parametrize("symbols", ["dna", "iupac", "bytes"])
def test_small_pairs_equal_the_cpu(span, symbols: str, device: str) -> None:
    rng = np.random.default_rng(1)
    n = 6 if SIMULATED else 400
    pairs = random_pairs(rng, n, 40) + random_pairs(rng, n, 40, "ACGTN")
    check(pairs, device, span=span, symbols=symbols)


@pytest.mark.gpu
def test_pairs_of_every_attempt_equal_the_cpu(device: str) -> None:
    """Distances within the bound of the first, the second, the last attempt, and of none."""
    rng = np.random.default_rng(2)
    pairs = []
    for length, rate in ((60, 0.1), (100, 0.4), (150, 0.05)) if SIMULATED else (
        (150, 0.02), (300, 0.15), (1000, 0.05), (1000, 0.15), (1000, 0.5), (5000, 0.04)
    ):  # fmt: skip
        for _ in range(2 if SIMULATED else 40):
            ref = random_letters(rng, length)
            pairs.append((edited(rng, ref, rate), ref))
    check(pairs, device)
    check(pairs, device, max_distance=40)


@pytest.mark.gpu
def test_adversarial_pairs_equal_the_cpu(device: str) -> None:
    pairs = adversarial_pairs(24 if SIMULATED else 700)
    check(pairs[:: 9 if SIMULATED else 1], device)


@pytest.mark.slow_simulated
@pytest.mark.gpu
@pytest.mark.parametrize("span", ["global", "semiglobal", (9, 3, 2, 9)])
@pytest.mark.parametrize("penalties", [(4, 6, 2), (3, 1, 4), (1, 0, 1)])
def test_affine_equals_the_cpu(span, penalties, device: str) -> None:
    rng = np.random.default_rng(5)
    pairs = random_pairs(rng, 5 if SIMULATED else 300, 25 if SIMULATED else 60)
    pairs.append(("", "ACGT"))
    if not SIMULATED:
        pairs += random_pairs(rng, 60, 400, "ACGTN")
        for length, rate in ((150, 0.02), (150, 0.1), (1000, 0.02), (1000, 0.1), (3000, 0.1)):
            ref = random_letters(rng, length)
            pairs.append((edited(rng, ref, rate), ref))
    check(pairs, device, align_affine, span=span, penalties=penalties)
    check(pairs, device, align_affine, span=span, penalties=penalties, max_penalty=30)


@pytest.mark.gpu
def test_a_bound_that_is_just_enough_cuts_no_path(device: str) -> None:
    """The tightest wavefronts: of pairs whose penalty is the greatest allowed."""
    from mapper.align.edit.cuda_kernels import SMALL

    rng = np.random.default_rng(15)
    pairs = []
    for _ in range(2 if SIMULATED else 300):
        ref = random_letters(rng, 40)
        query = edited(rng, ref, 0.1)
        pairs += [(query, ref), (query[: rng.integers(30, 38)], ref), (ref, query[4:])]
    for penalties in ((4, 6, 2),) if SIMULATED else ((4, 6, 2), (3, 1, 4)):
        found = align_affine(
            [q for q, _ in pairs],
            [r for _, r in pairs],
            penalties=penalties,
            device="cpu",
            cigar=True,
        )
        for limit in sorted(set(found.score[1::3]))[:2]:  # of paths that end in a gap
            check(pairs, device, align_affine, penalties=penalties, max_penalty=int(limit))
    pairs = [(edited(rng, ref, 0.35), ref) for _, ref in pairs]
    found = edit_distance([q for q, _ in pairs], [r for _, r in pairs], device="cpu")
    limit = np.quantile(found.score, 0.4, method="nearest")
    assert limit > SMALL and (found.score > limit).any()  # by groups of lanes
    check(pairs, device, max_distance=int(limit))


@pytest.mark.slow_simulated
@pytest.mark.gpu
@pytest.mark.parametrize("span", ["global", (5, 0, 0, 9)])
def test_bands_cut_the_same(span, device: str) -> None:
    rng = np.random.default_rng(13)
    pairs = random_pairs(rng, 8 if SIMULATED else 200, 30 if SIMULATED else 80)
    if not SIMULATED:
        for _ in range(30):
            ref = random_letters(rng, 400)
            pairs.append((edited(rng, ref, 0.1), ref))
    for band, limit in (((2, 1), None), ((5, 3), None), ((3, 2), 30)):
        check(pairs, device, align_affine, span=span, band=band, max_penalty=limit)
    found = align_affine(
        [q for q, _ in pairs], [r for _, r in pairs], span=span, band=(3, 2), cigar=True
    )
    assert (found.status == HEURISTIC).any() and (found.status == OK).any()


@pytest.mark.gpu
@pytest.mark.parametrize("x_drop", [None, 5])
@pytest.mark.parametrize("scores", [(1, 4, 6, 1), (2, 3, 5, 2)])
def test_extension_equals_the_cpu(scores, x_drop: int | None, device: str) -> None:
    rng = np.random.default_rng(14)
    pairs = random_pairs(rng, 8 if SIMULATED else 300, 25 if SIMULATED else 60, "ACGTN")
    pairs += [("", "ACGT"), ("ACGT", ""), ("", "")]
    if not SIMULATED:
        for length, rate in ((150, 0.02), (150, 0.2), (1000, 0.03)):
            ref = random_letters(rng, length)
            pairs.append((edited(rng, ref, rate), ref))
    check(pairs, device, align_extension, scores=scores, x_drop=x_drop)


@pytest.mark.gpu
def test_a_device_without_memory_gets_less(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mapper.align.edit import cuda_general

    whole = cuda_general.EditWorker.align
    sizes = []

    def align(self, packed, *args):
        sizes.append(len(packed.shift))
        if len(packed.shift) > 3:
            raise DeviceMemoryError("full")
        return whole(self, packed, *args)

    monkeypatch.setattr(cuda_general.EditWorker, "align", align)
    check(random_pairs(np.random.default_rng(3), 10, 20), device, span="semiglobal")
    assert max(sizes) == 10 and min(sizes) <= 3


@pytest.mark.slow_simulated
@pytest.mark.gpu
def test_chunks_do_not_matter(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mapper.align.dispatch.CHUNK_PAIRS", 7)
    monkeypatch.setattr("mapper.align.dispatch.CHUNK_SYMBOLS", 300)
    monkeypatch.setattr("mapper.align.cuda.stream.CHUNK_PAIRS", 7)
    monkeypatch.setattr("mapper.align.cuda.chunks.CHUNK_SYMBOLS", 100)
    pairs = random_pairs(np.random.default_rng(4), 20, 60)
    for span in ("global", "semiglobal"):
        check(pairs, device, span=span)
        check([], device, span=span)


@pytest.mark.gpu
def test_pairs_that_the_streamed_pass_cannot_solve_are_aligned_later(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other letters, distances above its bounds, pairs without device memory."""
    from mapper.align.cuda import retry, stream
    from mapper.align.cuda.kernels import NOT_DONE
    from mapper.align.cuda.launch_plan import GroupLaunch
    from mapper.align.edit import cuda_plan

    monkeypatch.setattr(cuda_plan, "VECTOR_WIDTHS", ())
    monkeypatch.setattr(cuda_plan, "EDIT_GROUPS", (GroupLaunch(16, 8),))
    monkeypatch.setattr(retry, "_SPACES", {})  # kept streams have other kernels
    rng = np.random.default_rng(6)
    ref = random_letters(rng, 60)
    pairs = [(edited(rng, ref, 0.05), ref), (ref, ref[:20] + "N" + ref[21:]), ("ACGU", "acgt"),
             (random_letters(rng, 60), ref), ("", ref), (edited(rng, ref, 0.1), ref)]  # fmt: skip
    unsolved = []
    streamed_pass = stream.streamed_pass

    def noted(*args):
        found = streamed_pass(*args)
        unsolved.append(np.flatnonzero(found.columns.status == NOT_DONE).tolist())
        return found

    monkeypatch.setattr(stream, "streamed_pass", noted)
    check(pairs, device)
    check(pairs, device, symbols="iupac", max_distance=12)
    assert unsolved[:2] == [[1, 3, 4]] * 2
    assert unsolved[2:] == [[1]] * 2  # the others are known to be above the limit

    def full(*args):
        raise DeviceMemoryError("full")

    monkeypatch.setattr(stream, "_in_chunks", full)
    check(pairs, device)
    assert unsolved[-1] == list(range(len(pairs)))


@pytest.mark.gpu
def test_kernels_that_solve_few_pairs_idle(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results do not depend on the chunks before."""
    from mapper.align.cuda import retry, stream
    from mapper.align.edit import cuda_plan
    from mapper.cuda.api import device_context
    from mapper.cuda.memory import copy_out

    made, chain_for = [], cuda_plan.chain_for

    def noted(space, *args):
        made.append((space, chain_for(space, *args)))
        return made[-1][1]

    def idle():
        found = []
        for space, chain in made:
            with device_context(0):
                counts = np.empty(len(chain.idle), np.int32)
                copy_out(counts, chain.idle, len(counts), space.stream)
                space.synchronize()
            found.append(np.flatnonzero(counts).tolist())
        return found

    monkeypatch.setattr(cuda_plan, "chain_for", noted)
    monkeypatch.setattr(retry, "_SPACES", {})
    monkeypatch.setattr(stream, "FEWEST_PAIRS", 4)
    monkeypatch.setattr(stream, "STREAMS", 1)
    rng = np.random.default_rng(19)
    near, middle, far = [], [], []
    for pairs, n_edits in ((near, 3), (middle, 20), (far, 45)):
        for _ in range(5):
            ref = random_letters(rng, 70)
            query = list(ref)
            for at in rng.choice(70, n_edits, replace=False):
                query[at] = "ACGT"[("ACGT".index(query[at]) + 1) % 4]
            pairs.append(("".join(query), ref))
    for pairs, expected in (
        (near, []),
        (middle, [0]),
        (far, [0, 1]),
        (near[:2] + far[:2] + middle[:1], [0, 1]),
    ):
        sides = [q for q, _ in pairs], [r for _, r in pairs]
        found = edit_distance(*sides, cigar=True, device=device)
        for a, b in zip(edit_distance(*sides, cigar=True, device="cpu"), found, strict=True):
            assert (a == b).all()
        assert idle() == [expected]


@pytest.mark.gpu
def test_arrays_need_no_padding_and_may_share_one(device: str) -> None:
    rng = np.random.default_rng(7)
    pairs = [(edited(rng, r, 0.05), r) for r in (random_letters(rng, 50) for _ in range(6))]
    text = "".join(q + r for q, r in pairs)
    letters = np.frombuffer(text.encode() + bytes(PADDING), np.uint8)  # for the CPU
    ends = np.cumsum([len(s) for pair in pairs for s in pair])
    starts = np.concatenate([[0], ends[:-1]])
    batch = PairBatch(letters, starts[::2], ends[::2], letters, starts[1::2], ends[1::2])
    queries, refs = (
        (np.frombuffer("".join(side).encode(), np.uint8), np.cumsum([0, *map(len, side)]))
        for side in zip(*pairs, strict=True)
    )
    expected = edit_distance([q for q, _ in pairs], [r for _, r in pairs], device="cpu", cigar=True)
    for given in ((queries, refs), (batch, None)):
        found = edit_distance(*given, device=device, cigar=True)
        for a, b in zip(expected, found, strict=True):
            assert (a == b).all()
    # One sequence many times, and out of order.
    order = np.array([3, 3, 0, 5, 3, 1])
    start, end = (np.ascontiguousarray(column[order]) for column in batch[4:])
    batch = PairBatch(letters, batch.query_start, batch.query_end, letters, start, end)
    found, expected = (edit_distance(batch, device=d, cigar=True) for d in (device, "cpu"))
    for a, b in zip(expected, found, strict=True):
        assert (a == b).all()


@pytest.mark.gpu
def test_packed_pairs_equal_their_letters(device: str) -> None:
    rng = np.random.default_rng(8)
    pairs = [*random_pairs(rng, 20, 40, "ACGTN"), ("", ""), ("ACGT", "")]
    sides = [q for q, _ in pairs], [r for _, r in pairs]
    for symbols in ("dna", "bytes"):
        packed = packed_pairs(*sides, symbols=symbols)
        for engine in (edit_distance, align_affine):
            for span in ("global", "prefix"):
                expected = engine(*sides, symbols=symbols, span=span, cigar=True, device="cpu")
                found = engine(packed, span=span, cigar=True, device=device)
                for a, b in zip(expected, found, strict=True):
                    assert (a == b).all()


@pytest.mark.slow_simulated
@pytest.mark.gpu
def test_packed_pairs_are_copied_from_where_they_lie(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From page-locked memory, for all chunks, without staging on the host."""
    from mapper.align.cuda import stream

    monkeypatch.setattr(stream, "FEWEST_PAIRS", 7)
    if SIMULATED:  # whose memory is never page-locked
        monkeypatch.setattr(stream, "is_page_locked", lambda arrays: True)
    direct, run_direct = [], stream.run_direct

    def noted(streams, source, chunks, results):
        direct.append(len(chunks))
        run_direct(streams, source, chunks, results)

    monkeypatch.setattr(stream, "run_direct", noted)
    rng = np.random.default_rng(18)
    monkeypatch.setattr(buffers, "LEAST_BYTES", 1)  # small arrays are page-locked, too
    n = 12 if SIMULATED else 2_000
    pairs = [*random_pairs(rng, n, 30, "ACGTN"), ("", ""), ("ACGT", ""), ("A" * 70, "A" * 65)]
    sides = [q for q, _ in pairs], [r for _, r in pairs]
    packed = packed_pairs(*sides, device=device)
    for engine in (edit_distance, align_affine):
        expected = engine(*sides, cigar=True, device="cpu")
        found = engine(packed, cigar=True, device=device)
        for a, b in zip(expected, found, strict=True):
            assert (a == b).all()
    assert len(direct) == 2 and min(direct) > 1


@pytest.mark.gpu
def test_packed_pairs_that_are_none_are_refused_by_a_device(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mapper.align.cuda import stream

    if SIMULATED:
        monkeypatch.setattr(stream, "is_page_locked", lambda arrays: True)
    n = 8 if SIMULATED else 60_000
    packed = packed_pairs(["ACGT" * 10] * n, ["ACGT" * 10] * n, device=device)
    for field, pair, value, what in (
        ("query_start", 3, 2**40, "queries must lie one behind the other.* pair 3 "),
        ("ref_start", 7, -5, "references must lie one behind the other.* pair 6 "),
        ("query_len", 5, 2**20, "queries .* pair 5 "),
        ("ref_len", n - 1, 90, "references .* pair "),
        ("query_start", 0, -9, "queries .* pair 0 "),
        ("shift", 4, 70, "queries .* pair 4 "),
    ):
        column = getattr(packed, field)
        kept = column[pair]
        column[pair] = value
        with pytest.raises(UsageError, match=what):
            edit_distance(packed, device=device)
        column[pair] = kept
    assert (edit_distance(packed, device=device).score == 0).all()


@pytest.mark.gpu
def test_results_outlive_the_next_call(device: str) -> None:
    """Page-locked memory of results is reused only after the caller drops them."""
    rng = np.random.default_rng(9)
    n = 40 if SIMULATED else 40_000  # in memory of its own where compiled
    refs = [random_letters(rng, 20) for _ in range(n)]
    queries = [ref[:9] + ref[10:] for ref in refs]
    first = edit_distance(queries, refs, cigar=True, device=device)
    kept = [column.copy() for column in first]
    second = edit_distance(refs, refs, cigar=True, device=device)
    assert (second.score == 0).all() and (first.score == 1).all()
    for a, b in zip(kept, first, strict=True):
        assert (a == b).all()


@pytest.mark.gpu
def test_a_bad_letter_is_named_by_the_number_of_its_pair(device: str) -> None:
    with pytest.raises(InputFormatError, match="pair 12: character '!' at position 2 of the query"):
        edit_distance(["ACGT", "ACGT", "AC!T"], ["ACGT"] * 3, device=device, first_pair=10)


@pytest.mark.medium
def test_kernels_compile_for_hopper_without_spills() -> None:
    require_compiler()
    from mapper.align.affine.cuda_general import affine_kernel
    from mapper.align.cuda.retry import DevicePairs, DeviceResults, gather_ops_kernel
    from mapper.align.edit.cuda_general import edit_kernel

    word, number, byte = np.zeros(1, np.uint64), np.zeros(1, np.int64), np.zeros(1, np.uint8)
    pairs = DevicePairs(word, number, number, word, number, number, byte, number)
    results = [np.zeros(1, np.int8) if name == "status" else number
               for name in DeviceResults._fields[:-1]]  # fmt: skip
    out = DeviceResults._make([*results, np.zeros(1, np.uint32)])
    rows = Rows(np.zeros(1, np.int32), number, number, number)
    i64 = types.int64
    arguments = [type_of(pairs), type_of(Ends(0, 0, 0, 0)), i64, i64, i64, type_of(rows), i64, i64,
                 type_of(out)]  # fmt: skip
    machine = compile_offline(edit_kernel, arguments)
    assert machine.spills == 0
    assert machine.registers <= 128
    assert machine.count("BREV", "FLO", "POPC") > 0  # runs of matches by one instruction
    u32 = array(np.uint32)
    n = array(np.int64)
    arguments = [type_of(pairs), type_of(Ends(0, 0, 0, 0)), type_of(AffinePenalties(2, 3, 1)), i64,
                 i64, type_of(Band(0, 1)), i64, i64, affine_space_type(), type_of(out)]  # fmt: skip
    machine = compile_offline(affine_kernel, arguments)
    assert machine.spills == 0
    assert machine.registers <= 168
    assert compile_offline(gather_ops_kernel, [u32, i64, n, n, u32]).spills == 0


def affine_space_type():
    from mapper.align.affine.cuda_general import AffineSpace

    rows = AffineRows(
        *(np.zeros((1, 1, 1), np.int32) for _ in range(3)),
        *(np.zeros((1, 1), np.int64) for _ in range(2)),
    )
    origins = Origins(np.zeros((1, 1), np.uint8), *(np.zeros((1, 1), np.int64) for _ in range(2)))
    return type_of(AffineSpace(rows, origins, np.zeros((1, 1), np.uint32)))


@pytest.mark.slow
def test_kernels_of_the_streamed_pass_compile_for_hopper_without_spills() -> None:
    require_compiler()
    from mapper.align.affine.cuda_general import staged_affine_kernel
    from mapper.align.affine.cuda_kernels import GroupSpace, group_affine_kernel, group_shape
    from mapper.align.cuda import kernels
    from mapper.align.cuda.kernel_chain import KernelChain, begin_chain_kernel
    from mapper.align.edit.cuda_kernels import (
        WORD_TYPES,
        VectorSpace,
        edit_shape,
        group_edit_kernel,
        small_edit_kernel,
        vector_edit_kernel,
    )

    number, u32, byte = np.zeros(1, np.int64), np.zeros(1, np.uint32), np.zeros(1, np.int8)
    n_ops = np.zeros(1, np.int32)
    staged, i64 = array(np.uint64), types.int64
    out = type_of(kernels.ChunkResults(n_ops, byte, n_ops, u32, u32, np.zeros((1, 1), np.int64)))
    columns = type_of(kernels.OutputColumns(number, byte, *[number] * 5, u32))
    layout = type_of(Rows(np.zeros(1, np.int16), number, number, number))
    chain = type_of(KernelChain(np.zeros((1, 1), np.int32), n_ops, n_ops))
    arguments = [staged, i64, i64, i64, layout, chain, i64, out]
    machine = compile_offline(small_edit_kernel, arguments)
    assert machine.spills == 0
    assert machine.wide_share <= 0.21  # that counts in 64 bits
    assert machine.registers <= 80  # as many blocks as shared memory allows
    arguments = [staged, i64, i64, type_of(edit_shape(24, 8)), i64, i64, layout, chain, i64, out]
    machine = compile_offline(group_edit_kernel, arguments)
    assert machine.spills == 0
    assert machine.wide_share <= 0.15  # that counts in 64 bits
    assert machine.registers <= 64
    arguments = [staged, i64, type_of(AffinePenalties(2, 3, 1)), i64, i64, type_of(Band(0, 1)),
                 i64, i64, i64, affine_space_type(), i64, out]  # fmt: skip
    machine = compile_offline(staged_affine_kernel, arguments)
    assert machine.spills == 0
    assert machine.registers <= 255
    shape = group_shape(AffinePenalties(2, 3, 1), 220, 32)
    space = type_of(GroupSpace(np.zeros(1, np.uint8), u32, number, number))
    arguments = [staged, i64, type_of(AffinePenalties(2, 3, 1)), i64, i64, type_of(shape), i64, i64,
                 space, i64, out]  # fmt: skip
    machine = compile_offline(group_affine_kernel, arguments)
    assert machine.spills == 0
    assert machine.wide_share <= 0.16  # that counts in 64 bits
    assert machine.registers <= 64  # half of the threads that a multiprocessor can hold
    assert machine.count("VOTE") >= 1  # a warp stays in step
    for width, most in ((32, 34), (64, 55)):
        space = type_of(VectorSpace(np.zeros(1, WORD_TYPES[width]), 1))
        arguments = [staged, *[i64] * 6, space, chain, i64, out]
        machine = compile_offline(vector_edit_kernel, arguments)
        assert machine.spills == 0
        assert machine.wide_share <= 0.1  # that counts in 64 bits
        assert machine.registers <= 64  # half of the threads that a multiprocessor can hold
        # The compiler does some columns in one turn, with two words of moves each.
        with_moves = [loop for loop in machine.inner_loops if loop.count("STG") > 0]
        assert with_moves
        for loop in with_moves:
            assert len(loop.instructions) <= most * loop.count("STG") // 2
            assert loop.count("LDG", "LD", "CALL") == 0
    given = type_of(kernels.PackedColumns(*[number] * 4, np.zeros(1, np.uint8)))
    for kernel, arguments in (
        (kernels.packed_columns_kernel, [given, *[i64] * 7, staged]),
        (begin_chain_kernel, [chain, i64]),
        (kernels.count_blocks_kernel, [staged, i64, out]),
        (kernels.sum_blocks_kernel, [array(np.int64, 2), i64, array(np.int64)]),
        (kernels.finish_kernel, [staged, i64, out, i64, i64, i64, i64, columns]),
    ):
        assert compile_offline(kernel, arguments).spills == 0


def test_letters_are_loaded_from_where_they_are() -> None:
    """A second call after the loop was once compiled to a load of the array's first word only."""
    require_compiler()
    from tests.helpers.small_kernels import check_letters

    number = array(np.int64)
    machine = compile_offline(check_letters, [array(np.uint64), number, number, array(np.int8)])
    loads = [name for name in machine.instructions if name.startswith("LDG.E.64")]
    # Two words at any address, and nothing alone; start and end are loaded once each.
    assert (len(loads) - 2) % 2 == 0


@driver
def _small_distances(packed, bound, distances):
    cells = np.empty(2 * (bound + 1) ** 2, np.int16)
    for i in range(len(distances)):
        strings = Strings(
            packed.query_words.view(np.uint32), packed.ref_words.view(np.uint32),
            np.uint32(packed.query_start[i] << (6 - np.int64(packed.shift[i]))),
            np.uint32(packed.ref_start[i] << (6 - np.int64(packed.shift[i]))),
            np.int32(packed.query_len[i]), np.int32(packed.ref_len[i]),
            np.int32(packed.shift[i]),
        )  # fmt: skip
        distances[i] = small_search(strings, bound, cells[::2])


def test_small_rows_find_the_distances_of_the_others() -> None:
    pairs = random_pairs(np.random.default_rng(8), 200, 60, "ACGTN") + adversarial_pairs(30)
    packed = pack_pairs(batch_of([q for q, _ in pairs], [r for _, r in pairs]))
    found = np.empty(len(pairs), np.int64)
    _small_distances(packed, 12, found)
    for (query, ref), distance in zip(pairs, found, strict=True):
        expected = lowest_penalty(query, ref, RULES["dna"], (1, 0, 1))
        assert distance == (expected if expected <= 12 else -1)
    assert (found >= 0).sum() > 100
    assert (found < 0).sum() > 30
