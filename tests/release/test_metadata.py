"""One version and one address, wherever they are written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mapper import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
OWNER = REPOSITORY.removeprefix("https://github.com/").partition("/")[0]

# Files that name a version of fmwave, and how.
VERSIONED = {
    "CITATION.cff": r"^version: (\S+)$",
    "CHANGELOG.md": r"\A# Changelog\n\n.*?^## (\S+)",
    "recipes/bioconda/fmwave/meta.yaml": r'set version = "(\S+)"',
    "recipes/nf-core/fmwave/index/environment.yml": r"fmwave=(\S+)",
    "recipes/nf-core/fmwave/index/main.nf": r"fmwave:([\d.]+)--",
    "recipes/nf-core/fmwave/map/environment.yml": r"fmwave=(\S+)",
    "recipes/nf-core/fmwave/map/main.nf": r"fmwave:([\d.]+)--",
    "container/Dockerfile": r"fmwave-workflow:(\S+) ",
    "workflow/envs/fmwave.yaml": r"fmwave ==?(\S+)",
    "wrappers/fmwave/map/environment.yaml": r"fmwave =(\S+)",
}
ADDRESSED = [
    *(path for path in ROOT.glob("*") if path.suffix in {".cff", ".md", ".toml", ".yml"}),
    *(ROOT / ".github").rglob("*.*"),
    *(ROOT / "container").rglob("*"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "recipes").rglob("*.*"),
    *(ROOT / "wrappers").rglob("*.*"),
]


@pytest.mark.parametrize("name", VERSIONED)
def test_the_version_is_that_of_the_package(name: str) -> None:
    text = (ROOT / name).read_text()
    found = re.findall(VERSIONED[name], text, re.MULTILINE | re.DOTALL)
    assert found
    assert set(found) == {__version__}


def test_the_addresses_are_those_of_the_project() -> None:
    """Of the repository and its pages, wherever a file names them."""
    named = {
        owner
        for path in ADDRESSED
        if path.is_file()
        for owner in re.findall(
            r"(?:github\.com/|ghcr\.io/|https://(?=[\w-]+\.github\.io/))([\w-]+)(?:\.github\.io)?/fmwave\b",
            path.read_text(),
        )
    }
    assert named == {OWNER}


def test_every_python_of_the_classifiers_is_tested() -> None:
    listed = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c}
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    [matrix] = re.findall(r"python: \[(.+)\]", workflow)
    assert set(re.findall(r"[\d.]+", matrix)) == listed
    assert PROJECT["requires-python"] == ">=" + min(listed, key=lambda v: int(v.split(".")[1]))


def release_notes(tag: str, tree: Path) -> tuple[int, str]:
    """Run the release's check on a tree; return its status and what it prints."""
    command = [sys.executable, tree / ".ci" / "release-notes", tag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_a_release_needs_one_version_and_one_day(tmp_path: Path) -> None:
    for name in (".ci/release-notes", "mapper/__init__.py", "CITATION.cff", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    tag = f"v{__version__}"
    citation = re.sub(r"^date-released: .*\n", "", (ROOT / "CITATION.cff").read_text(), flags=re.M)
    changes = f"# Changelog\n\n## {__version__} (2026-12-01)\n\nNews.\n\n## 0.0.1 (2026-01-01)\n"
    (tmp_path / "CITATION.cff").write_text(citation)
    (tmp_path / "CHANGELOG.md").write_text(changes)
    assert release_notes(tag, tmp_path) == (1, "")  # no day in the citation

    (tmp_path / "CITATION.cff").write_text(f"{citation}date-released: 2026-12-01\n")
    assert release_notes(tag, tmp_path) == (0, "News.\n\n")
    assert release_notes("v0.0.1", tmp_path) == (1, "")
    assert release_notes(__version__, tmp_path) == (1, "")

    (tmp_path / "CHANGELOG.md").write_text(changes.replace("12-01", "12-02"))
    assert release_notes(tag, tmp_path) == (1, "")
    (tmp_path / "CHANGELOG.md").write_text(changes.replace("2026-12-01", "unreleased"))
    assert release_notes(tag, tmp_path) == (1, "")
