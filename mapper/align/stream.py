"""Files of pairs to a table of alignments, batch by batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mapper.align.pair_reader import BATCH_BYTES, read_pairs
from mapper.align.pair_table import encode_rows, header
from mapper.align.pairs import PairBatch
from mapper.align.result import STATUS_NAMES, PairAlignments
from mapper.errors import InputFormatError
from mapper.io.output_file import OutputFile

log = logging.getLogger(__name__)

Engine = Callable[[PairBatch, int], PairAlignments]
"""Aligns a batch whose first pair has the given number."""


class StreamCounts(NamedTuple):
    """What went through."""

    n_pairs: int
    by_status: dict[str, int]  # only statuses that occurred


def align_files(
    paths: Sequence[str], output: str, engine: Engine, *, with_spans: bool,
    batch_bytes: int = BATCH_BYTES,
) -> StreamCounts:  # fmt: skip
    """Align every pair of the files and write the table, in input order.

    Parameters
    ----------
    paths
        As :func:`mapper.align.pair_reader.read_pairs` takes them.
    output
        File that appears when it is complete; ``-`` for standard output.
    with_spans
        Add the columns of aligned spans.

    Raises
    ------
    MapperError
        For bad input, naming file and place, or output that cannot be written.
    """
    n_pairs = 0
    counts = dict.fromkeys(STATUS_NAMES, 0)
    with OutputFile(output) as out:
        head = header(with_spans)
        for batch in read_pairs(paths, batch_bytes):
            begin = time.perf_counter()
            try:
                found = engine(batch, n_pairs)
            except InputFormatError as error:
                raise InputFormatError(f"{', '.join(paths)}: {error}") from error
            rows = encode_rows(n_pairs, batch, found, with_spans)
            out.write(head)  # not before: what is refused at once leaves standard output empty
            out.write(rows.data)
            head = b""
            n_pairs += found.n_pairs
            for code, name in enumerate(STATUS_NAMES):
                counts[name] += int((found.status == code).sum())
            seconds = time.perf_counter() - begin
            log.debug("%d pairs in %.2f s", found.n_pairs, seconds)
        out.write(head)
    return StreamCounts(n_pairs, {name: n for name, n in counts.items() if n})
