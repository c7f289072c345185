"""File drivers of ``fmwave align``: pairs batch by batch, all-vs-all sets window by window."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mapper.align.matrix.api import align_all
from mapper.align.pair_reader import BATCH_BYTES, read_pairs
from mapper.align.pairs import PairBatch
from mapper.align.result import STATUS_NAMES, PairAlignments
from mapper.align.tables import (
    FORMATS,
    NamedSet,
    encode_alignments,
    encode_rows,
    is_written,
    named_set,
    pair_header,
    set_header,
)
from mapper.errors import InputFormatError, UsageError
from mapper.io.input_file import same_file
from mapper.io.output_file import OutputFile
from mapper.io.sequences import read_named_sequences

log = logging.getLogger(__name__)

Engine = Callable[[PairBatch, int], PairAlignments]
"""Aligns a batch whose first pair has the given number."""


class StreamCounts(NamedTuple):
    """Numbers of aligned pairs."""

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
        As for :func:`mapper.align.pair_reader.read_pairs`.
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
        head = pair_header(with_spans)
        for batch in read_pairs(paths, batch_bytes):
            begin = time.perf_counter()
            try:
                found = engine(batch, n_pairs)
            except InputFormatError as error:
                raise InputFormatError(f"{', '.join(paths)}: {error}") from error
            rows = encode_rows(n_pairs, batch, found, with_spans)
            out.write(head)  # not before: an error in the first batch leaves standard output empty
            out.write(rows.data)
            head = b""
            n_pairs += found.n_pairs
            for code, name in enumerate(STATUS_NAMES):
                counts[name] += int((found.status == code).sum())
            seconds = time.perf_counter() - begin
            log.debug("%d pairs in %.2f s", found.n_pairs, seconds)
        out.write(head)
    return StreamCounts(n_pairs, {name: n for name, n in counts.items() if n})


def align_sets(
    paths: Sequence[str], output: str, *, form: str = "tsv", cigar: bool = True, **options: Any
) -> StreamCounts:
    """Align all sequences of one file, or of one with those of another, and write the result.

    Parameters
    ----------
    paths
        One or two FASTA or FASTQ files; ``-`` is standard input. The sets are held in memory,
        alignments only window by window.
    output
        File that appears when it is complete; ``-`` for standard output.
    form
        As for :func:`mapper.align.tables.encode_alignments`.
    cigar, **options
        As for :func:`mapper.align_all`.

    Raises
    ------
    UsageError
        For invalid options or an invalid number of files.
    MapperError
        For bad input, naming the file, or output that cannot be written.
    """
    if form not in FORMATS:
        raise UsageError(f"format {form!r}: one of {', '.join(FORMATS)} is expected")
    if form != "tsv" and not cigar:
        raise UsageError(f"format {form} shows alignments; scores alone go with tsv")
    if len(paths) > 2:
        raise UsageError(f"{len(paths)} files; give one set, or two")
    if len(paths) == 2 and "-" in paths and same_file(*paths):
        raise UsageError("standard input cannot be read twice; give two files")
    counts = dict.fromkeys(STATUS_NAMES, 0)
    n_pairs = n_left_out = 0
    with OutputFile(output) as out:
        sets = [named_set(read_named_sequences(path)) for path in paths]
        head = set_header(form)
        others = sets[1] if len(sets) == 2 else None
        try:
            for window in align_all(
                _sequences(sets[0]), None if others is None else _sequences(others), cigar=cigar,
                **options,
            ):  # fmt: skip
                text = encode_alignments(form, sets[0], sets[-1], *window)
                out.write(head)  # not before: see align_files
                out.write(text.data)
                head = b""
                n_pairs += window.found.n_pairs
                n_left_out += int((~is_written(form, window.found)).sum())
                for code, name in enumerate(STATUS_NAMES):
                    counts[name] += int((window.found.status == code).sum())
        except InputFormatError as error:
            raise InputFormatError(f"{', '.join(paths)}: {error}") from error
        out.write(head)
    if n_left_out:
        log.info("%d pairs with nothing aligned are not in the %s output", n_left_out, form)
    return StreamCounts(n_pairs, {name: n for name, n in counts.items() if n})


def _sequences(sequences: NamedSet) -> tuple[np.ndarray, np.ndarray]:
    return sequences.letters, sequences.offsets
