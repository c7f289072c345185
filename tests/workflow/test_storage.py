"""Runs without a shared disk, as on Kubernetes: all files are read from and written to storage."""

from __future__ import annotations

import importlib.util
import shutil

import pysam
import pytest

from tests.helpers.workflow_runs import (
    CONFIG,
    DATA,
    UNITS_HEADER,
    needs_snakemake,
    project,
    snakemake,
)

pytestmark = [
    needs_snakemake,
    pytest.mark.skipif(
        importlib.util.find_spec("snakemake_storage_plugin_fs") is None
        or shutil.which("rsync") is None,
        reason="snakemake-storage-plugin-fs or rsync is not installed: make test-profiles",
    ),
]


def test_a_run_whose_files_lie_in_storage(tmp_path):
    """A folder stands for the object store; the unit is scattered."""
    store = tmp_path / "store"
    store.mkdir()
    for name in ("phix174.fa", "phix_R1.fq", "phix_R2.fq"):
        shutil.copy(DATA / name, store)
    directory = tmp_path / "run"
    directory.mkdir()
    units = "phix\ta\tphix_R1.fq\tphix_R2.fq\t\t2\n"
    project(directory, CONFIG.replace(f"{DATA}/", ""), units=UNITS_HEADER + units)

    run = snakemake(
        directory,
        *("--default-storage-provider", "fs", "--default-storage-prefix", str(store)),
        *("--shared-fs-usage", "none"),
    )

    assert run.returncode == 0, run.stdout
    assert not (directory / "results").exists()
    with pysam.AlignmentFile(str(store / "results" / "mapped" / "phix.bam")) as bam:
        assert sum(not r.flag & 0x900 for r in bam.fetch(until_eof=True)) == 90
        assert bam.has_index()
    assert (store / "results" / "plots" / "reads.svg").exists()
