"""The documentation site: links lead somewhere, and pages fit the screens of desks and phones.

``make docs`` builds the site and runs this.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
CHROMIUM = os.environ.get("FMWAVE_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WIDTHS = (1280, 390)

# Elements of the text that reach beyond the window, in nothing that scrolls.
CUT = """
() => {
  const width = document.documentElement.clientWidth;
  const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
  const isCut = e => {
    const box = e.getBoundingClientRect();
    if (box.width == 0 || box.right <= width + 1) return false;
    for (let p = e; p && p.tagName != "ARTICLE"; p = p.parentElement) if (scrolls(p)) return false;
    return true;
  };
  const inText = [...document.querySelectorAll("article *")];
  return inText.filter(isCut).map(e => e.outerHTML.slice(0, 80));
}
"""
BROKEN_IMAGES = "() => [...document.images].filter(i => !i.naturalWidth).map(i => i.src)"
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"

pytestmark = pytest.mark.skipif(
    os.environ.get("FMWAVE_TEST_SITE") != "1", reason="needs the built site: make docs"
)


def pages() -> list[Path]:
    found = sorted(SITE.rglob("*.html"))
    assert len(found) > 50
    return found


def anchors(page: Path, known: dict[Path, set[str]]) -> set[str]:
    if page not in known:
        known[page] = set(re.findall(r'\bid="([^"]+)"', page.read_text()))
    return known[page]


def test_links_lead_somewhere() -> None:
    broken = []
    known: dict[Path, set[str]] = {}
    for page in pages():
        for target in re.findall(r'\b(?:href|src)="([^"]+)"', page.read_text()):
            if re.match(r"[a-z]+:|//", target):
                continue
            file, _, anchor = unquote(target).partition("#")
            there = (page.parent / file.partition("?")[0]).resolve() if file else page
            is_page = there.suffix == ".html"
            if not there.exists() or (is_page and {anchor} - {""} - anchors(there, known)):
                broken.append((page.name, target))
    assert broken == []


def test_the_reference_has_every_command_and_function() -> None:
    import mapper
    from mapper.cli.main import SUBCOMMANDS

    text = (SITE / "docs" / "reference.html").read_text()
    for command in SUBCOMMANDS:
        assert f"usage: fmwave {command} " in text
    for name in mapper.__all__:
        if name != "__version__":
            assert f'id="mapper.{name}"' in text


@pytest.fixture(scope="module")
def browser() -> Iterator:
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed: pip install -e '.[test]'")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium, or name one by FMWAVE_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_and_need_nothing_from_elsewhere(browser, width: int) -> None:
    window = browser.new_page(viewport={"width": width, "height": 900})
    complaints: list = []
    window.on("pageerror", lambda error: complaints.append(str(error)))
    window.on("requestfailed", lambda request: complaints.append(request.url))
    window.on(
        "request",
        lambda r: None if r.url.startswith(("file:", "data:")) else complaints.append(r.url),
    )
    for page in pages():
        window.goto(f"file://{page}")
        found = [window.evaluate(CUT), window.evaluate(BROKEN_IMAGES), window.evaluate(WIDER)]
        if found != [[], [], 0]:
            complaints.append((page.name, found))
    assert complaints == []
