"""Files of sets to alignments of all with all, window by window."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from mapper.align.matrix.api import align_all
from mapper.align.result import STATUS_NAMES
from mapper.align.stream import StreamCounts
from mapper.align.tables import (
    FORMATS,
    NamedSet,
    encode_alignments,
    header,
    is_written,
    named_set,
)
from mapper.errors import InputFormatError, UsageError
from mapper.io.input_file import same_file
from mapper.io.output_file import OutputFile
from mapper.io.sequences import read_named_sequences

log = logging.getLogger(__name__)


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
        As :func:`mapper.align.tables.encode_alignments` takes it.
    cigar, **options
        As for :func:`mapper.align_all`.

    Raises
    ------
    UsageError
        For options or a number of files that cannot be meant.
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
        head = header(form)
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
