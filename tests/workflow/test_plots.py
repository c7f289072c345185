"""What the report's plots show of each sample: bins, axes, and how many samples are told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.workflow_runs import needs_snakemake, script_module

pytestmark = needs_snakemake


@pytest.fixture(scope="module")
def script():
    return script_module("plots")


@pytest.fixture
def axes(script):
    figure, axes = script.figure_of(5)
    yield axes
    script.plt.close(figure)


def counts(script, values: np.ndarray):
    found, n = np.unique(np.asarray(values, np.int64), return_counts=True)
    return script.Counts(found, n)


def library(script, mean: int, n: int, far: int = 0):
    """Pairs of a library, and some far ones, as of chimaeras."""
    rng = np.random.default_rng(mean + n)
    return counts(
        script, np.concatenate([rng.normal(mean, mean / 10, n), rng.integers(0, 8000, far)]).clip(0)
    )


def test_insert_sizes_of_all_samples_are_in_bins_of_one_width(script):
    """So the same library is as high with few pairs as with many, and near as with far ones."""
    samples = [
        library(script, 400, 100_000),
        library(script, 400, 1000),
        script.counts_of([]),
        library(script, 250, 100_000, far=3000),
    ]
    curves, width = script.insert_size_curves(samples)
    assert set(np.diff(curves.edges)) == {width}
    assert len(curves.edges) - 1 <= script.BINS + 1
    many, few, none, near = curves.heights
    assert none is None
    for height, pairs in ((many, samples[0]), (near, samples[3])):
        first = np.searchsorted(curves.edges, pairs.quantile(0.5), side="right") - 1
        inside = (pairs.values >= curves.edges[first]) & (pairs.values < curves.edges[first + 1])
        assert height[first] == pairs.counts[inside].sum() / pairs.counts.sum()
    assert few.max() == pytest.approx(many.max(), rel=0.4)
    assert near.max() == pytest.approx(many.max() * 400 / 250, rel=0.1)


def test_the_axis_of_insert_sizes_ends_at_quantiles(script):
    """Not where the farthest pairs lie, of however many; and no library is cut off."""
    libraries = [library(script, 250, 5000), library(script, 500, 5000)]
    for far in (0, 50, 500):
        samples = [libraries[0], library(script, 500, 5000, far=far)]
        edges = script.insert_size_curves(samples)[0].edges
        assert 150 <= edges[0] < libraries[0].quantile(0.02)
        assert libraries[1].quantile(0.98) < edges[-1] < 800


def test_a_lone_pair_is_drawn(script):
    curves, width = script.insert_size_curves([script.counts_of([["300", "1"]])])
    assert width == 1
    assert curves.heights[0].max() == 1


def test_depths_are_the_part_of_the_reference_that_has_them(script):
    """One position in 500 of depth 900 does not make the axis longer."""
    samples = [
        script.counts_of([["0", "500"], ["1", "300"], ["3", "199"], ["900", "1"]]),
        script.counts_of([["0", "80"], ["2", "20"]]),
        script.counts_of([["0", "100"]]),
    ]
    curves = script.depth_curves(samples)
    assert curves.edges.tolist() == [0.5, 1.5, 2.5, 3.5]
    heights = [height.tolist() for height in curves.heights]
    assert heights == [[0.5, 0.2, 0.2], [0.2, 0.2, 0], [0, 0, 0]]
    assert script.depth_curves(samples[2:]).edges.tolist() == [0.5, 1.5]


def test_depths_of_thousands_are_in_at_most_a_hundred_steps(script):
    deep = counts(script, np.random.default_rng(1).poisson(5000, 10_000))
    curves = script.depth_curves([deep])
    assert len(curves.heights[0]) <= script.BINS
    assert curves.heights[0][0] == 1
    assert 5000 < curves.edges[-1] < 5500


def test_mapping_qualities_are_seen_where_nearly_all_reads_have_60(script, axes):
    """0.1 % and 1 % below 60 are a tenth of the axis apart at least."""
    samples = [
        script.counts_of([["0", "5"], ["30", "5"], ["60", "9990"]]),
        script.counts_of([["30", "100"], ["60", "9900"]]),
        script.counts_of([["60", "10"]]),
    ]
    curves = script.mapq_curves(samples)
    first, second, third = curves.heights
    assert first[[0, 29, 30, 59]].tolist() == [0.0005, 0.0005, 0.001, 0.001]  # below 1, 30, 31, 60
    assert second[[0, 29, 30, 59]].tolist() == [0, 0, 0.01, 0.01]
    assert not third.any()
    script.plot_curves(axes, ["a", "b", "c"], curves, "x", "y", is_log=True)
    bottom, top = axes.transAxes.inverted().transform(
        axes.transData.transform([(60, first[-1]), (60, second[-1])])
    )[:, 1]
    assert 0 <= bottom < top - 0.1 <= 0.9


@pytest.mark.parametrize("n", [1, 10, 11, 61])
@pytest.mark.parametrize("is_log", [False, True])
def test_samples_are_told_apart(script, axes, n, is_log):
    """By a colour each, beyond ten by a line of a heat map; samples without values are left out."""
    samples = [f"s{number}" for number in range(n + 1)]
    heights = [np.full(3, (number + 1) / (n + 1)) for number in range(n)]
    curves = script.Curves(np.arange(4.0), [*heights, None])
    script.plot_curves(axes, samples, curves, "x", "y", is_log=is_log)
    if n <= script.CURVES:
        assert len({tuple(patch.get_edgecolor()) for patch in axes.patches}) == n
        assert [text.get_text() for text in axes.get_legend().get_texts()] == samples[:n]
        return
    (image,) = axes.images
    assert image.get_array().tolist() == [height.tolist() for height in heights]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == (samples[:n] if n <= script.NAMED else [])
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first on top


def test_nothing_to_draw_is_no_error(script, axes):
    nothing = [script.counts_of([])]
    for curves in (script.insert_size_curves(nothing)[0], script.mapq_curves(nothing)):
        script.plot_curves(axes, ["s"], curves, "x", "y", is_log=True)
        assert not axes.patches


def test_tables_are_read(script, tmp_path: Path):
    stats = tmp_path / "x.stats.txt"
    stats.write_text("# text\nSN\tx:\t1\nIS\t300\t7\t5\t1\t1\nIS\t301\t0\t0\t0\t0\nMAPQ\t60\t9\n")
    assert [column.tolist() for column in script.section(str(stats), "IS")] == [[300], [7]]
    assert [column.tolist() for column in script.section(str(stats), "MAPQ")] == [[60], [9]]
    depth = tmp_path / "x.depth.tsv"
    depth.write_text("depth\tpositions\n0\t5\n1\t0\n7\t2\n")
    assert [column.tolist() for column in script.two_columns(str(depth))] == [[0, 7], [5, 2]]
