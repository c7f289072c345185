"""One version and one address, wherever they are written."""

from __future__ import annotations

import re
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
