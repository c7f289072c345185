"""The decorators of compiled functions: options, cache directory, and the plain-numba switch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest

from mapper.jit import accelerate

CALL = """
import sys
from mapper.io.record_ends import before_lines
import numpy as np
text = np.frombuffer(bytearray(b"ab\\ncd\\nef\\n"), np.uint8)
assert before_lines(text, 9, 1) == 6
print("numba.np.linalg" in sys.modules)
"""


def run(code: str, cache: Path) -> str:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_functions_that_are_not_called_make_no_files(tmp_path):
    run("import mapper.mapping.stages", tmp_path)
    assert [path.name.split("-")[0] for path in tmp_path.rglob("*")] == ["fmwave"]


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")
def test_compiled_code_is_loaded_without_the_compiler(tmp_path):
    assert run(CALL, tmp_path) == "True"
    made = sorted(path.name for path in tmp_path.rglob("*.code"))
    assert len(made) == 1
    assert run(CALL, tmp_path) == "False"
    assert sorted(path.name for path in tmp_path.rglob("*.code")) == made


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")
def test_brief_functions_keep_the_gil():
    assert not accelerate.brief(run).targetoptions["nogil"]
    assert accelerate.driver(run).targetoptions["nogil"]


COMPILE = """
import logging, sys
import numpy as np
from mapper.jit.accelerate import driver, grown
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")

@driver
def total(array):
    return array.sum()

print("started")
assert len(grown(np.zeros(3), 5)) == 5 and len(grown(np.zeros(3, np.int8), 5)) == 5
assert total(np.ones(3)) == 3
"""


@pytest.mark.medium
@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")
@pytest.mark.parametrize("plain", ["", "1"])
def test_compiling_is_announced_once_and_only_if_it_happens(tmp_path, monkeypatch, plain):
    """With either cache."""
    monkeypatch.setenv("FMWAVE_PLAIN_NUMBA", plain)
    (tmp_path / "total.py").write_text(COMPILE)  # numba's own cache wants a file
    code = f"import runpy; runpy.run_path({str(tmp_path / 'total.py')!r})"
    started, message = run(code, tmp_path / "code").splitlines()
    assert started == "started"
    assert message.startswith("compiling code that is used for the first time here")
    assert message.endswith(f"kept in {next((tmp_path / 'code').iterdir())}")
    assert run(code, tmp_path / "code") == "started"


PLAIN = """
import sys
import numba.core.codegen
if "broken" in sys.argv:
    del numba.core.codegen.JITCodeLibrary
import numpy as np
from mapper.jit.accelerate import grown, is_compiled
assert not is_compiled()
if "broken" in sys.argv:
    print(len(grown(np.zeros(3), 5)))
else:
    from mapper import edit_distance
    pairs = ["ACGTTACG", "GATTACA", "ACGT"], ["ACTTACG", "GATTACA", "TTTT"]
    print(*edit_distance(*pairs, cigar=True, device="cpu", threads=1).score)
    assert is_compiled("mapper.align.packing") and not is_compiled("mapper.io.paf")
assert is_compiled()
print(type(grown).__name__, "mapper.jit.cache" in sys.modules)
"""


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")
@pytest.mark.slow
@pytest.mark.parametrize(("reason", "printed"), [("asked for", "1 0 3"), ("broken", "5")])
def test_numbas_own_dispatcher_and_cache_serve(tmp_path, monkeypatch, reason, printed):
    """By the user's choice, and if numba's internals have changed."""
    if reason == "asked for":
        monkeypatch.setenv("FMWAVE_PLAIN_NUMBA", "1")
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, reason], capture_output=True, text=True, check=False,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.split() == [*printed.split(), "CPUDispatcher", "False"], done.stderr
    assert not list(tmp_path.rglob("*.code")) and list(tmp_path.rglob("*.nbc"))
    lines = done.stderr.splitlines()
    assert len(lines) == (reason == "broken")
    assert not lines or "plain compiler" in lines[0]


@pytest.fixture
def no_home(tmp_path, monkeypatch):
    """A machine on which only the directory for temporary files can be written."""
    monkeypatch.setattr(accelerate, "_usable", lambda directory: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_without_a_cache_directory_there_is_a_private_temporary_one(no_home):
    directory = accelerate.choose_cache_dir()
    assert directory.is_dir() and directory.parent.parent == no_home
    assert directory.parent.stat().st_mode & 0o077 == 0
    assert accelerate.choose_cache_dir() == directory


def test_a_named_directory_is_read_where_it_cannot_be_written_if_it_is_filled(
    no_home, tmp_path, monkeypatch
):
    shared = tmp_path / "shared" / accelerate.code_name()
    shared.mkdir(parents=True)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(shared.parent))
    assert accelerate.choose_cache_dir() != shared
    (shared / "a.function.code").touch()
    assert accelerate.choose_cache_dir() == shared


@pytest.mark.parametrize("kind", ["writable by all", "link", "file"])
def test_a_temporary_directory_that_another_made_is_not_trusted(no_home, kind):
    taken = no_home / f"fmwave-{os.getuid()}"
    if kind == "writable by all":
        taken.mkdir()
        taken.chmod(0o777)
    elif kind == "link":
        (no_home / "elsewhere").mkdir()
        taken.symlink_to(no_home / "elsewhere")
    else:
        taken.touch()
    directory = accelerate.choose_cache_dir()
    assert directory.is_dir() and directory.parent != taken
    assert directory.parent.stat().st_mode & 0o077 == 0


def test_a_cache_that_one_may_not_look_into_has_no_code(monkeypatch) -> None:
    class Closed:
        def glob(self, pattern: str) -> Iterator[Path]:
            yield from self.rglob(pattern)

        def rglob(self, pattern: str) -> Iterator[Path]:
            raise PermissionError(13, "Permission denied", "/of/another")
            yield

    monkeypatch.setattr(accelerate, "CACHE_DIR", Closed())
    assert not accelerate.is_compiled()
