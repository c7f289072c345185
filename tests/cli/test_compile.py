"""``fmwave compile``: afterwards, runs find all their code in the cache."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from mapper.cli.compile import compile_all
from mapper.cli.main import main
from mapper.cuda.devices import DeviceChoice
from mapper.jit.accelerate import CACHE_DIR
from tests.helpers.mapping_runs import DATA, World

COMPILE_AND_MAP = """
import gc, sys
from mapper.cli.main import main
from mapper.jit.cache import Driver

def signatures():
    # Drivers are called by Python; all other compiled functions are part of them.
    drivers = [f for f in gc.get_objects() if isinstance(f, Driver)]
    return {(f.__module__, f.__name__, s) for f in drivers for s in f.overloads}

assert main(["compile", "--device", "cpu", "-t", "1", "--quiet"]) == 0
compiled = signatures()
while len(sys.argv) > 1:
    end = sys.argv.index(";")
    assert main(sys.argv[1:end]) == 0
    del sys.argv[1 : end + 1]
print(len(compiled), *sorted(signatures() - compiled), sep="\\n")
"""


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")
def test_map_compiles_nothing_afterwards(world: World, tmp_path: Path) -> None:
    """With any reader and writer."""
    machine = ["--device", "cpu", "-t", "1", "--quiet"]
    bam = str(DATA / "portiera_unaligned.bam")
    runs = [
        [world.first, world.second, "-o", str(tmp_path / "pairs.bam"), "--sort", "--markdup"],
        [world.both, "-p", "-o", str(tmp_path / "interleaved.sam"), "-a", "--eqx", "-Y", "-C"],
        [bam, "-o", str(tmp_path / "from_bam.bam")],
        [world.first, "-o", str(tmp_path / "single.paf"), "-R", "@RG\tID:a\tSM:b"],
    ]
    words = [word for run in runs for word in ("map", world.index_path, *run, *machine, ";")]
    done = subprocess.run(
        [sys.executable, "-c", COMPILE_AND_MAP, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    n_compiled, *new = done.stdout.splitlines()
    assert int(n_compiled) > 30
    assert new == []


def test_time_and_folder_are_reported_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--device", "cpu", "-t", "1"]) == 0
    out, err = capfd.readouterr()
    pattern = (
        r"fmwave: all stages of map are compiled \(CPU\); [\d.]+ s; \d+ files, [\d.]+ MB in "
        rf"{re.escape(str(CACHE_DIR))}\n"
    )
    assert out == ""
    assert re.fullmatch(pattern, err), err
    assert logging.getLogger("mapper").level == logging.INFO


@pytest.mark.parametrize(("options", "is_off"), [([], True), (["--missing"], False)])
def test_code_of_the_package_is_taken_only_if_asked_for(
    options: list[str], is_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compiled for this CPU must not be left out because code for a level is there."""
    from mapper.cli import compile as command

    found = []
    monkeypatch.setenv("FMWAVE_PREBUILT", "")
    monkeypatch.setattr(
        command, "compile_all", lambda *_: found.append(os.environ["FMWAVE_PREBUILT"] == "0")
    )
    assert main(["compile", "--device", "cpu", *options]) == 0
    assert found == [is_off]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*overflow encountered")  # of hashes, in the simulator
def test_kernels_are_compiled_too(device, capfd: pytest.CaptureFixture[str]) -> None:
    """In the simulator there is nothing to compile, but the runs are the same."""
    assert main(["compile", "--device", "cuda:0", "-t", "1"]) == 0
    assert "are compiled (CPU and CUDA)" in capfd.readouterr().err


def test_a_device_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--device", "tpu"]) == 2
    assert "--device tpu: auto, cpu, cuda" in capsys.readouterr().err


def test_help_imports_no_compiled_code() -> None:
    code = (
        "import sys; from mapper.cli.main import main; main(['compile', '--help']); "
        "sys.exit('numba' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "container images" in " ".join(done.stdout.split())


@pytest.mark.gpu
@pytest.mark.slow_simulated
@pytest.mark.filterwarnings("ignore:.*overflow encountered")
def test_kernels_that_only_reads_with_errors_need_are_launched(device, tmp_path, monkeypatch):
    """Each takes seconds to compile, in the middle of the first run if it is not done before."""
    from mapper.cuda.api import SIMULATED

    if not SIMULATED:
        pytest.skip("the simulator tells what was launched")
    from numba.cuda.simulator.kernel import FakeCUDAKernel

    launched = set()
    call = FakeCUDAKernel.__call__

    def counted(kernel, *arguments):
        launched.add(kernel.fn.__name__)
        return call(kernel, *arguments)

    monkeypatch.setattr(FakeCUDAKernel, "__call__", counted)
    compile_all(tmp_path, [DeviceChoice("cuda", (0,))], threads=2)
    assert {"extend_small", "extend_large", "fill_small", "fill_large"} <= launched
