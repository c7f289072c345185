"""The documentation site: the repository's Markdown, with the reference made by the program.

The source folder is the repository, so that links between its documents hold on GitHub and here
alike. Built by ``make docs``, without the network; warnings are errors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

import mapper
from mapper.cli.main import SUBCOMMANDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = f"{PROJECT['urls']['Repository']}/blob/main/"

project = "fmwave"
author = "The fmwave developers"
project_copyright = author
version = release = mapper.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/design/*.md",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "config/README.md",
    "profiles/README.md",
    "tests/README.md",
    "tests/data/README.md",
    "wrappers/README.md",
    "recipes/README.md",
]
exclude_patterns = [".*", "site", "resources", "results"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 4  # as GitHub's
suppress_warnings = ["myst.header"]  # sections of results begin at the second level
autodoc_typehints = "none"  # the docstrings have them
napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes once: in the docstring of their class
napoleon_custom_sections = ["Returns", "Yields", "Raises"]  # sentences; see on_docstring
smartquotes = False  # "--device" keeps its hyphens

html_theme = "furo"
html_title = f"fmwave {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "source_repository": PROJECT["urls"]["Repository"],
    "source_branch": "main",
    "source_directory": "",
}

PAGES = {
    "Tutorials": [
        "docs/quick-start",
        "docs/variants",
        "docs/unaligned-bam",
        "docs/gpu-node",
        "docs/cluster",
        "docs/python",
        "docs/pairwise",
    ],
    "How to": [
        "docs/how-to",
        "config/README",
        "profiles/README",
        "wrappers/README",
        "recipes/README",
        "docs/kmer-seeding",
    ],
    "Reference": ["docs/reference", "docs/input-and-output", "docs/index-format", "docs/glossary"],
    "How it works": ["docs/algorithm", "docs/architecture", "docs/design/alignment-kernels"],
    "How good it is": [
        "docs/performance",
        "docs/accuracy",
        "docs/limitations",
        "benchmarks/README",
    ],
    "The project": [
        "CHANGELOG",
        "CONTRIBUTING",
        "tests/README",
        "tests/data/README",
        "SECURITY",
        "CODE_OF_CONDUCT",
    ],
}
"""The contents of the site; documents that are not named here are reached by links alone."""


def contents() -> str:
    """Return the tables of contents that the README gets on the site."""
    titles = {"config/README": "Settings of the workflow", "tests/README": "Tests"}
    tables = []
    for caption, names in PAGES.items():
        lines = [f"{titles[n]} </{n}>" if n in titles else f"/{n}" for n in names]
        tables.append(
            "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```"])
        )
    return "\n\n" + "\n\n".join(tables) + "\n"


def command_line() -> str:
    """Return the help of every subcommand."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    parts = []
    for name, summary in SUBCOMMANDS.items():
        shown = subprocess.run(
            [sys.executable, "-m", "mapper.cli.main", name, "--help"],
            env=environment, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        shown = re.sub(r", \d+\s+here\)", ")", shown)
        parts.append(
            f"### fmwave {name}\n\n{summary[0].upper()}{summary[1:]}.\n\n```text\n{shown}```\n"
        )
    return "\n".join(parts)


def python_functions() -> str:
    """Return directives for all public names."""
    names = [name for name in mapper.__all__ if name != "__version__"]
    parts = []
    for name in names:
        kind = "class" if isinstance(getattr(mapper, name), type) else "function"
        members = "\n   :members:" if kind == "class" else ""
        parts.append(
            f"### {name}\n\n```{{eval-rst}}\n.. auto{kind}:: mapper.{name}{members}\n```\n"
        )
    return "\n".join(parts)


GENERATED = {
    "<!-- site: command line -->": command_line,
    "<!-- site: python functions -->": python_functions,
}


def to_repository(name: str, text: str, is_page) -> str:
    """Turn links to files that are no page of the site into links to the repository."""

    def replaced(match: re.Match) -> str:
        target, _, anchor = match[1].partition("#")
        there = (ROOT / name).parent / target
        is_file = target and not re.match(r"[a-z]+:", target) and there.exists()
        if not is_file or there.suffix == ".svg":
            return match[0]
        path = there.resolve().relative_to(ROOT).as_posix()
        if there.suffix == ".md" and is_page(path.removesuffix(".md")):
            return match[0]
        return f"]({FILES}{path}{'#' + anchor if anchor else ''})"

    text = re.sub(r"\]\(([^)\s]+)\)", replaced, text)
    # A link whose text is the name of a document gets that document's title.
    return re.sub(r"\[[\w./-]+\.md\]\(([\w./-]+\.md)\)", r"[](\1)", text)


def on_source_read(app: Sphinx, name: str, source: list[str]) -> None:
    """Add what exists on the site only, and mend links that lead out of it."""
    text = to_repository(f"{name}.md", source[0], lambda page: page in app.env.found_docs)
    for mark, generate in GENERATED.items():
        if mark in text:
            text = text.replace(mark, generate())
    if name == root_doc:
        text += contents()
    elif name == "benchmarks/README":
        text += "\n\n```{toctree}\n:hidden:\n:glob:\n\nresults/*\n```\n"
    source[0] = text


def on_docstring(_app, _what, _name, _item, _options, lines: list[str]) -> None:
    """Tell sections that list types (indented text below them) from those of sentences.

    napoleon has two names for each of these sections: the plural is set to sentences here.
    """
    heads = [i for i, line in enumerate(lines[1:]) if line and not line.strip("-")]
    for head, end in zip(heads, [*heads, len(lines)][1:], strict=True):
        is_list = any(line.startswith(" ") for line in lines[head + 2 : end])
        if is_list and lines[head] in napoleon_custom_sections:
            lines[head], lines[head + 1] = lines[head][:-1], lines[head + 1][:-1]


def on_build_finished(app: Sphinx, problem: Exception | None) -> None:
    """Make the README the first page."""
    if problem is None:
        shutil.copyfile(app.outdir / "README.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """Connect the hooks."""
    app.connect("source-read", on_source_read)
    app.connect("autodoc-process-docstring", on_docstring, priority=400)  # before napoleon
    app.connect("build-finished", on_build_finished)
