"""Messages about GPUs that cannot be used, with a fake driver.

numba-cuda loads it like the real one, so errors are its own. Needs a C compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

SOURCE = Path(__file__).with_name("pretended_driver.c")
NO_DEVICE, UNAVAILABLE, FULL = 100, 46, 2  # of CUresult


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the pretended libcuda.so.1."""
    pytest.importorskip("numba_cuda")
    if numba.config.ENABLE_CUDASIM:
        pytest.skip("the simulator needs no driver")
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler (cc) on Linux")
    folder = tmp_path_factory.mktemp("driver")
    library = str(folder / "libcuda.so.1")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, str(SOURCE)], check=True)
    return folder


def run(folder: Path, *arguments: str, **pretended: int) -> tuple[int, str, str]:
    """Run the command with that driver; return status, output and messages."""
    environment = {name: text for name, text in os.environ.items() if name[:5] != "CUDA_"}
    environment |= {"LD_LIBRARY_PATH": str(folder)}
    environment |= {f"PRETENDED_{name.upper()}": str(value) for name, value in pretended.items()}
    ended = subprocess.run(
        [sys.executable, "-m", "mapper.cli.main", *arguments],
        env=environment, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout, ended.stderr


def device_line(text: str) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith("CUDA device:"))
    return line


def test_a_driver_without_a_device(driver: Path) -> None:
    status, out, _ = run(driver, "info", init=NO_DEVICE)
    assert status == 0
    assert "CUDA_ERROR_NO_DEVICE" in device_line(out)


def test_a_gpu_that_is_too_old(driver: Path) -> None:
    status, out, _ = run(driver, "info", capability=3)
    assert status == 0
    assert "cannot be used: device 0 (Pretended) has compute capability 3.0" in device_line(out)
    status, _, err = run(driver, "info", "--plan", "1G", "--device", "cuda", capability=3)
    assert status == 3
    assert "has compute capability 3.0; at least" in err


@pytest.mark.parametrize(
    ("refusal", "said"), [(UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE"), (FULL, "memory is full")]
)
def test_a_gpu_that_others_have(driver: Path, refusal: int, said: str) -> None:
    status, out, _ = run(driver, "info", capability=9, refusal=refusal)
    assert status == 0
    assert "compute capability 9.0; cannot be used now: " in device_line(out)
    assert said in device_line(out)
    plan = ["info", "--plan", "1G", "--device", "cuda"]
    status, out, err = run(driver, *plan, capability=9, refusal=refusal)
    assert (status, out) == (3, "")
    (line,) = err.splitlines()  # no traceback
    assert said in line
    assert line.startswith("fmwave: error: ")
    assert "--device cpu" in line


def test_a_device_that_is_not_there(driver: Path) -> None:
    arguments = ["info", "--plan", "1G", "--device", "cuda:0,2"]
    status, _, err = run(driver, *arguments, capability=9, refusal=FULL)
    assert status == 3
    assert "there is no device 2; 1 visible, counted from 0" in err


def test_a_library_that_lacks_functions_of_the_driver_is_no_matter(driver: Path) -> None:
    """This one lacks those by which `map` opens devices while Python imports."""
    status, out, err = run(driver, "map", "--device", "cuda", "no.fmw", "no.fq", "-o", "no.bam")
    assert (status, out) == (1, "")
    (line,) = err.splitlines()  # no traceback of a thread
    assert "no.f" in line
