"""``fmwave index`` and ``fmwave info``: files, messages, exit status, memory."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mapper import host_memory
from mapper.cli.index import default_output
from mapper.cli.main import main
from mapper.cuda.devices import CPU, CUDA, DeviceChoice, FoundDevices
from mapper.errors import DeviceError, MapperError, ResourceError, UsageError
from mapper.index.plan import (
    PROCESS_BYTES,
    BuildPlan,
    choose_route,
    plan_blocks,
    plan_device,
    plan_library,
)
from mapper.index.storage import verify
from mapper.params import IndexParams

REPO = Path(__file__).parents[2]


@pytest.fixture
def fasta(tmp_path: Path) -> Path:
    path = tmp_path / "ref.fasta"
    path.write_text(">a\nACGTNACGTTGCA\n>b\nGG\n")
    return path


def test_index_then_info(fasta: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(fasta), "--verify", "-t", "1"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "15 bases in 2 contigs" in err
    assert "peak memory" in err
    index = fasta.with_name("ref.fmw")
    verify(index)
    assert main(["info", str(index), "--verify"]) == 0
    out, err = capsys.readouterr()
    assert "2, 15 bases" in out
    assert err == ""


def test_parameters_reach_the_index(fasta: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = fasta.with_name("other.fmw")
    options = ["-q", "256", "-p", "16", "--kmer-table", "3", "-o", str(other)]
    assert main(["index", str(fasta), *options, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["info", str(other)]) == 0
    facts = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines())
    values = [facts[name].strip() for name in _PARAMETER_LINES]
    assert values == ["256", "16", "3"]


_PARAMETER_LINES = ("Occ spacing (q)", "SA sampling (p)", "k-mer table (k)")


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["index", "none.fa"], 1, "No such file"),
        (["index", "{fasta}", "-q", "63"], 2, "Occ spacing 63"),
        (["index", "{fasta}", "-t", "0"], 2, "--threads: 0: a whole number of at least 1"),
        (["index", "{fasta}", "-o", "{fasta}"], 2, "is a file"),
        (["index", "{fasta}", "-o", "/none/x.fmw"], 4, "directory /none does not exist"),
        (["index"], 2, "required"),
        (["nonsense"], 2, "invalid choice"),
        ([], 2, "required"),
        (["info", "{fasta}"], 1, "'fmwave index"),
    ],
)
def test_errors_have_a_message_and_a_status(
    fasta: Path, argv: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(fasta=fasta) for word in argv]) == status
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "none.fa", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_too_little_memory_is_told_before_reading(
    fasta: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 1_000_000)
    assert main(["index", str(fasta)]) == 1
    assert "needs about 0.3 GB of memory, and 0.0 GB are available" in capsys.readouterr().err
    assert main(["index", str(fasta), "--ignore-memory"]) == 0


@pytest.mark.parametrize(
    ("error", "status"),
    [(MemoryError(), 1), (KeyboardInterrupt(), 130)],
)
def test_memory_and_interrupt(
    fasta: Path, error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("mapper.index.build.build_index", fail)
    assert main(["index", str(fasta)]) == status


# Signals may be ignored in the test's process, and children inherit that.
_SLOW_SAVE = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from mapper.cli.main import main
from mapper.index import storage
def sync(file):
    print("saving", flush=True)
    time.sleep(60)
storage._sync = sync
sys.exit(main(["index", sys.argv[1], "--quiet"]))
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_signals_clean_up(fasta: Path, number: signal.Signals, status: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SLOW_SAVE, str(fasta)], cwd=REPO, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"saving\n"
        time.sleep(0.1)
        process.send_signal(number)
        assert process.wait() == status
    assert list(fasta.parent.iterdir()) == [fasta]


def test_help_imports_no_compiled_code() -> None:
    code = (
        "import sys; from mapper.cli.main import main; main(['index', '--help']); "
        "sys.exit('numba' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, check=False)
    assert done.returncode == 0


def test_a_closed_pipe_ends_quietly() -> None:
    done = subprocess.run(
        f"{sys.executable} -m mapper.cli.main info | true; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.strip() in ("141", "0")  # 0 if the pipe closed late


@pytest.mark.parametrize(
    "name", ["x.fa", "x.fasta", "x.fna", "x.fa.gz", "x.fna.gz", "x.fasta.bgz", "x"]
)
def test_default_output(name: str) -> None:
    assert default_output(Path("dir") / name) == Path("dir/x.fmw")


@pytest.mark.parametrize("path", [".", "./", "/", ""])
def test_a_folder_without_a_name(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", path]) == 1
    assert ": is a directory, pipe or device; a FASTA file is expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "bases"), [("5386", 5386), ("4.6M", 4_600_000), ("3.1G", 3_100_000_000)]
)
def test_a_plan_says_what_index_and_map_will_need(
    size: str, bases: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "--plan", size, "--device", "cpu"]) == 0
    facts = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines())
    assert facts["plan for"].strip() == f"{bases} bases"
    assert float(facts["index"].split()[0]) > 0
    for name in ("fmwave index, CPU", "fmwave index, CUDA", "fmwave map, CPU", "fmwave map, CUDA"):
        assert "B" in facts[name]


@pytest.mark.parametrize("text", ["", "G", "-1", "3,1G", "3P", "1e9"])
def test_a_size_is_a_number_with_a_prefix(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--plan", text]) == 2
    assert "a size such as 500M or 24G is expected" in capsys.readouterr().err


def test_options_of_the_build_are_checked_first(
    fasta: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", str(fasta), "--device", "gpu"]) == 2
    assert "--device gpu" in capsys.readouterr().err
    assert main(["index", str(fasta), "--memory", "1M"]) == 1
    assert "--memory allows 0.00 GB" in capsys.readouterr().err
    packed = fasta.with_name("packed.fa.gz")
    packed.write_bytes(gzip.compress(fasta.read_bytes()))
    assert main(["index", str(packed), "--memory", "1M"]) == 1
    assert "--memory allows 0.00 GB" in capsys.readouterr().err
    assert not list(fasta.parent.glob("*.fmw"))


def test_a_device_is_too_small_or_makes_blocks_to_fit() -> None:
    params = IndexParams()
    least = plan_device(3_100_000_000, params, None)
    assert least.device_bytes < 23e9
    with pytest.raises(ResourceError, match="of device memory"):
        plan_device(3_100_000_000, params, 16_000_000_000)
    larger = plan_device(3_100_000_000, params, 80_000_000_000)
    assert least.block_size < larger.block_size
    assert larger.device_bytes <= 80_000_000_000


def test_memory_that_is_allowed_bounds_the_blocks() -> None:
    params = IndexParams()
    least = plan_blocks(10**9, params, 4, None)
    with pytest.raises(ResourceError, match="needs at least"):
        plan_blocks(10**9, params, 4, least.host_bytes - 1)
    for memory in (least.host_bytes, 8 * 10**9, 10**12):
        plan = plan_blocks(10**9, params, 4, memory)
        assert plan.host_bytes <= memory
        assert least.block_size <= plan.block_size <= 10**9 // 2 + 1


def test_memory_estimate_per_base() -> None:
    n = 10_000_000
    # The default's table of 64 MB is large for this n, and the whole suffix array larger.
    small = IndexParams(kmer_len=10, sa_sampling=4)
    assert 7 < (plan_library(n, small).host_bytes - PROCESS_BYTES) / n < 9
    assert plan_library(n, IndexParams()).host_bytes < PROCESS_BYTES + 12 * n + 2**26
    for n in (100_000_000, 1_000_000_000, 3_100_000_000):
        plan = plan_blocks(n, IndexParams(), 4, None)
        assert 6 < (plan.host_bytes - PROCESS_BYTES) / n < 9
    assert host_memory.peak_bytes() > 10_000_000
    assert host_memory.available_bytes() is not None


@pytest.fixture
def pretended_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mapper.index.plan.choose_device",
        lambda text, say: DeviceChoice(CPU) if text == "cpu" else DeviceChoice(CUDA, (0,)),
    )


def missing() -> None:
    raise DeviceError("CuPy is missing")


def too_small(ordinal: int, n: int, params: IndexParams) -> BuildPlan:
    return plan_device(n, params, 10**9)


@pytest.mark.usefixtures("pretended_device")
@pytest.mark.parametrize(
    ("name", "stand_in", "message"),
    [("require_cupy", missing, "CuPy is missing"), ("_plan_on", too_small, "device memory")],
)
def test_auto_takes_the_cpu_and_says_why_where_a_device_asked_for_is_an_error(
    name: str, stand_in: object, message: str, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr("mapper.index.plan.require_cupy", lambda: None)
    monkeypatch.setattr(f"mapper.index.plan.{name}", stand_in)

    def route(device: str, n: int = 10**9) -> str:
        return choose_route("it", n, IndexParams(), device, 10**11, 2, check=False).route

    with caplog.at_level("INFO", logger="mapper"):
        assert route("auto") == "blocks"
    assert "sorting on the CPU" in caplog.text
    assert message in caplog.text
    with pytest.raises(MapperError, match=message):
        route("cuda")
    assert route("auto", 10**6) == "library"
    assert route("cpu") == "blocks"
    with pytest.raises(UsageError, match="one device"):
        route("cuda:0,1")


def test_plans_that_are_not_told_do_not_tell_of_devices_either(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a gzip file there is a plan for each size that its text turns out to have."""
    monkeypatch.setattr(
        "mapper.cuda.devices.find_devices", lambda: FoundDevices((), "there is no driver")
    )
    with caplog.at_level("INFO", logger="mapper"):
        for say in (False, False, True):
            choose_route("it", 10**9, IndexParams(), "auto", 10**11, 2, check=False, say=say)
    assert caplog.text.count("there is no driver") == 1


@pytest.mark.usefixtures("pretended_device")
def test_auto_takes_a_device_for_a_large_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mapper.index.plan.require_cupy", lambda: None)
    monkeypatch.setattr(
        "mapper.index.plan._plan_on",
        lambda ordinal, n, params: plan_device(n, params, 10**11)._replace(ordinal=ordinal),
    )
    plan = choose_route("it", 10**9, IndexParams(), "auto", 10**11, 2, check=False)
    assert (plan.route, plan.ordinal) == ("device", 0)
    assert choose_route("it", 10**6, IndexParams(), "auto", None, 2, check=True).route == "library"
