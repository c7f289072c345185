"""Kernels, cores inside them, uploads and workspaces: on a device or in the simulator."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from numba import types

from mapper.host_memory import gives_huge_pages
from mapper.index.reference import ContigBounds
from mapper.jit.accelerate import announce_compiling
from tests.helpers.offline_compile import array, compile_offline, require_compiler

WORDS = np.array(
    [0, 1, 2**63, 2**64 - 1, 0x8000000080000000, *(3 << s for s in range(0, 62, 2))], np.uint64
)


class Pair(NamedTuple):
    words: np.ndarray
    scale: int


def expected_counts(words):
    rows = []
    for word in words.tolist():
        text = f"{word:064b}"
        rows += [text.count("1"), len(text) - len(text.lstrip("0")),
                 len(text) - len(text.rstrip("0"))]  # fmt: skip
    return rows


def test_compiling_kernels_is_announced(caplog):
    require_compiler()
    from tests.helpers.small_kernels import sum_in_64_bits

    announce_compiling.cache_clear()
    with caplog.at_level("INFO", "mapper.jit"):
        compile_offline(sum_in_64_bits, (array(np.int64), types.int64, array(np.int64)))
    assert [message.partition(" that")[0] for message in caplog.messages] == ["compiling code"]


@pytest.mark.gpu
def test_bit_counts_on_the_device(device):
    from mapper.cuda.memory import Workspace
    from tests.helpers.small_kernels import count_bits

    space = Workspace()
    for words in (WORDS, WORDS[:0], WORDS[::-1]):
        uploaded = space.upload("words", words)
        out = space.device("out", 3 * len(words), np.int64)
        count_bits.launch(len(words), space.stream, uploaded, len(words), out)
        counts = space.download("out", out)
        space.synchronize()
        assert counts.tolist() == expected_counts(words)


@pytest.mark.gpu
def test_kernels_stay_loaded_until_the_process_ends(device):
    from mapper.cuda.api import SIMULATED, cuda
    from mapper.cuda.memory import Workspace
    from tests.helpers.small_kernels import count_bits

    if SIMULATED:
        pytest.skip("the simulator loads nothing")
    space = Workspace()
    words, out = space.upload("words", WORDS), space.device("out", 3 * len(WORDS), np.int64)
    count_bits.launch(len(WORDS), space.stream, words, len(WORDS), out)
    space.synchronize()
    modules = list(cuda.current_context().modules.values())
    assert modules
    assert not any(module._finalizer.alive for module in modules)


@pytest.mark.gpu
def test_upload_keeps_type_numbers_and_content(device):
    from mapper.cuda.upload import upload

    pair = upload(Pair(WORDS, 7), "the pair")
    assert type(pair) is Pair
    assert pair.scale == 7
    assert pair.words.copy_to_host().tolist() == WORDS.tolist()


@pytest.mark.gpu
@pytest.mark.parametrize("least", [8, 1 << 20])
def test_large_arrays_are_uploaded_by_threads_in_pieces(device, monkeypatch, least):
    from mapper.cuda import upload

    monkeypatch.setattr(upload, "PIECE_BYTES", 40)
    monkeypatch.setattr(upload, "LEAST_PIECE_BYTES", least)
    table = np.arange(210, dtype=np.uint16).reshape(70, 3)
    table.flags.writeable = False  # as the maps of files are
    bounds = ContigBounds(table, np.zeros(0, np.int64))
    there = upload.upload(bounds, "the bounds")
    assert there.starts.shape == (70, 3)
    assert there.starts.copy_to_host().tolist() == table.tolist()
    assert len(there.lengths) == 0


@pytest.mark.gpu
def test_a_workspace_grows_and_is_reused(device):
    from mapper.cuda.memory import Workspace

    space = Workspace()
    for n in (3, 100, 7, 100_000, 0):
        for dtype in (np.uint8, np.uint32, np.int64):
            array = space.upload("a", np.arange(n).astype(dtype))
            assert array.dtype == dtype
            back = space.download("a", array)
            space.synchronize()
            assert np.array_equal(back, np.arange(n).astype(dtype))
    space.release()
    assert len(space.upload("a", WORDS)) == len(WORDS)


@pytest.mark.gpu
def test_results_are_the_callers_until_let_go(device):
    from mapper.cuda.memory import Workspace

    space = Workspace()

    def result(n):
        (host,) = space.download_results("result", [space.upload("a", np.arange(n))])
        space.synchronize()
        return host

    first = result(100)
    tail, place = first[50:], first.ctypes.data
    del first
    second = result(100)
    assert second.ctypes.data != place
    assert tail.tolist() == list(range(50, 100))
    del tail
    assert result(90).ctypes.data == place
    assert second.tolist() == list(range(100))


@pytest.mark.gpu
def test_what_cannot_fit_is_refused_before_it_is_copied(device, monkeypatch):
    from mapper.cuda import upload
    from mapper.errors import DeviceMemoryError

    monkeypatch.setattr(upload, "free_bytes", lambda: 8)
    with pytest.raises(DeviceMemoryError, match="the pair takes"):
        upload.upload(Pair(WORDS, 7), "the pair")


def test_threads_load_kernels_one_at_a_time(monkeypatch):
    """numba-cuda 0.30.4 aborts where two threads load kernels at once."""
    pytest.importorskip("numba_cuda")
    from mapper.cuda import api

    entered = threading.Lock()
    loaded = []

    class Compiled:
        def typeof_pyval(self, value):
            return type(value)

        def compile(self, types):
            assert entered.acquire(blocking=False), "two kernels loaded at a time"
            time.sleep(0.002)
            loaded.append(types)
            entered.release()
            module = SimpleNamespace(_finalizer=SimpleNamespace(detach=lambda: None))
            code = bytes([len(loaded)])
            library = SimpleNamespace(
                get_cufunc=lambda: SimpleNamespace(module=module), _entry_name="entry",
                get_cubin=lambda: SimpleNamespace(code=code),
            )  # fmt: skip
            return SimpleNamespace(_codelibrary=library, cooperative=False)

    context = SimpleNamespace(device=SimpleNamespace(id=0, compute_capability=(9, 0)))
    monkeypatch.setattr(api.cuda, "current_context", lambda: context)
    monkeypatch.setattr(api.kernel_code, "find", lambda *_: _[-1]())
    monkeypatch.setattr(api, "_load", lambda code: api.Loaded(code.cubin[0], False))
    kernels = [api.Kernel(lambda: None, 32) for _ in range(5)]
    for kernel in kernels:
        monkeypatch.setattr(kernel, "compiled", Compiled())
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(k.function_for, [int], (1,)) for _ in range(4) for k in kernels]
    handles = [future.result() for future in found]
    assert handles[:5] == handles[5:10] == handles[10:15] == handles[15:]
    assert loaded == [(int,)] * 5


def test_contexts_are_made_in_threads_that_have_none(monkeypatch):
    pytest.importorskip("numba_cuda")
    from mapper.cuda import api

    made = []
    devices = [
        SimpleNamespace(get_primary_context=lambda n=n: made.append((n, threading.get_ident())))
        for n in range(2)
    ]
    monkeypatch.setattr(api, "cuda", SimpleNamespace(gpus=devices))
    monkeypatch.setattr(api, "SIMULATED", False)
    monkeypatch.setattr(api, "_CONTEXTS", set())
    for n in (0, 1, 0, 1):
        assert api.device_context(n) is devices[n]
    assert [n for n, _ in made] == [0, 1]
    assert threading.get_ident() not in [thread for _, thread in made]


@pytest.mark.gpu
def test_devices_become_current_inside_each_other(device):
    """In a new process, where no device has a context yet."""
    from mapper.cuda.devices import find_devices

    if len(find_devices().devices) < 2:
        pytest.skip("needs two devices")
    code = """
from mapper.cuda.api import cuda, device_context
for _ in range(2):
    with device_context(0):
        with device_context(1):
            with device_context(0):
                assert cuda.current_context().device.id == 0
            assert cuda.current_context().device.id == 1
        assert cuda.current_context().device.id == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bit_counts_are_single_instructions():
    require_compiler()
    from tests.helpers.small_kernels import count_bits

    machine = compile_offline(count_bits, (array(np.uint64), types.int64, array(np.int64)))
    assert machine.count("POPC") > 0
    assert machine.count("FLO") > 0
    assert machine.spills == 0
    assert machine.count("CALL") == 0


def test_memory_to_be_locked_asks_for_large_pages():
    pytest.importorskip("numba_cuda", reason="needs the package numba-cuda")
    from mapper.cuda.memory import _own_pages

    pages = _own_pages(1 << 22)
    entries = re.split(r"\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text())
    (entry,) = (
        entry
        for entry in entries
        if int(entry.partition("-")[0], 16) <= pages.ctypes.data
        < int(entry.partition("-")[2].split()[0], 16)
    )  # fmt: skip
    assert entry.split()[1] == "rw-p"  # private: few systems give large pages to shared memory
    (flags,) = re.findall("^VmFlags:(.*)", entry, re.MULTILINE)
    assert "hg" in flags.split() or not gives_huge_pages()
