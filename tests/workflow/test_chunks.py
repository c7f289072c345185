"""Scatter and gather: the records of a unit do not depend on the number of mapping jobs."""

from __future__ import annotations

import gzip
import json

import pysam
import pytest

from tests.helpers.workflow_runs import (
    CONFIG,
    PORTIERA,
    SAMPLES_HEADER,
    copied,
    needs_snakemake,
    project,
    records,
    snakemake,
    unaligned,
)

pytestmark = [needs_snakemake, pytest.mark.timeout(620)]  # 55 jobs, on a busy machine


@pytest.mark.slow
def test_chunks_give_the_records_of_the_whole(tmp_path):
    """1, 3 and 8 chunks; single reads; more chunks than reads. Order, flags, tags: all equal.

    Of FASTQ, and of BAM in which every third read has no mate, or none has.
    """
    lines = 4 * 3
    few = []
    for mate, path in enumerate(PORTIERA, start=1):
        text = gzip.decompress(path.read_bytes()).splitlines(keepends=True)[:lines]
        few.append(tmp_path / f"few_R{mate}.fq")
        few[-1].write_bytes(b"".join(text))
    plans = [("pairs", PORTIERA, (1, 3, 8)), ("single", PORTIERA[:1], (1, 2)), ("few", few, (1, 4))]
    samples, units = SAMPLES_HEADER, "sample\tunit\tfq1\tfq2\tbam\tlibrary\tchunks\n"
    for kind, paths, numbers in plans:
        for n in numbers:
            samples += f"{kind}{n}\t\n"
            units += f"{kind}{n}\tu\t{copied(tmp_path, f'{kind}{n}', *paths)}\t\t\t{n}\n"
    for kind, single, numbers in (
        ("mixed", lambda number: number % 3 == 0, (1, 8)),
        ("lone", lambda number: True, (1, 2)),
    ):
        plans.append((kind, (), numbers))
        for n in numbers:
            samples += f"{kind}{n}\t\n"
            unaligned(tmp_path / f"{kind}{n}.bam", f"{kind}{n}", PORTIERA, single)
            units += f"{kind}{n}\tu\t\t\t{kind}{n}.bam\t\t{n}\n"
    config = CONFIG.replace("phix174.fa", "portiera.fa.gz") + "map: {threads: 1}\n"
    config += f"scratch: {tmp_path / 'node'}\n"  # one copy of the index for all jobs
    directory = project(tmp_path, config, samples, units)

    run = snakemake(directory, "--until", "finish_sample", "map_sample")

    assert run.returncode == 0, run.stdout
    mapped = directory / "results" / "mapped"
    for kind, _, numbers in plans:
        whole = records(mapped / f"{kind}1.bam")
        assert len(whole) >= 3
        for n in numbers[1:]:
            assert records(mapped / f"{kind}{n}.bam") == whole
            stats = directory / "results" / "stats"
            parts = [
                json.loads((stats / f"{kind}{n}-u.{part}-of-{n}.map.json").read_text())
                for part in range(1, n + 1)
            ]
            reads = [part["counts"].get("reads", 0) for part in parts]
            assert max(reads) - min(reads) <= (3 if kind == "mixed" else 2)  # pairs stay whole
            assert sum(reads) == len([r for r in whole if not int(r.split("\t")[1]) & 0x900])
    for kind in ("pairs", "mixed"):
        models = {
            json.dumps(json.loads(path.read_text())["insert_size"])
            for path in (directory / "results" / "stats").glob(f"{kind}*.map.json")
        }
        assert len(models) == 1
    assert not (directory / "results" / "chunks").exists()  # temp()

    (copy,) = (tmp_path / "node").glob("fmwave-*")
    assert copy.name.startswith("fmwave-")
    with pysam.AlignmentFile(str(mapped / "pairs8.bam")) as bam:
        lines = [program["CL"] for program in bam.header["PG"]]
    assert sum(line.startswith(f"fmwave map {copy} ") for line in lines) == 8
    merges = [line for line in lines if line.startswith("fmwave merge ")]
    assert len(merges) == len(lines) - 8 == 8
    assert all(f" --tmp-dir {tmp_path / 'node'} " in f"{line} " for line in merges)
