"""Define the parameters of every stage and their defaults.

Parameter structs that compiled code reads are NamedTuples (numba and CUDA kernels take
them as they are; a dataclass they would not); the others are frozen dataclasses. The
command line shows its defaults from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from mapper.errors import UsageError


@dataclass(frozen=True)
class IndexParams:
    """What an index trades between memory and speed (``docs/index-format.md``)."""

    occ_spacing: int = 64
    """BWT characters per Occ checkpoint (q): 64, 128, 256, 512 or 1024."""

    sa_sampling: int | None = None
    """Every p-th row of the suffix array is kept: p is a power of two up to 1024; None to fit the
    text."""

    kmer_len: int | None = None
    """k of the k-mer interval table, 0 to 14; 0 for no table, None to fit the text."""

    def __post_init__(self) -> None:
        if self.occ_spacing not in (64, 128, 256, 512, 1024):
            raise UsageError(
                f"Occ spacing {self.occ_spacing}: 64, 128, 256, 512 or 1024 is expected"
            )
        if self.sa_sampling not in [None, *(1 << shift for shift in range(11))]:
            raise UsageError(
                f"suffix array sampling {self.sa_sampling}: a power of two from 1 to 1024 "
                "is expected"
            )
        if self.kmer_len is not None and not 0 <= self.kmer_len <= 14:
            raise UsageError(f"k-mer table of k = {self.kmer_len}: 0 (none) to 14 is expected")

    def sampling(self, n_bases: int) -> int:
        """Return p for a text of `n_bases`: as given, or the default."""
        if self.sa_sampling is not None:
            return self.sa_sampling
        # The whole array if it takes at most 64 MB: locating is then one access to memory. Every
        # second row if that takes at most 512 MB.
        if n_bases <= 1 << 24:
            return 1
        return 2 if n_bases <= 1 << 28 else 4

    def table_kmer_len(self, n_bases: int) -> int:
        """Return k of the table for a text of `n_bases`: as given, or the default."""
        if self.kmer_len is not None:
            return self.kmer_len
        level = (n_bases.bit_length() - 1) // 2  # floor(log4(n))
        # At most a quarter of an entry for each base; but under 64 MB so many that a random k-mer
        # mostly has no row, so that its search ends with the look-up.
        return min(14, max(level - 1, min(level + 1, 12)))


class SeedParams(NamedTuple):
    """Exact seeds (``mapper/seed``)."""

    seed_len: int = 0
    """Bases of a seed; 0 takes it from the text length (see ``seed/exact.py``)."""
    extend_over: int = 4
    """A seed with more occurrences than this is lengthened until it has no more."""
    max_occ: int = 32
    """Seeds with more occurrences are not located, but for a sample of the longest seed's."""
    max_hits: int = 64
    """Located hits of a read; the longest seed comes first, then the rarest."""
    dense_step: int = 4
    """Distance of seed starts in the second round, for reads that the first left unexplained."""
    last_len: int = 0
    """Seed length of the last round (every start), for reads without a hit; 0: from the text."""
    first_round: int = 0
    """0: disjoint seeds first; 1: begin with the second round."""


SECOND_LOOK = SeedParams(
    seed_len=18, extend_over=16, max_occ=256, max_hits=256, dense_step=3, first_round=1
)
"""Seeds of the second look, which reads in doubt get (``extend/doubt.py``)."""

THIRD_LOOK = SECOND_LOOK._replace(max_occ=1024, max_hits=1024)
"""Seeds of the third look, which pairs in doubt get."""


class AnchorParams(NamedTuple):
    """Seeds of long reads (``mapper/seed/maximal.py``)."""

    seed_len: int = 19
    """Bases of a window that is searched, and the fewest of an anchor; 0 takes them from the text
    length (see ``seed/exact.py``)."""
    step: int = 32
    """Distance of windows."""
    least_windows: int = 96
    """Shorter reads have so many windows, nearer to each other."""
    extend_over: int = 16
    """A window with more occurrences than this is lengthened until it has no more."""
    max_occ: int = 250
    """Windows with more occurrences, lengthened, are left out."""


class ChainParams(NamedTuple):
    """Chains of anchors (``mapper/chain/collinear.py``)."""

    band: int = 500
    """Largest difference of the diagonals of neighbours in a chain."""
    max_gap: int = 5000
    """Largest gap between neighbours, on the read and in the text."""
    lookback: int = 1000
    """Predecessors that are looked at; fewer than 2**16."""
    min_score: int = 40
    """Chains of fewer matched bases, less gap costs, are dropped."""
    long_band: int = 20_000
    """The same as `band` and `max_gap` where whole chains are joined."""
    long_gap: int = 20_000


class KmerParams(NamedTuple):
    """Search of k-mers with mismatches (``mapper/kmers/search.py``)."""

    kmer_len: int
    """k, 1 to 64."""
    max_mismatches: int = 0
    """Substitutions allowed anywhere in a k-mer: 0, 1 or 2."""
    max_hits: int = 128
    """A k-mer with more hits, on both strands together, is skipped."""
    verify_rows: int = 4
    """With so many rows left or fewer, each is located and compared with the text; no effect
    on the result. The best value grows with the price of a search step over that of
    locating: 4 on the CPU with a sampled suffix array, more with a full one."""


class ExtendParams(NamedTuple):
    """Scores as users know them (bwa's defaults), and limits of the search.

    Other quantities in score units (mapping quality, the insert-size model) count in multiples of
    `match`.
    """

    match: int = 1
    mismatch: int = 4
    """Subtracted for a mismatch; an ambiguous base mismatches everything."""
    gap_open: int = 6
    gap_extend: int = 1
    """A gap of n bases costs ``gap_open + n * gap_extend``."""
    end_bonus: int = 5
    """Bonus for an alignment up to an end of the read; equals bwa's clipping penalty."""
    max_gap: int = 100
    """Largest distance of a gapped alignment from its seed's diagonal."""
    score_margin: int = 17
    """Heuristic: an alignment this many matches' worth below the read's best changes no
    decision (a pair may lose no more to be proper, and such a lead makes a read sure), and
    the gapped search for it is cut short."""
    min_ungapped: int = 18
    """Heuristic, in matches: where the best ungapped alignment scores less, gaps are not sought.
    A seed of the last resort has as much by chance, and what a gap would join to it has a seed
    of its own. Of 150 000 reads of five sets none had an alignment that came so."""
    most_gapped: int = 48
    """Heuristic: gaps are sought at so many loci of a read, the best ones without gaps."""
    min_score: int = 30
    """Alignments below are not reported; short reads have a lower bar (``extend/ungapped.py``)."""
    min_mate_score: int = 19
    """The same for the mates of a proper pair, in matches (bwa's, by its shortest seed): two
    short alignments that lie as a pair should are no chance."""


class TwoPieceScoring(NamedTuple):
    """Scores with two-piece gap costs (``mapper/two_piece_band.py``); minibwa's for long reads.

    All but `match` are subtracted. A gap of n bases costs
    ``min(gap_open1 + n * gap_extend1, gap_open2 + n * gap_extend2)``; the second piece is the
    flatter one, for long gaps.
    """

    match: int = 2
    mismatch: int = 8
    gap_open1: int = 12
    gap_extend1: int = 2
    gap_open2: int = 23
    gap_extend2: int = 1
    ambiguous: int = 1
    """Of a base beside an ambiguous one, if a mismatch does not cost less: minimap2's. Gaps of N
    in scaffolds are aligned with each other then, or with as many bases."""


class PairParams(NamedTuple):
    """Pairing, rescue and mapping quality (``mapper/pair``)."""

    unpaired_penalty: int = 17
    """Score that a pair must lose to be broken up (bwa ``-U``)."""
    max_rescue: int = 16
    """Alignments of a read near which its mate is looked for."""
    secondary_overlap: float = 0.5
    """Alignments that share this part of the shorter one's bases compete for them."""
    quality_in_pair: float = 7.0
    """Mapping quality per match's worth of lead of a proper pair: 35 for one mismatch, 60 for
    two. These three by ``benchmarks/accuracy.py``."""
    quality_alone: float = 4.0
    """The same where a read speaks for itself: 20 for one mismatch, 40 for two. Nothing but
    those bases then speaks against the other place, and a donor may differ there."""
    quality_of_rivals: float = 10.0
    """What each tenfold number of about equally good alternatives takes from the quality."""


class PieceParams(NamedTuple):
    """Alignment along chains (``mapper/extend/pieces.py``), and which of them are aligned."""

    z_drop: int = 400
    """An alignment ends where its score has dropped by more than this."""
    inversion_drop: int = 200
    """Where it has dropped by more than this and recovers, an inversion is tried; minimap2's."""
    end_bonus: int = 10
    """Score for reaching an end of the read."""
    min_score: int = 80
    """Alignments below are not reported."""
    max_extension: int = 5000
    """Bases of the read beyond its outermost anchors that are aligned at most."""
    overlap: float = 0.5
    """A chain that shares this part of its bases, or of the other's, with an alignment competes
    with it."""
    best_n: int = 5
    """Chains that compete with an alignment and are aligned, at most."""
    best_n_short: int = 50
    """The same for short reads, of which a copy of a repeat is a larger part; the number for a read
    lies between both (``extend/by_length.py``)."""
    competing_share: float = 0.5
    """They score at least this part of its chain."""


class LongParams(NamedTuple):
    """Parameters of long reads, one struct for each stage."""

    anchors: AnchorParams = AnchorParams()
    second_look: AnchorParams = AnchorParams(seed_len=0, step=6)
    """Of reads that are seeded again (``mapper/chain/weak.py``)."""
    weak_share: float = 0.1
    """Reads of whose bases the best chain has less than this share."""
    chain: ChainParams = ChainParams()
    scoring: TwoPieceScoring = TwoPieceScoring()
    pieces: PieceParams = PieceParams()


NO_CS, SHORT_CS, LONG_CS = range(3)
"""Forms of the tag cs."""


class RecordParams(NamedTuple):
    """What goes into records (``mapper/pair/records.py``)."""

    extended_cigar: bool = False
    """Write ``=`` and ``X`` instead of M."""
    soft_clip_supplementary: bool = False
    """Keep all bases in supplementary records (bwa ``-Y``)."""
    all_alignments: bool = False
    """Write secondary records instead of XA (bwa ``-a``)."""
    max_xa: int = 5
    """With more alternative hits than this, XA lists none (bwa ``-h``)."""
    max_xa_of_groups: int = 200
    """The same where one of them is on an ALT contig (bwa ``-h``), and of hits in other groups of
    contigs, which do not count among the few."""
    xa_ratio: float = 0.8
    """Alternative hits are listed if they score this part of the primary's."""
    short_sa: bool = False
    """SA describes each part by at most one run of M and one gap."""
    cs: int = NO_CS
    """Form of the tag cs (``pair/difference_tags.py``)."""
    ds: bool = False
    """Write the tag ds: cs with brackets around the bases of gaps that may lie elsewhere."""

    def for_long_reads(self) -> RecordParams:
        """Return the parameters for long reads, whose CIGARs are too long to be repeated in tags.

        Alternatives are not listed, and SA is short, both as in minimap2.
        """
        return self._replace(max_xa=0, max_xa_of_groups=0, short_sa=True)


class KeepParams(NamedTuple):
    """Which alignments can matter later (``extend/filter.py``); from :attr:`MapParams.keep`."""

    placed: int
    """Score that a placement may be behind the read's best alignment."""
    margin: int
    """Score behind the read's best within which every alternative counts."""
    listed_share: int
    """Share of the placement's score with which an alternative is listed, in 1 / SHARES."""
    competing_share: int
    """Share of the shorter one's bases with which alignments compete, in 1 / SHARES."""


SHARES = 1024
"""Shares are integers in 1 / SHARES, so that CPU and device compute the same."""

KEEP_MARGIN = 50
"""``KeepParams.margin`` in matches. Of 14 alignments of a read of 2x150 on 100 Mbp with a
mammal's repeats, 4.5 are left; the quality of a lead this large is 60 in a pair."""

KEEP_ALL = KeepParams(0, 1 << 30, 0, 0)


ALT_MARGIN = 50
"""``ExtendParams.score_margin`` where the reference has ALT contigs: a read of an alternate locus
needs its alignment on the primary assembly whole, gaps included, though it scores less. On loci
that differ in 1 to 3 % of the bases, 9 of 10 alignments that 17 cut short are whole; 100 gains no
more."""

COPIES = 64
"""``SeedParams.extend_over`` where the reference has ALT contigs: seeds of few rows would be
longer than what 14 ALT haplotypes share with the primary assembly. Named groups have
``extend_over`` rows each, and no more than this."""


def _with_copies(params: SeedParams, rows: int) -> SeedParams:
    """Return the parameters of seeds that are to be found in up to `rows` copies of a contig."""
    if rows <= params.extend_over:
        return params
    return params._replace(
        extend_over=rows, max_occ=max(params.max_occ, 2 * rows),
        max_hits=max(params.max_hits, 4 * rows),
    )  # fmt: skip


MAX_READ_LEN = 1000
"""Longest read that is mapped as a short one; the workspace grows with the square."""

MAX_LONG_READ = (1 << 27) - 1
"""Longest read of all (``seed/maximal.py``)."""

PRESETS = {
    "sr": LongParams(),
    "hifi": LongParams(
        anchors=AnchorParams(step=64), scoring=TwoPieceScoring(1, 4, 6, 2, 26, 1),
        pieces=PieceParams(min_score=200),
    ),
    "ont": LongParams(
        anchors=AnchorParams(step=24), scoring=TwoPieceScoring(2, 4, 4, 2, 24, 1),
        pieces=PieceParams(min_score=80),
    ),
    "asm": LongParams(
        anchors=AnchorParams(step=64),
        chain=ChainParams(band=1000, long_band=100_000, long_gap=100_000),
        scoring=TwoPieceScoring(1, 19, 39, 3, 81, 1),
        pieces=PieceParams(min_score=200),
    ),
}  # fmt: skip
"""Parameters of long reads by ``--preset``: those of minibwa's long reads for ``sr``, of minimap2's
map-hifi, map-ont and asm5 for the others. With ``sr``, reads of up to MAX_READ_LEN bases are
short ones; the others map all single reads as long ones."""


RESUME_SECONDS = 30
"""Between two states of a run that can be resumed."""


class MapParams(NamedTuple):
    """Parameters of a whole run, one struct per stage."""

    seed: SeedParams = SeedParams()
    second_look: SeedParams = SECOND_LOOK
    third_look: SeedParams = THIRD_LOOK
    extend: ExtendParams = ExtendParams()
    pair: PairParams = PairParams()
    record: RecordParams = RecordParams()
    has_alt: bool = False
    """The reference has ALT contigs."""
    long: LongParams = LongParams()
    """Of single reads of more than `longest_short` bases."""
    longest_short: int = MAX_READ_LEN

    def for_contigs(self, n_groups: int, has_alt: bool) -> MapParams:
        """Return the parameters for a reference with `n_groups` named groups, or ALT contigs."""
        rows = COPIES if has_alt else min(COPIES, self.seed.extend_over * max(1, n_groups))
        params = self._replace(
            seed=_with_copies(self.seed, rows), second_look=_with_copies(self.second_look, rows),
            third_look=_with_copies(self.third_look, rows), has_alt=has_alt,
        )  # fmt: skip
        if not has_alt:
            return params
        margin = max(self.extend.score_margin, ALT_MARGIN)
        return params._replace(extend=self.extend._replace(score_margin=margin))

    @property
    def keep(self) -> KeepParams:
        """The alignments that pairing and records need from extension."""
        # The best of the primary assembly is needed, however far behind the ALT contigs' it is.
        if self.record.all_alignments or self.has_alt:
            return KEEP_ALL
        # Placements are compared with their end bonuses.
        placed = self.pair.unpaired_penalty + 2 * self.extend.end_bonus
        return KeepParams(
            placed=placed,
            margin=max(KEEP_MARGIN * self.extend.match, placed),
            listed_share=math.floor(SHARES * self.record.xa_ratio),
            competing_share=math.ceil(SHARES * self.pair.secondary_overlap),
        )


BATCH_BASES = 3_000_000
"""Bases in a batch: half a second of work for one thread, some tens of megabytes."""

DEVICE_BATCH_BASES = 60_000_000
"""Bases in a batch for a CUDA device: enough reads that its slowest do not count, nor the Python
between its kernels."""

MEMBER_BASES = 20_000_000
"""Most bases in one of the batches that a device aligns together: what the host parses and finishes
at a time. Each costs 11 ms of Python, in which other threads wait for the GIL
(``benchmarks/results/sorted_output.md``)."""

LEAST_MEMBER_BASES = 6_000_000
"""The most where input or memory is small."""

DEVICE_STREAMS = 3
"""Batches in work on a device at a time: while the slowest reads of one are finished, others
are copied and computed. A stream takes 12 GB of a device's memory where reads have many loci; with
less, its batches are aligned in parts."""
