"""Check the public names, and that they are imported only when used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mapper

REPO = Path(__file__).parents[1]


@pytest.mark.parametrize("name", mapper.__all__)
def test_public_names_are_there_and_documented(name: str) -> None:
    if name != "__version__":
        assert getattr(mapper, name).__doc__


def test_public_names_are_listed() -> None:
    """For ``dir()`` and for completion."""
    assert sorted(dir(mapper)) == sorted(mapper.__all__)


def test_importing_the_package_imports_no_compiled_code() -> None:
    code = (
        "import sys; import mapper; dir(mapper); from mapper import MapperError; "
        "sys.exit('numba' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = mapper.nonsense


@pytest.mark.parametrize("command", ["align", "distance", "map", "merge"])
def test_help_imports_no_compiled_code(command: str) -> None:
    code = (
        f"import sys; from mapper.cli.main import main; main([{command!r}, '--help']); "
        "sys.exit('numba' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
