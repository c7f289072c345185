"""Machine code of all kernels for sm_90, and spills of those without a test of their own."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from numba import types

from mapper.align.affine.wavefront import AffinePenalties, AffineRows, Origins
from mapper.batch import AlignmentBatch, AnchorBatch, LinkBatch, LocusBatch
from mapper.chain.collinear import Items
from mapper.extend.read import FOUND_TYPES, Found
from mapper.index.reference import ContigBounds
from mapper.kmers.hits import HitStore
from mapper.params import AnchorParams, ChainParams, ExtendParams, TwoPieceScoring
from mapper.seed.maximal import AnchorColumns, WindowScratch
from mapper.seed.rounds import SeedColumns
from tests.helpers.offline_compile import array, compile_offline, require_compiler, type_of
from tests.helpers.stage_batches import index_of, small_genome

ROOT = Path(__file__).parents[2]
NUMBER = types.int64
U1, U4, U8, I4, I8 = (array(np.dtype(kind)) for kind in ("u1", "u4", "u8", "i4", "i8"))
ALIGNMENTS = types.NamedTuple([I8, U1, I4, I8, I8, I4, I4, I4, I4, I8, U4], AlignmentBatch)
LOCI = types.NamedTuple([I8, U1, I8, I4, I8, I8], LocusBatch)
SEEDS = types.NamedTuple([U1, I4, I8, I4], SeedColumns)
HITS = types.NamedTuple([I4, U4, U1, U4, U1, I8, I4, I4, U4, U1], HitStore)
FOUND = (U4, U1)  # positions and mismatches of hits


def seeding_and_chaining():
    from mapper.chain.cuda import _chain
    from mapper.cuda.worklist import Lists, Pool, _choose, _number, _scan_groups, _sum_groups
    from mapper.extend.cuda_kernels import PerLocus, align_ungapped
    from mapper.extend.doubt_cuda import _doubt, _doubt_pairs
    from mapper.seed.cuda import DeviceReads, PerRead, _gather, _pack

    reads = types.NamedTuple([U1, I8, array(np.uint64, 2), I8], DeviceReads)
    lists = types.NamedTuple([I8, array(np.int32, 2)], Lists)
    pool = types.NamedTuple([I4, I8], Pool)
    found = types.NamedTuple([array(np.dtype(kind)) for kind in FOUND_TYPES], Found)
    rows = types.NamedTuple([array(np.int32, 2), I8, I4, I4, I4, I4, found], PerLocus)
    bounds = types.NamedTuple([I8, I8], ContigBounds)
    yield _pack, [reads, NUMBER]
    yield _number, [lists, NUMBER]
    yield _choose, [lists, U1, NUMBER, pool]
    yield _gather, [NUMBER, pool, SEEDS, I8, SEEDS, I4]
    scores = type_of(ExtendParams())
    yield _doubt, [reads, ALIGNMENTS, I4, type_of(True), scores, NUMBER, U1]
    seeds = types.NamedTuple([I4, U1], PerRead)
    yield _doubt_pairs, [reads, ALIGNMENTS, seeds, scores, NUMBER, U1]
    yield _chain, [bounds, SEEDS, LOCI, NUMBER]
    yield _sum_groups, [I4, NUMBER, NUMBER, I8]
    yield _scan_groups, [I4, NUMBER, NUMBER, I8, I8]
    yield (
        align_ungapped,
        [array(np.uint64, 2), reads, LOCI, I4, type_of(ExtendParams()), NUMBER, I4, rows],
    )


def long_reads():
    from mapper.chain.cuda import link_reads
    from mapper.seed import anchors_cuda as anchors
    from mapper.seed.cuda import DeviceReads

    fm = type_of(index_of(small_genome(np.random.default_rng(1))).fm)
    reads = types.NamedTuple([U1, I8, array(np.uint64, 2), I8], DeviceReads)
    segments = types.NamedTuple([I4, I8, I8, I8, I8], anchors.Segments)
    params = type_of(AnchorParams())
    windows = types.NamedTuple([I4, I4, U1, I8, I8, I4], WindowScratch)
    found = types.NamedTuple([U1, I4, I8, I4], AnchorColumns)
    keys = types.NamedTuple([I8, I4], anchors.AnchorKeys)
    batch = types.NamedTuple([I8, U1, I4, I8, I4, I4], AnchorBatch)
    items = types.NamedTuple([I4, I4, I4, I8, I8, I8], Items)
    links = types.NamedTuple([I8, I8], LinkBatch)
    yield anchors._pack_words, [reads, NUMBER]
    yield anchors._search_windows, [fm, reads, segments, params, NUMBER, windows, I4, I4]
    yield anchors._locate_rows, [fm, windows, I8, NUMBER, I8]
    yield (
        anchors._make_anchors,
        [fm, reads, segments, params, NUMBER, NUMBER, windows, I8, I8, found, I4],
    )
    yield anchors._gather_keys, [segments, NUMBER, I8, found, I8, keys]
    yield anchors._read_rows, [I8, I8, I8]
    yield anchors.sort_anchors, [I8, keys, I4]
    yield anchors.write_anchors, [I8, keys, I8, found]
    yield link_reads, [batch, I8, items, type_of(ChainParams()), links]


def pieces_of_long_reads():
    """The kernels whose lanes share a piece, with the types of their arguments."""
    from mapper.extend import pieces_cuda
    from mapper.extend.piece_plan import PIECE_TYPES, Pieces
    from mapper.seed.cuda import DeviceReads

    I1 = array(np.int8)
    reads = types.NamedTuple([U1, I8, array(np.uint64, 2), I8], DeviceReads)
    pieces = types.NamedTuple([array(np.dtype(kind)) for kind in PIECE_TYPES], Pieces)
    done = types.NamedTuple([I8, I4, I4, I4], pieces_cuda.DoneColumns)
    targets = types.NamedTuple([done, U4, I8, I4, I8], pieces_cuda.Targets)
    spaces = types.NamedTuple([U1, I1, I4, U4, U1], pieces_cuda.LargeSpace)
    head = [array(np.uint64, 2), reads, pieces]
    scoring = type_of(TwoPieceScoring())
    small = [U1, NUMBER, targets]
    yield pieces_cuda.fill_small, [*head, scoring, *small]
    yield pieces_cuda.fill_large, [*head, scoring, spaces, NUMBER, targets]
    yield pieces_cuda.extend_small, [*head, NUMBER, scoring, *small]
    yield pieces_cuda.extend_large, [*head, NUMBER, scoring, spaces, NUMBER, targets]


def index_and_kmers():
    from mapper.index.cuda import _fill_suffix_array, _lengthen_table
    from mapper.index.suffix_sort_cuda import _count_leading, _count_range, _scatter
    from mapper.kmers import cuda
    from mapper.kmers.cuda import _fill_contexts

    fm = type_of(index_of(small_genome(np.random.default_rng(1))).fm)
    yield _count_leading, [U8, NUMBER, NUMBER, NUMBER, U8]
    yield _count_range, [U8, *[NUMBER] * 5, U1]
    yield _scatter, [NUMBER, U4, U4, U4]
    yield _fill_suffix_array, [fm, NUMBER, U4]
    yield _lengthen_table, [fm, U4, NUMBER, NUMBER, U4]
    yield _fill_contexts, [fm, NUMBER, array(np.uint32, 2)]
    yield cuda._drop, [I4, NUMBER, NUMBER, U1]
    yield cuda._gather_first, [HITS, NUMBER, I8, *FOUND]
    yield cuda._gather_listed, [HITS, NUMBER, I8, *FOUND]
    yield cuda._sort_long, [NUMBER, I8, *FOUND]
    yield cuda._scatter_first, [NUMBER, I8, *FOUND, *FOUND]
    yield cuda._scatter_listed, [HITS, NUMBER, I8, *FOUND, *FOUND]


def bgzf():
    from mapper.io.bgzf_cuda import _align, _assemble, _count_lines
    from mapper.sorting.runs_cuda import _bring_together

    sizes, starts, bodies, checksums = I8, I8, I8, U4
    yield (
        _assemble,
        [U1, U1, I8, NUMBER, sizes, U1, NUMBER, sizes, checksums, starts, U1],
    )
    yield _align, [U1, bodies, sizes, starts, U1]
    yield _count_lines, [U1, starts, sizes, I8]
    yield _bring_together, [U1, I8, NUMBER, U1]


def fastq():
    from mapper.io import fastq_cuda

    lines = types.NamedTuple([U1, I8, I8, array(np.int64, 2), NUMBER], fastq_cuda._Lines)
    measured = types.NamedTuple([I8, I8, I8, I4, I4, I4], fastq_cuda._Measured)
    read = types.NamedTuple([U1, U1, I8, U1, I8], fastq_cuda.ParsedColumns)
    yield fastq_cuda._count_line_ends, [U8, NUMBER, NUMBER, I4]
    yield fastq_cuda._find_lines, [U8, NUMBER, NUMBER, I8, I8]
    yield fastq_cuda._measure, [NUMBER, type_of(True), lines, measured, I8]
    yield fastq_cuda._copy_reads, [NUMBER, U1, measured, read, I8]
    yield fastq_cuda._sum_up, [NUMBER, NUMBER, *[I8] * 9]


def pairwise():
    from mapper.align.affine.cuda_general import AffineSpace, extension_kernel
    from mapper.align.cuda.retry import DevicePairs, DeviceResults
    from mapper.align.long.cuda import reverse_kernel

    pairs = types.NamedTuple([U8, I8, I8, U8, I8, I8, U1, I8], DevicePairs)
    columns = [array(np.int8) if name == "status" else I8 for name in DeviceResults._fields[:-1]]
    out = types.NamedTuple([*columns, U4], DeviceResults)
    cells, numbers = array(np.int32, 3), array(np.int64, 2)
    rows = types.NamedTuple([cells, cells, cells, numbers, numbers], AffineRows)
    origins = types.NamedTuple([array(np.uint8, 2), numbers, numbers], Origins)
    space = types.NamedTuple([rows, origins, array(np.uint32, 2)], AffineSpace)
    yield reverse_kernel, [U8, U8]
    yield (
        extension_kernel,
        [pairs, type_of(AffinePenalties(2, 3, 1)), NUMBER, NUMBER, NUMBER, NUMBER, space, out],
    )


@pytest.mark.medium
@pytest.mark.parametrize(
    "kernels",
    [
        seeding_and_chaining,
        long_reads,
        pieces_of_long_reads,
        index_and_kmers,
        bgzf,
        fastq,
        pairwise,
    ],
)
def test_kernels_keep_everything_in_registers(kernels) -> None:
    require_compiler()
    for kernel, argument_types in kernels():
        machine = compile_offline(kernel, argument_types)
        name = kernel.function.__name__
        assert machine.spills == 0, name
        assert machine.count("DADD", "DMUL", "DFMA") == 0, name


def kernels_of(path: Path) -> set[str]:
    """Return the names of a module's functions that are decorated with ``kernel(...)``."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "kernel"
    }


def words_of(path: Path) -> set[str]:
    """Return the names and strings of a module."""
    tree = ast.parse(path.read_text())
    return {
        str(getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", ""))
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute | ast.Constant)
    }


def test_no_kernel_is_left_out() -> None:
    """Every kernel is named by a module of tests that compiles kernels offline."""
    compiled: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        words = words_of(path)
        if "compile_offline" in words:
            compiled |= words
    found = {path: kernels_of(path) for path in (ROOT / "mapper").rglob("*.py")}
    kernels = [name for names in found.values() for name in names]
    assert len(kernels) > 50
    # Else the test of one would hide that there is none of the other.
    assert len(set(kernels)) == len(kernels), "two kernels have one name"
    assert not {
        f"{path.name}: {name}" for path, names in found.items() for name in names - compiled
    }
