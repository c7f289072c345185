"""Whole runs on files that mix reads of 0 bases to 100 kb, of every awkward kind.

Each read has its primary record in input order, all records are valid, and the bytes do not
depend on threads and batches. Run with ``--hypothesis-profile explore`` for longer.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.index.index import Index
from mapper.mapping.options import map_params
from mapper.params import MAX_READ_LEN, PRESETS
from mapper.sorting.options import SortOptions
from tests.helpers.alignment_files import write_alignments
from tests.helpers.mapping_runs import build_index, map_to, records_of
from tests.helpers.read_batches import mutated, random_letters
from tests.helpers.simulate import write_fasta
from tests.naive.sam_check import Checker
from tests.naive.seeds import oriented
from tests.naive.two_piece import Scoring

SETTINGS = settings(
    deadline=None,
    max_examples=max(1, settings.default.max_examples // 4),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

LONGEST = 100_000
KINDS = ("exact", "errors", "many errors", "gaps", "foreign", "n", "mono", "chimera", "with n",
         "lower", "over the end")  # fmt: skip


class FuzzWorld:
    """A genome with repeats, and its index.

    No tuple: Hypothesis shows the arguments of a failure.
    """

    def __init__(self, genome: dict[str, str], index: Index) -> None:
        self.genome, self.index = genome, index


class Given(NamedTuple):
    """A read of the input."""

    name: str
    letters: str
    quals: str  # empty if the file has none
    mate: int  # 0 for a single read, else 1 or 2


@pytest.fixture(scope="module")
def fuzz_world(tmp_path_factory: pytest.TempPathFactory) -> FuzzWorld:
    directory = tmp_path_factory.mktemp("fuzz")
    rng = np.random.default_rng(41)
    family = random_letters(rng, 500)
    parts = [random_letters(rng, 3500) + mutated(rng, family, 0.06) for _ in range(30)]
    genome = {
        "large": "".join(parts),
        "other": random_letters(rng, 6000) + "N" * 200 + parts[3] + "CAG" * 90 + parts[5][::-1],
        "tiny": random_letters(rng, 300),
    }
    write_fasta(directory / "g.fa", genome)
    return FuzzWorld(genome, build_index(directory / "g.fa", directory / "g.fmw"))


LENGTHS = (
    st.integers(0, 60) | st.integers(50, MAX_READ_LEN) | st.integers(50, MAX_READ_LEN)
    | st.integers(MAX_READ_LEN - 1, MAX_READ_LEN + 2) | st.integers(MAX_READ_LEN + 1, 6000)
    | st.integers(6000, LONGEST)
)  # fmt: skip


@st.composite
def read_lists(draw: st.DrawFn) -> list[tuple[str, int, int, bool, bool]]:
    """Kind, length, seed of a read; with qualities; with a mate, where the file can have one."""
    row = st.tuples(
        st.sampled_from(KINDS), LENGTHS, st.integers(0, 1 << 30), st.booleans(), st.booleans()
    )
    rows = draw(st.lists(row, max_size=12))
    # One of the longest is enough: the checker looks at each base.
    n_longest = 0
    for i, (kind, length, *rest) in enumerate(rows):
        n_longest += length > 6000
        if length > 6000 and n_longest > 1:
            rows[i] = (kind, length % 6000, *rest)
    return rows


def letters_of(world: FuzzWorld, kind: str, length: int, rng: np.random.Generator) -> str:
    """Return a sequence of about `length` bases, of one of KINDS."""
    contig = world.genome[str(rng.choice(["large", "large", "other", "tiny"]))]
    length = min(length, len(contig))
    start = int(rng.integers(0, len(contig) - length + 1))
    text = contig[start : start + length]
    middle = length // 2
    edited = {
        "exact": lambda: text,
        "errors": lambda: mutated(rng, text, 0.01),
        "many errors": lambda: mutated(rng, text, 0.12),
        "gaps": lambda: text[: middle // 2] + random_letters(rng, middle // 4) + text[middle:],
        "foreign": lambda: random_letters(rng, length),
        "n": lambda: "N" * length,
        "mono": lambda: str(rng.choice(["A", "CA", "ACG"])) * (length // 3),
        "chimera": lambda: text[:middle] + oriented(world.genome["large"][7000:][:middle], 1),
        "with n": lambda: text[:middle] + "NNRYN" + text[middle:],
        "lower": lambda: text.lower(),
        "over the end": lambda: text + contig[len(contig) - middle :] + random_letters(rng, 40),
    }[kind]()
    return oriented(edited.upper(), 1) if kind != "lower" and rng.random() < 0.5 else edited


def reads_of(
    world: FuzzWorld, rows: list[tuple[str, int, int, bool, bool]], is_bam: bool
) -> list[Given]:
    """Make the reads; BAM can have pairs, and reads without qualities."""
    reads = []
    for i, (kind, length, seed, has_quals, has_mate) in enumerate(rows):
        rng = np.random.default_rng(seed)
        mates = (1, 2) if is_bam and has_mate else (0,)
        name = f"r{i}" if seed % 5 else f"{i:x>254}"
        for mate in mates:
            letters = letters_of(world, kind, min(length, 700) if mate else length, rng)
            letters = letters[:MAX_READ_LEN] if mate else letters
            quals = "".join(chr(33 + q) for q in rng.integers(0, 60, len(letters)))
            if is_bam:
                letters = letters.upper()  # BAM has no case
                if not has_quals or quals == "*":
                    quals = ""
            reads.append(Given(name, letters, quals, mate))
    return reads


def write_reads(directory: Path, reads: list[Given], container: str) -> Path:
    if container == ".bam":
        flags = (4, 0x4D, 0x8D)
        lines = [
            f"{r.name}\t{flags[r.mate]}\t*\t0\t0\t*\t*\t0\t0\t{r.letters or '*'}\t{r.quals or '*'}"
            for r in reads
        ]
        return write_alignments(directory / "in.bam", lines)
    text = "".join(f"@{r.name} comment\n{r.letters}\n+\n{r.quals}\n" for r in reads).encode()
    path = directory / f"in{container}"
    path.write_bytes(gzip.compress(text, 1) if container == ".fq.gz" else text)
    return path


def check_records(world: FuzzWorld, records: list[Any], reads: list[Given], preset: str) -> None:
    """Assert one group of records for each read, in input order, all of them valid."""
    groups = list(Checker.by_read(records))
    assert [group[0].query_name for group in groups] == [read.name for read in reads]
    longest_short = MAX_READ_LEN if preset == "sr" else -1
    for paired, is_long in ((True, False), (False, False), (False, True)):
        chosen = [
            i
            for i, read in enumerate(reads)
            if bool(read.mate) == paired
            and (not read.mate and len(read.letters) > longest_short) == is_long
        ]
        checker = Checker(
            world.genome, [reads[i][:3] for i in chosen], paired=paired,
            long_scoring=Scoring(*PRESETS[preset].scoring) if is_long else None,
        )  # fmt: skip
        assert checker.check_records([record for i in chosen for record in groups[i]]) == []


@given(
    read_lists(), st.sampled_from(list(PRESETS)), st.sampled_from([".fq", ".fq.gz", ".bam"]),
    st.sampled_from(["x.bam", "x.sam", "x.paf", "sorted.bam"]), st.integers(1, 30_000),
)  # fmt: skip
@SETTINGS
def test_mixed_files(fuzz_world, tmp_path, rows, preset, container, output, batch_bases) -> None:
    reads = reads_of(fuzz_world, rows, container == ".bam")
    given_file = str(write_reads(tmp_path, reads, container))
    params = map_params({"preset": preset})
    map_to(fuzz_world.index, tmp_path / "checked.sam", given_file, params=params)
    check_records(fuzz_world, records_of(tmp_path / "checked.sam"), reads, preset)
    target = tmp_path / output
    sort = SortOptions(str(tmp_path)) if output == "sorted.bam" else None
    found = []
    for threads, bases in ((1, None), (2, batch_bases)):
        map_to(
            fuzz_world.index, target, given_file, params=params, threads=threads,
            batch_bases=bases, sort=sort,
        )  # fmt: skip
        found.append(target.read_bytes())
    assert found[0] == found[1]
    assert output != "x.sam" or found[0] == (tmp_path / "checked.sam").read_bytes()
