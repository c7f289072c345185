"""Copies between arrays of the host and of a device, queued on a stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from mapper.cuda.api import SIMULATED, driver

if SIMULATED:

    def copy_in(array: Any, host: np.ndarray, n: int, stream: Any) -> None:
        """Queue the copy of the first n items of a host array to a device array's first."""
        array[:n].copy_to_device(host[:n])

    def copy_in_at(array: Any, at: int, host: np.ndarray, stream: Any) -> None:
        """Queue the copy of a host array to a device array, from its item `at` on."""
        if len(host):
            array[at : at + len(host)].copy_to_device(host)

    def copy_out(host: np.ndarray, array: Any, n: int, stream: Any) -> None:
        """Queue the copy of the first n items of a device array to a host array's first."""
        array[:n].copy_to_host(host[:n])

else:
    # A slice of a device array takes numba longer than the driver takes to queue the copy.
    def copy_in(array: Any, host: np.ndarray, n: int, stream: Any) -> None:
        """Queue the copy of the first n items of a host array to a device array's first."""
        driver.host_to_device(array, host, n * host.itemsize, stream=stream)

    def copy_in_at(array: Any, at: int, host: np.ndarray, stream: Any) -> None:
        """Queue the copy of a host array to a device array, from its item `at` on."""
        if len(host):
            driver.driver.cuMemcpyHtoDAsync(
                driver.device_pointer(array) + at * host.itemsize,
                driver.host_pointer(host, readonly=True), host.nbytes,
                driver._stream_handle(stream),
            )  # fmt: skip

    def copy_out(host: np.ndarray, array: Any, n: int, stream: Any) -> None:
        """Queue the copy of the first n items of a device array to a host array's first."""
        driver.device_to_host(host, array, n * host.itemsize, stream=stream)
