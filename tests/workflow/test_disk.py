"""What jobs ask for of the disk of their node."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.helpers.workflow_runs import (
    CONFIG,
    DATA,
    PORTIERA,
    SAMPLES_HEADER,
    UNITS_HEADER,
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
    assert on_gpu.pop("finish_sample two") == 2 * 4000 + 3000
    assert on_gpu.pop("finish_sample one") == 2 * 1000
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
        "split_reads two-a": 4000 + 8000 + pod,
        "estimate_insert_size two-a": index + 4000 + pod,
        "fmwave_map two-a": index + 4000 + 8000 + 4000 * sort / 4 + pod,
        "fmwave_map two-b": index + 3000 + 3000 + 3000 * 330 / 200 + pod,
        "map_sample one": index + 1000 + 2000 + 1000 * sort + pod,
        "finish_sample two": 2 * (8000 + 3000) + pod,
        "alignment_statistics two": 8000 + 3000 + pod,
        "alignment_statistics one": 2000 + pod,
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
    """Two bytes of BAM a byte of reads; an index by the reference, five bases a byte of gzip."""
    units = UNITS_HEADER + f"s\tu\t{PORTIERA[0]}\t{PORTIERA[1]}\t\t2\n"
    config = CONFIG.replace("phix174.fa", "portiera.fa.gz")
    directory = project(tmp_path, config, SAMPLES_HEADER + "s\t\n", units)
    run = snakemake(directory, "--until", "finish_sample", "--notemp")
    assert run.returncode == 0, run.stdout
    results = directory / "results"
    reads = sum(path.stat().st_size for path in PORTIERA)
    parts = [path.stat().st_size for path in (results / "parts").glob("*.bam")]
    assert len(parts) == 2
    assert sum(parts) < 2 * reads
    assert (results / "mapped" / "s.bam").stat().st_size < 2 * reads
    chunks = sum(path.stat().st_size for path in (results / "chunks").rglob("*.gz"))
    assert 0 < chunks < 2 * reads
    index = sum(path.stat().st_size for path in (results / "index").rglob("*.npy"))
    reference = (DATA / "portiera.fa.gz").stat().st_size
    assert 0 < index < 100e6 + 5 * 5 * reference
