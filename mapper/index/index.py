"""The index of a reference: build it from a FASTA file, save it, open it."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mapper import dna
from mapper.errors import UsageError, check_memory_bound, option
from mapper.index import kmer_filter, marks, storage
from mapper.index.reference import IndexData
from mapper.parallel.map import MAX_THREADS
from mapper.parallel.pool import start_daemon
from mapper.params import IndexParams

_LOCK = threading.Lock()

CHECKED_AT_ONCE = 1 << 30
"""Bytes of an index, at most, whose checksums are compared before it is used: 0.1 s."""


@dataclass(frozen=True)
class Index(IndexData):
    """A reference ready to be searched: all arrays are read-only plain ndarrays."""

    @classmethod
    def build(
        cls,
        fasta: str | Path,
        params: IndexParams | None = None,
        *,
        alt: str | Path | bool = True,
        groups: str | Path | None = None,
        mask: str | Path | None = None,
        device: str = "auto",
        threads: int | None = None,
        memory: int | None = None,
        check_memory: bool = True,
    ) -> Index:
        """Index the contigs of a FASTA file (plain, gzip or BGZF), in memory; see :meth:`save`.

        Parameters
        ----------
        params
            What the index trades between memory and speed.
        alt
            File of the ALT contigs, bwa's ``.alt`` or a list of names. True: ``REF.fa.alt``, if
            there is one; False: all contigs are equal.
        groups
            File with lines of a contig, a tab and its group, such as a haplotype.
        mask
            BED file of regions in which seeds find nothing.
        device
            ``auto``, ``cpu``, ``cuda`` or ``cuda:0``: where the suffixes are sorted.
        threads
            None: all cores of the process.
        memory
            Bytes that the process may take; None: the available memory.
        check_memory
            Refuse to start if less memory is available than the build needs.

        Returns
        -------
        The same index, byte for byte, whatever device, threads and memory.

        Raises
        ------
        InputFormatError
            If a file cannot be read, or breaks its format.
        ResourceError, DeviceError
            If memory does not suffice, or the device cannot be used.

        Examples
        --------
        >>> import mapper
        >>> index = mapper.Index.build("tests/data/phix174.fa", device="cpu")
        >>> index.contigs.names, index.contigs.lengths.tolist()
        (('NC_001422.1',), [5386])
        >>> index.fetch("NC_001422.1", 10, 20)
        'GCTTCCATGA'
        """
        check_memory_bound(memory)
        if threads is not None and not (isinstance(threads, int) and 1 <= threads <= MAX_THREADS):
            raise UsageError(f"{option('threads', threads)}: 1 to {MAX_THREADS} is expected")
        from mapper.index import build  # mapping opens an index, and does not load this

        fasta = Path(fasta)
        if isinstance(alt, bool):
            alt_file = marks.alt_file_of(fasta) if alt else None
        else:
            alt_file = Path(alt)
        files = [None if file is None else Path(file) for file in (groups, mask)]
        return cls.of(
            build.build_index(
                fasta, params, check_memory=check_memory, device=device, memory=memory,
                n_threads=threads, marks=marks.read_marks(alt_file, *files),
            )
        )  # fmt: skip

    @classmethod
    def open(cls, path: str | Path) -> Index:
        """Memory-map an index directory; see :func:`mapper.index.storage.open_index`."""
        return cls.of(storage.open_index(path))

    def fetch(self, name: str, start: int = 0, end: int | None = None) -> str:
        """Return the letters of a contig from `start` to `end`, 0-based and half-open.

        Letters other than A, C, G and T come as N: the index does not keep which they were.

        Parameters
        ----------
        end
            None: the end of the contig.

        Raises
        ------
        UsageError
            If there is no such contig, or the bounds do not lie in it.
        """
        contigs = self.contigs
        if name not in contigs.names:
            close = difflib.get_close_matches(name, contigs.names, 1)
            hint = f"did you mean {close[0]!r}?" if close else "see index.contigs.names"
            raise UsageError(f"there is no contig {name!r} in {self.meta.source_name}; {hint}")
        ref_id = contigs.names.index(name)
        length = int(contigs.lengths[ref_id])
        last = length if end is None else end
        if not 0 <= start <= last <= length:
            raise UsageError(f"{name}: {start} to {last} does not lie in its {length} bases")
        first = int(contigs.starts[ref_id]) + start
        return dna.letters_of_planes(self.text_planes, first, first + last - start)

    @classmethod
    def open_checked(cls, path: str | Path) -> tuple[Index, Iterator[None]]:
        """Open an index and compare its checksums: of a small one now, of a large one later.

        Returns
        -------
        index
        checks
            Steps that compare the remaining files (:func:`mapper.index.storage.checks`), to be
            run before results are kept. Until then an index with damage that opening it did not
            find may give wrong results or end the process.
        """
        index, checks, finish = cls.begin_to_open(path)
        finish()
        return index, checks

    @classmethod
    def begin_to_open(cls, path: str | Path) -> tuple[Index, Iterator[None], Callable[[], None]]:
        """Open an index as :meth:`open_checked`, and compare a small one in a thread meanwhile.

        Returns
        -------
        index, checks
            See there.
        finish
            To be called before the index is used: it waits for the thread, and raises
            IndexFormatError if a file is damaged.
        """
        index = cls.open(path)
        checks = storage.checks(path)
        if index.n_bytes > CHECKED_AT_ONCE:
            return index, checks, lambda: None
        compared: Future[None] = Future()

        def compare() -> None:
            try:
                for _ in checks:
                    pass
                compared.set_result(None)
            except BaseException as error:  # raised by `finish`
                compared.set_exception(error)

        start_daemon(compare, "check index")
        return index, iter(()), compared.result

    @classmethod
    def of(cls, data: IndexData) -> Index:
        """Return the index that holds `data`."""
        return cls(data.fm, data.contigs, data.meta, data.unmasked_planes)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write an index directory; see :func:`mapper.index.storage.save_index`."""
        storage.save_index(self, path, force=force)

    @cached_property
    def present_kmers(self) -> np.ndarray:
        """The k-mers of the text; see :func:`mapper.index.kmer_filter.present_kmers`."""
        with _LOCK:  # all threads of a run ask at the same time, and the first computes it
            present = self.__dict__.get("present_kmers")
            return kmer_filter.present_kmers(self.fm) if present is None else present
