"""What jobs ask for of the disk of their node."""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.workflow_runs import (
    CONFIG,
    DATA,
    PORTIERA,
    SAMPLES_HEADER,
    UNITS_HEADER,
    environment,
    needs_snakemake,
    project,
    snakemake,
)

pytestmark = needs_snakemake

GB = 10**9
SPARSE = {
    "genome.fa": 3 * GB,
    "a_R1.fq.gz": 2 * GB,
    "a_R2.fq.gz": 2 * GB,
    "b.fq": 3 * GB,
    "c.bam": GB,
}
UNITS = "two\ta\ta_R1.fq.gz\ta_R2.fq.gz\t\t\t4\ntwo\tb\tb.fq\t\t\t\t\none\tc\t\t\tc.bam\t\t\n"
GPU = "gpu: {model: H100}\n"  # its index has 10 bytes a base, with all of the suffix array; else 5


def large_project(directory: Path, config: str = "", files: Path | None = None) -> Path:
    """Write a project with a genome of 3 Gbp and large files of reads, all without content."""
    for name, size in SPARSE.items():
        with ((files or directory) / name).open("wb") as file:
            file.truncate(size)
    config += "resources: {small_minutes: 0}\n"  # dry runs show jobs of groups in another form
    return project(
        directory,
        CONFIG.replace(str(DATA / "phix174.fa"), "genome.fa") + config,
        SAMPLES_HEADER + "two\t\none\t\n",
        UNITS_HEADER.replace("fq2", "fq2\tbam") + UNITS,
    )


def asked(directory: Path, *options: str, resource: str = "disk_mb") -> dict[str, int]:
    """Return the resource of the jobs of a dry run that have it, by rule and sample or unit."""
    run = snakemake(directory, "--dry-run", *options)
    assert run.returncode == 0, run.stdout
    jobs = {}
    for rule, text in re.findall(r"^rule (\w+):\n((?:    .*\n)+)", run.stdout, re.MULTILINE):
        of = re.search(r"(?:unit|sample)=([\w-]+)", text)
        if value := re.search(rf"\b{resource}=(\d+)", text):
            jobs[f"{rule} {of[1]}" if of else rule] = int(value[1])
    return jobs


@pytest.mark.medium
@pytest.mark.parametrize("scratch", ["", "scratch: /scratch\n"])
def test_jobs_ask_for_temporary_files_and_copies(tmp_path, scratch):
    """On the CPU parts are sorted with what lies beside the output; on a GPU their merge sorts."""
    directory = large_project(tmp_path, scratch)
    copies = ("map_sample one", "fmwave_map two-a", "fmwave_map two-b")
    assert asked(directory) == {job: 100 + 5 * 3000 for job in copies if scratch}

    config = directory / "config" / "config.yaml"
    config.write_text(config.read_text() + GPU)
    on_gpu = asked(directory)
    assert on_gpu.pop("finish_sample two") == 3 * 4000 + 3000
    assert on_gpu.pop("finish_sample one") == 3 * 1000
    copies = ("fmwave_map one-c", "fmwave_map two-a", "fmwave_map two-b")
    assert on_gpu == {job: 100 + 10 * 3000 for job in copies if scratch}


@pytest.mark.medium
def test_jobs_that_share_no_disk_ask_for_all_their_files(tmp_path):
    """By the sizes that the storage tells; of memory and time they ask for what others do."""
    if importlib.util.find_spec("snakemake_storage_plugin_fs") is None:
        pytest.skip("snakemake-storage-plugin-fs is not installed: make test-profiles")
    store, run = tmp_path / "store", tmp_path / "run"
    store.mkdir()
    run.mkdir()
    directory = large_project(run, files=store)
    options = (
        *("--default-storage-provider", "fs", "--default-storage-prefix", str(store)),
        *("--shared-fs-usage", "none"),
    )
    index, pod = 100 + 5 * 3000, 2000
    sort = 330 / 40  # bytes of a resumed sort for each byte of gzip or BAM
    assert asked(directory, *options) == {
        "fmwave_index": 3000 + index + pod,
        "split_reads two-a": 4000 + 12000 + pod,
        "estimate_insert_size two-a": index + 4000 + pod,
        "fmwave_map two-a": index + 4000 + 12000 + 4000 * sort / 4 + pod,
        "fmwave_map two-b": index + 3000 + 3000 + 3000 * 330 / 200 + pod,
        "map_sample one": index + 1000 + 3000 + 1000 * sort + pod,
        "finish_sample two": 2 * (12000 + 3000) + pod,
        "alignment_statistics two": 12000 + 3000 + pod,
        "alignment_statistics one": 3000 + pod,
    }
    local = tmp_path / "local"
    local.mkdir()
    large_project(local)
    for resource in ("mem_mb", "runtime"):
        with_shared_disk = asked(local, resource=resource)
        with_shared_disk.pop("fmwave_compile")
        assert asked(directory, *options, resource=resource) == with_shared_disk


@pytest.mark.slow
def test_files_are_no_larger_than_what_is_asked_for(tmp_path):
    """Three bytes of BAM a byte of reads; an index by the reference, five bases a byte of gzip."""
    units = UNITS_HEADER + f"s\tu\t{PORTIERA[0]}\t{PORTIERA[1]}\t\t2\n"
    config = CONFIG.replace("phix174.fa", "portiera.fa.gz")
    directory = project(tmp_path, config, SAMPLES_HEADER + "s\t\n", units)
    run = snakemake(directory, "--until", "finish_sample", "--notemp")
    assert run.returncode == 0, run.stdout
    results = directory / "results"
    reads = sum(path.stat().st_size for path in PORTIERA)
    parts = [path.stat().st_size for path in (results / "parts").glob("*.bam")]
    assert len(parts) == 2
    assert sum(parts) < 3 * reads
    assert (results / "mapped" / "s.bam").stat().st_size < 3 * reads
    chunks = sum(path.stat().st_size for path in (results / "chunks").rglob("*.gz"))
    assert 0 < chunks < 3 * reads
    index = sum(path.stat().st_size for path in (results / "index").rglob("*.npy"))
    reference = (DATA / "portiera.fa.gz").stat().st_size
    assert 0 < index < 100e6 + 5 * 5 * reference


READ_LEN = 50
N_PAIRS = 100_000


def write_short_reads(directory: Path) -> None:
    """Write a genome of repeats, and pairs that compress as well as reads may.

    Names are short, qualities all the same, and each read has other places in the genome, which
    its record lists.
    """
    rng = np.random.default_rng(3)
    bases = np.frombuffer(b"ACGT", np.uint8)
    genome = np.tile(bases[rng.integers(0, 4, 500_000)], 4)
    changed = rng.random(len(genome)) < 0.01
    genome[changed] = bases[rng.integers(0, 4, int(changed.sum()))]
    (directory / "repeats.fa").write_bytes(b">repeats\n%s\n" % genome.tobytes())
    complement = bytes.maketrans(b"ACGT", b"TGCA")
    first = rng.integers(0, len(genome) - 400, N_PAIRS)
    last = first + rng.integers(250, 400, N_PAIRS)
    for mate in (1, 2):
        with gzip.open(directory / f"s_R{mate}.fq.gz", "wb", 6) as out:
            for n, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
                read = genome[a : a + READ_LEN] if mate == 1 else genome[b - READ_LEN : b][::-1]
                letters = read.tobytes() if mate == 1 else read.tobytes().translate(complement)
                out.write(b"@r%d/%d\n%s\n+\n%s\n" % (n, mate, letters, b"I" * READ_LEN))


@pytest.fixture
def disk_of(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount file systems of so many bytes, in memory; they are gone after the test."""
    mounted: list[Path] = []

    def mount(n_bytes: int) -> Path:
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(path)]
        if os.geteuid() != 0 or subprocess.run(command, check=False, timeout=30).returncode != 0:
            pytest.skip("needs root, who may mount a file system")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", str(path)], check=True, timeout=30)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sort_ends_on_a_disk_of_the_size_that_its_job_asks_for(tmp_path, disk_of):
    """With a tenth to spare; on a third of that it does not, so little stays in memory."""
    write_short_reads(tmp_path)
    config = CONFIG.replace(str(DATA / "phix174.fa"), "repeats.fa")
    config += "gpu: {model: H100, device: cpu}\nresources: {small_minutes: 0}\n"
    units = UNITS_HEADER + "s\tu\ts_R1.fq.gz\ts_R2.fq.gz\t\t\n"
    directory = project(tmp_path, config, SAMPLES_HEADER + "s\t\n", units)
    shim = directory / "bin" / "fmwave"
    shim.parent.mkdir()
    fmwave = shutil.which("fmwave", path=environment()["PATH"])
    shim.write_text(
        f'#!/bin/bash\n[ "$1" != merge ] || set -- "$@" --memory 4M\nexec {fmwave} "$@"\n'
    )
    shim.chmod(0o755)
    disk_mb = asked(directory)["finish_sample s"]
    log = directory / "results" / "logs" / "finish_sample" / "s.log"

    def finish(n_bytes: int) -> bool:
        temporary = ("--default-resources", f"tmpdir='{disk_of(n_bytes)}'")
        run = snakemake(directory, "--until", "finish_sample", *temporary, first_on_path=shim)
        return run.returncode == 0

    assert not finish(disk_mb * 10**6 // 3)
    assert "writing the temporary file of the sort failed" in log.read_text()
    assert finish(disk_mb * 9 * 10**5), log.read_text()
