"""Choice of device: names, what is missing, and what `auto` makes of it."""

from __future__ import annotations

import logging

import pytest

from mapper.device import choose
from mapper.device.choose import CudaDevice, DeviceChoice, FoundDevices, choose_device
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


@pytest.mark.parametrize("text", ["auto", "cuda"])
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
    for text in ("cuda", "cuda:0"):
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
