"""Table of the 64-bit arithmetic in the machine code of the hot kernels.

    python -m tests.helpers.sass_widths [--out FOLDER]

Compiles for sm_90 without a device, as the tests do (offline_compile.py says what that needs);
the tests of the kernels have bounds. Instructions are counted once, however often they run.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numba import types

from benchmarks.common import harness
from mapper.index.fm import FMIndex
from mapper.params import SeedParams
from mapper.seed.diagonals import SeedScratch
from mapper.seed.rounds import SeedColumns
from tests.helpers.inner_loops import instructions_of, needless
from tests.helpers.offline_compile import Machine, array, compile_offline, type_of
from tests.helpers.stage_batches import index_of, small_genome
from tests.kmers.test_cuda import search_types
from tests.machine_code.test_mapping_kernels import NUMBER, extension_types, struct


def hot_kernels() -> Iterator[tuple[str, Any, Sequence[types.Type]]]:
    """Yield the kernels that take most of the device's time, with the types of their arguments."""
    from mapper.cuda.worklist import Lists, Pool
    from mapper.extend.cuda_kernels import extend_alone, extend_by_warp, screen
    from mapper.index.cuda import _fill_suffix_array
    from mapper.kmers.cuda import _search, _search_by_contexts
    from mapper.seed import cuda as device_seed
    from mapper.seed.cuda import DeviceReads

    shared = {
        "reads": struct(DeviceReads, "u1", "i8", array(np.uint64, 2), "i8"),
        "lists": struct(Lists, "i8", array(np.int32, 2)),
        "pool": struct(Pool, "i4", "i8"),
    }
    kinds = extension_types(shared)
    fm: FMIndex = index_of(small_genome(np.random.default_rng(1))).fm
    yield "screen", screen, (*kinds[:11], NUMBER, array(np.int32), kinds[14])
    yield "extend_alone", extend_alone, kinds
    yield "extend_by_warp", extend_by_warp, kinds
    seed_types = (
        type_of(fm), shared["reads"], type_of(SeedParams()), shared["lists"], NUMBER, NUMBER,
        struct(SeedScratch, *device_seed._SCRATCH), shared["pool"],
        struct(SeedColumns, *device_seed._COLUMNS), struct(device_seed.PerRead, "i4", "i4", "u1"),
    )  # fmt: skip
    yield "_seed (reads)", device_seed._seed, seed_types
    yield "_search (k-mers)", _search, search_types(20)
    yield "_search_by_contexts (k-mers)", _search_by_contexts, search_types(20, contexts=True)
    locate = [type_of(fm), types.int64, array(np.uint32)]
    yield "_fill_suffix_array (locate)", _fill_suffix_array, locate


def row(name: str, machine: Machine) -> list[str]:
    """Return a line of the table."""
    n, wide = len(machine.instructions), machine.wide
    kinds = ("addresses", "sums", "comparisons")
    parts = [f"{wide[kind]} ({100 * wide[kind] / n:.1f} %)" for kind in kinds]
    return [name, str(n), *parts, f"{100 * machine.wide_share:.1f} %", str(machine.registers)]


EXPLANATION = """\
"Addresses" are products of 32 bits into 64 and upper halves of shifted sums; "sums" and "comparisons" are pairs of instructions, of which that with
the carry is counted. "Needless" are sums and comparisons of 64 bits that neither make an address nor take numbers that memory holds with 64 bits, or
that come from these by logic, shifts or sums (`tests/helpers/inner_loops.py`): what counts, adds up or compares in 64 bits without need.
`tests/machine_code/test_inner_loops.py` allows none in any inner loop.

What is 64 bits wide in the inner loops, by what they do (lines of the source by `lineinfo=True` and `nvdisasm -gi`):

- *screen and extend, no loads, no stores*: the text slides past a block of the read (`extend/marks.py`). All sums add up eight bytes at a time, where
  no carry passes between bytes.
- *screen and extend, 4 stores, no loads*: losses are set to zero where no bound is known (`forget_losses`), one address a store.
- *12 loads, no stores*: 64 bases of read and text are compared (`longest_run`, in `_seed` `seed_matches`), three planes of two words each, or single
  bases are (`left_align`). Places in the text have 64 bits; the lowest mismatch is a word less one, and a word is compared with none.
- *extend, 5 loads, 2 stores*: the way back through a gap (`extend/backtrace.py`); addresses.
- *extend, 4 stores, no loads, with comparisons*: mismatches of a word are written down (`find_mismatches`): the word less one, and whether it is 0.
- *extend, 6 to 8 loads, 8 stores; 4 loads; 4 loads, 4 stores*: operations are joined, added up for the edit distance, and copied to the pool, whose
  places have 64 bits.
- *_seed, 4 stores, no loads*: seeds are listed (`choose_seeds`), or the table of diagonals is emptied. *8 loads, 12 stores*: the table of k-mers is
  looked up. *8 loads, no stores*: its bases are read, by their places in the batch.
- *_seed, 3 loads, 1 store*: seeds are sorted by their number of rows, a difference of two rows of 64 bits. *16 loads, 16 stores*: seeds are written.
- *_seed, 2 loads, a comparison*: the table of diagonals is looked into; a diagonal has 64 bits, as the place in the text has. *1 load*: words of the
  text are looked at for ambiguous bases (`clean_hit`).
- *_seed, _search and locate, 2 loads, or 8 in some 50 instructions, no stores*: blocks of the BWT before the last one, one or four at a time (`occ`); an Occ
  spacing of 64 has none.
- *_search, 8 loads, 16 stores*: hits are passed on to a list whose places have 64 bits. *No loads, no stores*: bases of a query become a row of the
  table of k-mers (`table_index`).
- *extend_by_warp, one store, no loads, more than 400 instructions*: no loop. What the compiler put behind the kernel's end jumps back from there.

The loop over a wavefront's diagonals (`extend_side`) is no innermost one; runs of matches are compared in it. It has 3 needless instructions in a
thread alone and 2 in a warp: the mask of lanes has 64 bits, and 32 are enough.
"""  # noqa: E501
WIDE_HEADER = ("", "instructions", "addresses", "sums", "comparisons", "all of 64 bits")


def loop_rows(name: str, machine: Machine) -> list[list[str]]:
    """Return lines for the innermost loops of 20 instructions or more, equal ones together."""
    found: Counter[tuple[str, ...]] = Counter()
    for loop in machine.inner_loops:
        if len(loop.instructions) >= 20:
            what = f"{loop.count('LDG', 'LD')} loads, {loop.count('STG', 'ST')} stores"
            cells = row(f"{name}: {what}", loop)[:-1]
            found[*cells, str(len(needless(instructions_of(loop))))] += 1
    longest_first = sorted(found.items(), key=lambda item: -int(item[0][1]))
    return [[*cells, str(times)] for cells, times in longest_first]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a table of whole kernels, and one of their innermost loops."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="folder [%(default)s]")
    harness.add_commit(parser)
    options = parser.parse_args(arguments)
    versions = {name: metadata.version(name) for name in ("numba", "numba-cuda")}
    about = harness.provenance(versions) | {"commit": options.commit}
    whole, loops = [], []
    for name, kernel, kinds in hot_kernels():
        machine = compile_offline(kernel, kinds)
        whole.append(row(name, machine))
        loops += loop_rows(name, machine)
    lines = ["# 64-bit integers in machine code of sm_90", "", *harness.markdown_provenance(about)]
    lines += harness.table([*WIDE_HEADER, "registers"], whole)
    lines += ["Innermost loops, as unrolled by the compiler:", ""]
    lines += harness.table([*WIDE_HEADER, "needless", "such loops"], loops)
    lines += EXPLANATION.splitlines()
    stem = "sass_widths"
    harness.write_results(
        options.out, stem, {"about": about, "kernels": whole, "loops": loops}, lines
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
