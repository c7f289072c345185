"""Measure the memory that is available to this process, and that it has used; huge pages."""

from __future__ import annotations

import resource
from pathlib import Path

from mapper.errors import ResourceError

_CGROUP = Path("/sys/fs/cgroup")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def available_bytes() -> int | None:
    """Return the memory available to this process, or None if the system does not tell.

    That is the smaller of the kernel's MemAvailable and the rest of the limits of every control
    group (version 1 or 2) of this process: in a container or a batch job the latter kills the
    process. A group's page cache counts as free, because the kernel drops it first.
    """
    left = [value for value in (_meminfo_available(), *_cgroup_left()) if value is not None]
    return min(left) if left else None


def require_bytes(needed: int, what: str, remedy: str) -> None:
    """Raise ResourceError if `needed` bytes are more than is available.

    Parameters
    ----------
    what
        Subject of the message, which needs the memory.
    remedy
        Advice for the user.
    """
    available = available_bytes()
    if available is not None and needed > available:
        raise ResourceError(
            f"{what} needs about {needed / 1e9:.1f} GB of memory, and "
            f"{available / 1e9:.1f} GB are available; {remedy}"
        )


def peak_bytes() -> int:
    """Return the largest resident memory of this process so far."""
    status = _read(Path("/proc/self/status"))
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def gives_huge_pages() -> bool:
    """Return True if Linux gives huge pages to a process that asks for them."""
    setting = _read(_HUGE_PAGES)
    return "[always]" in setting or "[madvise]" in setting


def _meminfo_available() -> int | None:
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_left() -> list[int | None]:
    """Return the rest of the limit of each control group, from ours up to the root."""
    left: list[int | None] = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, files = _CGROUP, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = _CGROUP / "memory"
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = root / path.lstrip("/")
        while True:
            left.append(_group_left(group, *files))
            if group == root:
                break
            group = group.parent
    return left


def _group_left(group: Path, limit_file: str, usage_file: str, cache_key: str) -> int | None:
    limit, usage = _read(group / limit_file).strip(), _read(group / usage_file).strip()
    if not (limit.isdigit() and usage.isdigit()):
        return None  # "max", or no such group in this mount
    cache = 0
    for line in _read(group / "memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key == cache_key:
            cache = int(value)
    return max(0, int(limit) - int(usage) + cache)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
