"""Machine code of the kernels that place reads and make their records."""

from __future__ import annotations

import numpy as np
import pytest
from numba import types

from mapper.batch import AlignmentBatch
from mapper.jit.intrinsics import rounded_product
from mapper.pair.insert_size import assumed_model
from mapper.pair.placement import (
    PlacementBatch,
    PlacingSpace,
    RankedAlignments,
    base_weights,
    placing_params,
)
from mapper.pair.records import FIELD_TYPES, Fields, Names
from mapper.params import ExtendParams, PairParams, RecordParams
from tests.helpers.offline_compile import array, compile_offline, require_compiler, type_of

NUMBER, FLAG = types.int64, types.boolean
U1, U4, I4, I8 = (array(np.dtype(kind)) for kind in ("u1", "u4", "i4", "i8"))
ALIGNMENTS = types.NamedTuple([I8, U1, I4, I8, I8, I4, I4, I4, I4, I8, U4], AlignmentBatch)
PLACEMENTS = types.NamedTuple([I8, U1, U1, I8, U1, I4, I8], PlacementBatch)


def kernels():
    """Yield each kernel, the types of its arguments, and how often it may go to local memory."""
    from mapper.pair import records_cuda as of_records
    from mapper.seed.cuda import DeviceReads, PerRead

    params = type_of(RecordParams())
    planes = array(np.uint64, 2)
    reads = types.NamedTuple([U1, I8, planes, I8], DeviceReads)
    texts = types.NamedTuple([U1, U1, I8], of_records.ReadTexts)
    rankings = types.NamedTuple([ALIGNMENTS, ALIGNMENTS, U1], RankedAlignments)
    space = types.NamedTuple([array(np.int64, 2), array(np.int64, 2), I8, U1], PlacingSpace)
    no_groups = np.zeros(0, np.int32)
    settings = placing_params(assumed_model(), PairParams(), ExtendParams(), 1000, no_groups)
    weights = type_of(base_weights(ExtendParams()))
    names = types.NamedTuple([U1, I8, I8, I4, U1, NUMBER], Names)
    plan = types.NamedTuple([I4, I4, I8, I4, U1], of_records.RecordPlan)
    rooms = types.NamedTuple([I8, I8, I8], of_records.Rooms)
    columns = [array(np.dtype(kind)) for kind in FIELD_TYPES]
    fields = types.NamedTuple(columns, Fields)
    records = types.NamedTuple([fields, I8, I8, I8, U4, U1], of_records.Records)
    # A warp that has hundreds of alignments to sort sorts longer than it goes to memory.
    for kernel, most in ((of_records._place_templates, 110), (of_records._place_listed, 150)):
        yield (
            kernel,
            [NUMBER, FLAG, reads, texts, types.NamedTuple([I4, U1], PerRead), ALIGNMENTS, rankings,
             weights, type_of(settings), U1, space, PLACEMENTS, I4, I8], most,
        )  # fmt: skip
    yield (
        of_records._measure_records,
        [NUMBER, FLAG, reads, texts, ALIGNMENTS, PLACEMENTS, NUMBER, NUMBER, params, plan, I8],
        0,
    )
    yield (
        of_records._write_records,
        [NUMBER, NUMBER, FLAG, reads, texts, ALIGNMENTS, PLACEMENTS, names, planes, I4, params,
         plan, rooms, U4, NUMBER, records], 40,
    )  # fmt: skip
    yield of_records._find_bounds, [NUMBER, I8, I8, I8, I8], 0
    yield of_records._encode_records, [NUMBER, reads, texts, records, I8, U1], 0


@pytest.mark.medium
def test_little_goes_to_local_memory() -> None:
    require_compiler()
    for kernel, argument_types, most in kernels():
        machine = compile_offline(kernel, argument_types)
        assert machine.spills <= most, kernel.function.__name__


def test_a_product_is_rounded_before_anything_is_added() -> None:
    """So qualities on a device are those of the host. Otherwise the two are one instruction."""
    require_compiler()
    from mapper.cuda.api import kernel

    @kernel(32)
    def rounded(a, b, out):
        out[0] = rounded_product(a * b, b) - out[1]

    @kernel(32)
    def fused(a, b, out):
        out[0] = a * b * b - out[1]

    for made, n_products, n_fused in ((rounded, 2, 0), (fused, 1, 1)):
        machine = compile_offline(made, [types.float64, types.float64, array(np.float64)])
        assert (machine.count("DMUL"), machine.count("DFMA")) == (n_products, n_fused)
