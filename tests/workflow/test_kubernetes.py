"""The workflow by the real plugin for Kubernetes, and a made-up API server whose pods run here."""

from __future__ import annotations

import importlib.metadata
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pysam
import pytest

from tests.helpers.made_up_s3 import BUCKET, bucket_with, needs_s3
from tests.helpers.slurm import (
    GPUS,
    SLEEP,
    fail_first_run,
    pid_of_first,
    start,
    wait_for,
    wait_for_exit,
)
from tests.helpers.workflow_runs import (
    CONFIG,
    DATA,
    PHIX,
    ROOT,
    UNITS_HEADER,
    needs_snakemake,
    project,
    snakemake,
)

for module in (
    "kubernetes_validate",
    "snakemake_executor_plugin_kubernetes",
    "snakemake_storage_plugin_fs",
):
    pytest.importorskip(module, reason=f"{module} is not installed: make test-profiles")
if shutil.which("rsync") is None:
    pytest.skip("rsync, by which files are put into storage, is missing", allow_module_level=True)
from tests.helpers.made_up_kubernetes import IMAGE, NAMESPACE, MadeUpKubernetes  # noqa: E402

pytestmark = [needs_snakemake, pytest.mark.slow]
SNAKEFILE = "workflow/Snakefile"
IN_FOLDER = ["--default-storage-provider", "fs"]  # which stands for the object store
FASTER = ["--seconds-between-status-checks", "1"]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch) -> Iterator[MadeUpKubernetes]:
    with MadeUpKubernetes(tmp_path / "cluster") as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        monkeypatch.setenv("FMWAVE_IMAGE", IMAGE)
        monkeypatch.setenv("FMWAVE_NAMESPACE", NAMESPACE)
        monkeypatch.setenv("FMWAVE_STORAGE", str(tmp_path / "store"))
        yield cluster


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of the repository with settings; a folder stands for the object store."""
    store, clone = tmp_path / "store", tmp_path / "clone"
    store.mkdir()
    for name in ("phix174.fa", "phix_R1.fq", "phix_R2.fq"):
        shutil.copy(DATA / name, store)
    for folder in ("workflow", "profiles"):
        shutil.copytree(ROOT / folder, clone / folder)
    (clone / "gpus.toml").write_text(GPUS)
    config = CONFIG.replace(f"{DATA}/", "")
    config += "gpu: {model: test, table: gpus.toml, device: cpu}\n"
    project(clone, config, units=UNITS_HEADER + "phix\ta\tphix_R1.fq\tphix_R2.fq\t\t\n")
    subprocess.run(["git", "init", "--quiet"], cwd=clone, check=True, timeout=60)
    subprocess.run(["git", "add", "."], cwd=clone, check=True, timeout=60)
    return clone


def run(
    clone: Path, *options: str, storage: list[str] = IN_FOLDER
) -> subprocess.CompletedProcess[str]:
    """Run the workflow, one pod at a time: those made up here share the folder of their work."""
    return snakemake(
        clone, *FASTER, "--jobs", "1", *storage, *options,
        snakefile=clone / SNAKEFILE, profile="kubernetes",
    )  # fmt: skip


def of_mapping(*resources: str) -> list[str]:
    """Return options for resources of mapping jobs, beside those of the profile they replace."""
    values = ["gpu_manufacturer=nvidia", "scale=0", *resources] if resources else []
    return ["--set-resources", *(f"fmwave_map:{value}" for value in values)] if values else []


def pods(cluster: MadeUpKubernetes) -> list[dict]:
    return [job["spec"]["template"]["spec"] for job in cluster.jobs]


def is_mapping(pod: dict) -> bool:
    return "--allowed-rules fmwave_map" in pod["containers"][0]["args"][1]


def mapping(cluster: MadeUpKubernetes) -> list[dict]:
    """Return the containers of the mapping jobs, in the order of their submission."""
    return [pod["containers"][0] for pod in pods(cluster) if is_mapping(pod)]


@needs_s3
def test_a_run_whose_jobs_are_pods(cluster, clone, tmp_path, monkeypatch):
    """With all files in S3; the pods get its credentials by a secret."""
    with bucket_with([*PHIX, DATA / "phix174.fa"], monkeypatch) as s3:
        monkeypatch.setenv("FMWAVE_STORAGE", f"s3://{BUCKET}/in")
        ended = run(clone, storage=[])
        assert ended.returncode == 0, ended.stdout
        s3.download_file(BUCKET, "in/results/mapped/phix.bam", str(tmp_path / "phix.bam"))
        s3.head_object(Bucket=BUCKET, Key="in/results/plots/reads.svg")
    with pysam.AlignmentFile(str(tmp_path / "phix.bam")) as bam:
        assert sum(not r.flag & 0x900 for r in bam.fetch(until_eof=True)) == 90
    assert not (clone / "results").exists()
    assert "made-up-too" not in str(cluster.jobs)
    assert len(cluster.jobs) == 8
    assert (cluster.pods, cluster.secrets) == ({}, {})  # it clears up

    for pod in pods(cluster):
        [container] = pod["containers"]
        assert container["image"] == IMAGE
        assert pod["restartPolicy"] == "Never"
        assert not pod["nodeSelector"]
        assert "securityContext" not in container
    [container] = mapping(cluster)
    asked = {"memory": "1000M", "ephemeral-storage": "2101M", "nvidia.com/gpu": "1"}
    assert container["resources"] == {
        "requests": {"cpu": "1900m", **asked},
        "limits": {"cpu": "2000m", **asked},
    }
    for pod in pods(cluster):
        if not is_mapping(pod):
            asked = pod["containers"][0]["resources"]
            assert set(asked) == {"requests"}
            assert {"cpu", "memory"} <= set(asked["requests"])
            assert set(asked["requests"]) <= {"cpu", "memory", "ephemeral-storage"}
            assert "tolerations" not in pod  # nodes with GPUs are left to those that want one


@pytest.mark.skipif(
    importlib.metadata.version("snakemake-executor-plugin-kubernetes") == "0.5.1",
    reason="with 0.5.1 of the plugin a failed pod ends the run: make test-profiles",
)
@pytest.mark.parametrize(
    ("resources", "memory"),
    [([], ["1000M", "1000M"]), (["mem_mb=1000*attempt"], ["1000M", "2000M"])],
)
def test_a_failed_pod_is_tried_again(resources, memory, cluster, clone):
    """With the same memory, for nobody tells Snakemake what the pod lacked; unless told to."""
    fail_first_run(cluster.place, "echo the first run fails; kill -KILL $$")
    ended = run(clone, "--until", "finish_sample", *of_mapping(*resources))
    assert ended.returncode == 0, ended.stdout
    assert "Trying to restart job" in ended.stdout
    asked = [container["resources"] for container in mapping(cluster)]
    assert [resources["limits"]["memory"] for resources in asked] == memory
    assert [resources["requests"]["memory"] for resources in asked] == memory
    logs = (clone / ".snakemake").rglob("kubernetes-logs/*.log")
    assert any("Error in rule fmwave_map" in log.read_text() for log in logs)


def test_an_unknown_namespace_ends_the_run(cluster, clone, monkeypatch):
    monkeypatch.setenv("FMWAVE_NAMESPACE", "elsewhere")
    ended = run(clone)
    assert ended.returncode == 1
    assert 'namespaces \\"elsewhere\\" not found' in ended.stdout


def test_a_job_that_the_server_refuses_ends_the_run(cluster, clone):
    """GPUs without limits, as the plugin asks for them unless `scale` is 0."""
    ended = run(clone, "--until", "fmwave_map", *of_mapping("scale=1"))
    assert ended.returncode == 1
    assert "nvidia.com/gpu: Limit must be set" in ended.stdout


def start_run(clone: Path, *options: str) -> subprocess.Popen[str]:
    """Start the workflow; between two looks at its pods there are 8 seconds."""
    options = ("--snakefile", str(clone / SNAKEFILE), "--jobs", "1", *IN_FOLDER, *options)
    pause = ["--seconds-between-status-checks", "8"]
    return start(clone, *options, profile="kubernetes", faster=pause)


def wait_between_looks(cluster: MadeUpKubernetes) -> None:
    """Wait until the plugin has looked at its pod from now on, and all is quiet again."""
    cluster.watched.clear()  # the next look might begin at once after an earlier one
    wait_for(lambda: cluster.watched and time.monotonic() - cluster.answered > 1, "a look at a pod")


def test_an_interrupted_run_takes_its_pods_away(cluster, clone, monkeypatch):
    """The pod waits for an image that is not there; the plugin waits as long as the pod."""
    monkeypatch.setenv("FMWAVE_IMAGE", "registry.example.org/misspelt:1")
    process = start_run(clone)
    wait_between_looks(cluster)
    assert len(cluster.pods) == 1
    process.send_signal(signal.SIGINT)
    assert wait_for_exit(process) != 0
    assert (cluster.pods, cluster.secrets) == ({}, {})


def test_an_interrupted_run_ends_what_its_pods_do(cluster, clone, tmp_path):
    """The next run makes what is missing."""
    fail_first_run(cluster.place, SLEEP)
    process = start_run(clone, "--until", "finish_sample")
    pid = pid_of_first(cluster.place)
    wait_between_looks(cluster)
    process.send_signal(signal.SIGINT)
    assert wait_for_exit(process) != 0
    assert (cluster.pods, cluster.secrets) == ({}, {})
    assert not Path(f"/proc/{pid}").exists()
    done = len(cluster.jobs) - 1
    assert any("fmwave_index" in str(pod) for pod in pods(cluster)[:done])

    ended = run(clone, "--until", "finish_sample")
    assert ended.returncode == 0, ended.stdout
    assert not any("fmwave_index" in str(pod) for pod in pods(cluster)[done + 1 :])
    with pysam.AlignmentFile(str(tmp_path / "store" / "results/mapped/phix.bam")) as bam:
        assert sum(not r.flag & 0x900 for r in bam.fetch(until_eof=True)) == 90


def test_a_run_that_is_interrupted_while_it_looks_leaves_its_pods(cluster, clone, monkeypatch):
    """Snakemake has no list of its jobs then, as docs/cluster.md tells."""
    monkeypatch.setenv("FMWAVE_IMAGE", "registry.example.org/misspelt:1")
    cluster.tells_status.clear()
    process = start_run(clone)
    wait_for(lambda: cluster.watched, "a pod that is looked at")
    process.send_signal(signal.SIGINT)
    wait_for(lambda: "Terminating" in (clone / "run.log").read_text(), "the end of the run")
    cluster.tells_status.set()
    assert wait_for_exit(process) != 0
    assert len(cluster.pods) == 1
    [job] = cluster.jobs
    assert job["metadata"]["labels"] == {"app": "snakemake"}
    assert f"kubectl describe job {job['metadata']['name']}" in (clone / "run.log").read_text()
    assert cluster.secrets == {}
