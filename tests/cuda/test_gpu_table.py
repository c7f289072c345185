"""``fmwave info --profile``: the row of the table of GPUs for a device."""

from __future__ import annotations

import pytest

from mapper.cli.main import main
from mapper.cuda import gpu_table
from mapper.cuda.devices import CudaDevice, FoundDevices
from mapper.cuda.gpu_table import propose, read_table

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "mib", "row"),
    # Names and sizes as drivers give them.
    [
        ("NVIDIA H200", 143_771, "H200"),
        ("NVIDIA H100 80GB HBM3", 81_559, "H100"),
        ("NVIDIA H100 PCIe", 81_559, "H100"),
        ("NVIDIA A100-SXM4-40GB", 40_960, "A100-40"),
        ("NVIDIA A100-SXM4-80GB", 81_920, "A100-80"),
        ("NVIDIA A100 80GB PCIe", 81_920, "A100-80"),
        ("NVIDIA L4", 23_034, "L4"),
        ("NVIDIA A10", 23_028, "A10"),
    ],
)
def test_rows_by_name(name, mib, row):
    assert propose(name, mib * MIB, read_table()) == (row, "by its name")


@pytest.mark.parametrize(
    ("name", "mib", "row"),
    [
        ("NVIDIA GeForce RTX 4090", 24_564, "L4"),  # the slowest of those with 24 GB
        ("NVIDIA A10G", 23_028, "L4"),  # no A10
        ("NVIDIA L40S", 46_068, "A100-40"),  # no L4
        ("NVIDIA GeForce RTX 3060", 12_288, "consumer-12"),
        ("NVIDIA GH200 480GB", 97_871, "A100-80"),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 19_968, "consumer-12"),
    ],
)
def test_rows_by_memory(name, mib, row):
    proposed = propose(name, mib * MIB, read_table())
    assert proposed.row == row
    assert proposed.reason.startswith("by its memory: no row has its name")


def test_too_little_memory_for_any_row():
    proposed = propose("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4_864 * MIB, read_table())
    assert proposed == (None, "it has less memory than any row of the table (12 GB)")


def test_the_command_without_a_device(monkeypatch, capsys):
    monkeypatch.setattr(gpu_table, "find_devices", lambda: FoundDevices((), "no driver"))
    assert main(["info", "--profile"]) == 0
    facts = facts_of(capsys.readouterr().out)
    assert facts["GPU profile"] == "none: no driver"
    assert facts["in the config"] == "gpu: {model: none}"
    assert "a job then asks for" not in facts


def test_only_unusable_devices_are_none(monkeypatch):
    old = CudaDevice(0, "old", (3, 5), "device 0 (old) is too old")
    monkeypatch.setattr(gpu_table, "find_devices", lambda: FoundDevices((old,), old.problem))
    assert ("GPU profile", "none: device 0 (old) is too old") in gpu_table.profile_facts()


@pytest.mark.gpu
def test_the_command_with_a_device(device, monkeypatch, capsys):
    """As if the device, or the simulator's, were an H200."""
    found = CudaDevice(0, "NVIDIA H200", (9, 0), "", "GPU-a")
    monkeypatch.setattr(gpu_table, "find_devices", lambda: FoundDevices((found,), ""))
    monkeypatch.setattr("mapper.cuda.memory.total_bytes", lambda: 143_771 * MIB)
    assert main(["info", "--profile"]) == 0
    facts = facts_of(capsys.readouterr().out)
    assert facts["GPU profile"] == "H200 of cuda:0 NVIDIA H200, by its name"
    assert facts["in the config"] == "gpu: {model: H200}"
    row = read_table()["H200"]
    assert facts["a job then asks for"] == (
        f"1 GPU, {row['host_cores']} cores, {row['host_memory_gb']} GB; "
        f"time for {row['reads_per_second']} reads/s ({row['basis']})"
    )


def facts_of(text: str) -> dict[str, str]:
    return {
        name: value.strip() for name, value in (line.split(":", 1) for line in text.splitlines())
    }
