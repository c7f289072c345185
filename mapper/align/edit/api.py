"""Edit distance of lists of pairs: the public call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from mapper.align.dispatch import PairInput, align_pairs
from mapper.align.edit.cpu import align_edit_source, align_one_edit
from mapper.align.edit.locations import distance_by_relation
from mapper.align.edit.relation import Equalities
from mapper.align.pairs import MAX_LENGTH, Sequences, limit_of
from mapper.align.parts import CpuPairs, run_pairs
from mapper.align.result import PairAlignment, PairAlignments
from mapper.align.single import PairResult, align_one, is_cpu, is_single, joined_letters, scalar_of
from mapper.align.spans import Span, ends_of
from mapper.align.threads import check_threads
from mapper.cuda.devices import choose_device

if TYPE_CHECKING:
    from mapper.align.cuda.launch_plan import LaunchPlan
    from mapper.align.dispatch import Worker


@overload
def edit_distance(  # type: ignore[overload-overlap]
    queries: str | bytes,
    refs: str | bytes,
    *,
    span: Span = "global",
    cigar: Literal[False] = False,
    max_distance: int | None = None,
    symbols: str = "dna",
    equalities: Equalities = (),
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> int | None: ...


@overload
def edit_distance(  # type: ignore[overload-overlap]
    queries: str | bytes,
    refs: str | bytes,
    *,
    span: Span = "global",
    cigar: Literal[True],
    max_distance: int | None = None,
    symbols: str = "dna",
    equalities: Equalities = (),
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignment: ...


@overload
def edit_distance(
    queries: PairInput,
    refs: Sequences | None = None,
    *,
    span: Span = "global",
    cigar: bool = False,
    max_distance: int | None = None,
    symbols: str = "dna",
    equalities: Equalities = (),
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignments: ...


def edit_distance(
    queries: Any,
    refs: Any = None,
    *,
    span: Span = "global",
    cigar: bool = False,
    max_distance: int | None = None,
    symbols: str = "dna",
    equalities: Equalities = (),
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignments | PairResult:
    """Compute exact edit distances (mismatch, insertion and deletion cost 1), pair by pair.

    Parameters
    ----------
    queries, refs
        Two strings, str or bytes, give a scalar. Else sequence i of `queries` is compared with
        sequence i of `refs`: lists of str or bytes, or tuples of a flat uint8 array and its int64
        offsets (n + 1 values), which are not copied where a device takes them, or paths
        (:class:`pathlib.Path`) of FASTA or FASTQ files; or alone the path of a ``.seq`` file
        (``>query``, ``<reference``), a :class:`mapper.align.pairs.PairBatch`, or what
        :func:`mapper.packed_pairs` returns.
        Files are read whole; ``fmwave align`` streams them. Any lengths up to 2**30.
    span
        ``global``; ``semiglobal``, the whole query anywhere in the reference; ``prefix``, at
        its start; or four numbers, the symbols that may stay unaligned at no cost at the
        query's begin and end and the reference's begin and end.
    cigar
        Also find an alignment: operations ``= X I D``, where I consumes the query only. Of
        equal alignments the same one is returned, whatever the threads or the device.
    max_distance
        Give pairs above it the status ``over_limit`` and no score.
    symbols
        What matches: ``dna`` (N and other IUPAC letters match nothing), ``iupac`` (each
        letter matches itself) or ``bytes`` (equal bytes match); see ``packing.py``. Packed pairs
        carry their rule.
    equalities
        Pairs of letters that match in addition, in either order and case:
        ``[("N", "A"), ("N", "C")]`` (which does not make A and C match). With any the whole matrix
        is computed, 64 cells at a time, on the CPU only and for the three named spans; a path that
        would take more than 1 GB has the status ``no_memory``.
    device
        ``auto``, ``cpu``, ``cuda`` (all visible devices) or ``cuda:0,1``. No effect on the
        result: pairs that do not fit a device are aligned on the CPU.
    threads
        Threads on the CPU; default: all cores of the process. No effect on the result.
    first_pair
        Number of the first pair in messages.

    Returns
    -------
    Of two strings the distance as an int, None above `max_distance`; with `cigar` a
    :class:`mapper.align.result.PairAlignment`. Else :class:`mapper.align.result.PairAlignments`,
    columns of one row a pair, in input order: ``score`` (int64), the distance; ``status`` (int8):
    0 ok, 1 over_limit, 2 heuristic, 3 no_memory; ``query_start``, ``query_end``, ``ref_start`` and
    ``ref_end`` (int64), the parts that are aligned, 0-based and half-open; -1 in all of these but
    the status for what is not known; with `cigar` also ``cigar_offsets`` and ``cigar_ops``.
    ``pair(i)`` is one of them as a PairAlignment, ``cigar(i)`` its CIGAR as text; ``has_results()``
    tells which pairs have a score.

    Raises
    ------
    UsageError
        For options or sequences that cannot be meant.
    InputFormatError
        For a character that is no nucleotide letter, unless `symbols` is ``bytes``.
    DeviceError
        For a device that cannot be used.

    Notes
    -----
    O(n + d²) expected time and O(d) memory for a pair of length n and distance d; the path
    of a large distance is found by divide and conquer in linear memory.

    References
    ----------
    Aguado-Puig et al. (2022), doi:10.1109/ACCESS.2022.3182714; Marco-Sola et al. (2023),
    doi:10.1093/bioinformatics/btad074.

    Examples
    --------
    >>> edit_distance("ACGT", "ACCT")
    1
    >>> edit_distance("GATTACA", "GAATA", cigar=True).cigar
    '2=1X2=2I'
    >>> edit_distance("GATNACA", "GATTACA", equalities=[("N", "T")])
    0
    >>> found = edit_distance(["GATTACA"], ["GAATA"], cigar=True)
    >>> int(found.score[0]), found.cigar(0)
    (3, '2=1X2=2I')
    """
    if equalities:
        return distance_by_relation(
            queries, refs, span=span, cigar=cigar, max_distance=max_distance, symbols=symbols,
            equalities=equalities, device=device, threads=threads, first_pair=first_pair,
        )  # fmt: skip
    free = ends_of(span)
    limit = limit_of("max_distance", max_distance, MAX_LENGTH)
    if is_single(queries, refs):
        letters = joined_letters(queries, refs)
        if letters is None or not is_cpu(device):
            return scalar_of(
                edit_distance(
                    [queries], [refs], span=span, cigar=cigar, max_distance=max_distance,
                    symbols=symbols, device=device, threads=threads, first_pair=first_pair,
                )
            )  # fmt: skip
        check_threads(threads)
        run = partial(align_one_edit, *free, limit)
        return align_one(run, letters, symbols, cigar, first_pair)

    def on_cpu(pairs: CpuPairs) -> PairAlignments:
        return run_pairs(align_edit_source, (free, limit, cigar), pairs, cigar, threads)

    def on_device(ordinal: int) -> Worker:
        from mapper.align.edit.cuda_general import EditWorker

        return EditWorker(ordinal, free, limit)

    def plan() -> LaunchPlan:
        from mapper.align.edit.cuda_plan import EditPlan

        return EditPlan(limit)

    return align_pairs(
        queries, refs, choice=choose_device(device), symbols=symbols, first_pair=first_pair,
        threads=threads, cigar=cigar, on_cpu=on_cpu, on_device=on_device,
        plan=plan if sum(free) == 0 else None,
    )  # fmt: skip
