"""Choice of the CUDA devices of a run, with a lock on a device where no scheduler assigns them.

Slurm, LSF and Kubernetes set ``CUDA_VISIBLE_DEVICES`` to the devices of a job. Grid Engine, and a
machine without a scheduler, do not: runs that start together would all use device 0. So each
run locks a file that stands for a device, and holds it until it ends. The kernel releases the
lock when the process ends, for whatever reason.

The package filelock is no replacement: it opens lock files for writing and truncates them, so the
files of one user would have to be writable by all; it unlinks them on release, which the sticky
folder forbids to other users; and it follows a symbolic link in place of the folder.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import fcntl
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mapper.errors import DeviceError, UsageError, option
from mapper.parallel.pool import start_daemon

log = logging.getLogger(__name__)

FOLDER = Path("/tmp/fmwave-devices")
"""Lock files of the machine, not of the user or job: Grid Engine gives each job its own TMPDIR."""

POLL_SECONDS = 0.5

# --- locks ---


@contextmanager
def one_of(names: Sequence[str], sharers: int = 1) -> Iterator[int]:
    """Lock one of several devices that processes of this machine share; wait for a free one.

    Parameters
    ----------
    names
        Names of the devices, the same in every process (UUIDs).
    sharers
        Processes that may hold one device at the same time; devices are filled evenly.

    Yields
    ------
    The held name's position in `names`.

    Raises
    ------
    DeviceError
        If the lock files cannot be made.
    """
    try:
        folder = _open_folder()
    except OSError as error:
        raise _cannot_lock(error) from error
    try:
        held, position = _wait_for_one(folder, names, sharers)
    except OSError as error:
        raise _cannot_lock(error) from error
    finally:
        os.close(folder)
    try:
        yield position
    finally:
        os.close(held)  # gives the lock back


def _wait_for_one(folder: int, names: Sequence[str], sharers: int) -> tuple[int, int]:
    """Return the descriptor of a lock, and the position of its device."""
    waits = False
    while True:
        for share in range(sharers):
            for position, name in enumerate(names):
                held = _try_lock(folder, f"{name}.{share}")
                if held is not None:
                    return held, position
        if not waits:
            log.info(
                "waiting for a device: other runs hold all %d (locks in %s; %s takes a "
                "device without asking)",
                len(names), FOLDER, option("device", "cuda:0"),
            )  # fmt: skip
        waits = True
        time.sleep(POLL_SECONDS)


def _open_folder() -> int:
    try:
        FOLDER.mkdir()
        FOLDER.chmod(0o1777)  # other users make files here, and cannot remove those of others
    except FileExistsError:
        pass
    return os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _try_lock(folder: int, name: str) -> int | None:
    """Return the descriptor that holds the lock, or None if another process does."""
    file = _open_file(folder, name)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise
    return file


def _open_file(folder: int, name: str) -> int:
    """Open for reading, which is enough to lock a file of any user; make it if it is missing."""
    flags = os.O_RDONLY | os.O_NOFOLLOW
    while True:
        try:
            # Without O_CREAT, which the kernel may refuse in /tmp on another user's file.
            return os.open(name, flags, dir_fd=folder)
        except FileNotFoundError:
            pass
        try:
            file = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
        except FileExistsError:
            continue
        os.fchmod(file, 0o644)  # whatever the umask
        return file


def _cannot_lock(error: OSError) -> DeviceError:
    return DeviceError(
        f"no device can be locked in {FOLDER} ({error.strerror or error}); name "
        f"one with {option('device', 'cuda:0')}, or set CUDA_VISIBLE_DEVICES"
    )


# --- choice ---

CPU = "cpu"
CUDA = "cuda"
AUTO = "auto"
ANY = "cuda:any"

_PATTERN = re.compile(r"auto|cpu|cuda(:any|:\d+(,\d+)*)?")
EXPECTED = (
    "auto, cpu, cuda (all visible devices), cuda:0,2 (these) or cuda:any (as auto, but never the "
    "CPU) is expected"
)


_DEVICE_FILES = ("nvidiactl", "nvhost-gpu", "nvmap", "dxg")
"""Device files of NVIDIA's driver, of Jetson's two, and of Windows' subsystem for Linux."""
_NAMED_DRIVERS = ("NUMBA_CUDA_DRIVER", "NUMBA_ENABLE_CUDASIM")
"""Variables of numba that name a driver, or replace it by the simulator."""


class DeviceChoice(NamedTuple):
    """A backend and, for CUDA, the devices that share the work."""

    backend: str  # CPU or CUDA
    ordinals: tuple[int, ...] = ()
    """Visible CUDA devices, one worker each; one named twice works as two."""


class CudaDevice(NamedTuple):
    """Properties of a device, from the driver."""

    ordinal: int  # among the visible devices
    name: str
    compute_capability: tuple[int, int]
    problem: str  # why it cannot be used, or empty
    uuid: str = ""  # the same in every process, whatever is visible to it


class FoundDevices(NamedTuple):
    """The visible devices, or why there are none."""

    devices: tuple[CudaDevice, ...]
    problem: str  # empty if some device can be used


def check_device_name(text: str) -> None:
    """Raise UsageError unless `text` is a value of ``--device``; no device is asked."""
    if not isinstance(text, str) or not _PATTERN.fullmatch(text):
        raise UsageError(f"{option('device', text)}: {EXPECTED}")


def named_ordinals(text: str) -> tuple[int, ...]:
    """Return the devices that a value of ``--device`` names by their ordinals; none for others."""
    if not text.startswith("cuda:") or text == ANY:
        return ()
    return tuple(int(part) for part in text.removeprefix("cuda:").split(","))


def choose_device(text: str, *, say: bool = True) -> DeviceChoice:
    """Choose from ``auto``, ``cpu``, ``cuda``, ``cuda:any`` or ``cuda:0,2``.

    Ordinals count the visible devices: those that ``CUDA_VISIBLE_DEVICES`` names, from 0.
    ``auto`` takes every usable device, or the CPU if there is none, which is logged unless `say` is
    False; ``cuda:any`` takes the same devices, and their absence is an error.

    Raises
    ------
    UsageError
        If `text` is none of these.
    DeviceError
        If CUDA is requested and numba-cuda, the driver or a device is missing or too old.
    """
    check_device_name(text)
    if text == "cpu":
        return DeviceChoice(CPU)
    found = find_devices()
    usable = tuple(device.ordinal for device in found.devices if not device.problem)
    if text == AUTO:
        if usable:
            return DeviceChoice(CUDA, usable)
        if say:
            log.info("computing on the CPU: %s", found.problem)
        return DeviceChoice(CPU)
    if found.problem:
        raise DeviceError(f"{option('device', text)}: {found.problem}")
    if text in (CUDA, ANY):
        return DeviceChoice(CUDA, usable)
    ordinals = named_ordinals(text)
    for ordinal in ordinals:
        if ordinal >= len(found.devices):
            raise DeviceError(
                f"{option('device', text)}: there is no device {ordinal}; "
                f"{len(found.devices)} visible, counted from 0{_visible()}"
            )
        if found.devices[ordinal].problem:
            problem = found.devices[ordinal].problem
            raise DeviceError(f"{option('device', text)}: {problem}")
    return DeviceChoice(CUDA, ordinals)


def begin_opening(text: str) -> None:
    """Begin to open the device that a run will use, in a thread, while Python imports.

    The driver takes some tenths of a second to start and for the first context of a device, as long
    as importing numba-cuda, which then finds both done. Where it is not certain which device that
    is, or there are several, only the driver is started. :func:`choose_device` reports problems.

    Parameters
    ----------
    text
        Value of ``--device``.
    """
    if text == CPU or _without_driver() or any(map(os.environ.get, _NAMED_DRIVERS)):
        return
    with suppress(OSError, RuntimeError):  # no driver that may be loaded, or no thread more
        thread = start_daemon(partial(_open_devices, ctypes.CDLL("libcuda.so.1"), text))
        # A process that ended at once, as for a wrong option, would unload the driver meanwhile.
        atexit.register(thread.join)


def _open_devices(driver: ctypes.CDLL, text: str) -> None:
    """Start the driver, and make the context that numba-cuda will ask for, the primary one."""
    n_devices, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    try:
        count, find = driver.cuDeviceGetCount, driver.cuDeviceGet
        retain = driver.cuDevicePrimaryCtxRetain
        failed = driver.cuInit(0) or count(ctypes.byref(n_devices))
    except AttributeError:  # a library of that name without the driver's functions
        return
    if failed:
        return
    if ordinals := named_ordinals(text):
        pass
    elif n_devices.value == 1 or text == CUDA or "CUDA_VISIBLE_DEVICES" in os.environ:
        ordinals = tuple(range(n_devices.value))
    else:
        return  # one of several, which is locked first
    if len(ordinals) != 1:
        return  # each is opened by a process of its own
    if ordinals[0] < n_devices.value and not find(ctypes.byref(device), ordinals[0]):
        retain(ctypes.byref(context), device)  # until the process ends


@contextmanager
def hold_device(text: str, sharers: int = 1) -> Iterator[DeviceChoice]:
    """Choose as :func:`choose_device`, and lock the device if no scheduler has assigned it.

    If ``CUDA_VISIBLE_DEVICES`` is not set, ``auto`` and ``cuda:any`` take a single device that no
    other such run holds, wait if there is none, and hold it to the end of the ``with`` block or of
    the process. Devices that are named (``cuda``, ``cuda:0``) are taken without a lock.

    Parameters
    ----------
    text
        Value of ``--device``.
    sharers
        Runs that may hold one device at the same time; all must give the same number. Each plans
        with its part of the device's memory.

    Raises
    ------
    UsageError, DeviceError
        As :func:`choose_device`; and if a lock file cannot be made.
    """
    choice = choose_device(text)
    if choice.backend == CPU:
        yield choice
        return
    from mapper.cuda.memory import shared_by

    devices = find_devices().devices
    if text not in (AUTO, ANY) or "CUDA_VISIBLE_DEVICES" in os.environ:
        _log_devices(choice, devices)
        with shared_by(sharers):
            yield choice
        return
    names = [devices[ordinal].uuid or f"device-{ordinal}" for ordinal in choice.ordinals]
    with one_of(names, sharers) as position, shared_by(sharers):
        held = choice._replace(ordinals=(choice.ordinals[position],))
        _log_devices(held, devices)
        yield held


def _log_devices(choice: DeviceChoice, devices: tuple[CudaDevice, ...]) -> None:
    log.info(
        "computing on %s",
        ", ".join(f"cuda:{ordinal} ({devices[ordinal].name})" for ordinal in choice.ordinals),
    )


SUPPORTED_CAPABILITY = (8, 0)
"""From this compute capability on, all compilers that numba-cuda uses support a device. To load one
and ask it takes 0.04 s."""


def _without_driver() -> bool:
    """Return True if there is no driver library and no device file, and so no device.

    Importing numba-cuda to find that out would take a quarter of the time of a short run. If
    there is any trace of a driver, numba-cuda is asked.
    """
    if sys.platform != "linux" or any(map(os.environ.get, _NAMED_DRIVERS)):
        return False
    if any(Path("/dev", name).exists() for name in _DEVICE_FILES):
        return False
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True
    return False


def find_devices() -> FoundDevices:
    """Return the visible CUDA devices, or the reason for there being none; nothing is raised."""
    if _without_driver():
        return FoundDevices((), "no CUDA device can be used: there is no driver (libcuda.so.1)")
    try:
        from mapper.cuda.api import INSTALL, SIMULATED, cuda, cuda_driver, lowest_capability
    except DeviceError as error:
        return FoundDevices((), str(error))
    if SIMULATED:
        simulated = CudaDevice(0, "numba's CUDA simulator", (5, 2), "", "simulator")
        return FoundDevices((simulated,), "")
    if not _is_usable():
        missing = cuda.cuda_error() or "the driver reports no device"
        if cuda_driver.driver.is_available:
            missing = f"its compiler (NVVM) is missing; {INSTALL}"
        reason = " ".join(str(missing).split())
        return FoundDevices((), f"no CUDA device can be used: {reason}{_visible()}")
    devices = []
    for ordinal, entry in enumerate(cuda.gpus):
        device = entry._device
        capability = tuple(device.compute_capability)
        problem = ""
        if capability < SUPPORTED_CAPABILITY and capability < (lowest := lowest_capability()):
            problem = (
                f"device {ordinal} ({device.name}) has compute capability "
                f"{_dotted(capability)}; at least {_dotted(lowest)} is needed"
            )
        devices.append(CudaDevice(ordinal, device.name, capability, problem, device.uuid))
    problems = [device.problem for device in devices]
    return FoundDevices(tuple(devices), "; ".join(problems) if all(problems) else "")


def _is_usable() -> bool:
    """Return True if there are a driver and a compiler, so far as the run needs one."""
    from mapper.cuda.api import cuda, cuda_driver
    from mapper.cuda.kernel_code import any_kept

    # To look for the compiler takes 0.05 s, and kernels that are kept were compiled by one.
    with suppress(cuda_driver.CudaSupportError):
        if any_kept() and cuda_driver.driver.is_available:
            return True
    return bool(cuda.is_available())


def describe_devices() -> list[str]:
    """Return a line for each visible device, or one with the reason for there being none."""
    found = find_devices()
    if not found.devices:
        return [f"none; {found.problem}"]
    from mapper.cuda.api import device_context, is_driver_error, problem_of
    from mapper.cuda.memory import free_bytes, total_bytes

    lines = []
    for device in found.devices:
        line = f"cuda:{device.ordinal} {device.name}, compute capability "
        line += _dotted(device.compute_capability)
        if device.problem:
            lines.append(f"{line}; cannot be used: {device.problem}")
            continue
        try:
            with device_context(device.ordinal):
                line += f", {total_bytes() / 1e9:.1f} GB of memory"
                line += f", {free_bytes() / 1e9:.1f} GB free"
        except Exception as error:
            if not is_driver_error(error):
                raise
            # Its memory is full, or it is in another process's exclusive mode.
            line += f"; cannot be used now: {problem_of(error)}"
        lines.append(line)
    return lines


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _visible() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
