"""The table of GPUs: the row that fits a device, and so the resources of a workflow's job on it."""

from __future__ import annotations

import os
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

_MIG = re.compile(r"\bMIG (?P<slice>[0-9.]+g\.[0-9]+gb)", re.IGNORECASE)


class Proposal(NamedTuple):
    """The proposed row of a device, or none."""

    name: str | None
    """Name of the row; None if no row's memory fits."""
    row: Row | None
    """Its columns: those of the table, but for a part of a device."""
    reason: str
    """Reason for the row, or for none."""

    @property
    def is_new(self) -> bool:
        """True if the table has no such row: it is to be put into one of the user's own."""
        return self.name is not None and "-MIG-" in self.name


def read_table() -> dict[str, Row]:
    """Return the rows of ``gpus.toml``, which explains the columns, by name."""
    return tomllib.loads(TABLE.read_text())


def propose(
    device: str, memory_bytes: int, multiprocessors: int, table: Mapping[str, Row]
) -> Proposal:
    """Propose the row of a device.

    Among the rows whose model is a word of the device's name (``A100`` of ``A100-40``) and whose
    memory the device has, it is the one with most memory. Without any, it is the slowest of the
    rows with most memory that the device has, so that no job requests too little time. A MIG
    instance gets a row of its own: that for its memory, with the rate and cores of the whole
    device's row times its share of the multiprocessors.

    Parameters
    ----------
    device
        Name from the driver (``NVIDIA A100-SXM4-40GB``, ``NVIDIA H200 MIG 3g.71gb``).
    memory_bytes, multiprocessors
        Those of the device, or of the MIG instance, from the driver.
    """
    words = set(re.split(r"[^A-Za-z0-9]+", device))
    of_model = [name for name in table if name.partition("-")[0] in words]
    fitting = {
        name: row
        for name, row in table.items()
        if row["memory_gb"] * 1e9 * _AS_SOLD <= memory_bytes
    }
    if not fitting:
        least = min(row["memory_gb"] for row in table.values())
        return Proposal(None, None, f"it has less memory than any row of the table ({least} GB)")
    named = [name for name in of_model if name in fitting]
    most = max(fitting[name]["memory_gb"] for name in named or fitting)
    name = min(
        (name for name in named or fitting if fitting[name]["memory_gb"] == most),
        key=lambda name: fitting[name]["reads_per_second"],
    )
    row = fitting[name]
    if mig := _MIG.search(device):
        whole = min(of_model or [name], key=lambda name: table[name]["reads_per_second"])
        share = min(1.0, multiprocessors / table[whole]["multiprocessors"])
        part = {
            **row,
            "multiprocessors": multiprocessors,
            "host_cores": max(2, round(table[whole]["host_cores"] * share)),
            "reads_per_second": int(table[whole]["reads_per_second"] * share),
            "basis": "estimate",
        }
        reason = f"{name} by its memory, {share:.0%} of the multiprocessors of {whole}"
        return Proposal(f"{whole}-MIG-{mig['slice']}", part, reason)
    if named:
        return Proposal(name, row, "by its name")
    reason = "by its memory: no row has its name; measure one of its own (docs/cluster.md)"
    return Proposal(name, row, reason)


def profile_facts() -> list[tuple[str, str]]:
    """Return lines for the workflow's config, for the devices of this machine."""
    found = find_devices()
    usable = [device for device in found.devices if not device.problem]
    if not usable:
        return [
            ("GPU profile", f"none: {found.problem}"),
            ("in the config", "gpu: {model: none}"),
        ]
    from mapper.cuda.api import device_context
    from mapper.cuda.memory import multiprocessors, total_bytes

    table = read_table()
    cores = len(os.sched_getaffinity(0)) // len(usable)
    facts = []
    for device in usable:
        with device_context(device.ordinal):
            proposal = propose(device.name, total_bytes(), multiprocessors(), table)
        name, row, reason = proposal
        where = f"of cuda:{device.ordinal} {device.name}"
        facts.append(("GPU profile", f"{name or 'none'} {where}, {reason}"))
        if row is None:
            facts.append(("in the config", "gpu: {model: none}"))
            continue
        settings = [f"model: {name}"]
        if proposal.is_new:
            settings.append("table: FILE with the row below")
        if cores < row["host_cores"]:
            settings.append(f"cores: {max(1, cores)}")
        facts.append(("in the config", f"gpu: {{{', '.join(settings)}}}"))
        if proposal.is_new:
            columns = (
                f'{column} = "{value}"' if isinstance(value, str) else f"{column} = {value}"
                for column, value in row.items()
            )
            facts += [("row", line) for line in (f'["{name}"]', *columns)]
        facts.append(("a job then asks for", _request(row, max(1, cores))))
    return facts


def _request(row: Row, cores: int) -> str:
    jobs = row["jobs_per_gpu"]
    device = "1 GPU" if jobs == 1 else f"a share of a GPU ({jobs} jobs on each)"
    each = max(1, min(cores, row["host_cores"]) // jobs)
    return (
        f"{device}, {each} cores, {row['host_memory_gb'] / jobs:g} GB; "
        f"time for {row['reads_per_second'] // jobs} reads/s ({row['basis']})"
    )
