"""Page-locked memory of our own, and threads that stay on a device: on a real device only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs the package numba-cuda")

from mapper.cuda import memory
from mapper.cuda.api import SIMULATED, cuda, cuda_driver, device_context, stay_on
from mapper.cuda.launch import is_page_locked, upload_in_place
from mapper.cuda.memory import Workspace, copy_in, copy_out, page_locked, pinned_bytes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(SIMULATED or not cuda.is_available(), reason="no CUDA device"),
]
SIZES = [1000, memory._LEAST_OWN_PAGES, (5 << 20) + 123]


def in_new_thread(call: Any) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


@pytest.mark.parametrize("n", SIZES)
def test_memory_is_locked_and_can_be_copied(n: int) -> None:
    with device_context(0):
        host, back, stream = pinned_bytes(n), pinned_bytes(n), cuda.stream()
        assert is_page_locked([host, back[n // 2 :]])
        host[:] = np.arange(n) % 251
        array = cuda.device_array(n, np.uint8)
        copy_in(array, host, n, stream)
        copy_out(back, array, n, stream)
        stream.synchronize()
        np.testing.assert_array_equal(back, np.arange(n) % 251)
        assert not is_page_locked([np.zeros(n, np.uint8)])


def test_memory_is_unlocked_by_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by one that has no device; the view that is left keeps it."""
    unlocked = []
    unlock = memory._unlock

    def noting(address: int, *args: Any) -> None:
        unlock(address, *args)
        unlocked.append(address)

    monkeypatch.setattr(memory, "_unlock", noting)
    with device_context(0):
        held = [pinned_bytes(SIZES[1])[7:]]
        address = held[0].ctypes.data - 7
        assert is_page_locked(held)
        held[0] = held[0][5:]
    assert unlocked == []
    in_new_thread(held.clear)
    assert unlocked == [address]


def test_where_the_driver_refuses_our_pages_it_gives_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise cuda_driver.CudaAPIError(801, "CUDA_ERROR_NOT_SUPPORTED")

    with device_context(0), monkeypatch.context() as patched:
        patched.setattr(cuda_driver.driver, "cuMemHostRegister", refuse, raising=False)
        assert is_page_locked([pinned_bytes(SIZES[2])])


def test_a_kind_of_page_locked_memory_is_used_again() -> None:
    with device_context(0):
        first = page_locked(SIZES[2], np.dtype(np.uint8), "a kind")
        address = first.ctypes.data
        del first
        again = page_locked(SIZES[2] + 1000, np.dtype(np.uint8), "a kind")
        assert again.ctypes.data == address


@pytest.mark.parametrize("n", SIZES)
def test_columns_are_fetched_from_where_they_are_locked(n: int) -> None:
    with device_context(0):
        locked = [pinned_bytes(n), pinned_bytes(n + 5)[5:]]
        ordinary = [np.zeros(n, np.uint8) for _ in locked]
        for i, columns in enumerate(zip(locked, ordinary, strict=True)):
            for column in columns:
                column[:] = (np.arange(n) + i) % 251
        space = Workspace()
        for name, columns in (("locked", locked), ("ordinary", ordinary)):
            found = space.download(name, upload_in_place(space, name, columns))
            space.synchronize()
            np.testing.assert_array_equal(found, np.concatenate(ordinary))
            assert (f"{name}" in space._pinned) == (name == "ordinary")


def test_a_thread_stays_on_its_device() -> None:
    def current() -> int:
        return int(cuda_driver.driver.cuCtxGetCurrent())

    def stay() -> list[int]:
        stay_on(0)
        found = [current()]
        with device_context(0):
            found.append(current())
        stay_on(0)
        return [*found, current()]

    with device_context(0):
        wanted = int(cuda.current_context().handle)
    assert in_new_thread(stay) == [wanted] * 3
