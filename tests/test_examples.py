"""The examples of docstrings and documents run, and give what they show."""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mapper

ROOT = Path(__file__).parents[1]


def modules_with_examples() -> list[str]:
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "mapper").rglob("*.py"))
        if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE)
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_docstrings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0


def test_the_public_calls_have_examples() -> None:
    without = [
        name for name in mapper.__all__
        if callable(getattr(mapper, name)) and not name.endswith("Error")
        and name not in ("Hit", "ReadBatch") and ">>> " not in (getattr(mapper, name).__doc__ or "")
    ]  # fmt: skip
    assert without == ["Index"]  # its methods have


def code_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that looks like the top of a clone."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_walk_through_mapping(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = code_of("docs/python.md")
    script = next(block for block in blocks if "def main" in block)
    names: dict[str, object] = {}
    for block in blocks:
        if block is not script:
            exec(compile(block, "docs/python.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "<mapper.Hits: 3502 records of 3500 reads, 3475 mapped>" in shown
    assert "sure records" in shown
    assert (folder / "coverage.png").stat().st_size > 1000
    assert {path.name for path in folder.glob("*.bam*")} == {
        "some.bam", "portiera.bam", "portiera.bam.bai",
    }  # fmt: skip


def test_the_script_for_mappy(folder: Path) -> None:
    """Two edits of a script for mappy; what it prints are the columns of the command's PAF."""
    script = next(block for block in code_of("docs/python.md") if "def main" in block)
    assert len([line for line in script.splitlines() if line.strip()]) <= 20
    edits = [line for line in script.splitlines() if "# edit" in line]
    assert len(edits) == 1
    (folder / "paf.py").write_text(script)
    reads = "tests/data/phix_R1.fq"
    command = [sys.executable, "paf.py", "tests/data/phix174.fa", reads]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    with mapper.Aligner("tests/data/phix174.fa", device="cpu", threads=1) as aligner:
        hits = list(aligner.map(Path(reads)))
        paf = "".join(batch.to_paf() for batch in aligner.map(Path(reads)).batches())
    own = [line.split("\t") for line in done.stdout.splitlines()]
    expected = [line.split("\t") for line in paf.splitlines()]
    assert [line[:12] for line in own] == [line[:12] for line in expected]
    assert len(own) == sum(hit.is_mapped for hit in hits) > 30


@pytest.mark.parametrize("page", ["README.md", "docs/pairwise.md"])
def test_examples_of_pages_give_what_they_show(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment behind an expression is its value, ``...`` standing for anything."""
    monkeypatch.chdir(ROOT)
    blocks = code_of(page)
    assert blocks
    checked = 0
    names: dict[str, object] = {}
    for block in blocks:
        lines = block.splitlines()
        for node in ast.parse(block).body:
            source = ast.get_source_segment(block, node)
            assert source is not None
            assert node.end_lineno is not None
            shown = lines[node.end_lineno - 1].rpartition("  # ")[2]
            if not isinstance(node, ast.Expr) or shown == lines[node.end_lineno - 1]:
                exec(compile(source, page, "exec"), names)
                continue
            value = repr(eval(source, names))
            pattern = re.escape(shown.strip()).replace(r"\.\.\.", ".*")
            assert re.fullmatch(pattern, value), f"{source}: {value}"
            checked += 1
    assert checked >= 4
