"""The documents: links lead somewhere, lines can be read, and the rooms are those of the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HIDDEN = {".venv", ".snakemake", "resources", "results", "shared"}
"""Folders of a checkout that are no part of it; ``benchmarks/results`` holds records of runs."""


def documents(with_results: bool) -> list[Path]:
    found = []
    for path in sorted(ROOT.rglob("*.md")):
        parts = path.relative_to(ROOT).parts[:-1]
        if parts[:2] == ("benchmarks", "results"):
            is_wanted = with_results
        else:
            is_wanted = not any(part in HIDDEN or part[0] == "." for part in parts)
        if is_wanted:
            found.append(path)
    return found


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(text: str) -> str:
    """Return a document without code blocks."""
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchor_of(heading: str) -> str:
    """Return GitHub's anchor of a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("path", documents(with_results=True), ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists():
            broken.append(target)
        elif anchor and there.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", prose(there.read_text()), re.MULTILINE)
            if anchor not in map(anchor_of, headings):
                broken.append(target)
    assert not broken


@pytest.mark.parametrize("path", documents(with_results=False), ids=name_of)
def test_lines_of_prose_have_at_most_120_characters(path: Path) -> None:
    lines = prose(path.read_text()).splitlines()
    # A line that is one link cannot be broken.
    long = [line for line in lines if len(line) > 120 and not re.match(r"\||\s*!?\[\S*\]\(", line)]
    assert not long


@pytest.mark.parametrize("path", documents(with_results=False), ids=name_of)
def test_files_of_the_package_that_are_named_exist(path: Path) -> None:
    named = re.findall(
        r"`((?:mapper|benchmarks|workflow)/[\w/.]+\.(?:py|toml|md|smk))`", path.read_text()
    )
    assert not [name for name in named if not (ROOT / name).exists()]


def rooms() -> set[str]:
    return {path.parent.name for path in (ROOT / "mapper").glob("*/__init__.py")}


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_every_room_is_named(page: str) -> None:
    text = (ROOT / page).read_text()
    assert not [room for room in rooms() if f"{room}/`" not in text]


def test_modules_of_the_architecture_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", text)
    places = (ROOT, ROOT / "mapper")
    missing = [name for name in named if not any((place / name).exists() for place in places)]
    assert [name for name in missing if not name.startswith("tests/")] == []


def test_results_are_linked_or_belong_to_one_that_is() -> None:
    pages = [path.read_text() for path in documents(with_results=False)]
    pages += [path.read_text() for path in (ROOT / "mapper").rglob("*.py")]
    pages += [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    text = "\n".join(pages)
    results = ROOT / "benchmarks" / "results"
    orphans = [
        path.name
        for path in sorted(results.iterdir())
        if path.name not in text and f"{path.name.partition('.json')[0]}.md" not in text
    ]
    assert not orphans
