"""Profiles and the table of GPUs: the resources of a mapping job, and known faults of executors."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.helpers.workflow_runs import (
    CONFIG,
    PHIX,
    ROOT,
    UNITS_HEADER,
    environment,
    needs_snakemake,
    project,
    snakemake,
)

yaml = pytest.importorskip("yaml", reason="comes with snakemake: pip install -e '.[workflow]'")
pytestmark = needs_snakemake

PROFILES = ROOT / "profiles"
EXECUTORS = {
    "local-cpu": None,
    "local-gpu": None,
    "slurm-gpu": "slurm",
    "slurm-generic": "cluster-generic",
    "lsf-gpu": "lsf",
    "sge-gpu": "cluster-generic",
    "kubernetes": "kubernetes",
}
GPU_TABLE = """[mine]
memory_gb = 24
sa_sampling = 2
batch_bases = 5_000_000
jobs_per_gpu = 2
host_cores = 4
host_memory_gb = 12
reads_per_second = 100_000
basis = "estimate"
"""


def load(name: str) -> dict:
    return yaml.safe_load((PROFILES / name / "profile.yaml").read_text())


def map_resources(output: str) -> dict[str, str]:
    """Return the resources that a dry run shows for the mapping job."""
    line = re.search(r"rule fmwave_map:.*?resources: (.*?)\n", output, re.DOTALL)
    assert line is not None, output
    return dict(part.split("=", 1) for part in line[1].split(", "))


def require_plugin(kind: str, name: str) -> None:
    if importlib.util.find_spec(f"snakemake_{kind}_plugin_{name.replace('-', '_')}") is None:
        pytest.skip(f"snakemake-{kind}-plugin-{name} is not installed: make test-profiles")


def test_the_list_is_whole():
    assert {path.parent.name for path in PROFILES.glob("*/profile.yaml")} == set(EXECUTORS)
    # Loaded without being asked for, these would discard a site profile's resources.
    assert not (PROFILES / "default").exists()
    assert not (ROOT / "workflow" / "profiles").exists()


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_entry_is_commented_and_avoids_the_traps(name):
    lines = (PROFILES / name / "profile.yaml").read_text().splitlines()
    head = next(n for n, line in enumerate(lines) if not line.startswith("#"))
    assert head > 0
    for line in lines:
        # The head explains executor, commands and what is required; numbers of default-resources
        # explain themselves.
        if re.match(r"[a-z]", line) and not re.match(
            r"(executor|cluster-generic-(submit|status)-cmd|(default|set-)?-?resources):|.*\?required",
            line,
        ):
            assert "  #" in line or " # " in line, line
    profile = load(name)
    assert profile.get("executor") == EXECUTORS[name]
    assert profile.get("rerun-incomplete") is True
    assert profile.get("show-failed-logs") is True
    assert "slurm-array-jobs" not in profile
    if EXECUTORS[name] not in (None, "kubernetes"):  # jobs are submitted, and share a disk
        assert profile["resources"] == {"gpu": 1, "small": 1}
        assert profile["group-components"] == ["small_maps=8", "small_samples=8"]
        assert profile["keep-incomplete"] is True
    for resources in profile.get("set-resources", {}).values():
        gpu = resources.get("gpu", 0)
        assert isinstance(gpu, int)  # "1" is taken by sbatch and refused in the job
        assert not re.search("[,-]", str(resources.get("gres", "")))
    if name == "slurm-gpu":
        assert profile["slurm-status-command"] == "squeue"
        assert profile["slurm-requeue"] is True
        assert profile["slurm-init-seconds-before-status-checks"] == 5
        assert profile["set-resources"]["fmwave_map"]["nodes"] == 1
    if EXECUTORS[name] == "cluster-generic":
        assert "{rule} '{wildcards}' " in profile["cluster-generic-submit-cmd"]
        assert profile["default-resources"]["gpu"] == 0  # else {resources.gpu} aborts
    if name == "kubernetes":
        assert profile["set-resources"]["fmwave_map"]["scale"] == 0
        assert profile["set-resources"]["fmwave_map"]["gpu_manufacturer"] == "'nvidia'"
    assert "slurm_account" not in str(profile)  # a site's own


@pytest.mark.parametrize("name", ["local-gpu", "slurm-gpu", "slurm-generic", "lsf-gpu", "sge-gpu"])
def test_what_a_mapping_job_asks_for_on_a_gpu(name, tmp_path):
    if EXECUTORS[name] is not None:
        require_plugin("executor", EXECUTORS[name])
    directory = project(tmp_path, CONFIG + "gpu: {model: A100-40}\n")

    run = snakemake(directory, "--dry-run", "--printshellcmds", profile=name)

    assert run.returncode == 0, run.stdout
    asked = map_resources(run.stdout)
    assert asked["gpu"] == "1"
    assert asked["mem_mb"] == "48000"
    assert run.stdout.count("gpu=1") == 2  # it, and the job that compiles for it
    assert "--device cuda:any --batch-bases 50000000 --jobs-per-device 1" in run.stdout
    assert "--sa-sampling 2" in run.stdout
    if name == "slurm-gpu":
        assert (asked["slurm_partition"], asked["nodes"]) == ("gpu", "1")
    if name == "slurm-generic":
        assert asked["slurm_partition"] == "gpu"
    if name == "lsf-gpu":
        assert asked["lsf_extra"] == "-wa URG -wt 1 -gpu num=1:mode=shared:j_exclusive=yes"


TWO_CHUNKS = CONFIG + "map: {chunks: 2}\ngpu: {model: none}\n"  # so that mapping is a job by itself


@pytest.mark.parametrize("name", ["slurm-gpu", "slurm-generic", "sge-gpu"])
def test_without_a_gpu_model_jobs_ask_for_none(name, tmp_path):
    """Their place is still the profile's, unless it is told another one (profiles/README.md)."""
    require_plugin("executor", EXECUTORS[name])
    directory = project(tmp_path, TWO_CHUNKS)
    rules = ("fmwave_map", "fmwave_compile")
    elsewhere = [f"{rule}:slurm_partition=cpu" for rule in rules] if "slurm" in name else []
    for options, partition in (([], "gpu"), (["--set-resources", *elsewhere], "cpu")):
        if options and not elsewhere:
            continue
        run = snakemake(directory, "--dry-run", "--printshellcmds", *options, profile=name)
        assert run.returncode == 0, run.stdout
        assert "gpu=1" not in run.stdout
        assert "--device cpu" in run.stdout and "--device cuda" not in run.stdout
        if elsewhere:
            asked = map_resources(run.stdout)
            assert (asked.get("gpu", "0"), asked["slurm_partition"]) == ("0", partition)
            assert ("slurm_partition=gpu" in run.stdout) == (partition == "gpu")


@pytest.mark.parametrize(("model", "partition"), [("A100-40", "g"), ("none", "c")])
def test_partitions_in_the_config_go_by_the_gpu_model(model, partition, tmp_path):
    """Unless the profile names one, too."""
    require_plugin("executor", "slurm")
    places = "partition: g, cpu_partition: c"
    config = CONFIG + f"map: {{chunks: 2}}\ngpu: {{model: {model}, {places}}}\n"
    directory = project(tmp_path, config)
    run = snakemake(directory, "--dry-run", profile="slurm-gpu")
    assert run.returncode != 0
    assert "config: gpu: slurm_partition of fmwave_map, in set-resources" in run.stdout

    text = (PROFILES / "slurm-gpu" / "profile.yaml").read_text()
    (directory / "profile.yaml").write_text(re.sub(" {4}slurm_partition: gpu\\b.*", "", text))
    run = snakemake(directory, "--dry-run", profile=str(directory))
    assert run.returncode == 0, run.stdout
    rules = re.findall(r"rule (\w+):\n(?:    .*\n)*?    resources: (.*)", run.stdout)
    asked = {rule for rule, resources in rules if f"slurm_partition={partition}" in resources}
    assert asked == {"fmwave_map", "fmwave_compile"}
    assert run.stdout.count("slurm_partition=") == 3


def test_what_compiles_asks_for_the_gpu_of_mapping_jobs():
    """Also with all that stands in the profile's comments for a site to take."""
    text = (PROFILES / "slurm-gpu" / "profile.yaml").read_text()
    taken = re.sub(r"^    # (\w+: )", r"    \1", text, flags=re.MULTILINE)
    rules = yaml.safe_load(taken)["set-resources"]
    assert {"gpu_model", "gpu", "gres"} <= set(rules["fmwave_map"])
    assert rules["fmwave_compile"] == rules["fmwave_map"]


KUBERNETES = {
    "FMWAVE_IMAGE": "registry.example.org/fmwave:1",
    "FMWAVE_STORAGE": "/somewhere",
    "FMWAVE_NAMESPACE": "genomics",
}


@pytest.mark.parametrize("missing", KUBERNETES)
def test_kubernetes_wants_its_three_settings(missing, tmp_path, monkeypatch):
    require_plugin("executor", "kubernetes")
    for name, value in KUBERNETES.items():
        monkeypatch.setenv(name, "" if name == missing else value)
    run = snakemake(project(tmp_path), "--dry-run", profile="kubernetes")
    assert run.returncode == 1
    assert f"profiles/kubernetes: set {missing}, the " in run.stdout
    assert "Traceback" not in run.stdout


def test_what_a_mapping_job_asks_for_on_kubernetes(tmp_path, monkeypatch):
    """Reads and reference lie in storage: a folder here, where no object store is at hand."""
    require_plugin("executor", "kubernetes")
    require_plugin("storage", "fs")
    store = tmp_path / "store"
    store.mkdir()
    for name in ("phix174.fa", "phix_R1.fq", "phix_R2.fq"):
        shutil.copy(ROOT / "tests" / "data" / name, store)
    for name, value in {**KUBERNETES, "FMWAVE_STORAGE": str(store)}.items():
        monkeypatch.setenv(name, value)
    config = CONFIG.replace(f"{ROOT / 'tests' / 'data'}/", "") + "gpu: {model: H100}\n"
    units = UNITS_HEADER + "phix\ta\tphix_R1.fq\tphix_R2.fq\t\t\n"
    directory = project(tmp_path, config, units=units)

    run = snakemake(
        directory, "--dry-run", "--default-storage-provider", "fs", profile="kubernetes"
    )

    assert run.returncode == 0, run.stdout
    asked = map_resources(run.stdout)
    assert (asked["gpu"], asked["gpu_manufacturer"], asked["scale"]) == ("1", "nvidia", "0")
    assert asked["mem_mb"] == "64000"
    assert run.stdout.count("gpu=1") == 1
    assert f"{store}/phix_R1.fq (access: sequential, retrieve from storage)" in run.stdout
    assert f"{store}/phix174.fa (retrieve from storage)" in run.stdout
    assert f"{store}/results/mapped/phix.bam (send to storage)" in run.stdout


@pytest.mark.medium
def test_mapping_jobs_of_one_machine_wait_for_its_gpu(tmp_path):
    """``resources: gpu: 1`` bounds them, though cores are free; the estimate runs on the CPU."""
    units = UNITS_HEADER
    for unit in ("a", "b"):
        for mate, path in enumerate(PHIX, start=1):
            shutil.copy(path, tmp_path / f"{unit}_{mate}.fq")
        units += f"phix\t{unit}\t{unit}_1.fq\t{unit}_2.fq\t\t\n"
    table = GPU_TABLE.replace("jobs_per_gpu = 2", "jobs_per_gpu = 1")
    table = table.replace("host_cores = 4", "host_cores = 1")
    directory = project(tmp_path, CONFIG + "gpu: {model: mine, table: gpus.toml}\n", units=units)
    (directory / "gpus.toml").write_text(table)
    events = directory / "events"
    shim = directory / "bin" / "fmwave"
    shim.parent.mkdir()
    fmwave = shutil.which("fmwave", path=environment()["PATH"])
    shim.write_text(
        f"""#!/bin/bash
[[ "$*" == *" --device cuda:any "* ]] || exec {fmwave} "$@"
echo start >> {events}
sleep 1
words=("$@")
{fmwave} "${{words[@]/cuda:any/cpu}}" || exit
echo stop >> {events}
"""
    )
    shim.chmod(0o755)

    run = snakemake(
        directory, "--cores", "4", "--until", "fmwave_map", profile="local-gpu", first_on_path=shim
    )

    assert run.returncode == 0, run.stdout
    assert events.read_text().split() == ["start", "stop", "start", "stop"]


@pytest.mark.medium
def test_jobs_that_share_a_gpu_and_tables_of_ones_own(tmp_path):
    directory = project(tmp_path, CONFIG + "gpu: {model: mine, table: gpus.toml, device: cuda}\n")
    (directory / "gpus.toml").write_text(GPU_TABLE)
    run = snakemake(directory, "--dry-run")
    assert run.returncode == 0, run.stdout
    asked = map_resources(run.stdout)
    assert (asked.get("gpu", "0"), asked["mem_mb"]) == ("0", "6000")
    assert "--device cuda --batch-bases 5000000 --jobs-per-device 2" in run.stdout

    (directory / "gpus.toml").write_text(GPU_TABLE.replace("sa_sampling = 2", "sa_sampling = 3"))
    run = snakemake(directory, "--dry-run")
    assert run.returncode != 0
    assert "gpus.toml: mine.sa_sampling: 3 is not allowed. Expected: a power of two" in run.stdout


@pytest.mark.medium
def test_a_job_that_may_get_one_of_several_models(tmp_path):
    """The larger's cores and memory, the slower's time, the smaller's index and batches."""
    directory = project(tmp_path, CONFIG + "gpu: {model: [small, large], table: gpus.toml}\n")
    small = GPU_TABLE.replace("mine", "small").replace("jobs_per_gpu = 2", "jobs_per_gpu = 1")
    large = "[large]\nmemory_gb = 80\nsa_sampling = 1\nbatch_bases = 9_000_000\njobs_per_gpu = 1\n"
    large += "host_cores = 16\nhost_memory_gb = 64\nreads_per_second = 400_000\n"
    large += 'basis = "estimate"\n'
    (directory / "gpus.toml").write_text(f"{small}\n{large}")
    run = snakemake(directory, "--dry-run", "--cores", "all", "--printshellcmds")
    assert run.returncode == 0, run.stdout
    asked = map_resources(run.stdout)
    assert (asked["gpu"], asked["mem_mb"]) == ("1", "64000")
    assert "--batch-bases 5000000 --jobs-per-device 1" in run.stdout
    assert "--sa-sampling 2" in run.stdout

    (directory / "gpus.toml").write_text(f"{GPU_TABLE.replace('mine', 'small')}\n{large}")
    run = snakemake(directory, "--dry-run")
    assert run.returncode != 0
    assert "gpu.model: small, large: their jobs_per_gpu differ in the table" in run.stdout


@pytest.mark.medium
def test_nodes_with_few_cores(tmp_path):
    """Fewer threads, and more time in proportion."""
    directory = project(tmp_path, CONFIG + "gpu: {model: mine, table: gpus.toml, cores: 1}\n")
    table = GPU_TABLE.replace("jobs_per_gpu = 2", "jobs_per_gpu = 1")
    (directory / "gpus.toml").write_text(table.replace("100_000", "4_000"))
    with (directory / "long.fq").open("w") as reads:
        reads.truncate(200 * 240_000)  # as many bytes as 240 000 reads have
    sheet = directory / "units.tsv"
    sheet.write_text(f"{UNITS_HEADER}phix\ta\tlong.fq\t\t\t\n")
    asked = map_resources(snakemake(directory, "--dry-run", "--printshellcmds").stdout)
    assert asked["runtime"] == "23"  # 15 minutes, and twice 240 s of a thousand reads a second


WAITING = "gpu: {model: mine, table: gpus.toml, max_wait: 30, partition: g, cpu_partition: c}\n"


@pytest.mark.medium
def test_a_job_that_does_not_wait_for_ever(tmp_path):
    directory = project(tmp_path, CONFIG + WAITING)
    table = GPU_TABLE.replace("jobs_per_gpu = 2", "jobs_per_gpu = 1")
    (directory / "gpus.toml").write_text(table)
    run = snakemake(directory, "--dry-run", "--printshellcmds")
    assert run.returncode == 0, run.stdout
    asked = map_resources(run.stdout)
    assert (asked["gpu"], asked["slurm_partition"]) == ("1", "g")
    assert asked["slurm_extra"] == f"--deadline=now+{30 + int(asked['runtime'])}minutes"
    device = re.search(r'--device ("\$\(.*?\)")', run.stdout)
    assert device is not None
    for names, chosen in (("SLURM_JOB_GPUS", "cuda:any"), ("SLURM_STEP_GPUS", "cuda:any")):
        told = subprocess.run(
            ["bash", "-uc", f"echo {device[1]}"], env={names: "0"}, capture_output=True, text=True,
            timeout=30, check=True,
        )  # fmt: skip
        assert told.stdout.strip() == chosen
    told = subprocess.run(
        ["bash", "-uc", f"echo {device[1]}"], env={}, capture_output=True, text=True,
        timeout=30, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == "cpu"

    run = snakemake(directory, "--dry-run", "--set-resources", "fmwave_map:slurm_partition=x")
    assert run.returncode != 0
    assert "slurm_partition of fmwave_map, in set-resources" in run.stdout
    (directory / "config" / "config.yaml").write_text(
        CONFIG + WAITING.replace(", partition: g", "")
    )
    run = snakemake(directory, "--dry-run")
    assert run.returncode != 0
    assert "config: gpu: missing: partition; max_wait needs both partitions" in run.stdout

    (directory / "config" / "config.yaml").write_text(CONFIG + WAITING)
    (directory / "gpus.toml").write_text(GPU_TABLE)
    run = snakemake(directory, "--dry-run")
    assert run.returncode != 0
    assert "gpu.max_wait: jobs do not leave the queue for the CPU where they share" in run.stdout


def test_the_table_has_rows_for_what_centres_have():
    table = tomllib.loads((ROOT / "mapper" / "cuda" / "gpus.toml").read_text())
    assert {24, 40, 80, 96, 141, 180} <= {row["memory_gb"] for row in table.values()}
    for row in table.values():
        # An index of 3.1 Gbp must fit; its rows take 8 bytes (docs/index-format.md).
        index_gb = 3.1 * (0.25 + 16 / 64 + 0.375 + 8 / row["sa_sampling"]) + 0.2
        assert index_gb < 2 / 3 * row["memory_gb"]
        assert row["host_memory_gb"] > index_gb + 2


@pytest.mark.parametrize(
    ("script", "answers", "state"),
    [
        ("slurm-generic/bin/slurm-status", {"squeue": "RUNNING"}, "running"),
        ("slurm-generic/bin/slurm-status", {"squeue": "PREEMPTED"}, "failed"),
        ("slurm-generic/bin/slurm-status", {"squeue": "CANCELLED"}, "failed"),
        ("slurm-generic/bin/slurm-status", {"squeue": "DEADLINE"}, "failed"),
        ("slurm-generic/bin/slurm-status", {"squeue": "", "sacct": "COMPLETED"}, "success"),
        ("slurm-generic/bin/slurm-status", {"squeue": "", "sacct": "CANCELLED by 0"}, "failed"),
        ("slurm-generic/bin/slurm-status", {"squeue": "", "sacct": ""}, "running"),
        ("sge-gpu/bin/sge-status", {"qstat": "7 0.5 fmwave root r"}, "running"),
        ("sge-gpu/bin/sge-status", {"qstat": "7 0.5 fmwave root Eqw", "qdel": ""}, "failed"),
        ("sge-gpu/bin/sge-status", {"qstat": "", "qacct": "failed 0\nexit_status 0"}, "success"),
        ("sge-gpu/bin/sge-status", {"qstat": "", "qacct": "failed 0\nexit_status 137"}, "failed"),
        ("sge-gpu/bin/sge-status", {"qstat": "", "qacct": "failed 37\nexit_status 0"}, "failed"),
    ],
)
def test_status_scripts(script, answers, state, tmp_path):
    for command, answer in answers.items():
        path = tmp_path / command
        path.write_text(f"#!/bin/bash\ncat <<'END'\n{answer}\nEND\n" if answer else "#!/bin/bash\n")
        path.chmod(0o755)
    told = subprocess.run(
        [PROFILES / script, "7"], env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == state


@pytest.mark.parametrize(
    ("script", "command", "arguments", "expected"),
    [
        (
            "slurm-generic/bin/slurm-submit",
            "sbatch",
            ["r", "part=1,parts=2,unit=s1-u", "8", "4000", "30", "1", "gpu", "--a=1 --b", "x.sh"],
            [
                *("--gpus=1", "--cpus-per-task=8", "--mem=4000", "--time=30", "--nodes=1", "x.sh"),
                *("--partition=gpu", "--job-name=r.s1-u.1.2", "--a=1", "--b"),
            ],
        ),
        (
            "sge-gpu/bin/sge-submit", "qsub",
            ["r", "part=1,parts=2,unit=s1-u", "8", "4000", "30", "1", "x.sh"],
            ["gpu=1", "h_rt=1800", "smp", "x.sh", "r.s1-u.1.2"],
        ),
        (
            "sge-gpu/bin/sge-submit", "qsub", ["r", "sample=s1", "2", "4000", "30", "0", "x.sh"],
            ["h_vmem=2001M", "r.s1", "x.sh"],
        ),
        (
            "sge-gpu/bin/sge-submit", "qsub",
            ["my_map_sample", "sample=s1", "2", "4000", "30", "0", "x.sh"],
            ["-notify", str(PROFILES / "sge-gpu" / "bin" / "sge-job"), "x.sh"],
        ),
    ],
)  # fmt: skip
def test_submit_scripts(script, command, arguments, expected, tmp_path: Path):
    path = tmp_path / command
    path.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    path.chmod(0o755)
    told = subprocess.run(
        [PROFILES / script, *arguments], env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True, text=True, timeout=300, check=True, cwd=tmp_path,
    )  # fmt: skip
    said = told.stdout.splitlines()
    assert set(expected) <= set(said)
    if command == "qsub":
        assert ("gpu=1" in said) != any(word.startswith("h_vmem") for word in said)
        assert ("-notify" in said) == arguments[0].endswith("map_sample")


NOTED = """
import signal, sys, time
def end(number, frame):
    print("told by", signal.Signals(number).name, flush=True)
    time.sleep(1)  # as a run that writes its state
    print("done", flush=True)
    sys.exit(3)
signal.signal(signal.SIGURG, end)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("name", "told"), [("USR2", True), ("USR1", False)])
def test_grid_engine_s_notice_ends_fmwave_alone(name, told, tmp_path: Path):
    """Grid Engine sends it to the process group; SIGUSR1 only says that the job will be stopped."""
    (tmp_path / "fmwave.py").write_text(NOTED)
    script = tmp_path / "job.sh"
    script.write_text(f"{sys.executable} {tmp_path}/fmwave.py; echo status $?; exit 5\n")
    with subprocess.Popen(
        [PROFILES / "sge-gpu" / "bin" / "sge-job", script], stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as job:  # fmt: skip
        assert job.stdout is not None
        try:
            assert job.stdout.readline() == "ready\n"
            os.killpg(job.pid, getattr(signal, f"SIG{name}"))
            if told:
                assert job.stdout.read() == "told by SIGURG\ndone\nstatus 3\n"
                assert job.wait() == 5
            else:
                with pytest.raises(subprocess.TimeoutExpired):
                    job.wait(1)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
