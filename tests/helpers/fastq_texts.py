"""The host's parser for texts that are cut for a device."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from mapper.batch import ReadBatch
from mapper.io import fastq_parser
from mapper.io.batch_reader import FastqText
from mapper.io.fastq import TextBatch, TextPart
from mapper.io.record_ends import FASTQ


def by_host(text: FastqText, warnings: Iterator[int] | None = None) -> ReadBatch:
    """Return what the host's parser makes of a batch."""
    layout = fastq_parser.SINGLE
    if text.paired:
        layout = fastq_parser.TWO_FILES if len(text.texts) == 2 else fastq_parser.INTERLEAVED
    parts = tuple(TextPart(f"file {i}", FASTQ, t, text.n_records) for i, t in enumerate(text.texts))
    return TextBatch(parts, layout, False, 0, warnings or count()).parse()
