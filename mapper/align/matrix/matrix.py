"""Alignment of pairs with substitution matrices: the public call."""

from __future__ import annotations

from pathlib import Path

from mapper.align.given import as_batch
from mapper.align.matrix.engine import MatrixEngine
from mapper.align.matrix.matrix_scoring import (
    DEFAULT_GAPS,
    DEFAULT_MATRIX,
    DEFAULT_MEMORY,
    check_scoring,
    code_pairs,
)
from mapper.align.matrix.scoring import SubstitutionMatrix
from mapper.align.pairs import PairBatch, Sequences
from mapper.align.result import PairAlignments
from mapper.align.threads import thread_count


def align_matrix(
    queries: Sequences | PairBatch,
    refs: Sequences | None = None,
    *,
    matrix: str | Path | tuple | SubstitutionMatrix = DEFAULT_MATRIX,
    gaps: tuple[int, int] = DEFAULT_GAPS,
    span: str = "global",
    cigar: bool = True,
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignments:
    """Align with the highest score of a substitution matrix, pair by pair.

    Parameters
    ----------
    queries, refs
        As for :func:`mapper.edit_distance`; letters of the matrix in either case.
    matrix
        As :func:`mapper.align.matrix.scoring.substitution_matrix` takes it, or its result.
    gaps
        Gap open o and gap extend e, from 0 to 1000: a gap of n symbols costs ``o + n * e``.
    span
        ``global``; ``semiglobal``, all four ends free; or ``local``, the best parts.
    cigar
        Also find an alignment: operations ``= X I D``, I consumes the query only.
    memory
        Cells of a pair whose path is wanted, at most (a byte each on the CPU, half a byte on a
        device); one with more has the status ``no_memory`` and no score.
    device, threads, first_pair
        As for :func:`mapper.edit_distance`. No effect on the result.

    Returns
    -------
    Arrays of one row a pair, in input order. Of several best alignments that which ends first
    in the reference, then in the query. A local alignment that scores nothing is empty: score
    0, all coordinates 0.

    Raises
    ------
    UsageError, InputFormatError, DeviceError
        As for :func:`mapper.edit_distance`; for letters that the matrix does not score.

    Notes
    -----
    O(n m) time for lengths n and m. On a device of compute capability 9.0 two cells are
    computed at a time, in 16 bits each, where no score can leave them; else one, in 32 bits.
    The two are of one pair, or, where queries have references in common, of two queries.

    References
    ----------
    Blazewicz et al. (2011), BMC Bioinformatics 12:181. doi:10.1186/1471-2105-12-181

    Examples
    --------
    >>> found = align_matrix(["GATTACA"], ["GAATA"], matrix=(1, -1), gaps=(1, 1))
    >>> int(found.score[0]), found.cigar(0)
    (0, '2=1X2=2I')
    """
    scoring = check_scoring(matrix, gaps, span, cigar, memory)
    pairs = code_pairs(as_batch(queries, refs), scoring, first_pair, thread_count(threads))
    return MatrixEngine(scoring, device, threads).align(pairs)
