"""The summary of a device's trace, of one that is made up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.studies import device_timeline

ENCODE = "_ZN6mapper4pair12records_cuda15_encode_recordsB4v413B104cw51c"
SEED = "_ZN6mapper4seed4cuda5_seedB3v14B104cw51c"
DEFLATE = "_ZN8gdeflate11lz_compressEv"
MS = 1_000_000


def trace(n_batches: int) -> list[str]:
    """Two streams, a batch each in turn of 10 ms: seeding for 6, a copy for 1, records for 2."""
    lines = []
    for batch in range(n_batches):
        at, stream = 5 * batch * MS, 21 + batch % 2
        for name, start, end in ((SEED, 0, 6), (ENCODE, 7, 9)):
            lines.append(f"kernel\t{at + start * MS}\t{at + end * MS}\t{stream}\t100\t{name}\n")
        lines.append(f"copy\t{at + 6 * MS}\t{at + 7 * MS}\t{stream}\t4096\t1\n")
        lines.append(f"kernel\t{at}\t{at + MS}\t24\t1024\t{DEFLATE}\n")
    return lines


def test_names_are_those_of_module_and_function() -> None:
    assert device_timeline.plain_name(SEED) == "cuda._seed"
    assert device_timeline.plain_name("memset") == "memset"


def test_shares_of_the_time() -> None:
    lines = device_timeline.summary(device_timeline.calls_of(trace(100)))
    shares = dict(re.findall(r"^([a-z ]+): ([0-9.]+) of", "\n".join(lines), re.MULTILINE))
    expected = {"kernels of fmwave": 1, "other kernels": 1 / 5, "copies to the device": 1 / 5,
                "copies to the host": 0}  # fmt: skip
    for name, share in expected.items():
        assert float(shares[name]) == pytest.approx(share, abs=0.02), name
    (seeding,) = (line for line in lines if "cuda._seed " in line)
    assert seeding.endswith("| 6000.0 | 6.00 |")
    # 8 ms of kernels in each 5 ms, and never none.
    (at_a_time,) = (line for line in lines if "at a time" in line)
    alone, together = re.findall(r"[12]: ([0-9.]+)", at_a_time)
    assert (float(alone), float(together)) == pytest.approx((2 / 5, 3 / 5), abs=0.02)


def test_a_batch_of_a_stream_is_listed_with_its_gaps() -> None:
    lines = device_timeline.batch_of(device_timeline.calls_of(trace(10)), 22)
    assert [line.rsplit(": ")[1] for line in lines] == [
        "cuda._seed (100)", "copy to the device (4096)", "records_cuda._encode_records (100)",
    ]  # fmt: skip
    assert "gap   1.000 ms, lasts   6.000 ms" in lines[0]


def test_too_short_a_trace_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.tsv"
    path.write_text("".join(trace(2)))
    assert device_timeline.main(["read", str(path)]) == 1
    assert "too few" in capsys.readouterr().err
