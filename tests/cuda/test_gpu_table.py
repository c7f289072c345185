"""``fmwave info --profile``: the row of the table of GPUs for a device."""

from __future__ import annotations

import tomllib

import pytest
import yaml
from jsonschema import Draft202012Validator

from mapper.cli.main import main
from mapper.cuda import gpu_table
from mapper.cuda.devices import CudaDevice, FoundDevices
from mapper.cuda.gpu_table import propose, read_table
from tests.helpers.workflow_runs import ROOT

MIB = 1 << 20


@pytest.mark.parametrize(
    ("device", "mib", "name"),
    # Names and sizes as drivers give them.
    [
        ("NVIDIA B200", 183_359, "B200"),
        ("NVIDIA H200", 143_771, "H200"),
        ("NVIDIA GH200 480GB", 97_871, "GH200"),
        ("NVIDIA H100 NVL", 95_830, "H100-NVL"),
        ("NVIDIA H100 80GB HBM3", 81_559, "H100"),
        ("NVIDIA H100 PCIe", 81_559, "H100"),
        ("NVIDIA A100-SXM4-40GB", 40_960, "A100-40"),
        ("NVIDIA A100-SXM4-80GB", 81_920, "A100-80"),
        ("NVIDIA A100 80GB PCIe", 81_920, "A100-80"),
        ("NVIDIA L40S", 46_068, "L40S"),
        ("NVIDIA L4", 23_034, "L4"),
        ("NVIDIA A10", 23_028, "A10"),
    ],
)
def test_rows_by_name(device, mib, name):
    table = read_table()
    assert propose(device, mib * MIB, 100, table) == (name, table[name], "by its name")


@pytest.mark.parametrize(
    ("device", "mib", "name"),
    [
        ("NVIDIA GeForce RTX 4090", 24_564, "L4"),  # the slowest of those with 24 GB
        ("NVIDIA A10G", 23_028, "L4"),  # no A10
        ("NVIDIA RTX A6000", 49_140, "L40S"),
        ("NVIDIA GeForce RTX 3060", 12_288, "consumer-12"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97_887, "GH200"),
        ("NVIDIA GB200", 189_471, "B200"),
    ],
)
def test_rows_by_memory(device, mib, name):
    table = read_table()
    proposed = propose(device, mib * MIB, 100, table)
    assert (proposed.name, proposed.row) == (name, table[name])
    assert proposed.reason.startswith("by its memory: no row has its name")


@pytest.mark.parametrize(
    ("device", "mib", "multiprocessors", "whole", "by_memory"),
    [
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40_192, 42, "A100-40", "A100-40"),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 19_968, 42, "A100-40", "consumer-12"),
        ("NVIDIA H100 80GB HBM3 MIG 2g.20gb", 19_968, 32, "H100", "consumer-12"),
        ("NVIDIA H200 MIG 3g.71gb", 71_424, 60, "H200", "L40S"),
        ("NVIDIA A30 MIG 2g.12gb", 12_032, 28, "consumer-12", "consumer-12"),
    ],
)
def test_a_part_of_a_device_gets_its_share(device, mib, multiprocessors, whole, by_memory):
    table = read_table()
    proposed = propose(device, mib * MIB, multiprocessors, table)
    assert proposed.is_new
    assert proposed.name == f"{whole}-MIG-{device.rpartition(' ')[2]}"
    share = multiprocessors / table[whole]["multiprocessors"]
    assert proposed.row is not None
    assert proposed.row["reads_per_second"] == int(table[whole]["reads_per_second"] * share)
    for column in ("memory_gb", "sa_sampling", "batch_bases", "host_memory_gb"):
        assert proposed.row[column] == table[by_memory][column]


def test_too_little_memory_for_any_row():
    proposed = propose("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4_864 * MIB, 14, read_table())
    assert proposed == (None, None, "it has less memory than any row of the table (12 GB)")


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


@pytest.fixture
def pretended(device, monkeypatch):
    """Make the device, or the simulator's, seem another, on a machine of so many cores."""

    def pretend(name: str, mib: int, multiprocessors: int, cores: int) -> None:
        found = CudaDevice(0, name, (9, 0), "", "GPU-a")
        monkeypatch.setattr(gpu_table, "find_devices", lambda: FoundDevices((found,), ""))
        monkeypatch.setattr("mapper.cuda.memory.total_bytes", lambda: mib * MIB)
        monkeypatch.setattr("mapper.cuda.memory.multiprocessors", lambda: multiprocessors)
        monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))

    return pretend


@pytest.mark.gpu
def test_the_command_with_a_device(pretended, capsys):
    pretended("NVIDIA H200", 143_771, 132, 24)
    assert main(["info", "--profile"]) == 0
    facts = facts_of(capsys.readouterr().out)
    assert facts["GPU profile"] == "H200 of cuda:0 NVIDIA H200, by its name"
    assert facts["in the config"] == "gpu: {model: H200}"
    row = read_table()["H200"]
    assert facts["a job then asks for"] == (
        f"1 GPU, {row['host_cores']} cores, {row['host_memory_gb']} GB; "
        f"time for {row['reads_per_second']} reads/s ({row['basis']})"
    )


@pytest.mark.gpu
def test_a_node_with_few_cores(pretended, capsys):
    pretended("NVIDIA H200", 143_771, 132, 6)
    assert main(["info", "--profile"]) == 0
    facts = facts_of(capsys.readouterr().out)
    assert facts["in the config"] == "gpu: {model: H200, cores: 6}"
    assert facts["a job then asks for"].startswith("1 GPU, 6 cores, ")


@pytest.mark.gpu
def test_the_row_of_a_part_of_a_device_can_be_put_into_a_table(pretended, capsys):
    pretended("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40_192, 42, 64)
    assert main(["info", "--profile"]) == 0
    text = capsys.readouterr().out
    row = "\n".join(line[4:] for line in text.splitlines() if line.startswith("row:"))
    table = tomllib.loads(row)
    assert table["A100-40-MIG-3g.40gb"]["memory_gb"] == 40
    settings = facts_of(text)["in the config"]
    assert settings == "gpu: {model: A100-40-MIG-3g.40gb, table: FILE with the row below}"
    schema = yaml.safe_load((ROOT / "workflow" / "schemas" / "gpus.schema.yaml").read_text())
    Draft202012Validator(schema).validate(table)


def facts_of(text: str) -> dict[str, str]:
    return {
        name: value.strip() for name, value in (line.split(":", 1) for line in text.splitlines())
    }
