"""``fmwave map`` on a device: the CPU's file, or its records if a device compresses."""

from __future__ import annotations

import gzip
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pysam
import pytest

from mapper.cli.main import main
from mapper.cuda import nvcomp
from mapper.cuda.devices import CPU, CUDA, DeviceChoice
from mapper.errors import InputFormatError
from mapper.index.storage import checksum
from mapper.io.bgzf import BgzfWriter
from mapper.io.reads import Lane
from mapper.mapping import resume
from mapper.mapping.device_io import DEVICE, HOST
from mapper.mapping.job import MapJob, Resume
from mapper.mapping.memory_plan import STREAM_BYTES_PER_BASE
from mapper.mapping.pipeline import Run
from mapper.mapping.session import Session
from mapper.mapping.stages import EncodedReads, LeftToHost
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import model_from
from mapper.params import BATCH_BASES
from mapper.sorting.options import MarkOptions, SortOptions
from tests.helpers.big_offsets import BEYOND, index_at
from tests.helpers.mapping_runs import DATA, build_index, map_to
from tests.mapping.test_resume import inline_pool

pytestmark = [
    pytest.mark.gpu,
    # In the simulator hashes overflow in NumPy's sight, in threads that conftest's setting misses.
    pytest.mark.filterwarnings("ignore:.*overflow encountered"),
]


def is_simulated() -> bool:
    from mapper.cuda.api import SIMULATED

    return SIMULATED


@pytest.fixture(scope="module")
def phix(tmp_path_factory: pytest.TempPathFactory):
    return build_index(DATA / "phix174.fa", tmp_path_factory.mktemp("phix") / "phix.fmw")


def head(source: Path, target: Path, n_reads: int) -> str:
    target.write_text("".join(source.read_text().splitlines(keepends=True)[: 4 * n_reads]))
    return str(target)


@pytest.mark.medium
def test_small_pairs_in_batches(device, phix, tmp_path) -> None:
    reads = [head(DATA / f"phix_R{mate}.fq", tmp_path / f"{mate}.fq", 3) for mate in (1, 2)]
    map_to(phix, tmp_path / "cpu.bam", *reads)
    cpu = (tmp_path / "cpu.bam").read_bytes()
    for batch_bases in (BATCH_BASES, 700):
        path = tmp_path / "cuda.bam"
        choice = DeviceChoice(CUDA, (0,))
        stats = map_to(
            phix, path, *reads, threads=2, batch_bases=batch_bases, device=choice, compress_on=HOST
        )
        assert path.read_bytes() == cpu
        assert stats.counts["reads"] == 6
        path.unlink()


@pytest.mark.medium
@pytest.mark.parametrize("what", ["plain", "odd", "broken"])
def test_text_is_parsed_there_or_left_to_the_host(
    device, phix, tmp_path, monkeypatch, what: str
) -> None:
    """The first batch, a pair, is the host's, the others are the device's but for what is odd."""
    from mapper.mapping.stages_cuda import DeviceStages

    n_reads = 8
    files = [head(DATA / f"phix_R{mate}.fq", tmp_path / f"{mate}.fq", n_reads) for mate in (1, 2)]
    second = Path(files[1])
    lines = second.read_text().splitlines()
    if what == "odd":
        lines[4 * 5 : 4 * 6] = [f"{line}\r" for line in lines[4 * 5 : 4 * 6]]
    elif what == "broken":
        lines[4 * 5 + 3] = lines[4 * 5 + 3][:-1]
    second.write_bytes("".join(f"{line}\n" for line in lines).encode())
    options = {
        "lanes": [Lane(tuple(files), r"@RG\tID:a\tSM:s")], "batch_bases": 500, "threads": 1,
        "insert_size": model_from(300.0, 50.0, 100, 500, 1000), "compress_on": HOST,
    }  # fmt: skip
    parses, made = DeviceStages.map_fastq, list[int]()

    def noting(self: DeviceStages, *arguments: Any) -> list[EncodedReads] | LeftToHost:
        found = parses(self, *arguments)
        left = isinstance(found, LeftToHost)
        made.append(0 if left else sum(batch.size.n_reads for batch in found))
        return found

    def run(name: str, choice: DeviceChoice) -> bytes:
        map_to(phix, tmp_path / f"{name}.bam", device=choice, **options)
        return (tmp_path / f"{name}.bam").read_bytes()

    on_device = DeviceChoice(CUDA, (0,))
    with monkeypatch.context() as patch:
        patch.setattr(DeviceStages, "map_fastq", noting)
        if what == "broken":
            for choice in (DeviceChoice(CPU), on_device):
                with pytest.raises(InputFormatError, match=r"2\.fq: record 6: \d+ quality"):
                    run("x", choice)
            assert not (tmp_path / "x.bam").exists()
        else:
            assert run("cuda", on_device) == run("cpu", DeviceChoice(CPU))
    assert made[0] == 4  # the pairs of the warm-up: files of mates hold no single reads
    assert set(made[1:]) == ({2} if what == "plain" else {0, 2})


@pytest.mark.medium
@pytest.mark.slow_simulated
@pytest.mark.parametrize("sort", [None, SortOptions(None, MarkOptions())])
@pytest.mark.parametrize("order", [(CPU, CUDA), (CUDA, CPU)])
def test_a_run_goes_on_on_another_device(
    device, phix, tmp_path, monkeypatch, order: tuple[str, str], sort: SortOptions | None
) -> None:
    """It is interrupted after the first of two batches, and then has other threads, too."""
    index = tmp_path / "phix.fmw"
    phix.save(index)
    reads = [head(DATA / f"phix_R{mate}.fq", tmp_path / f"{mate}.fq", 2) for mate in (1, 2)]
    for name in ("plain", "resumed"):
        (tmp_path / name).mkdir()
    map_to(phix, tmp_path / "plain" / "x.bam", *reads, sort=sort, threads=3)
    devices = {CPU: DeviceChoice(CPU), CUDA: DeviceChoice(CUDA, (0,))}
    options = {"sort": sort, "batch_bases": 350, "resume": Resume(checksum(index), seconds=0)}
    output = tmp_path / "resumed" / "x.bam"
    write, states = resume.write_state, []

    def write_one(path: Path, state: dict) -> None:
        write(path, state)
        states.append(state["statistics"]["counts"]["reads"])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resume, "write_state", write_one)
        patch.setattr(resume, "thread_pool", inline_pool)
        with pytest.raises(KeyboardInterrupt):
            map_to(phix, output, *reads, **options, threads=2, device=devices[order[0]])
    assert states == [2]
    stats = map_to(phix, output, *reads, **options, threads=1, device=devices[order[1]])
    assert stats.summary()["resumed"] == 1
    assert stats.counts["reads"] == 4
    plain, resumed = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("plain", "resumed")
    )
    assert resumed == plain


@pytest.mark.parametrize("given", [None, 500_000])
def test_a_batch_is_as_large_as_free_memory_allows(device, phix, monkeypatch, given) -> None:
    from mapper.mapping import stages_cuda

    free = 16_000_000 * STREAM_BYTES_PER_BASE  # of which three streams get three quarters
    monkeypatch.setattr(stages_cuda, "free_share", lambda held: free)
    with Session(phix) as session:
        choice = DeviceChoice(CUDA, (0,))
        run = Run(session, MapJob([], "-", "sam", device=choice, batch_bases=given), RunStats())
        size = run.plan_resources(converts_input=False).batch_bases
    assert size == (given or 4_000_000)


@pytest.mark.parametrize("far", [False, True])
def test_rows_of_64_bits_and_positions_beyond_32(device, tmp_path, monkeypatch, far) -> None:
    """The suffix array is expanded on the device; beyond 32 bits that would take 34 GB."""
    from mapper.index import storage
    from mapper.mapping import stages_cuda

    monkeypatch.setattr(storage, "NARROW_ROWS", 1000)
    index = build_index(DATA / "phix174.fa", tmp_path / "phix.fmw")
    if far:
        index = index_at(index, BEYOND)
        monkeypatch.setattr(stages_cuda, "expand_suffix_array", lambda fm: fm)
    n_pairs = 2 if is_simulated() else 45
    reads = [head(DATA / f"phix_R{mate}.fq", tmp_path / f"{mate}.fq", n_pairs) for mate in (1, 2)]
    for name, choice in (("cpu", DeviceChoice(CPU)), ("cuda", DeviceChoice(CUDA, (0,)))):
        path = tmp_path / f"{name}.bam"
        stats = map_to(index, path, *reads, device=choice, compress_on=HOST)
        assert stats.counts["mapped"] >= 2 * n_pairs - 5
    assert (tmp_path / "cuda.bam").read_bytes() == (tmp_path / "cpu.bam").read_bytes()


@pytest.mark.parametrize("name", ["phix", "portiera"])
@pytest.mark.parametrize("batch_bases", [20_000, 100_001, BATCH_BASES])
def test_bundled_reads(device, tmp_path, name, batch_bases) -> None:
    if is_simulated():
        pytest.skip("the simulator would take minutes")
    suffix = ".gz" if name == "portiera" else ""
    fasta = DATA / ("portiera.fa.gz" if suffix else "phix174.fa")
    index = build_index(fasta, tmp_path / "ref.fmw")
    reads = [str(DATA / f"{name}_R{mate}.fq{suffix}") for mate in (1, 2)]
    map_to(index, tmp_path / "cpu.bam", *reads)
    for ordinals in ((0,), (0, 0)):
        choice = DeviceChoice(CUDA, ordinals)
        path = tmp_path / "cuda.bam"
        options = {"threads": 3, "batch_bases": batch_bases, "device": choice}
        map_to(index, path, *reads, **options, compress_on=HOST)
        assert path.read_bytes() == (tmp_path / "cpu.bam").read_bytes()
        path.unlink()
        if nvcomp.load() is not None:
            map_to(index, path, *reads, **options, compress_on=DEVICE)
            cpu = (tmp_path / "cpu.bam").read_bytes()
            assert gzip.decompress(path.read_bytes()) == gzip.decompress(cpu)
            path.unlink()


def _end(read: pysam.AlignedSegment) -> int:
    return read.reference_end or read.reference_start + 1


@pytest.mark.parametrize("sort", [None, SortOptions(None, MarkOptions())])
def test_bgzf_input_and_output_pass_the_device(device, tmp_path, sort) -> None:
    """Reads in BGZF, a file of their BAM, and what becomes of both: the same records."""
    if is_simulated():
        pytest.skip("the simulator has no nvCOMP")
    if nvcomp.load() is None:
        pytest.skip(f"nvCOMP is not installed: {nvcomp.INSTALL}")
    index = build_index(DATA / "phix174.fa", tmp_path / "ref.fmw")
    reads = []
    for mate in (1, 2):
        path = tmp_path / f"{mate}.fq.gz"
        reads.append(str(path))
        with path.open("wb") as sink, ThreadPoolExecutor(1) as executor:
            writer = BgzfWriter(sink, executor)
            for _ in range(20):
                writer.append((DATA / f"phix_R{mate}.fq").read_bytes())
            writer.finish()
    outputs = {}
    for choice in (DeviceChoice(CPU), DeviceChoice(CUDA, (0,))):
        files = [tmp_path / f"{choice.backend}{i}.bam" for i in range(2)]
        options = {"threads": 3, "device": choice, "sort": sort}
        map_to(index, files[0], *reads, **options)
        if sort is None:
            map_to(index, files[1], str(files[0]), **options)
        outputs[choice.backend] = [gzip.decompress(f.read_bytes()) for f in files if f.exists()]
        if sort is not None:
            pysam.quickcheck(str(files[0]))
            with pysam.AlignmentFile(str(files[0])) as bam:
                found = [str(read) for read in bam.fetch(bam.references[0], 2000, 2100)]
                placed = list(bam.fetch())
            assert found == [str(r) for r in placed if r.reference_start < 2100 and _end(r) > 2000]
            assert found
    assert outputs[CPU] == outputs[CUDA]


def test_the_command_names_its_device(device, phix, tmp_path, capfd) -> None:
    reads = head(DATA / "phix_R1.fq", tmp_path / "1.fq", 3)
    index = tmp_path / "phix.fmw"
    phix.save(index)
    output = tmp_path / "x.sam"
    options = ["--device", "cuda", "-t", "1", "--verbose"]
    assert main(["map", str(index), reads, "-o", str(output), *options]) == 0
    lines = output.read_text().splitlines()
    assert sum(not line.startswith("@") for line in lines) == 3
    err = capfd.readouterr().err
    assert "wait" in err
    assert "of each device's memory" in err


@pytest.mark.slow_simulated
def test_a_batch_copies_the_index_to_the_device_once(device, phix, tmp_path, monkeypatch) -> None:
    from mapper.mapping import stages_cuda

    made = []
    whole = stages_cuda.DeviceStages.__init__

    def making(*arguments) -> None:
        made.append(arguments)
        whole(*arguments)

    monkeypatch.setattr(stages_cuda.DeviceStages, "__init__", making)
    index = tmp_path / "phix.fmw"
    phix.save(index)
    reads = [head(DATA / f"phix_R{mate}.fq", tmp_path / f"{mate}.fq", 3) for mate in (1, 2)]
    rows = [f"{tmp_path}/pair.sam\t{reads[0]}\t{reads[1]}\n"]
    if not is_simulated():  # a minute there, each
        single = head(DATA / "phix_R1.fq", tmp_path / "single.fq", 5)
        rows.append(f"{tmp_path}/single.sam\t{single}\t\n")
    else:
        (tmp_path / "empty.fq").write_text("")
        rows.append(f"{tmp_path}/single.sam\t{tmp_path}/empty.fq\t\n")
    (tmp_path / "sheet.tsv").write_text("output\treads1\treads2\n" + "".join(rows))
    sheet = ["--batch", str(tmp_path / "sheet.tsv"), "--quiet", "-t", "2"]
    texts = {}
    for name in ("cpu", "cuda:0"):
        assert main(["map", str(index), *sheet, "--device", name]) == 0
        texts[name] = [
            [line for line in (tmp_path / file).read_text().splitlines() if line[:3] != "@PG"]
            for file in ("pair.sam", "single.sam")
        ]
    assert len(made) == 1
    assert texts["cuda:0"] == texts["cpu"]
    assert len(texts["cpu"][0]) > 6


def test_a_process_with_two_devices_ends_well(device, phix, tmp_path) -> None:
    """Two devices share their kernels' code: unloading it twice ended the process by SIGABRT."""
    if is_simulated():
        pytest.skip("the simulator has one device")
    from mapper.cuda.api import cuda

    if len(cuda.gpus) < 2:
        pytest.skip("there is one device")
    index = tmp_path / "phix.fmw"
    phix.save(index)
    reads = [str(DATA / f"phix_R{mate}.fq") for mate in (1, 2)]
    lines = {}
    for name in ("cpu", "cuda:0,1"):
        command = [
            sys.executable, "-m", "mapper.cli.main", "map", str(index), *reads, "--device", name,
            "--batch-bases", "3000", "-o", str(tmp_path / f"{name[:4]}.sam"),
        ]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
        assert ended.returncode == 0, ended.stderr
        output = (tmp_path / f"{name[:4]}.sam").read_text()
        lines[name] = [line for line in output.splitlines() if line[:3] != "@PG"]
    assert lines["cuda:0,1"] == lines["cpu"]
