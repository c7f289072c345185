"""The compile cache: hits, misses, damage, and processes that compile at the same time."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numba
import pytest

from mapper.jit import accelerate, code_files
from mapper.jit.accelerate import driver

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")

SOURCE = """
from mapper.jit.accelerate import core, driver

@core
def step(x):
    return x + {step}

@driver
def inner(x):
    return step(x) * 2

@driver
def outer(x):
    return inner(x) + 1
"""


def load(directory: Path, step: int = 1) -> ModuleType:
    """Import the module of SOURCE again, as another process would."""
    path = directory / "cached_functions.py"
    path.write_text(SOURCE.format(step=step))
    spec = importlib.util.spec_from_file_location("cached_functions", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cached_functions"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache directory of its own for functions made in the test, still without files."""
    directory = tmp_path / "cache"
    directory.mkdir()
    monkeypatch.setattr(accelerate, "CACHE_DIR", directory)
    monkeypatch.setattr("mapper.jit.code_files._file_digest", _no_memory)
    yield directory
    sys.modules.pop("cached_functions", None)


def _no_memory(path: str) -> str:
    return str(hash(Path(path).read_bytes()))


def misses(function) -> int:
    return sum(function.stats.cache_misses.values())


def hits(function) -> int:
    return sum(function.stats.cache_hits.values())


def names(cache: Path) -> list[str]:
    return sorted(path.name.split("-")[0].split(".")[-1] for path in cache.iterdir())


def test_what_one_process_compiled_another_loads(tmp_path, cache):
    first = load(tmp_path)
    assert first.outer(3) == 9
    assert names(cache) == ["inner", "outer", "step"]
    again = load(tmp_path)
    assert again.outer(3) == 9
    assert (hits(again.outer), misses(again.outer)) == (1, 0)
    assert not again.inner.overloads, "what it calls is part of its code"


def test_a_driver_from_disk_is_linked_into_another(tmp_path, cache):
    load(tmp_path).outer(3)
    next(cache.glob("*outer*")).unlink()
    again = load(tmp_path)
    assert again.outer(3) == 9
    assert misses(again.outer) == 1
    assert (hits(again.inner), misses(again.inner)) == (1, 0)


def test_a_core_from_disk_is_inlined_into_a_driver(tmp_path, cache):
    load(tmp_path).outer(3)
    for name in ("outer", "inner"):
        next(cache.glob(f"*{name}*")).unlink()
    again = load(tmp_path)
    assert again.outer(3) == 9
    assert (hits(again.step), misses(again.step)) == (1, 0)


def test_changed_source_is_compiled_again(tmp_path, cache):
    assert load(tmp_path).outer(3) == 9
    again = load(tmp_path, step=10)
    assert again.outer(3) == 27
    assert misses(again.outer) == 1


@pytest.mark.parametrize("n_bytes", [0, 3, 100, -1])
def test_a_damaged_file_is_compiled_again(tmp_path, cache, n_bytes):
    load(tmp_path).outer(3)
    path = next(cache.glob("*outer*"))
    whole = path.read_bytes()
    path.write_bytes(whole[:n_bytes])
    again = load(tmp_path)
    assert again.outer(3) == 9
    assert misses(again.outer) == 1
    # Not the same bytes: numba counts what it compiles, and names by that count are in it.
    restored = load(tmp_path)
    assert restored.outer(3) == 9
    assert (hits(restored.outer), misses(restored.outer)) == (1, 0)


def test_code_of_another_signature_is_not_taken(tmp_path, cache):
    """Even under its name: all that the code depends on lies in the file."""
    module = load(tmp_path)
    assert (module.outer(3), module.outer(0.25)) == (9, 3.5)
    one, other = sorted(cache.glob("*outer*"))
    other.write_bytes(one.read_bytes())
    again = load(tmp_path)
    assert (again.outer(3), again.outer(0.25)) == (9, 3.5)
    assert (hits(again.outer), misses(again.outer)) == (1, 1)


def test_a_core_is_not_kept_as_what_python_can_call(tmp_path, cache):
    module = load(tmp_path)
    module.outer(3)
    assert module.step(3) == 4
    assert names(cache) == ["inner", "outer", "step", "step"]
    again = load(tmp_path)
    assert again.step(3) == 4 and again.outer(3) == 9


def test_a_cache_that_cannot_be_written_is_reported(tmp_path, cache, caplog):
    cache.rmdir()
    with caplog.at_level(logging.WARNING):
        assert load(tmp_path).outer(3) == 9
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1, "once, not for each function"
    assert "cannot be kept" in said[0] and str(cache) in said[0]


CALLS = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from mapper.jit import accelerate, code_files
from mapper.jit.accelerate import driver
accelerate.CACHE_DIR = Path(sys.argv[2])
import cached_functions as module
print(*[module.outer(float(x) if "." in x else int(x)) for x in sys.argv[3:]])
print(sum(module.outer.stats.cache_misses.values()))
"""


NO_LOCKS = """
import errno, fcntl, os
def refuse(*arguments, **options):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
fcntl.flock = fcntl.lockf = os.link = refuse
"""


@pytest.mark.parametrize("before", ["", NO_LOCKS])
def test_processes_that_compile_at_the_same_time(tmp_path, cache, before):
    """The same, and other signatures of the same function: nothing of either is lost.

    Also where the file system has no locks, as some homes on a network's disk.
    """
    (tmp_path / "cached_functions.py").write_text(SOURCE.format(step=1))

    def start(*numbers: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", before + CALLS, str(tmp_path), str(cache), *numbers]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    both = [start("3", "0.25"), start("0.25", "3")]
    assert [process.communicate()[0].split()[:2] for process in both] == [
        ["9", "3.5"],
        ["3.5", "9"],
    ]
    assert start("3", "0.25").communicate()[0].split() == ["9", "3.5", "0"]
    assert {path.suffix for path in cache.iterdir()} == {".code"}


def test_a_closure_is_told_from_another_by_the_text_of_the_function_it_calls() -> None:
    def calling(inner):
        def run(x):
            return inner(x)

        return run

    @driver
    def one(x):
        return x + 1

    @driver
    def two(x):
        return x + 2

    assert code_files.text_of(calling(one)) == code_files.text_of(calling(one))
    assert code_files.text_of(calling(one)) != code_files.text_of(calling(two))
