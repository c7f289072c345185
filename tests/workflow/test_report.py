"""The report of the bundled samples, as Chromium shows it."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pysam
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mapper import __version__
from tests.helpers.workflow_runs import ROOT, needs_snakemake, snakemake

CHROMIUM = os.environ.get("FMWAVE_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SAMPLES = ("portiera", "mixed")
GRAPHICS = "canvas, svg.marks"  # as Snakemake's page draws by itself
PLOTS = ("reads", "insert size", "coverage", "depth", "mapq", "read length", "identity")

yaml = pytest.importorskip("yaml", reason="comes with snakemake: pip install -e '.[workflow]'")
pytestmark = needs_snakemake


def required(distribution: str, extra: str) -> set[str]:
    """Return the names of all distributions that one brings, as they are installed."""
    todo = {(distribution, extra)}
    seen: set[tuple[str, str]] = set()
    while todo:
        name, extra = todo.pop()
        seen.add((name, extra))
        if name == "fmwave":  # its installed metadata may be older than this checkout
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            lines = project["dependencies"] + project["optional-dependencies"].get(extra, [])
        else:
            lines = importlib.metadata.requires(name) or []
        for requirement in map(Requirement, lines):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                key = canonicalize_name(requirement.name)
                todo |= {(key, wanted) for wanted in ("", *requirement.extras)} - seen
    return {name for name, _ in seen}


def test_the_extra_workflow_brings_what_a_report_imports():
    """Snakemake's reporter asks for more than Snakemake does; the container has the same extra."""
    spec = importlib.util.find_spec("snakemake")
    assert spec is not None
    assert spec.origin is not None
    imported = set()
    for path in (Path(spec.origin).parent / "report").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                imported.add(node.module.split(".")[0])
    owners = importlib.metadata.packages_distributions()
    needed = {canonicalize_name(owner) for name in imported for owner in owners.get(name, [])}
    assert "pygments" in needed
    assert needed <= required("fmwave", "workflow")
    container = (ROOT / "container" / "Dockerfile").read_text()
    assert re.search(r"pip install .*'\.\[[a-z0-9,-]*\bworkflow\b", container)


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


@pytest.mark.medium
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


def first_page(report: Path) -> str:
    """Return the text of a report's first page, as HTML."""
    found = re.search(r"workflow_desc[a-z]* *[=:] *(\"(?:[^\"\\]|\\.)*\")", report.read_text())
    assert found is not None
    return json.loads(found[1])


@pytest.mark.medium
def test_the_report_of_an_importing_workflow_has_this_ones_settings(directory):
    """Its own config may have a key of the same name, or none."""
    importing = directory / "Snakefile"
    importing.write_text(
        f"""
config["reference"] = "of_the_importer.fa"

module mapping:
    snakefile: "{ROOT / "workflow" / "Snakefile"}"
    config: {yaml.safe_load((ROOT / "config" / "config.yaml").read_text())}

use rule * from mapping as mapping_*
"""
    )
    run = snakemake(*(directory, "--report", "importing.html", "mapping_all"), snakefile=importing)
    assert run.returncode == 0, run.stdout
    assert "WARNING" not in run.stdout
    for report in ("report.html", "importing.html"):
        text = first_page(directory / report)
        assert "Reads were mapped with fmwave: the units of a sample merged" in text
        assert "system-message" not in text
        assert "of_the_importer" not in text
    html = (directory / "importing.html").read_text()
    assert "Reads were mapped with fmwave to" in html
    assert "tests/data/portiera.fa.gz" in html
    assert "of_the_importer" not in html


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


@pytest.mark.medium
def test_the_first_page_says_what_was_done(page):
    page.reload()
    page.locator(GRAPHICS).first.wait_for()  # the graph of the rules
    text = page.inner_text("body")
    assert "Reads were mapped with fmwave: the units of a sample merged" in text


@pytest.mark.medium
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


@pytest.mark.medium
def test_the_summary_has_tables_of_samples_units_and_programs(page):
    open_category(page, "Summary")
    show(page, "all samples")
    page.locator("iframe").wait_for()
    tables = page.frame_locator("iframe").locator("table")
    tables.first.wait_for()
    samples, units, programs = (
        [line.split("\t") for line in table.inner_text().splitlines()] for table in tables.all()
    )
    assert samples[0][:3] == ["sample", "reads", "mapped"]
    assert samples[0][-4:] == ["breadth", "≥ 10×", "≥ 20×", "≥ 30×"]
    assert [line[0] for line in samples[1:]] == list(SAMPLES)
    assert [line[1] for line in samples[1:]] == ["3,500", "1,200"]
    assert {len(line) for line in samples} == {13}
    assert [line[:2] for line in units[1:]] == [
        ["portiera", "SRR2838702"], ["mixed", "single"], ["mixed", "unaligned"],
    ]  # fmt: skip
    assert ["fmwave", __version__] in programs
    body = page.frame_locator("iframe").locator("body").inner_text()
    assert "Reference: tests/data/portiera.fa.gz" in body


@pytest.mark.medium
def test_run_times_are_there(page):
    """The statistics page: Snakemake draws the jobs' run times."""
    open_category(page, "Statistics")
    page.locator(GRAPHICS).first.wait_for()
