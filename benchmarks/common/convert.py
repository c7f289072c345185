"""Reading and writing without mapping, by fmwave's readers and writers; `read_write` runs it.

    python -m benchmarks.common.convert THREADS BATCH_BASES OUT.bam READS [READS]

A process starts as the command's does: what is set before NumPy is imported is set here, too, and
nothing is imported that is not needed.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from mapper.cli.main import set_up_process
from mapper.params import BATCH_BASES

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np

    from mapper.batch import ReadBatch, RecordBatch
    from mapper.io.batch_reader import RawBatch


class Unmapped:
    """Makes an unmapped record for each read; columns that are always the same, only once."""

    def __init__(self) -> None:
        self._made: dict[bool, RecordBatch] = {}  # paired and not, with rows to spare

    def records(self, reads: ReadBatch) -> RecordBatch:
        """Return the records. Any thread may call this."""
        import numpy as np

        from mapper.batch import RecordBatch

        n = reads.n_reads
        made = self._made.get(reads.paired)
        if made is None or made.n_records < n:
            made = self._made[reads.paired] = self._make(2 * n, reads.paired)
        query_end = np.empty(n, np.int32)
        np.subtract(reads.base_offsets[1:], reads.base_offsets[:-1], query_end, casting="unsafe")
        return RecordBatch(
            read=made.read[:n], flag=made.flag[:n], ref_id=made.ref_id[:n],
            ref_pos=made.ref_pos[:n], mapq=made.mapq[:n], next_ref_id=made.next_ref_id[:n],
            next_pos=made.next_pos[:n], template_len=made.template_len[:n],
            cigar_offsets=made.cigar_offsets[: n + 1], cigar_ops=made.cigar_ops,
            query_start=made.query_start[:n], query_end=query_end,
            tag_offsets=made.tag_offsets[: n + 1], tags=made.tags,
        )  # fmt: skip

    @staticmethod
    def _make(n: int, paired: bool) -> RecordBatch:
        import numpy as np

        from mapper.batch import RecordBatch

        flag = np.full(n, 4, np.uint16)
        if paired:
            flag[0::2], flag[1::2] = 77, 141
        nowhere, far = np.full(n, -1, np.int32), np.full(n, -1, np.int64)
        start, nothing = np.zeros(n, np.int32), np.zeros(n + 1, np.int64)
        return RecordBatch(
            read=np.arange(n, dtype=np.int32), flag=flag, ref_id=nowhere, ref_pos=far,
            mapq=np.zeros(n, np.uint8), next_ref_id=nowhere, next_pos=far,
            template_len=nothing[:n], cigar_offsets=nothing, cigar_ops=np.zeros(0, np.uint32),
            query_start=start, query_end=start, tag_offsets=nothing, tags=np.zeros(0, np.uint8),
        )  # fmt: skip


def convert_fmwave(
    paths: list[str], out: str, threads: int, batch_bases: int = BATCH_BASES
) -> None:
    """Read, encode and write with the readers and writers of fmwave."""
    from mapper.io.header import header_text
    from mapper.io.input_tags import copy_input_tags
    from mapper.io.output import open_output
    from mapper.io.reads import Lane, ReadOptions, ReadsReader
    from mapper.mapping.prefetch import BatchPrefetcher
    from mapper.parallel.pool import MAP, READ, WRITE, PriorityPool

    def convert(raw: RawBatch) -> np.ndarray:
        reads = raw.parse()
        return output.encode(copy_input_tags(unmapped.records(reads), reads), reads)

    unmapped = Unmapped()
    pool = PriorityPool(threads)
    options = ReadOptions(
        threads=threads, batch_bases=batch_bases, executor=pool.at(READ), n_threads=threads
    )
    pending: deque[Future[np.ndarray]] = deque()
    with (
        ReadsReader([Lane(tuple(paths))], options) as reader,
        open_output(
            out, "bam", header_text([], [], "benchmark", None, False, reader.headers), [], [],
            pool.at(WRITE),
        ) as output,
    ):  # fmt: skip
        cuts = BatchPrefetcher(pool, reader.next_raw, threads)
        while not cuts.ended or pending:
            if not cuts.ended and len(pending) < threads + 2:
                if cuts.wait_or(list(pending)[:1]):
                    raw = cuts.take()
                    assert raw is not None
                    pending.append(pool.submit(MAP, partial(convert, raw)))
                if not (pending and pending[0].done()):
                    continue
            output.append(pending.popleft().result())
    pool.shutdown()


def main() -> None:
    """Convert, and say how long that took."""
    start = time.perf_counter()
    set_up_process()
    threads, batch_bases, out, *paths = sys.argv[1:]
    convert_fmwave(paths, out, int(threads), int(batch_bases))
    print(f"{time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
