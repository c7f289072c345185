"""Launches and copies issued by compiled code: their arguments, and errors of the driver.

No device is needed: Python functions take the place of the driver's.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, c_int, c_size_t, c_uint, c_uint64, c_void_p
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numba
import numpy as np
import pytest

from mapper.cuda.arguments import DeviceArray
from mapper.errors import DeviceError, DeviceMemoryError

STREAM = 0x7FFF_1234_5678_9AB0
EVENT = 0x7FFE_1234_5678_9AB0
KINDS = {
    "cuLaunchKernel": [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
    "cuStreamQuery": [c_void_p],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuPointerGetAttribute": [c_void_p, c_int, c_uint64],
}
"""As NVIDIA's cuda.h declares them."""


class PretendedDriver:
    """Notes what its functions are called with, and returns what it is told."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.returns: dict[str, int] = {}
        self.locked: set[int] = set()  # addresses of page-locked memory
        self.of_device: set[int] = set()
        self.lib = SimpleNamespace(**{name: self._function(name) for name in KINDS})

    def _function(self, name: str) -> Any:
        def called(*args: Any) -> int:
            if name == "cuPointerGetAttribute":
                found, attribute, address = args
                assert attribute == 2  # the kind of memory
                c_uint.from_address(found).value = 2 if address in self.of_device else 1
                return 0 if address in self.locked | self.of_device else 1
            self.made.append((name, *args))
            return self.returns.get(name, 0)

        return CFUNCTYPE(c_int, *KINDS[name])(called)


class PretendedKernel:
    """A bound kernel of 64 threads in a block, as :class:`Calls` uses it."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def noted(self, n_blocks: int, numbers: Any) -> tuple[int, ...]:
        return self.handle, n_blocks, 64, numbers.get(1, 0), 2**48 + self.handle


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Any:
    if numba.config.ENABLE_CUDASIM or numba.config.DISABLE_JIT:
        pytest.skip("the simulator makes all calls at once")
    pytest.importorskip("numba_cuda")
    from numba.cuda.cudadrv import driver as numbas

    from mapper.cuda import launch

    found = PretendedDriver()
    launch.driver_functions.cache_clear()
    monkeypatch.setattr(numbas, "driver", found)
    monkeypatch.setattr(numbas, "_stream_handle", lambda stream: STREAM)
    yield SimpleNamespace(
        driver=found,
        calls=launch.Calls("a stream", SimpleNamespace(handle=EVENT)),
        room=launch._MOST,
    )
    launch.driver_functions.cache_clear()


def test_calls_are_made_in_order_with_all_their_arguments(pretended) -> None:
    driver, launch = pretended.driver, pretended.calls
    there = DeviceArray(None, 2**47 + 64, (100,), np.dtype(np.int32))
    host = np.arange(10, dtype=np.int32)
    columns = np.zeros(8, np.int32)
    launch.copy_in(there, 3, host[2:7])
    launch.launch(PretendedKernel(2**46 + 1), 2**31 + 5, {1: 99})
    launch.copy_out(columns, there)
    launch.copy_out(columns[:0], there)
    launch.copy_in(there, 3, host[:0])
    assert driver.made == []
    launch.make()
    assert driver.made == [
        ("cuMemcpyHtoDAsync_v2", there.address + 12, host.ctypes.data + 8, 20, STREAM),
        ("cuLaunchKernel", 2**46 + 1, 2**31 + 5, 1, 1, 64, 1, 1, 99, STREAM,
         2**48 + 2**46 + 1, None),
        ("cuMemcpyDtoHAsync_v2", columns.ctypes.data, there.address, 32, STREAM),
    ]  # fmt: skip
    launch.make()
    assert len(driver.made) == 3


def test_a_kernel_is_launched_before_it_is_given_other_numbers(pretended) -> None:
    one, other = PretendedKernel(16), PretendedKernel(32)
    for i, bound in enumerate((one, other, one, other)):
        pretended.calls.launch(bound, 1, {1: i})
    assert [call[8] for call in pretended.driver.made] == [0, 1]
    pretended.calls.make()
    assert [call[8] for call in pretended.driver.made] == [0, 1, 2, 3]


def test_any_number_of_calls_is_made(pretended) -> None:
    there = DeviceArray(None, 64, (100,), np.dtype(np.int8))
    host = np.zeros(4 * pretended.room, np.int8)
    for i in range(2 * pretended.room + 3):
        pretended.calls.copy_in(there, i, host[: i + 1])
    pretended.calls.make()
    assert [call[3] for call in pretended.driver.made] == list(range(1, 2 * pretended.room + 4))


def test_what_the_driver_refuses_is_raised_and_ends_the_rest(pretended) -> None:
    driver, launch = pretended.driver, pretended.calls
    there = DeviceArray(None, 64, (100,), np.dtype(np.int8))
    host = np.zeros(4, np.int8)
    for number, error, name in (
        (1, DeviceError, "CUDA_ERROR_INVALID_VALUE"),
        (2, DeviceMemoryError, "CUDA_ERROR_OUT_OF_MEMORY"),
        (123_456, DeviceError, "error 123456"),
    ):
        driver.returns["cuMemcpyHtoDAsync_v2"] = number
        launch.copy_out(host, there)
        launch.copy_in(there, 0, host)
        launch.copy_out(host, there)
        with pytest.raises(error, match=f"cuMemcpyHtoDAsync_v2 returned {name}$"):
            launch.make()
        launch.make()  # nothing is left of it
    assert [call[0][8:12] for call in driver.made] == ["DtoH", "HtoD"] * 3
    launch.copy_out(host, there)
    launch.forget()
    launch.make()
    assert len(driver.made) == 6


def test_what_is_queued_at_once_has_all_its_arguments_too(pretended) -> None:
    from mapper.cuda import api, memory

    driver = pretended.driver
    there = DeviceArray(None, 2**47 + 64, (100,), np.dtype(np.int32))
    host = np.arange(10, dtype=np.int32)
    table = (c_void_p * 1)()
    loaded = api.Loaded(2**46 + 1, False)
    api.launch_loaded(loaded, 2**31 + 5, 64, STREAM, 99, table)
    memory.queue_in(there, 3, host[2:7], "a stream")
    memory.queue_out(host[1:], there, "a stream")
    memory.queue_in(there, 3, host[:0], "a stream")
    memory.queue_out(host[:0], there, "a stream")
    space = memory.Workspace(memory.Recycler(memory.pinned_bytes), stream="a stream")
    space._done = SimpleNamespace(handle=EVENT)
    space.synchronize()
    assert driver.made == [
        ("cuLaunchKernel", loaded.handle, 2**31 + 5, 1, 1, 64, 1, 1, 99, STREAM,
         ctypes.addressof(table), None),
        ("cuMemcpyHtoDAsync_v2", there.address + 12, host.ctypes.data + 8, 20, STREAM),
        ("cuMemcpyDtoHAsync_v2", host.ctypes.data + 4, there.address, 36, STREAM),
        ("cuEventRecord", EVENT, STREAM),
        ("cuEventSynchronize", EVENT),
    ]  # fmt: skip
    driver.returns.update(dict.fromkeys(KINDS, 2))
    with pytest.raises(DeviceMemoryError, match="cuLaunchKernel"):
        api.launch_loaded(loaded, 1, 64, STREAM, 0, table)
    with pytest.raises(DeviceMemoryError, match="cuMemcpyHtoDAsync_v2"):
        memory.queue_in(there, 0, host, "a stream")
    with pytest.raises(DeviceMemoryError, match="cuMemcpyDtoHAsync_v2"):
        memory.queue_out(host, there, "a stream")
    with pytest.raises(DeviceMemoryError, match="cuEventSynchronize"):
        space.synchronize()


def test_waiting_makes_the_calls_first(pretended) -> None:
    driver, launch = pretended.driver, pretended.calls
    waiting = [("cuEventRecord", EVENT, STREAM), ("cuEventSynchronize", EVENT)]
    launch.launch(PretendedKernel(16), 1, {})
    launch.wait()
    assert driver.made[0][:2] == ("cuLaunchKernel", 16)
    assert driver.made[1:] == waiting
    launch.wait()
    assert driver.made[3:] == waiting


@pytest.mark.parametrize("refusing", ["cuLaunchKernel", "cuEventRecord", "cuEventSynchronize"])
def test_what_fails_before_or_while_it_waits_is_raised(pretended, refusing: str) -> None:
    driver, launch = pretended.driver, pretended.calls
    driver.returns[refusing] = 700
    launch.launch(PretendedKernel(16), 1, {})
    with pytest.raises(DeviceError, match=f"{refusing} returned CUDA_ERROR_ILLEGAL_ADDRESS$"):
        launch.wait()
    assert driver.made[-1][0] == refusing
    driver.returns.clear()
    launch.wait()
    assert [call[0] for call in driver.made[-2:]] == ["cuEventRecord", "cuEventSynchronize"]


def test_page_locked_memory_is_found_by_both_ends(pretended) -> None:
    from mapper.cuda.launch import find_page_locked

    pretended.driver.locked = {1000, 1099, 2000, 3000, 3199, 6000}
    pretended.driver.of_device = {5000, 5099}
    spans = [(1000, 100), (2000, 100), (3000, 99), (3000, 200), (4000, 100), (5000, 100), (6000, 1)]
    found = np.ones(len(spans), np.bool_)
    find_page_locked(np.array(spans, np.int64), 100, found)
    assert found.tolist() == [True, False, False, True, False, False, False]
    find_page_locked(np.array(spans, np.int64), 0, found)
    assert found.tolist() == [True, False, False, True, False, False, True]


def test_arrays_are_page_locked_if_all_are_and_have_no_gaps(pretended) -> None:
    from mapper.cuda.launch import is_page_locked

    one, other = np.zeros((4, 4), np.int8), np.zeros(3, np.int64)
    ends = [{array.ctypes.data, array.ctypes.data + array.nbytes - 1} for array in (one, other)]
    pretended.driver.locked = ends[0]
    assert is_page_locked([one])
    assert not is_page_locked([one, other])
    pretended.driver.locked = ends[0] | ends[1]
    assert is_page_locked([one, other])
    assert not is_page_locked([one.T])


def test_a_stream_says_whether_it_is_done(pretended) -> None:
    driver, launch = pretended.driver, pretended.calls
    assert launch.is_done()
    driver.returns["cuStreamQuery"] = 600
    assert not launch.is_done()
    driver.returns["cuStreamQuery"] = 700
    with pytest.raises(DeviceError, match="cuStreamQuery returned CUDA_ERROR_ILLEGAL_ADDRESS"):
        launch.is_done()
    assert driver.made == [("cuStreamQuery", STREAM)] * 3


def test_the_drivers_functions_are_there_under_these_names(pretended) -> None:
    from mapper.cuda.launch import driver_functions

    library = pretended.driver.lib
    addresses = [ctypes.cast(getattr(library, name), c_void_p).value for name in KINDS]
    assert driver_functions().tolist() == addresses
    with mock.patch.object(pretended.driver, "lib", SimpleNamespace()):
        driver_functions.cache_clear()
        with pytest.raises(AttributeError, match="cuLaunchKernel"):
            driver_functions()
