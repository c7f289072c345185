"""Joining two batches of alignments, against sorting and comparing all."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.extend.merge import merge_alignments
from tests.helpers.alignment_views import Aligned, alignments_of, batch_of

REDUNDANT = 0.9


def shared(a_start: int, a_end: int, b_start: int, b_end: int) -> float:
    """Common bases as part of the shorter range."""
    common = max(0, min(a_end, b_end) - max(a_start, b_start))
    return common / min(a_end - a_start, b_end - b_start)


def same_place(a: Aligned, b: Aligned) -> bool:
    return (
        (a.strand, a.ref_id) == (b.strand, b.ref_id)
        and shared(a.query_start, a.query_end, b.query_start, b.query_end) > REDUNDANT
        and shared(a.text_start, a.text_end, b.text_start, b.text_end) > REDUNDANT
    )


def best_distinct(alignments: list[Aligned]) -> list[Aligned]:
    kept: list[Aligned] = []
    for a in sorted(alignments, key=lambda a: (-a.score, a.strand, a.text_start)):
        if not any(same_place(a, b) for b in kept):
            kept.append(a)
    return kept


def random_alignment(rng: np.random.Generator, n_places: int = 6) -> Aligned:
    query_start, length = int(rng.integers(0, 40)), int(rng.integers(30, 60))
    text_start = int(rng.integers(0, n_places)) * 1000 + int(rng.integers(0, 12))
    return Aligned(
        int(rng.integers(2)), int(rng.integers(2)), text_start, text_start + length,
        query_start, query_start + length, int(rng.integers(30, 40)), int(rng.integers(9)),
        f"{length}=",
    )  # fmt: skip


def random_reads(
    rng: np.random.Generator, n: int, most: int, n_places: int = 6
) -> list[list[Aligned]]:
    return [
        best_distinct([random_alignment(rng, n_places) for _ in range(rng.integers(0, most))])
        for _ in range(n)
    ]


@pytest.mark.parametrize("many", [False, True])
def test_merging_is_sorting_all_without_what_is_there_twice(many: bool) -> None:
    rng = np.random.default_rng(1)
    before, rescued = random_reads(rng, 200, 12), random_reads(rng, 200, 6)
    if many:
        before, rescued = (random_reads(rng, 12, 250, 60) for _ in range(2))
        assert max(map(len, rescued)) > 100
    # Ties in everything that orders alignments have no defined order; here there are none.
    for old, new in zip(before, rescued, strict=True):
        keys = [(a.score, a.strand, a.text_start) for a in old]
        new[:] = [a for a in new if (a.score, a.strand, a.text_start) not in keys]
    merged = alignments_of(merge_alignments(batch_of(before), batch_of(rescued)))
    expected = [best_distinct(old + new) for old, new in zip(before, rescued, strict=True)]
    assert merged == expected
    assert sum(map(len, merged)) < sum(map(len, before)) + sum(map(len, rescued))


def test_an_alignment_found_again_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    before = random_reads(rng, 50, 8)
    batch = batch_of(before)
    assert alignments_of(merge_alignments(batch, batch)) == before
    nothing = batch_of([[] for _ in before])
    assert alignments_of(merge_alignments(batch, nothing)) == before
    assert alignments_of(merge_alignments(nothing, batch)) == before


def test_a_better_alignment_at_the_same_place_takes_it_over() -> None:
    old = Aligned(0, 0, 1000, 1050, 0, 50, 40, 2, "50=")
    new = Aligned(0, 0, 1000, 1052, 0, 52, 46, 1, "52=")
    merged = merge_alignments(batch_of([[old]]), batch_of([[new]]))
    assert alignments_of(merged) == [[new]]


def test_batches_of_different_reads_are_refused() -> None:
    with pytest.raises(ValueError, match="different reads"):
        merge_alignments(batch_of([[]]), batch_of([[], []]))


@pytest.mark.gpu
@pytest.mark.parametrize(("n_reads", "most", "most_rescued"), [(40, 8, 0), (40, 8, 5), (6, 70, 50)])
def test_a_device_merges_as_the_cpu_does(device, n_reads, most, most_rescued) -> None:
    """By a thread a read, or by a warp where there are many alignments."""
    from mapper.cuda.memory import Workspace
    from mapper.cuda.upload import upload
    from mapper.extend.cuda import DeviceAlignments, download_alignments
    from mapper.extend.merge_cuda import FEW_ROWS, merge_on_device

    rng = np.random.default_rng(3)
    before = random_reads(rng, n_reads, most + 1)
    rescued = [
        [] if i % 3 else read for i, read in enumerate(random_reads(rng, n_reads, most_rescued + 1))
    ]
    of_warps = [new and len(old) + len(new) > FEW_ROWS
                for old, new in zip(before, rescued, strict=True)]  # fmt: skip
    assert any(of_warps) == (most > FEW_ROWS)
    batches = [batch_of(reads) for reads in (before, rescued)]
    space = Workspace()
    there = [DeviceAlignments(upload(batch, "alignments")) for batch in batches]
    found = download_alignments(space, merge_on_device(space, *there, "merged"))
    expected = merge_alignments(*batches)
    for name, ours, theirs in zip(found._fields, found, expected, strict=True):
        assert ours.dtype == theirs.dtype, name
        assert np.array_equal(ours, theirs), name
