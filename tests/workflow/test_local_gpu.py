"""The bundled samples through ``profiles/local-gpu``, on a machine that has a GPU."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from mapper.cuda.devices import find_devices
from mapper.cuda.gpu_table import propose, read_table
from tests.helpers.workflow_runs import ROOT, records, snakemake

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(1200),  # kernels are compiled first
    pytest.mark.skipif(
        importlib.util.find_spec("snakemake") is None,
        reason="snakemake is not installed: pip install -e '.[workflow]'",
    ),
]


def bundled(directory: Path) -> Path:
    """Make config/ and the data it names visible from a directory of one's own."""
    directory.mkdir()
    shutil.copytree(ROOT / "config", directory / "config")
    (directory / "tests").symlink_to(ROOT / "tests")
    return directory


def this_fmwave(directory: Path) -> Path:
    """Return an ``fmwave`` that runs this package, installed or not."""
    shim = directory / "bin" / "fmwave"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/bash\nexec {sys.executable} -m mapper.cli.main "$@"\n')
    shim.chmod(0o755)
    return shim


def test_gpus_of_this_machine_give_the_records_of_the_cpu(device, tmp_path, monkeypatch):
    """One mapping job more than there are devices: the locks keep them apart."""
    from mapper.cuda.api import SIMULATED
    from mapper.cuda.memory import multiprocessors, total_bytes

    if SIMULATED:
        pytest.skip("needs a CUDA device: the simulator would take hours")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices = find_devices().devices
    model = propose(devices[0].name, total_bytes(), multiprocessors(), read_table()).name
    assert model is not None
    fmwave = this_fmwave(tmp_path)
    only_maps = ["--until", "alignment_statistics", "--scheduler", "greedy"]  # needs no solver
    on_gpu = [*only_maps, "--config", f"gpu={{model: {model}}}", "--set-threads", "fmwave_map=2"]
    on_gpu += ["--resources", f"gpu={len(devices) + 1}"]
    results = {}
    for profile, options in (("local-gpu", on_gpu), ("local-cpu", only_maps)):
        directory = bundled(tmp_path / profile)
        run = snakemake(directory, *options, profile=profile, first_on_path=fmwave, timeout=500)
        assert run.returncode == 0, run.stdout
        results[profile] = directory / "results"

    logs = [path.read_text() for path in (results["local-gpu"] / "logs" / "map").iterdir()]
    assert len(logs) == 3
    for log in logs:
        assert "CUDA_VISIBLE_DEVICES=not set" in log
        assert log.count("computing on cuda:") == 1
    for sample in ("portiera", "mixed"):
        found = records(results["local-gpu"] / "mapped" / f"{sample}.bam")
        assert len(found) >= 1200
        assert found == records(results["local-cpu"] / "mapped" / f"{sample}.bam")
