"""Logs of the rules that are scripts: as of shell rules, all that is said stands there."""

from __future__ import annotations

import ast
import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.workflow_runs import (
    CONFIG,
    DATA,
    PHIX,
    ROOT,
    UNITS_HEADER,
    copied,
    needs_snakemake,
    project,
    snakemake,
    unaligned,
)

SCRIPTS = sorted(
    {
        path
        for rules in (ROOT / "workflow" / "rules").glob("*.smk")
        for path in re.findall(r'script:\n\s+"\.\./scripts/(\w+\.py)"', rules.read_text())
    }
)


def test_every_script_starts_its_log_before_it_imports_what_may_fail():
    assert SCRIPTS
    for name in SCRIPTS:
        _, *rest = ast.parse((ROOT / "workflow" / "scripts" / name).read_text()).body
        assert isinstance(rest[0], ast.ImportFrom), name
        assert rest[0].module == "rule_log", name
        assert ast.unparse(rest[1]) == "start_log(globals().get('snakemake'))", name


@pytest.mark.parametrize(
    ("text", "status", "expected"),
    [
        ("import none_such", 1, ["Traceback", "No module named 'none_such'"]),
        ("print('all is well')", 0, ["all is well"]),
        ("subprocess.run(['bash', '-c', 'echo a; echo b >&2'])", 0, ["a\nb\n"]),
        ("with errors_in_one_line(): open('not/there')", 1, ["error: ", "'not/there'"]),
        ("with errors_in_one_line(), named('x.gz'): raise EOFError('it ends')", 1,
         ["error: x.gz: it ends\n"]),
        ("with errors_in_one_line(): raise KeyError('a fault of ours')", 1, ["Traceback"]),
        ("with errors_in_one_line(): [0] * (1 << 60)", 1, ["Traceback", "MemoryError"]),
        ("with errors_in_one_line(): subprocess.run(['bash', '-c', 'echo no >&2; exit 3'],"
         " check=True)", 3, ["no\n"]),
        ("with errors_in_one_line(): subprocess.run(['bash', '-c', 'kill -9 $$'], check=True)",
         137, []),
    ],
)  # fmt: skip
def test_what_a_script_says_and_how_it_ends(tmp_path, monkeypatch, text, status, expected):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("JOB_ID", "none")
    monkeypatch.delenv("LSB_JOBID", raising=False)
    script = (
        "import subprocess, types\n"
        "asked = types.SimpleNamespace(mem_mb=100, runtime=5)\n"
        f"snakemake = types.SimpleNamespace(log=[{str(tmp_path / 'log')!r}], threads=2,"
        " resources=asked)\n"
        "from rule_log import errors_in_one_line, named, start_log\n"
        "start_log(globals().get('snakemake'))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script + text], capture_output=True, text=True, timeout=60,
        check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "scripts")},
    )  # fmt: skip
    assert (run.stdout, run.stderr) == ("", "")
    assert run.returncode == status
    log = (tmp_path / "log").read_text()
    assert log.startswith(f"host {os.uname().nodename}\nSLURM_JOB_ID=7\n")
    said = log.split("SLURM_JOB_ID=7\nasked threads=2 mem_mb=100 runtime=5\n")[1]
    for message in expected:
        assert message in said
    assert ("Traceback" in said) == ("Traceback" in expected)
    assert bool(said) == bool(expected)


def cut_short(source: Path, target: Path) -> Path:
    """Write a gzip file that ends too soon."""
    packed = gzip.compress(source.read_bytes())
    target.write_bytes(packed[: len(packed) // 2])
    return target


def log_of(directory: Path, name: str) -> str:
    return (directory / "results" / "logs" / name).read_text()


@pytest.mark.medium
@needs_snakemake
def test_a_truncated_file_is_named_in_the_log_of_the_rule_that_reads_it(tmp_path):
    """Of the insert size, gzip and plain; of splitting; of the plain reference; of a sample."""
    packed = cut_short(PHIX[1], tmp_path / "cut_R2.fq.gz")
    plain = tmp_path / "half_R2.fq"
    plain.write_text(PHIX[1].read_text()[:-50])
    reference = cut_short(DATA / "phix174.fa", tmp_path / "cut.fa.gz")
    first, second, third = (copied(tmp_path, name, PHIX[0]).strip() for name in "abc")
    other = "\t".join([copied(tmp_path, "d", *PHIX), "", ""])
    units = UNITS_HEADER + (
        f"packed\ta\t{first}\t{packed}\t\t\npacked\tb\t{other}\n"
        f"plain\ta\t{second}\t{plain}\t\t2\n"
        f"split\ta\t{third}\t\t\t2\n"
    )
    (tmp_path / third).write_bytes(cut_short(PHIX[0], tmp_path / "x").read_bytes())
    samples = "sample\npacked\nplain\nsplit\n"
    directory = project(tmp_path, samples=samples, units=units)

    run = snakemake(directory, "--keep-going", "--until", "fmwave_map")

    assert run.returncode != 0
    log = log_of(directory, "estimate_insert_size/packed-a.log")
    assert f"error: {packed}: Compressed file ended" in log
    assert "Traceback" not in log
    log = log_of(directory, "estimate_insert_size/plain-a.log")
    assert f"{plain}" in log
    assert "/.plain-a.json-" not in log  # the copy of its first reads
    assert "Traceback" not in log
    log = log_of(directory, "split_reads/split-a.log")
    assert f"error: {third}: Compressed file ended" in log
    assert "Compressed file ended" in run.stdout  # show-failed-logs

    config = CONFIG.replace(str(DATA / "phix174.fa"), str(reference)) + "output: {format: cram}\n"
    (directory / "config" / "config.yaml").write_text(config)
    run = snakemake(directory, "--until", "plain_reference")
    assert run.returncode != 0
    log = log_of(directory, "plain_reference.log")
    assert f"error: {reference}: Compressed file ended" in log
    assert not list((directory / "results" / "reference").glob(".*"))


@pytest.mark.medium
@needs_snakemake
def test_a_wrong_sample_name_stands_in_the_log_of_the_sample(tmp_path):
    unaligned(tmp_path / "other.bam", "somebody")
    units = "sample\tunit\tfq1\tbam\nphix\tu\t\tother.bam\n"
    directory = project(tmp_path, units=units)
    run = snakemake(directory)
    assert run.returncode != 0
    log = log_of(directory, "map/phix.log")
    assert "error: other.bam: read groups of sample somebody" in log
    assert "computing on" not in log  # the reads are not mapped first
    assert "Traceback" not in log
