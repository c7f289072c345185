"""A cohort on a real Slurm while jobs are killed, and Snakemake too: ``make test-slurm``.

``FMWAVE_COHORT`` is the number of samples, 24 by default; ``-s`` shows the tables of
benchmarks/results/cohort.md, which are of 200.
"""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pysam
import pytest

from tests.helpers.slurm import only_on_slurm, queue, start, wait_for
from tests.helpers.workflow_runs import (
    DATA,
    PORTIERA,
    SAMPLES_HEADER,
    UNITS_HEADER,
    environment,
    project,
)

pytestmark = [pytest.mark.timeout(4 * 3600), pytest.mark.slow, *only_on_slurm]

N_SAMPLES = int(os.environ.get("FMWAVE_COHORT", "24"))
N_PAIRS = 100  # of a sample
KILLED = 0.05  # of the jobs, and of the mapping processes
HEAD_KILLED_AT = (0.25, 0.6)  # of the samples done
SEED = 25
# Two jobs at a time on a node of 4 GB; one core each, of a machine that may have two.
CONFIG = f"""reference: {DATA / "portiera.fa.gz"}
samples: samples.tsv
units: units.tsv
map: {{threads: 1}}
resources: {{max_mem_mb: 1900}}
"""
ASKS_SLURM = ("sbatch", "squeue", "sacct", "scontrol", "scancel")
COUNTED = """#!/bin/sh
# Counts the calls of Snakemake's main process.
[ -n "$SLURM_JOB_ID" ] || echo {name} >> {log}
exec {command} "$@"
"""
LIMIT = 3600  # seconds of one start of Snakemake


def sample_names() -> list[str]:
    return [f"s{n:03}" for n in range(1, N_SAMPLES + 1)]


def cohort(directory: Path) -> Path:
    """Write a project of small samples, each with pairs of its own."""
    mates = [gzip.decompress(path.read_bytes()).splitlines(keepends=True) for path in PORTIERA]
    n_pairs = len(mates[0]) // 4
    samples, units = SAMPLES_HEADER, UNITS_HEADER
    directory.mkdir()
    for number, sample in enumerate(sample_names()):
        first = 37 * number % (n_pairs - N_PAIRS)
        for mate, lines in enumerate(mates, start=1):
            taken = lines[4 * first : 4 * (first + N_PAIRS)]
            path = directory / f"{sample}_R{mate}.fq.gz"
            path.write_bytes(gzip.compress(b"".join(taken), 1, mtime=0))
        samples += f"{sample}\t\n"
        units += f"{sample}\tu\t{sample}_R1.fq.gz\t{sample}_R2.fq.gz\t\t\n"
    (directory / "tmp").mkdir()
    (directory / "bin").mkdir()
    for name in ASKS_SLURM:
        shim = directory / "bin" / name
        log = directory / "asked.txt"
        shim.write_text(COUNTED.format(name=name, log=log, command=shutil.which(name)))
        shim.chmod(0o755)
    return project(directory, CONFIG, samples, units)


def fmwave(directory: Path, *words: str) -> None:
    subprocess.run(
        ["fmwave", *words], cwd=directory, env=environment(), check=True, timeout=LIMIT,
        capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the alignments of all samples, by one process on the CPU."""
    directory = cohort(tmp_path_factory.mktemp("undisturbed") / "cohort")
    fmwave(directory, "index", str(DATA / "portiera.fa.gz"), "-o", "r.fmw", "--device", "cpu")
    sheet = "output\treads1\treads2\tread_group\n"
    for s in sample_names():
        group = f"@RG\\tID:{s}-u\\tSM:{s}\\tLB:{s}\\tPL:ILLUMINA"
        sheet += f"{s}.bam\t{s}_R1.fq.gz\t{s}_R2.fq.gz\t{group}\n"
    (directory / "sheet.tsv").write_text(sheet)
    options = ["--sort", "--markdup", "--mark-supplementary", "--device", "cpu"]
    fmwave(directory, "map", "r.fmw", "--batch", "sheet.tsv", *options)
    return directory


def all_records(path: Path) -> list[str]:
    pysam.quickcheck(str(path))
    with pysam.AlignmentFile(str(path)) as file:
        return [record.to_string() for record in file.fetch(until_eof=True)]


def done(directory: Path) -> int:
    return len(list((directory / "results" / "mapped").glob("*.bam")))


def commands_of(directory: Path) -> Iterator[tuple[int, str]]:
    """Yield number and command line of the mapping processes of a run."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            if b"map" in words[:3] and (path / "cwd").readlink() == directory:
                yield int(path.name), words[words.index(b"-o") + 1].decode()
        except (OSError, ValueError):  # it has ended, or is another's
            continue


class Killer:
    """Kills jobs and mapping processes of a run at random, in a thread."""

    def __init__(self, directory: Path) -> None:
        self.jobs: set[str] = set()
        self.processes: set[int] = set()
        self.killed: Counter[str] = Counter()
        self._directory = directory
        self._random = random.Random(SEED)
        self._doomed: dict[str, float] = {}  # job: when

    def look(self) -> None:
        """Choose among what is new, and kill what was chosen."""
        for pid, _ in commands_of(self._directory):
            if pid not in self.processes:
                self.processes.add(pid)
                if self._random.random() < KILLED:
                    self._kill(pid)
        running = queue("%A", "--states=RUNNING")
        now = time.monotonic()
        for job in set(running) - self.jobs:
            self.jobs.add(job)
            if self._random.random() < KILLED:
                self._doomed[job] = now + self._random.uniform(1, 30)
        for job in [job for job in running if self._doomed.get(job, now + 1) < now]:
            del self._doomed[job]
            way = self._random.choice([[], ["--signal=KILL", "--full"]])
            subprocess.run(["scancel", *way, job], check=False, timeout=30)
            self.killed["job by SIGKILL" if way else "job by scancel"] += 1

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed["mapping process by SIGKILL"] += 1

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Kill in the block."""
        stop = threading.Event()

        def work() -> None:
            last = 0.0
            while not stop.wait(0.05):
                for pid, _ in commands_of(self._directory):
                    if pid not in self.processes:
                        break
                else:
                    if time.monotonic() - last < 1:
                        continue
                last = time.monotonic()
                self.look()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def asked(directory: Path) -> Counter[str]:
    """Return how often the main process called each of Slurm's commands."""
    return Counter((directory / "asked.txt").read_text().split())


def snakemake_on_slurm(directory: Path, *options: str) -> subprocess.Popen[str]:
    return start(directory, *options, faster=["--latency-wait", "5"])


def end_what_is_left(directory: Path) -> None:
    """Do what docs/cluster.md says after the death of Snakemake."""
    name = re.findall(r"SLURM run ID: (\S+)", (directory / "run.log").read_text())[-1]
    subprocess.run(["scancel", f"--name={name}"], check=True, timeout=30)
    wait_for(lambda: not queue("%A"), "the jobs to be cancelled")
    assert snakemake_on_slurm(directory, "--unlock").wait(120) == 0


def check_results(directory: Path, undisturbed: Path) -> None:
    mapped = directory / "results" / "mapped"
    for sample in sample_names():
        assert all_records(mapped / f"{sample}.bam") == all_records(undisturbed / f"{sample}.bam")
    # Nothing is missing, and nothing is left of what was interrupted.
    finished = {f"{s}.{end}" for s in sample_names() for end in ("bam", "bam.bai")}
    assert {path.name for path in mapped.iterdir()} == finished
    results = directory / "results"
    assert {path.name for path in results.rglob(".*")} == {".snakemake_timestamp"}
    assert not (results / "parts").exists()
    kinds = {path.name.partition(".")[2] for path in (results / "stats").iterdir()}
    for kind in kinds:
        assert len(list((results / "stats").glob(f"*.{kind}"))) == N_SAMPLES
    assert len((results / "summary.tsv").read_text().splitlines()) == N_SAMPLES + 1
    assert (results / "efficiency.tsv").exists()
    assert [path for path in (directory / "tmp").iterdir() if "fmwave" in path.name] == []


def row(what: str, counts: Counter[str], seconds: float, jobs: int, other: str = "") -> None:
    cells = [what, str(N_SAMPLES), str(jobs), *(str(counts[name]) for name in ASKS_SLURM)]
    print("| " + " | ".join([*cells, f"{seconds:.0f}", other]) + " |")  # noqa: T201


def test_nothing_is_lost_of_a_cohort(tmp_path, undisturbed, no_jobs_left, monkeypatch) -> None:
    directory = cohort(tmp_path / "cohort")
    monkeypatch.setenv("TMPDIR", str(directory / "tmp"))
    killer = Killer(directory)
    ends = [int(share * N_SAMPLES) for share in HEAD_KILLED_AT]
    began, starts, heads = time.monotonic(), 0, 0
    with killer.at_work():
        while True:
            assert starts < 10
            starts += 1
            process = snakemake_on_slurm(directory)
            last = time.monotonic() + LIMIT
            while process.poll() is None and time.monotonic() < last:
                time.sleep(0.5)
                if ends and done(directory) >= ends[0]:
                    process.kill()
            status = process.wait(60)
            if status == 0:
                break
            if status == -signal.SIGKILL:
                assert ends, "the run took too long"
                ends.pop(0)
                heads += 1
                end_what_is_left(directory)
    seconds = time.monotonic() - began
    assert heads == len(HEAD_KILLED_AT)
    check_results(directory, undisturbed)
    killed = ", ".join(f"{n} {what}" for what, n in sorted(killer.killed.items()))
    row(
        "killed", asked(directory), seconds, len(killer.jobs),
        f"{killed}, Snakemake {heads} times by SIGKILL; {len(killer.processes)} mapping processes, "
        f"{starts} starts",
    )  # fmt: skip


@pytest.mark.parametrize("together", [True, False])
def test_small_jobs_are_submitted_together(tmp_path, undisturbed, no_jobs_left, together) -> None:
    """By default; each by itself if the settings say so."""
    directory = cohort(tmp_path / "cohort")
    if not together:
        config = directory / "config" / "config.yaml"
        config.write_text(config.read_text().replace("1900}", "1900, small_minutes: 0}"))
    began = time.monotonic()
    process = snakemake_on_slurm(directory)
    assert process.wait(LIMIT) == 0, (directory / "run.log").read_text()
    seconds = time.monotonic() - began
    check_results(directory, undisturbed)
    counts = asked(directory)
    others = 6  # what compiles, index, summary, plots, efficiency and the page
    groups = -(-N_SAMPLES // 8)
    assert counts["sbatch"] == others + (groups if together else 2 * N_SAMPLES)
    row("small jobs together" if together else "each by itself", counts, seconds, counts["sbatch"])
