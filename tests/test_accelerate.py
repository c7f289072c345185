"""Compiled code on disk: what is made and imported for it, and when."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

CALL = """
import sys
from mapper.io.text_cut import before_lines
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
    run("import mapper.stages", tmp_path)
    assert [path.name.split("-")[0] for path in tmp_path.rglob("*")] == ["fmwave"]


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")
def test_compiled_code_is_loaded_without_what_compiles(tmp_path):
    assert run(CALL, tmp_path) == "True"
    made = sorted(path.name for path in tmp_path.rglob("*.code"))
    assert len(made) == 1
    assert run(CALL, tmp_path) == "False"
    assert sorted(path.name for path in tmp_path.rglob("*.code")) == made
