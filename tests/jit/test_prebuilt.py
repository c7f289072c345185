"""Code that comes with the package: for which CPUs, and when it is taken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from llvmlite import binding as llvm

from mapper.cli.main import main
from mapper.jit import prebuilt
from mapper.jit.prebuilt import (
    LEVELS,
    compiles_for,
    directories,
    host_levels,
    level_variables,
)

V3 = LEVELS["x86-64-v3"]

SOURCE = """
from mapper.jit.accelerate import core, driver

@core
def step(x):
    return x + 1

@driver
def outer(x):
    return step(x) * 2
"""

CALL = """
import sys
from pathlib import Path
from mapper.jit import accelerate

accelerate.CACHE_DIR, levels = Path(sys.argv[1]), sys.argv[2:]
accelerate.PREBUILT[:] = [(Path(level).name, Path(level)) for level in levels]
sys.path.insert(0, str(Path(sys.argv[1]).parent))
import functions
assert functions.outer(3) == 8
print(*(sum(counts.values()) for counts in (
    functions.outer.stats.cache_hits, functions.outer.stats.cache_misses)))
"""


def call(cache: Path, *levels: Path, variables: dict[str, str] | None = None) -> str:
    """Call the function in a new process; return the hits and misses of its cache."""
    done = subprocess.run(
        [sys.executable, "-c", CALL, str(cache), *map(str, levels)], text=True, check=True,
        capture_output=True, env=os.environ | (variables or {}),
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")
def test_code_of_a_level_is_taken_where_there_is_none_for_this_cpu(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(SOURCE)
    level, own = tmp_path / "generic", tmp_path / "own"
    for directory in (level, own):
        directory.mkdir()
    assert call(level, variables=level_variables("generic")) == "0 1"
    assert call(own, level) == "1 0"
    assert list(own.iterdir()) == [], "nothing was compiled"
    # As a level whose code is not there, then one for another level's code.
    assert call(own, tmp_path / "x86-64-v3", level) == "1 0"
    level.rename(tmp_path / "x86-64-v4")
    assert call(own, tmp_path / "x86-64-v4") == "0 1"


def with_features(monkeypatch: pytest.MonkeyPatch, features: set[str], triple: str) -> None:
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
    monkeypatch.setattr(llvm, "get_process_triple", lambda: triple)


def test_levels_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    x86 = "x86_64-unknown-linux-gnu"
    for features, triple, expected in (
        (LEVELS["x86-64-v4"], x86, ["x86-64-v4", "x86-64-v3", "generic"]),
        (V3 | {"avx512f"}, x86, ["x86-64-v3", "generic"]),
        (V3 - {"bmi2"}, x86, ["generic"]),
        (set(), "aarch64-unknown-linux-gnu", ["generic"]),
    ):
        with_features(monkeypatch, set(features), triple)
        assert host_levels() == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [("x86-64-v4", True), ("x86-64-v3", False), ("generic", False), ("znver3", False)],
)
def test_features_of_a_cpu_that_numba_was_told_are_those_of_its_level(
    told: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: {"avx512f": not expected})
    monkeypatch.setattr(numba.config, "CPU_NAME", told)
    assert compiles_for("avx512f") == expected
    monkeypatch.setattr(numba.config, "CPU_NAME", None)
    assert compiles_for("avx512f") != expected


def test_directories_of_this_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prebuilt, "HOME", tmp_path)
    monkeypatch.setattr(numba.config, "CPU_NAME", None)
    monkeypatch.delenv("FMWAVE_PREBUILT", raising=False)
    with_features(monkeypatch, set(V3), "x86_64-unknown-linux-gnu")
    for level in ("x86-64-v4", "x86-64-v3"):
        (tmp_path / "fmwave-1" / level).mkdir(parents=True)
    assert directories("fmwave-1") == [("x86-64-v3", tmp_path / "fmwave-1" / "x86-64-v3")]
    assert directories("fmwave-2") == [], "code of other sources"
    monkeypatch.setattr(numba.config, "CPU_NAME", "generic")
    assert directories("fmwave-1") == []
    monkeypatch.setattr(numba.config, "CPU_NAME", None)
    monkeypatch.setenv("FMWAVE_PREBUILT", "0")
    assert directories("fmwave-1") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cpu", "x86-64-v9"], "--cpu x86-64-v9: x86-64-v4, x86-64-v3, generic are possible"),
        (["--cpu", "generic,x86-64-v4"], "--cpu x86-64-v4: this CPU lacks a feature"),
        (["--cpu", "generic", "--device", "cuda"], "leave --device cuda out"),
        (["--cpu", "generic", "--missing"], "leave --missing out"),
    ],
)
def test_what_cannot_be_compiled_is_refused(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with_features(monkeypatch, set(V3), "x86_64-unknown-linux-gnu")
    assert main(["compile", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_package_that_cannot_be_written_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The level's process compiles nothing here."""
    from mapper.cli import compile as command

    def done(*_: object, **options: object) -> subprocess.CompletedProcess[str]:
        from mapper.jit.accelerate import code_name

        Path(str(options["env"]["NUMBA_CACHE_DIR"]), code_name()).mkdir()
        return subprocess.CompletedProcess([], 0, "", "")

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(prebuilt, "HOME", tmp_path / "file")
    monkeypatch.setattr(command.subprocess, "run", done)
    assert main(["compile", "--cpu", "generic"]) == 4
    assert "cannot be written: Not a directory" in capsys.readouterr().err
    monkeypatch.setattr(prebuilt, "HOME", tmp_path / "prebuilt")
    assert main(["compile", "--cpu", "generic"]) == 0
    assert "are compiled for generic; " in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("prebuilt/fmwave-*/*")] == ["generic"]


def test_a_level_that_cannot_be_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mapper.cli import compile as command

    failed = subprocess.CompletedProcess([], 1, "", "fmwave: error: out of memory\n")
    monkeypatch.setattr(prebuilt, "HOME", tmp_path)
    monkeypatch.setattr(command.subprocess, "run", lambda *_, **__: failed)
    assert main(["compile", "--cpu", "generic"]) == 1
    assert "compiling for generic failed: fmwave: error: out of memory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
