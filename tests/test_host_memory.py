"""Read the available memory from the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mapper import host_memory
from mapper.errors import ResourceError

GB = 10**9
MEMINFO = f"MemTotal: 64000000 kB\nMemAvailable: {50 * GB // 1024} kB\n"


def kernel_says(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    monkeypatch.setattr(host_memory, "_read", lambda path: files.get(str(path), ""))


def test_version_2_takes_the_tightest_group_on_the_way_to_the_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = "/sys/fs/cgroup/slurm/job_1"
    files = {
        "/proc/meminfo": MEMINFO,
        "/proc/self/cgroup": "0::/slurm/job_1/step_0\n",
        f"{job}/step_0/memory.max": "max\n",
        f"{job}/step_0/memory.current": "5\n",
        f"{job}/memory.max": f"{8 * GB}\n",
        f"{job}/memory.current": f"{3 * GB}\n",
        f"{job}/memory.stat": f"anon 7\ninactive_file {1 * GB}\n",
    }
    kernel_says(monkeypatch, files)
    assert host_memory.available_bytes() == 6 * GB


def test_version_1(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/meminfo": MEMINFO,
        "/proc/self/cgroup": "7:cpu,cpuacct:/a\n5:memory:/a\n",
        "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{4 * GB}\n",
        "/sys/fs/cgroup/memory/a/memory.usage_in_bytes": f"{3 * GB}\n",
        "/sys/fs/cgroup/memory/a/memory.stat": "total_inactive_file 0\n",
    }
    kernel_says(monkeypatch, files)
    assert host_memory.available_bytes() == 1 * GB
    with pytest.raises(ResourceError, match=r"x needs about 2\.0 GB .* 1\.0 GB are available; y"):
        host_memory.require_bytes(2 * GB, "x", "y")


def test_without_limits_the_machine_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_says(monkeypatch, {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": "0::/\n"})
    assert host_memory.available_bytes() == 50 * GB // 1024 * 1024


def test_where_nothing_is_known_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_says(monkeypatch, {})
    assert host_memory.available_bytes() is None
    host_memory.require_bytes(10**18, "x", "y")


def test_peak_grows_with_what_is_held() -> None:
    before = host_memory.peak_bytes()
    held = b"\1" * (before + 50_000_000)
    assert host_memory.peak_bytes() > len(held)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("always [madvise] never", True), ("[always] madvise never", True),
     ("always madvise [never]", False), (None, False)],
)  # fmt: skip
def test_huge_pages_are_as_the_system_is_set(
    setting: str | None, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "enabled"
    if setting is not None:
        file.write_text(f"{setting}\n")
    monkeypatch.setattr(host_memory, "_HUGE_PAGES", file)
    assert host_memory.gives_huge_pages() == expected
