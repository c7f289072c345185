"""The table of GPUs: the row that fits a device, and so the resources of a workflow's job on it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mapper.cuda.devices import find_devices

TABLE = Path(__file__).with_name("gpus.toml")

Row = Mapping[str, Any]

_AS_SOLD = 0.97
"""Drivers report a few hundredths less memory than the data sheet, for ECC and their own use."""


class Proposal(NamedTuple):
    """The proposed row of a device, or none."""

    row: str | None
    """Name of the row; None if no row's memory fits."""
    reason: str
    """Reason for the row, or for none."""


def read_table() -> dict[str, Row]:
    """Return the rows of ``gpus.toml``, which explains the columns, by name."""
    return tomllib.loads(TABLE.read_text())


def propose(name: str, memory_bytes: int, table: Mapping[str, Row]) -> Proposal:
    """Propose the row of a device.

    Among the rows whose model is a word of the device's name (``A100`` of ``A100-40``) and whose
    memory the device has, it is the one with most memory. Without any, it is the slowest of the
    rows with most memory that the device has, so that no job requests too little time.

    Parameters
    ----------
    name
        Name from the driver (``NVIDIA A100-SXM4-40GB``).
    memory_bytes
        Total memory of the device, or of the MIG instance.
    """
    words = set(re.split(r"[^A-Za-z0-9]+", name))
    fitting = {
        row: columns
        for row, columns in table.items()
        if columns["memory_gb"] * 1e9 * _AS_SOLD <= memory_bytes
    }
    named = [row for row in fitting if row.partition("-")[0] in words]
    if named:
        return Proposal(max(named, key=lambda row: fitting[row]["memory_gb"]), "by its name")
    if not fitting:
        least = min(columns["memory_gb"] for columns in table.values())
        return Proposal(None, f"it has less memory than any row of the table ({least} GB)")
    most = max(columns["memory_gb"] for columns in fitting.values())
    slowest = min(
        (row for row in fitting if fitting[row]["memory_gb"] == most),
        key=lambda row: fitting[row]["reads_per_second"],
    )
    return Proposal(
        slowest, "by its memory: no row has its name; measure one of its own (docs/cluster.md)"
    )


def profile_facts() -> list[tuple[str, str]]:
    """Return lines for the workflow's config, for the devices of this machine."""
    found = find_devices()
    usable = [device for device in found.devices if not device.problem]
    if not usable:
        return [
            ("GPU profile", f"none: {found.problem}"),
            ("in the config", "gpu: {model: none}"),
        ]
    from mapper.cuda.api import cuda
    from mapper.cuda.memory import total_bytes

    table = read_table()
    facts = []
    for device in usable:
        with cuda.gpus[device.ordinal]:
            row, reason = propose(device.name, total_bytes(), table)
        where = f"of cuda:{device.ordinal} {device.name}"
        facts.append(("GPU profile", f"{row or 'none'} {where}, {reason}"))
        facts.append(("in the config", f"gpu: {{model: {row or 'none'}}}"))
        if row is not None:
            facts.append(("a job then asks for", _request(table[row])))
    return facts


def _request(row: Row) -> str:
    jobs = row["jobs_per_gpu"]
    device = "1 GPU" if jobs == 1 else f"a share of a GPU ({jobs} jobs on each)"
    cores = max(1, row["host_cores"] // jobs)
    return (
        f"{device}, {cores} cores, {row['host_memory_gb'] / jobs:g} GB; "
        f"time for {row['reads_per_second'] // jobs} reads/s ({row['basis']})"
    )
