"""Extension of lists of pairs from their starts: the public call."""

from __future__ import annotations

from mapper.align.affine.api import DEFAULT_MEMORY, check_memory
from mapper.align.affine.extension import extend_pairs
from mapper.align.affine.wavefront_affine import AffinePenalties
from mapper.align.given import as_batch
from mapper.align.packing import PackedPairs, pack_pairs
from mapper.align.pairs import PairBatch, Sequences
from mapper.align.result import PairAlignments
from mapper.align.threads import run_chunks, thread_count
from mapper.cuda.devices import CPU, choose_device
from mapper.errors import UsageError
from mapper.extend.wavefront import wavefront_penalties
from mapper.params import ExtendParams

DEFAULT_SCORES = (1, 4, 6, 1)
"""Match, mismatch, gap open, gap extend: bwa's."""

MAX_SCORE = 200


def align_extension(
    queries: Sequences | PairBatch,
    refs: Sequences | None = None,
    *,
    scores: tuple[int, int, int, int] = DEFAULT_SCORES,
    cigar: bool = True,
    symbols: str = "dna",
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignments:
    """Align the best-scoring prefixes of both sequences; the rest of the query is clipped.

    Parameters
    ----------
    queries, refs
        As for :func:`mapper.edit_distance`.
    scores
        Match bonus a, and what is subtracted: mismatch b, and ``o + n e`` for a gap of n
        symbols. Whole numbers up to 200; a, b and e at least 1, o at least 0.
    cigar
        Also find an alignment: operations ``= X I D``, and S for what is left of the query.
    symbols
        As for :func:`mapper.align_affine`.
    memory
        Bytes a thread may use for one path; a pair that needs more has the status
        ``no_memory`` and no score.
    device, threads, first_pair
        As for :func:`mapper.edit_distance`.

    Returns
    -------
    Arrays of one row a pair, in input order. The score is at least 0: nothing aligned.

    Raises
    ------
    UsageError, InputFormatError, DeviceError
        As for :func:`mapper.edit_distance`.

    Notes
    -----
    Exact: without X-drop. O(s²) time for ``s = a (n + m) - 2 score``; unlike sequences take
    up to the product of their lengths.

    References
    ----------
    Eizenga, Paten (2022), doi:10.1101/2022.01.12.476087: scores as penalties.
    """
    batch = as_batch(queries, refs)
    match, penalties = check_scores(scores)
    check_memory(memory)
    choice = choose_device(device)

    def on_cpu(packed: PackedPairs) -> PairAlignments:
        return run_chunks(
            lambda first, last, columns, counts: extend_pairs(
                packed, first, last, penalties, match, memory, cigar, columns, counts
            ),
            packed.query_len + packed.ref_len,
            cigar,
            threads,
        )

    packed = pack_pairs(batch, symbols, first_pair, thread_count(threads))
    if choice.backend == CPU:
        return on_cpu(packed)
    from mapper.align.affine.extension_cuda import ExtensionWorker
    from mapper.align.dispatch import run_on_devices

    workers = [ExtensionWorker(ordinal, penalties, match) for ordinal in choice.ordinals]
    return run_on_devices(workers, packed, cigar, on_cpu)


def check_scores(scores: tuple[int, int, int, int]) -> tuple[int, AffinePenalties]:
    """Return the match bonus and the wavefront's penalties, or refuse what cannot be meant."""
    if len(scores) != 4 or any(int(score) != score for score in scores):
        raise UsageError(f"scores {scores}: four whole numbers a, b, o, e are expected")
    a, b, o, e = (int(score) for score in scores)
    if min(a, b, e) < 1 or o < 0 or max(a, b, o, e) > MAX_SCORE:
        raise UsageError(
            f"scores {a},{b},{o},{e}: match, mismatch and gap extend from 1, gap open from 0, all "
            f"up to {MAX_SCORE} are expected"
        )
    p = wavefront_penalties(ExtendParams(match=a, mismatch=b, gap_open=o, gap_extend=e))
    return a, AffinePenalties(p.mismatch, p.gap_open, p.gap_extend)
