"""Recipes say what pyproject.toml says, and their commands run on the bundled reads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numba
import pysam
import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BIOCONDA = (ROOT / "recipes" / "bioconda" / "fmwave" / "meta.yaml").read_text()
NF_CORE = ROOT / "recipes" / "nf-core" / "fmwave"
CONDA_NAMES = {"isal": "python-isal"}

TASK = {
    "task.cpus": "2", "fasta": "ref.fa", "fasta.baseName": "ref", "meta.id": "test",
    "prefix": "test", "reads": "R1.fq R2.fq", "index": "ref.fmw", "args": "", "device": "cpu",
}  # fmt: skip


def listed(section: str) -> list[str]:
    """Return the requirements that the bioconda recipe has in a section."""
    lines = re.search(rf"^  {section}:\n((?:    - .+\n)+)", BIOCONDA, re.MULTILINE)[1]
    return [line.removeprefix("    - ") for line in lines.splitlines()]


def test_bioconda_requires_what_the_package_requires() -> None:
    wanted = []
    for requirement in PROJECT["dependencies"]:
        name, bounds = re.fullmatch(r"([\w-]+)(.+)", requirement).groups()
        wanted.append(f"{CONDA_NAMES.get(name, name)} {bounds}")
    assert listed("run") == [f"python {PROJECT['requires-python']}", *wanted]
    [entry] = PROJECT["scripts"].items()
    assert f"- {' = '.join(entry)}\n" in BIOCONDA
    assert f"summary: {PROJECT['description']}\n" in BIOCONDA


def test_nothing_else_is_left_to_be_filled_in() -> None:
    names = set()
    for path in (ROOT / "recipes").rglob("*.*"):
        if path.suffix in {".yaml", ".yml", ".nf"}:
            names |= set(re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", path.read_text()))
    processes = {"FMWAVE_INDEX", "FMWAVE_MAP"}
    assert names - processes == {"SHA256_OF_THE_SDIST", "GITHUB_NAME"}


def script_of(module: str, section: str, **values: str) -> str:
    """Return the shell script that Nextflow would make of a section of a module."""
    text = (NF_CORE / module / "main.nf").read_text()
    part = text[text.index(f"\n    {section}:\n") :]
    script = re.search(r'^    """\n(.*?)^    """', part, re.MULTILINE | re.DOTALL)[1]
    values = TASK | values
    script = re.sub(r"(?<!\\)\$\{([\w.]+)\}", lambda match: values[match[1]], script)
    return script.replace("\\$", "$").replace("\\\\", "\\")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with reference and reads, and the program."""
    for name, data in (("ref.fa", "phix174.fa"), ("R1.fq", "phix_R1.fq"), ("R2.fq", "phix_R2.fq")):
        (tmp_path / name).write_bytes((DATA / data).read_bytes())
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "fmwave"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mapper.cli.main "$@"\n')
    program.chmod(0o755)
    return tmp_path


def run(script: str, folder: Path) -> None:
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.medium
@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")
def test_the_modules_of_nf_core_index_and_map(folder: Path) -> None:
    run(script_of("index", "script", prefix="ref"), folder)
    for output_fmt, sort, reference in (("bam", "--sort", ""), ("cram", "", "--reference ref.fa")):
        values = {"output_fmt": output_fmt, "sort": sort, "reference": reference}
        run(script_of("map", "script", **values), folder)
    assert sum(not record.flag & 0x900 for record in pysam.AlignmentFile(folder / "test.bam")) == 90
    assert (folder / "test.bam.bai").exists()
    assert (folder / "test.cram").exists()
    assert (folder / "test.json").exists()


def test_the_stubs_of_nf_core_make_what_the_modules_name(folder: Path) -> None:
    run(script_of("index", "stub", prefix="ref"), folder)
    run(script_of("map", "stub", output_fmt="bam", touch_index="touch test.bam.bai"), folder)
    made = {path.name for path in folder.iterdir()} - {"ref.fa", "R1.fq", "R2.fq", "bin"}
    assert made == {"ref.fmw", "test.bam", "test.bam.bai", "test.json"}


def test_nf_core_documents_all_inputs_and_outputs() -> None:
    yaml = pytest.importorskip("yaml", reason="comes with snakemake: pip install -e '.[workflow]'")
    for module in ("index", "map"):
        text = (NF_CORE / module / "main.nf").read_text()
        meta = yaml.safe_load((NF_CORE / module / "meta.yml").read_text())
        assert set(meta["output"]) == set(re.findall(r"emit: (\w+)", text))
        inputs = text[text.index("    input:\n") : text.index("    output:\n")]
        declared = re.findall(r"(?:val|path)[( ](\w+)", inputs)
        listed_there = [
            name
            for item in meta["input"]
            for part in (item if isinstance(item, list) else [item])
            for name in part
        ]
        assert listed_there == declared
