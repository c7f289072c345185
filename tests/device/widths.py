"""How much of the hot kernels' machine code counts in 64 bits.

    python -m tests.device.widths [--out FOLDER]

Compiles for sm_90 without a device, as the tests do (offline.py has what it needs);
bounds are in the tests of the kernels. Instructions as they stand in the code, not as often as they
are executed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
from numba import types

from benchmarks import harness
from mapper.index.fm import FMIndex
from mapper.params import SeedParams
from mapper.seed.rounds import SeedColumns
from mapper.seed.select import SeedScratch
from tests.device.batches import index_of, small_genome
from tests.device.offline import Machine, array, compile_offline, type_of
from tests.device.test_kernels_offline import NUMBER, extension_types, struct
from tests.seed.test_kmers_cuda import search_types


def kernels() -> Iterator[tuple[str, Machine]]:
    """Compile the kernels that most of the device's time goes to, as mapping launches them."""
    from mapper.device.reads import DeviceReads
    from mapper.device.work import Lists, Pool
    from mapper.extend.kernels import extend_alone, extend_by_warp, screen
    from mapper.index.cuda import _fill_suffix_array
    from mapper.seed import cuda as device_seed
    from mapper.seed.kmer_cuda import _search, _search_by_contexts

    shared = {
        "reads": struct(DeviceReads, "u1", "i8", array(np.uint64, 2), "i8"),
        "lists": struct(Lists, "i8", array(np.int32, 2)),
        "pool": struct(Pool, "i4", "i8"),
    }
    kinds = extension_types(shared)
    fm: FMIndex = index_of(small_genome(np.random.default_rng(1))).fm
    yield "screen", compile_offline(screen, (*kinds[:11], NUMBER, array(np.int32), kinds[14]))
    yield "extend_alone", compile_offline(extend_alone, kinds)
    yield "extend_by_warp", compile_offline(extend_by_warp, kinds)
    seed_types = (
        type_of(fm), shared["reads"], type_of(SeedParams()), shared["lists"], NUMBER, NUMBER,
        struct(SeedScratch, *device_seed._SCRATCH), shared["pool"],
        struct(SeedColumns, *device_seed._COLUMNS), struct(device_seed.PerRead, "i4", "i4", "u1"),
    )  # fmt: skip
    yield "_seed (reads)", compile_offline(device_seed._seed, seed_types)
    yield "_search (k-mers)", compile_offline(_search, search_types(20))
    by_contexts = compile_offline(_search_by_contexts, search_types(20, contexts=True))
    yield "_search_by_contexts (k-mers)", by_contexts
    locate = [type_of(fm), types.int64, array(np.uint32)]
    yield "_fill_suffix_array (locate)", compile_offline(_fill_suffix_array, locate)


def row(name: str, machine: Machine) -> list[str]:
    """Return a line of the table."""
    n, wide = len(machine.instructions), machine.wide
    kinds = ("addresses", "sums", "comparisons")
    parts = [f"{wide[kind]} ({100 * wide[kind] / n:.1f} %)" for kind in kinds]
    return [name, str(n), *parts, f"{100 * machine.wide_share:.1f} %", str(machine.registers)]


EXPLANATION = """\
"Addresses" are products of 32 bits into 64 and upper halves of shifted sums; "sums" and "comparisons" are pairs of instructions, of which that with
the carry is counted: what is done in 64 bits without need costs one instruction more for each of these two.

- *Without loads and stores, in screen and extend*: the text slides past a block of the read (`extend/marks.py`). All but two of the sums add up
  eight bytes at a time, where no carry passes between bytes; a pair of registers takes the same two instructions either way. The
  other two, with both comparisons, count the diagonals: four of 174 instructions that 32 bits would save.
- *16 stores*: losses or cells are set to zero in interleaved work space, one address a store. Needed.
- *8 loads, no stores, in _seed, _search and locate*: blocks of the BWT beyond the first 64 bases, which an Occ spacing of 64 does not have. The count
  is added to a row, which is of 64 bits in a text beyond 2^32 bases.
- *12 loads, no stores*: 64 bases of read and text are compared, three bit planes of two words each; the place in the text has 64 bits.
- *The others*, with loads and stores, were not looked at one by one; they go through interleaved work space and lists, by places of 64 bits.
- *The wavefront's cells* are no innermost loop (runs of matches are compared in them). Diagonals and offsets are stored in 32 bits and computed in 64.
  Narrowing them takes extend_alone from 9560 to 9176 instructions and extend_by_warp from 9264 to 9016, with 222 and 231 registers. Not done
  here: nobody has measured it on a device, and it is not plain (the product of NULL and the doubled match leaves 32 bits).
"""  # noqa: E501
HEADER = ("", "instructions", "addresses", "sums", "comparisons", "all of 64 bits", "registers")


def loop_rows(name: str, machine: Machine) -> list[list[str]]:
    """Return lines for the innermost loops of 20 instructions or more, equal ones together."""
    found: Counter[tuple[str, ...]] = Counter()
    for loop in machine.inner_loops:
        if len(loop.instructions) >= 20:
            what = f"{loop.count('LDG', 'LD')} loads, {loop.count('STG', 'ST')} stores"
            found[tuple(row(f"{name}: {what}", loop)[:-1])] += 1
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
    for name, machine in kernels():
        whole.append(row(name, machine))
        loops += loop_rows(name, machine)
    lines = ["# 64-bit integers in machine code of sm_90", "", *harness.markdown_provenance(about)]
    lines += harness.table(HEADER, whole)
    lines += ["Innermost loops, as unrolled by the compiler:", ""]
    lines += harness.table([*HEADER[:-1], "such loops"], loops)
    lines += EXPLANATION.splitlines()
    stem = f"sass_widths-{about['date'][:10]}"
    harness.write_results(
        options.out, stem, {"about": about, "kernels": whole, "loops": loops}, lines
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
