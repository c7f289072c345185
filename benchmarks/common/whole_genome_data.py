"""Genome and reads of the `whole_genome` benchmark: large, and made in a minute or two.

    python -m benchmarks.common.whole_genome_data 3.1G FOLDER --pairs 4000000 -t 16

writes FOLDER/genome.fa (benchmarks/genome.py) and FOLDER/reads_{1,2}.fq.gz with reads.json, the
reads that the evaluation kit's simulate.py makes of that FASTA, and made.json, which says what was
made. The kit's own program reads the file again and makes the donor genome on one core; here its
functions get the text from memory, the donors of the contigs are made by all threads, and its gzip
is isal's. The reads are the same (tests/benchmarks/test_whole_genome.py).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numba
import numpy as np
from isal import igzip

from benchmarks.common.genome import contig_ends, contig_names, make_text, write_fasta
from benchmarks.common.harness import kit
from mapper.cli.sizes import size
from mapper.io.bgzf import EOF_BLOCK, compressor
from mapper.parallel.map import map_in_threads

SNPS, INDELS = 0.001, 0.0002
"""Variants of the donor a base: simulate.py's defaults."""

SEED = 1
MADE = "made.json"


def simulate(
    names: Sequence[str], contigs: Sequence[np.ndarray], prefix: Path, options: Sequence[str],
    n_threads: int, seed: int, *, bgzf: bool = False,
) -> None:  # fmt: skip
    """Run simulate.py on contigs in memory.

    Parameters
    ----------
    contigs
        uint8 codes: A 0, C 1, G 2, T 3, N 4, as the kit has them.
    prefix, options
        Of simulate.py's command line.
    bgzf
        Write FASTQ as bcl2fastq does by default, in blocks that can be inflated in parallel;
        else as some hundred gzip members.
    """
    blocks = compressor(1)

    def compress(data: bytes) -> bytes | memoryview:
        return blocks([memoryview(data)]) if bgzf else igzip.compress(data, compresslevel=1)

    folder = str(kit("simulate.py").parent)
    with mock.patch.object(sys, "path", [folder, *sys.path]):
        program: Any = importlib.import_module("simulate")
    make_donor = numba.njit(nogil=True)(program.make_donor.py_func)
    donors = map_in_threads(
        lambda c: make_donor(contigs[c], seed, c, SNPS, INDELS), range(len(contigs)), n_threads
    )
    arguments = ["simulate.py", "(in memory)", str(prefix), *options]
    arguments += ["--seed", str(seed), "--snp", str(SNPS), "--indel", str(INDELS)]
    arguments += ["--threads", str(n_threads)]
    with (
        mock.patch.object(sys, "argv", arguments),
        mock.patch.object(program, "load_fasta", lambda _: (list(names), list(contigs))),
        # It asks for them in order; each is let go once it is joined with the others.
        mock.patch.object(program, "make_donor", lambda *_: donors.pop(0)),
        mock.patch.object(program, "gz", lambda data, _: compress(data)),
    ):
        program.main()
    if bgzf:
        for mate in (1, 2):
            with Path(f"{prefix}_{mate}.fq.gz").open("ab") as file:
                file.write(EOF_BLOCK)


def first_lines(source: Path, target: Path, n_bytes: int) -> Path:
    """Copy whole lines from the start of a FASTA file, the last of them no contig's name."""
    with source.open("rb") as file:
        lines = file.read(n_bytes).rpartition(b"\n")[0].split(b"\n")
    while lines and lines[-1].startswith(b">"):
        lines.pop()
    target.write_bytes(b"\n".join([*lines, b""]))
    return target


def made(size: int, pairs: int, seed: int, *, bgzf: bool) -> dict[str, int]:
    """Return what a folder's made.json says when all of it has been made."""
    return {"size": size, "pairs": pairs, "seed": seed, "bgzf": bgzf}


def gzipped(source: Path) -> Path:
    """Compress a FASTQ.gz file again, as ``gzip -1`` writes it: one member; return its path."""
    target = source.with_name(f"plain_{source.name}")
    with igzip.open(source, "rb") as reads, igzip.open(target, "wb", compresslevel=1) as plain:
        shutil.copyfileobj(reads, plain, 1 << 22)
    return target


def far_contigs(n: int, boundary: int, n_contigs: int = 24) -> dict[str, int]:
    """Return the first position beyond `boundary` of the text, for each contig that has one."""
    ends = contig_ends(n, n_contigs)
    starts = [0, *ends[:-1]]
    return {
        name: max(0, boundary - start)
        for name, start, end in zip(contig_names(n_contigs), starts, ends, strict=True)
        if end - 1 > boundary
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all of it, with the time of each step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("size", type=size)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=1_000_000, help="2x150 [%(default)s]")
    parser.add_argument("--seed", type=int, default=SEED, help="[%(default)s]")
    parser.add_argument("--bgzf", action="store_true", help="write FASTQ in blocks")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args(arguments)
    (options.folder / MADE).unlink(missing_ok=True)
    clock = time.perf_counter()

    def say(what: str) -> None:
        print(f"{what}: {time.perf_counter() - clock:.1f} s", flush=True)

    text = make_text(options.size, options.seed, options.threads)
    say(f"text of {len(text)} bases")
    write_fasta(text, options.folder / "genome.fa", options.threads)
    say("FASTA written")
    ends = contig_ends(len(text))
    starts = [0, *ends[:-1]]
    contigs = [text[start : end - 1] for start, end in zip(starts, ends, strict=True)]
    simulate(
        contig_names(), contigs, options.folder / "reads", ["-n", str(options.pairs), "--paired"],
        options.threads, options.seed, bgzf=options.bgzf,
    )  # fmt: skip
    all_made = made(options.size, options.pairs, options.seed, bgzf=options.bgzf)
    (options.folder / MADE).write_text(json.dumps(all_made))
    say(f"{options.pairs} pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
