"""Which of the devices' streams for BGZF a run opens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from mapper.errors import UsageError
from mapper.mapping.device_io import (
    AUTO,
    DEVICE,
    FEW_THREADS,
    HOST,
    DeviceIO,
    open_device_io,
)

pytest.importorskip("numba_cuda")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names in place of the streams, and nvCOMP installed."""
    from mapper.cuda import nvcomp
    from mapper.io import bgzf_cuda

    @contextmanager
    def named(name: str, *_: object) -> Iterator[str]:
        yield name

    monkeypatch.setattr(nvcomp, "load", lambda: SimpleNamespace(version="6.0.0"))
    monkeypatch.setattr(bgzf_cuda, "device_inflater", lambda *_: named("inflater"))
    monkeypatch.setattr(bgzf_cuda, "device_deflater", lambda *_: named("deflater"))


def opened(ordinal: int | None, compress_on: str, threads: int) -> tuple[Any, Any]:
    with ExitStack() as stack:
        io = open_device_io(stack, ordinal, compress_on, 1, threads)
        return io.inflater, io.deflater


@pytest.mark.usefixtures("streams")
def test_a_device_decompresses_where_threads_are_few() -> None:
    few = FEW_THREADS - 1
    assert opened(0, AUTO, few) == ("inflater", "deflater")
    assert opened(0, AUTO, few + 1) == (None, "deflater")
    assert opened(0, HOST, few) == ("inflater", None)
    assert opened(0, HOST, few + 1) == (None, None)


@pytest.mark.usefixtures("streams")
def test_processes_of_devices_compress_and_do_no_more() -> None:
    servers: Any = SimpleNamespace(deflater=lambda level: nullcontext(f"level {level}"))
    with ExitStack() as stack:
        for compress_on, deflater in ((AUTO, "level 3"), (DEVICE, "level 3"), (HOST, None)):
            io = open_device_io(stack, None, compress_on, 3, 1, servers)
            assert io == DeviceIO(deflater=deflater)
        small: Any = SimpleNamespace(deflater=lambda level: nullcontext(None))
        assert open_device_io(stack, None, AUTO, 3, 1, small) == DeviceIO()
        with pytest.raises(UsageError, match="memory is too small"):
            open_device_io(stack, None, DEVICE, 3, 1, small)


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("threads", [FEW_THREADS - 1, FEW_THREADS])
def test_devices_decompress_temporary_files_at_need(threads: int) -> None:
    with ExitStack() as stack:
        io = open_device_io(stack, 0, AUTO, 1, threads)
        assert io.open_inflater is not None
        assert io.open_inflater() == io.open_inflater() == "inflater"


@pytest.mark.usefixtures("streams")
def test_there_are_none_without_a_device() -> None:
    assert opened(None, AUTO, 1) == opened(None, HOST, 1) == (None, None)
    with pytest.raises(UsageError, match="needs a CUDA device"):
        opened(None, DEVICE, 1)


def test_nvcomp_is_asked_for_only_if_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    from mapper.cuda import nvcomp

    monkeypatch.setattr(nvcomp, "load", lambda: None)
    assert opened(0, AUTO, 1) == (None, None)
    with pytest.raises(UsageError, match="needs nvCOMP 6, which is not installed"):
        opened(0, DEVICE, 1)
