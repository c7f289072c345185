"""Score the first pairs of a mapper's output with mapeval.py, without a samtools program.

Records come in the order of the reads, from mappers that keep it; those of the first pairs go to
mapeval.py as text on its standard input (BAM through pysam's samtools). On the way the
reads from beyond a position of the whole text are counted apart: right by mapeval's rule (same
contig and strand, overlap / union with the true place over 0.1).
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from benchmarks.common import strata
from benchmarks.common.harness import BenchmarkError, kit
from mapper.io.samtools import SamtoolsProcess

_ON_REFERENCE = re.compile(rb"(\d+)[MDN=X]")


def score(
    alignments: Path, fasta: Path, truth: Path, n_pairs: int, far_from: Mapping[str, int],
    limit_s: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Score the first pairs.

    Parameters
    ----------
    alignments
        ``.bam`` or ``.sam``, in the order of the reads.
    truth
        JSON that simulate.py wrote of all reads.
    far_from
        By contig: first position that counts as beyond.
    limit_s
        Seconds after which it is given up.

    Returns
    -------
    What mapeval.py says, and under ``far`` the counts of reads from beyond.

    Raises
    ------
    BenchmarkError
        If the file cannot be read, or mapeval.py does not score it.
    TimeoutError
        If it takes longer than the limit.
    """
    about = json.loads(truth.read_text())
    n_pairs = min(n_pairs, about["templates"])
    part = alignments.with_suffix(".truth.json")
    part.write_text(json.dumps(about | {"templates": n_pairs, "reads": 2 * n_pairs}))
    out, log = alignments.with_suffix(".eval.json"), alignments.with_suffix(".eval.log")
    out.unlink(missing_ok=True)
    command: list[str | Path] = [sys.executable, kit("mapeval.py"), "--no-table", "--ref", fasta]
    command += ["--truth", part, "--json", out, "-"]
    late = threading.Event()
    far: Counter[str] = Counter()
    with log.open("wb") as messages:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=messages, stderr=messages)
        assert process.stdin is not None
        limit = threading.Timer(limit_s or threading.TIMEOUT_MAX, _end, (process, late))
        limit.start()
        try:
            with sam_lines(alignments) as lines, process.stdin as sink:
                for line in first_pairs(lines, n_pairs):
                    sink.write(line)
                    count_far(line, far_from, far)
        except BrokenPipeError:
            pass  # its log says why
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
            limit.cancel()
    if late.is_set():
        raise TimeoutError(f"scoring {alignments.name}: ended after {limit_s:.0f} s")
    if not out.exists():
        raise BenchmarkError(f"mapeval.py on {alignments}: {log.read_text().strip()}")
    result: dict[str, Any] = json.loads(out.read_text())
    return result | {"far": dict(far)}


def _end(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    process.kill()


@contextmanager
def sam_lines(alignments: Path) -> Iterator[IO[bytes]]:
    """Open the text of a BAM or SAM file; it need not be read to its end."""
    if alignments.suffix == ".sam":
        with alignments.open("rb") as file:
            yield file
        return
    process = SamtoolsProcess("view", "-h", str(alignments), stdout=subprocess.PIPE)
    try:
        unbuffered = cast(io.RawIOBase, process.process.stdout)
        with io.BufferedReader(unbuffered) as lines:
            yield lines
    finally:
        process.kill()


def first_pairs(lines: IO[bytes], n_pairs: int) -> Iterator[bytes]:
    """Return the header and the records of reads S0 to S`n_pairs` - 1."""
    for line in lines:
        if not line.startswith(b"@") and read_number(line) >= n_pairs:
            return
        yield line


def read_number(line: bytes) -> int:
    """Return the number of a simulated read: of ``S17!chr1!...``, 17."""
    return int(line[1 : line.index(b"!")])


def count_far(line: bytes, far_from: Mapping[str, int], far: Counter[str]) -> None:
    """Count a primary record of a read from beyond the positions `far_from`."""
    if line.startswith(b"@"):
        return
    name, flag_text, contig, pos, mapq, cigar, _ = line.split(b"\t", 6)
    flag = int(flag_text)
    truth = strata.truth_of(name.decode(), bool(flag & 0x80))
    if flag & 0x900 or truth.start < far_from.get(truth.contig, sys.maxsize):
        return
    far["reads"] += 1
    if flag & 4:
        return
    start = int(pos) - 1
    end = start + sum(int(n) for n in _ON_REFERENCE.findall(cigar))
    right = strata.is_correct(truth, contig.decode(), start, end, bool(flag & 16))
    far["mapped"] += 1
    far["right"] += right
    if int(mapq) >= 30:
        far["mapq30"] += 1
        far["mapq30_right"] += right
