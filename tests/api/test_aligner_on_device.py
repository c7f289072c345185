"""An Aligner on a device: the records of the CPU, also of streams that overlap."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import mapper
from mapper.api import aligner as aligner_module
from tests.helpers.mapping_runs import DATA
from tests.helpers.simulate import read_fastq

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.medium,
    # In the simulator hashes overflow in NumPy's sight, in threads that conftest's setting misses.
    pytest.mark.filterwarnings("ignore:.*overflow encountered"),
]


def reads_of(mate: int, n: int) -> list[tuple[str, str, str]]:
    return [(r.name, r.letters, r.quals) for r in read_fastq(Path(DATA / f"phix_R{mate}.fq"))[:n]]


def test_the_records_of_the_cpu(device, monkeypatch) -> None:
    monkeypatch.setattr(aligner_module, "FEW_READS", 2)
    first, second = reads_of(1, 3), reads_of(2, 3)
    index = mapper.Index.build(DATA / "phix174.fa", device="cpu")
    with mapper.Aligner(index, device="cpu", threads=1) as on_cpu:
        pairs = on_cpu.map(first, second).to_bam()
        single = on_cpu.map(first).to_bam()
    interval = sys.getswitchinterval()
    with mapper.Aligner(index, device="cuda:0", threads=2, batch_bases=700) as aligner:
        assert aligner.map(first, second).to_bam() == pairs
        one = aligner.map(iter(first), iter(second)).batches()
        other = aligner.map(iter(first)).batches()
        records = [next(one).to_bam(), next(other).to_bam()]
        records[0] += b"".join(hits.to_bam() for hits in one)
        records[1] += b"".join(hits.to_bam() for hits in other)
        assert records == [pairs, single]
        assert aligner.map(first[0][1])[0].is_mapped  # by the CPU
    assert sys.getswitchinterval() == interval
