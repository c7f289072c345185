"""Choice of device: names, reasons for missing devices, and the choice of `auto`."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from mapper.cuda import devices as choose
from mapper.cuda.devices import CudaDevice, DeviceChoice, FoundDevices, choose_device
from mapper.errors import DeviceError, UsageError

NEW = CudaDevice(0, "new", (9, 0), "")
TOO_OLD = "device 1 (old) has compute capability 3.5; at least 7.5 is needed"
OLD = CudaDevice(1, "old", (3, 5), TOO_OLD)
SECOND = CudaDevice(2, "second", (9, 0), "")


def pretend(monkeypatch, *devices, problem=""):
    monkeypatch.setattr(choose, "find_devices", lambda: FoundDevices(devices, problem))


@pytest.mark.parametrize("text", ["", "gpu", "CPU", "cuda:", "cuda:a", "cuda:0,", "cuda: 0"])
def test_a_name_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="auto, cpu, cuda"):
        choose_device(text)


def test_cpu_looks_for_no_device(monkeypatch):
    def fail():
        raise AssertionError("looked for devices")

    monkeypatch.setattr(choose, "find_devices", fail)
    assert choose_device("cpu") == DeviceChoice("cpu", ())


@pytest.mark.parametrize("text", ["auto", "cuda", "cuda:any"])
def test_all_usable_devices_are_taken(monkeypatch, text):
    pretend(monkeypatch, NEW, OLD, SECOND)
    assert choose_device(text) == DeviceChoice("cuda", (0, 2))


def test_named_devices_are_taken_as_named(monkeypatch):
    pretend(monkeypatch, NEW, OLD, SECOND)
    assert choose_device("cuda:2,0,0") == DeviceChoice("cuda", (2, 0, 0))


def test_a_device_that_is_too_old_or_not_there_is_an_error(monkeypatch):
    pretend(monkeypatch, NEW, OLD)
    with pytest.raises(DeviceError, match=r"compute capability 3\.5; at least 7\.5"):
        choose_device("cuda:1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(DeviceError, match=r"no device 2; 2 visible.*CUDA_VISIBLE_DEVICES=4,5"):
        choose_device("cuda:0,2")


def test_without_a_device_auto_says_why_and_cuda_fails(monkeypatch, caplog):
    pretend(monkeypatch, problem="the driver is missing")
    with caplog.at_level(logging.INFO, "mapper"):
        assert choose_device("auto") == DeviceChoice("cpu")
    assert "the driver is missing" in caplog.text
    for text in ("cuda", "cuda:0", "cuda:any"):
        with pytest.raises(DeviceError, match="the driver is missing"):
            choose_device(text)


def test_only_old_devices_are_none(monkeypatch):
    pretend(monkeypatch, OLD, problem=OLD.problem)
    assert choose_device("auto").backend == "cpu"
    with pytest.raises(DeviceError, match="capability"):
        choose_device("cuda")


def test_the_search_itself_raises_nothing():
    """Whatever this machine has: devices, or the reason why there are none."""
    found = choose.find_devices()
    assert any(not device.problem for device in found.devices) or found.problem


def test_a_machine_without_any_driver_is_not_asked_twice(monkeypatch):
    """numba-cuda is asked exactly where a device file, a library or a variable speaks for one."""
    for name in choose._NAMED_DRIVERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(choose, "_DEVICE_FILES", ())

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(choose.ctypes, "CDLL", missing)
    assert choose._without_driver()
    assert "libcuda" in choose.find_devices().problem
    monkeypatch.setattr(choose, "_DEVICE_FILES", ("null",))
    assert not choose._without_driver()
    monkeypatch.setattr(choose, "_DEVICE_FILES", ())
    monkeypatch.setattr(choose.ctypes, "CDLL", lambda name: None)
    assert not choose._without_driver()
    monkeypatch.setattr(choose.ctypes, "CDLL", missing)
    monkeypatch.setenv("NUMBA_CUDA_DRIVER", "/opt/libcuda.so")
    assert not choose._without_driver()


@pytest.fixture
def machine(monkeypatch):
    """Return a function that makes numba-cuda see a driver with these devices."""
    pytest.importorskip("numba_cuda")
    from mapper.cuda import api, kernel_code

    monkeypatch.setattr(choose, "_without_driver", lambda: False)
    monkeypatch.setattr(api, "SIMULATED", False)
    monkeypatch.setattr(api, "lowest_capability", lambda: (7, 5))

    def pretend_machine(*gpus, available=True, driver=True, error=None, kept=False):
        monkeypatch.setattr(kernel_code, "any_kept", lambda: kept)
        library = SimpleNamespace(
            is_available=lambda: available, cuda_error=lambda: error, gpus=list(gpus)
        )
        monkeypatch.setattr(api, "cuda", library)
        numbas = SimpleNamespace(is_available=driver)
        monkeypatch.setattr(
            api, "cuda_driver", SimpleNamespace(driver=numbas, CudaSupportError=OSError)
        )

    return pretend_machine


def gpu(name, capability):
    device = SimpleNamespace(name=name, compute_capability=capability, uuid=name)
    return SimpleNamespace(_device=device)


def test_an_old_gpu_is_named_with_what_it_would_have_to_be(machine):
    machine(gpu("Tesla K80", (3, 7)))
    wanted = r"Tesla K80.* has compute capability 3\.7; at least 7\.5 is needed"
    with pytest.raises(DeviceError, match=wanted):
        choose_device("cuda")
    assert choose_device("auto").backend == "cpu"
    (line,) = choose.describe_devices()
    assert "Tesla K80, compute capability 3.7; cannot be used: " in line


def test_a_missing_compiler_is_no_missing_device(machine):
    machine(available=False)
    assert "NVVM" in choose.find_devices().problem
    assert "pip install" in choose.find_devices().problem
    machine(available=False, driver=False, error="CUDA_ERROR_NO_DEVICE (100)")
    assert choose.find_devices().problem.endswith("CUDA_ERROR_NO_DEVICE (100)")
    machine(available=False, driver=False)
    assert "reports no device" in choose.find_devices().problem
    machine(available=False, driver=False, kept=True)
    assert "reports no device" in choose.find_devices().problem
    machine(gpu("H200", (9, 0)), available=False, kept=True)
    assert not choose.find_devices().problem


class FakeDriver:
    """Counts what is opened; as the driver's functions, these return 0 or an error's number."""

    def __init__(self, n_devices: int, error: int = 0) -> None:
        self.n_devices, self.error = n_devices, error
        self.opened: list[int] = []

    def cuInit(self, flags):
        return self.error

    def cuDeviceGetCount(self, count):
        count._obj.value = self.n_devices
        return 0

    def cuDeviceGet(self, device, ordinal):
        device._obj.value = ordinal
        assert ordinal < self.n_devices
        return 0

    def cuDevicePrimaryCtxRetain(self, context, device):
        self.opened.append(device.value)
        return 0


@pytest.mark.parametrize(
    ("text", "n_devices", "opened"),
    [
        ("auto", 1, [0]), ("cuda:any", 1, [0]), ("cuda", 1, [0]),
        ("auto", 4, []), ("cuda:any", 4, []),  # one that no other run holds
        ("cuda:1", 4, [1]), ("cuda:7", 4, []), (f"cuda:{10**20}", 1, []),
        ("cuda", 2, []), ("cuda:2,0,2", 4, []), ("cuda:0,0", 1, []),  # by processes of their own
        ("cuda", 0, []),
    ],
)  # fmt: skip
def test_the_device_of_a_run_is_opened_ahead(monkeypatch, text, n_devices, opened):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver = FakeDriver(n_devices)
    choose._open_devices(driver, text)
    assert driver.opened == opened


@pytest.mark.parametrize("devices", ["2", "2,3"])
def test_the_device_that_a_scheduler_assigned_is_opened_ahead(monkeypatch, devices):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    driver = FakeDriver(len(devices.split(",")))
    choose._open_devices(driver, "auto")
    assert driver.opened == [0] * (driver.n_devices == 1)


def test_a_driver_that_does_not_start_is_told_later():
    driver = FakeDriver(1, error=100)
    choose._open_devices(driver, "cuda")
    assert driver.opened == []


def test_nothing_is_opened_for_the_cpu_or_another_driver(monkeypatch):
    monkeypatch.setattr(choose, "_open_devices", lambda *_: pytest.fail("opened"))
    monkeypatch.setattr(choose, "_without_driver", lambda: False)
    monkeypatch.setattr(choose.ctypes, "CDLL", lambda _: pytest.fail("loaded"))
    choose.begin_opening("cpu")
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    choose.begin_opening("cuda")
