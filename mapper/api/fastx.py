"""Read files of reads as Python's strings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mapper.batch import NO_QUALITY
from mapper.dna import ASCII_OF_CODE
from mapper.io.reads import Lane, ReadOptions, ReadsReader


def fastx_read(path: str | Path) -> Iterator[tuple[str, str, str | None]]:
    """Yield name, sequence and qualities of each read of a file, as ``mappy.fastx_read``.

    The file is read as ``fmwave map`` reads it: FASTQ or FASTA, plain or gzip, or BAM, CRAM or SAM.
    Names are without comments and ``/1``; letters are in upper case, U is T; qualities are text,
    Phred + 33, and None where there are none.

    Raises
    ------
    InputFormatError
        If the file cannot be read, or a record breaks its format; names file and record.

    Notes
    -----
    For mapping, :meth:`mapper.Aligner.map` takes the path itself, which is much faster.

    Examples
    --------
    >>> import mapper
    >>> name, sequence, quality = next(mapper.fastx_read("tests/data/phix_R1.fq"))
    >>> name, len(sequence), len(quality)
    ('SRR1377138.1', 301, 301)
    """
    with ReadsReader([Lane((str(path),))], ReadOptions(batch_bases=1_000_000)) as reader:
        while (reads := reader.next_batch()) is not None:
            letters = ASCII_OF_CODE[reads.bases].tobytes().decode()
            quals = (reads.quals + 33).tobytes().decode("latin-1")
            names = reads.names.tobytes().decode("latin-1")
            bounds, name_bounds = reads.base_offsets.tolist(), reads.name_offsets.tolist()
            for i in range(reads.n_reads):
                start, end = bounds[i], bounds[i + 1]
                has_quality = start < end and reads.quals[start] != NO_QUALITY
                yield (
                    names[name_bounds[i] : name_bounds[i + 1]], letters[start:end],
                    quals[start:end] if has_quality else None,
                )  # fmt: skip
