"""The report of the bundled samples, as Chromium shows it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pysam
import pytest

from tests.helpers.workflow_runs import ROOT, needs_snakemake, snakemake

CHROMIUM = os.environ.get("FMWAVE_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SAMPLES = ("portiera", "mixed")
GRAPHICS = "canvas, svg.marks"  # as Snakemake's page draws by itself
PLOTS = ("reads", "insert size", "coverage", "mapq")

pytestmark = [needs_snakemake, pytest.mark.medium]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of config/ as it is bundled (pairs, single reads and unaligned BAM), and its report."""
    directory = tmp_path_factory.mktemp("bundled")
    shutil.copytree(ROOT / "config", directory / "config")
    (directory / "tests").symlink_to(ROOT / "tests")
    for options in ([], ["--report", "report.html"]):
        run = snakemake(directory, *options)
        assert run.returncode == 0, run.stdout
    return directory


def test_the_bundled_samples_have_a_valid_file_each(directory):
    for sample, n_reads, groups in (
        ("portiera", 3500, {"portiera-SRR2838702"}),
        ("mixed", 1200, {"mixed-single", "flowcell1"}),
    ):
        path = directory / "results" / "mapped" / f"{sample}.bam"
        pysam.quickcheck(str(path))
        with pysam.AlignmentFile(str(path)) as bam:
            assert bam.has_index()
            assert {group["ID"] for group in bam.header["RG"]} == groups
            records = list(bam.fetch(until_eof=True))
        primary = [record for record in records if not record.flag & 0x900]
        assert len(primary) == n_reads
        assert {str(record.get_tag("RG")) for record in primary} == groups
        assert sum(record.is_mapped for record in primary) > 0.98 * n_reads


@pytest.fixture(scope="module")
def page(directory: Path) -> Iterator:
    """The report in a browser; whatever it complains of is in ``complaints``."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed: pip install -e '.[test]'")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium, or name one by FMWAVE_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # --no-sandbox: in containers tests often run as root; the page is our own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("requestfailed", lambda request: page.complaints.append(request.url))
        page.goto(f"file://{directory / 'report.html'}")
        yield page
        assert page.complaints == []
        browser.close()


def open_category(page, name: str) -> None:
    page.reload()
    page.get_by_text(name, exact=True).first.click()


def show(page, label: str) -> None:
    """Click the eye in the line of a result."""
    page.locator("tr", has=page.get_by_text(label, exact=True)).locator('[iconname="eye"]').click()


def test_the_first_page_says_what_was_done(page):
    page.reload()
    page.locator(GRAPHICS).first.wait_for()  # the graph of the rules
    text = page.inner_text("body")
    assert "Reads were mapped with fmwave to tests/data/portiera.fa.gz" in text


@pytest.mark.parametrize("plot", PLOTS)
def test_every_plot_is_drawn(page, plot):
    open_category(page, "Plots")
    show(page, plot)
    file = plot.replace(" ", "_")
    image = page.locator(f'img[src*="filename={file}.svg"]')
    image.wait_for()
    # Decoded by the browser, and large enough to be looked at.
    width, height = image.evaluate("i => i.decode().then(() => [i.naturalWidth, i.naturalHeight])")
    assert width >= 500
    assert height >= 300
    box = image.bounding_box()
    assert box["width"] >= 300
    # Not a blank picture: its pixels have the colours of axes and curves.
    colours = image.evaluate(
        """i => { const c = document.createElement('canvas'); c.width = 400; c.height = 225;
        const g = c.getContext('2d'); g.drawImage(i, 0, 0, 400, 225);
        const d = g.getImageData(0, 0, 400, 225).data; const seen = new Set();
        for (let k = 0; k < d.length; k += 4) seen.add(d[k] + ',' + d[k + 1] + ',' + d[k + 2]);
        return seen.size }"""
    )
    assert colours > 20


def test_the_summary_is_a_table_of_the_samples(page):
    open_category(page, "Summary")
    show(page, "all samples")
    page.locator("iframe").wait_for()
    table = page.frame_locator("iframe").locator("table")
    table.wait_for()
    lines = [line.split("\t") for line in table.inner_text().splitlines()]
    assert lines[0][:3] == ["sample", "reads", "mapped"]
    assert [line[0] for line in lines[1:]] == list(SAMPLES)
    assert [line[1] for line in lines[1:]] == ["3,500", "1,200"]
    assert {len(line) for line in lines} == {10}


def test_run_times_are_there(page):
    """The statistics page: Snakemake draws the jobs' run times."""
    open_category(page, "Statistics")
    page.locator(GRAPHICS).first.wait_for()
