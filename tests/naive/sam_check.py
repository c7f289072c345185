"""A checker of SAM records that knows the reference, the reads and the SAM specification.

It reads records through pysam, recomputes whatever can be recomputed from letters, and
returns what is wrong in words. It knows nothing of how the records were made, except that
the scores are bwa's (match 1, mismatch 4, a gap of n bases 6 + n), or those given for long reads,
and the order is that of the input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pysam

from tests.naive.differences import differences, divergence
from tests.naive.gotoh import parse_cigar, same
from tests.naive.two_piece import Scoring

COMPLEMENT = dict(zip("ACGTNMRSVWYHKDB", "TGCANKYSBWRDMHV", strict=True))
MAX_XA = 5
SHORT_READS = Scoring(1, 4, 6, 1, 6, 1, ambiguous=None)
LONG_GAP = 100  # gaps of long reads, and runs of ambiguous bases, count as no longer


class Walk(NamedTuple):
    """What a CIGAR says of a read and the reference."""

    ref_end: int
    edit_distance: int
    score: int
    md: str


class Problems(list[str]):
    """What is wrong, with the record it is wrong in."""

    def check(self, good: bool, what: str, record: Any) -> None:
        if not good:
            self.append(f"{what}: {record.to_string()[:300]}")


def opposite(letters: str) -> str:
    return "".join(COMPLEMENT[c] for c in reversed(letters))


def walk(
    cigar: str, letters: str, start: int, contig: str, scoring: Scoring = SHORT_READS
) -> Walk | str:
    """Follow a CIGAR whose clips are S over the whole read; return a Walk or what is wrong."""
    ops = parse_cigar(cigar)
    kinds = "".join(op for _, op in ops)
    if not re.fullmatch(r"S?[M=X][MIDX=]*S?", kinds) or kinds.rstrip("S")[-1] in "ID":
        return f"CIGAR {cigar} has operations where they must not be"
    if any(n < 1 for n, _ in ops) or re.search(r"(.)\1", kinds):
        return f"CIGAR {cigar} has an empty or repeated operation"
    if sum(n for n, op in ops if op in "SMI=X") != len(letters):
        return f"CIGAR {cigar} does not fit {len(letters)} bases"
    end = start + sum(n for n, op in ops if op in "MD=X")
    if start < 0 or end > len(contig):
        return f"CIGAR {cigar} at {start} leaves the contig of {len(contig)} bases"
    i, j, distance, score, run, md = 0, start, 0, 0, 0, ""
    longest = len(contig) if scoring == SHORT_READS else LONG_GAP
    for n, op in ops:
        if op == "S":
            i += n
        elif op == "I":
            i, distance, score = i + n, distance + n, score - scoring.gap(min(n, longest))
        elif op == "D":
            md, run = f"{md}{run}^{contig[j : j + n]}", 0
            j, distance, score = j + n, distance + n, score - scoring.gap(min(n, longest))
        else:
            n_ambiguous = 0  # since the last match
            for _ in range(n):
                equal = same(letters[i], contig[j])
                if op in "=X" and equal != (op == "="):
                    return f"CIGAR {cigar} is not so at base {i}"
                if equal:
                    run, score, n_ambiguous = run + 1, score + scoring.match, 0
                else:
                    md, run, distance = f"{md}{run}{contig[j]}", 0, distance + 1
                    n_ambiguous += letters[i] not in "ACGT" or contig[j] not in "ACGT"
                    if n_ambiguous <= longest:
                        score -= scoring.difference(letters[i], contig[j])
                i, j = i + 1, j + 1
    return Walk(end, distance, score, f"{md}{run}")


class Checker:
    """Checks the records of an unsorted run, one read (or pair) after the other.

    Parameters
    ----------
    genome
        Contigs by name, in the order of the FASTA.
    reads
        Name, letters and quality letters of each read, in input order.
    paired
        Mates are neighbours.
    read_group
        ID that each record must carry, or None for no RG tag.
    long_scoring
        Scores of long reads, of which all are; None for short ones.
    """

    def __init__(
        self, genome: dict[str, str], reads: Sequence[tuple[str, str, str]], *, paired: bool,
        read_group: str | None = None, long_scoring: Scoring | None = None,
    ) -> None:  # fmt: skip
        self.is_long = long_scoring is not None
        self.scoring = long_scoring or SHORT_READS
        self.genome = {n: re.sub("[^ACGT]", "N", text.upper()) for n, text in genome.items()}
        self.reads, self.paired, self.read_group = reads, paired, read_group
        self.problems = Problems()

    def check_file(self, path: Path) -> list[str]:
        with pysam.AlignmentFile(str(path), check_sq=False) as file:
            contigs = dict(zip(file.references, file.lengths, strict=True))
            if list(contigs.items()) != [(n, len(t)) for n, t in self.genome.items()]:
                self.problems.append(f"@SQ {contigs}")
            return self.check_records(list(file.fetch(until_eof=True)))

    def check_records(self, records: list[Any]) -> list[str]:
        groups = list(self.by_read(records))
        if len(groups) != len(self.reads):
            self.problems.append(f"{len(self.reads)} reads, {len(groups)} primary records")
            return self.problems
        for i, group in enumerate(groups):
            self.read(group, i)
            for record in group:
                self.mate_fields(record, groups[i ^ 1][0] if self.paired else None)
        return self.problems

    @staticmethod
    def by_read(records: list[Any]) -> Iterator[list[Any]]:
        """Yield each primary with the secondary and supplementary records behind it."""
        group: list[Any] = []
        for record in records:
            if not record.flag & 0x900 and group:
                yield group
                group = []
            group.append(record)
        if group:
            yield group

    def read(self, group: list[Any], i: int) -> None:
        """Check the records of read i against the read and each other."""
        name, letters, quals = self.reads[i]
        letters = letters.upper().replace("U", "T")
        check = self.problems.check
        for r in group:
            check(r.query_name == name, f"name is not {name}", r)
            check(r.is_paired == self.paired, "flag 0x1", r)
            ordinal = (0x40 if i % 2 == 0 else 0x80) if self.paired else 0
            check(r.flag & 0xC0 == ordinal, "flags 0x40, 0x80", r)
            check(0 <= r.mapping_quality <= 60, "MAPQ", r)
            rg = r.get_tag("RG") if r.has_tag("RG") else None
            check(rg == self.read_group, "RG", r)
            forward = opposite(letters) if r.is_reverse else letters
            wanted_quals = quals[::-1] if r.is_reverse else quals
            if r.is_unmapped:
                self.unmapped(r, group)
            else:
                start, end = self.placed(r, forward)
                forward, wanted_quals = forward[start:end], wanted_quals[start:end]
            if not r.is_secondary:
                check((r.query_sequence or "") == forward, "SEQ", r)
                shown = "".join(chr(33 + q) for q in r.query_qualities or [])
                check(shown == wanted_quals, "QUAL", r)
            else:
                check(r.query_sequence is None and r.mapping_quality == 0, "secondary", r)
        self.split([r for r in group if not r.is_secondary])
        self.alternatives(group, letters)

    def unmapped(self, r: Any, group: list[Any]) -> None:
        check = self.problems.check
        check(len(group) == 1, "records beside an unmapped one", r)
        check(not r.flag & 0x912, "flags of an unmapped read", r)
        check(r.cigarstring is None and r.mapping_quality == 0, "unmapped with CIGAR or MAPQ", r)
        tags = {tag for tag, _ in r.get_tags()}
        check(not tags & {"NM", "MD", "AS", "XS", "XA", "SA"}, "tags of an unmapped read", r)

    def placed(self, r: Any, letters: str) -> tuple[int, int]:
        """Check CIGAR, NM, MD and AS; return which bases SEQ must hold."""
        check = self.problems.check
        cigar = r.cigarstring or "*"
        hard = "H" in cigar
        check(not hard or r.is_supplementary or r.is_secondary, "hard clips", r)
        check(not (hard and "S" in cigar), "hard and soft clips", r)
        walked = walk(
            cigar.replace("H", "S"), letters, r.reference_start, self.contig(r), self.scoring
        )
        if isinstance(walked, str):
            self.problems.check(False, walked, r)
            return 0, len(letters)
        check(self.tag(r, "NM") == walked.edit_distance, f"NM is not {walked.edit_distance}", r)
        check(self.tag(r, "MD") == walked.md, f"MD is not {walked.md}", r)
        check(self.tag(r, "AS") == walked.score, f"AS is not {walked.score}", r)
        check(walked.score > 0, "score is not positive", r)
        self.further_tags(r, cigar, letters)
        ops = parse_cigar(cigar)
        start = ops[0][0] if ops[0][1] == "H" else 0
        return start, len(letters) - (ops[-1][0] if ops[-1][1] == "H" else 0)

    def further_tags(self, r: Any, cigar: str, letters: str) -> None:
        """Check tp, cm and de, which long reads have, and cs and ds where they are written."""
        check = self.problems.check
        place = cigar, letters, r.reference_start, self.contig(r)
        if self.is_long:
            check(self.tag(r, "tp") == ("S" if r.is_secondary else "P"), "tp", r)
            check((self.tag(r, "cm") or 0) >= 0, "cm", r)
            share = divergence(*place)
            check(abs((self.tag(r, "de") or 0) - share) <= 5.1e-5, f"de is not {share}", r)
        else:
            check(not any(r.has_tag(tag) for tag in ("tp", "cm", "de")), "tags of long reads", r)
        cs, ds = self.tag(r, "cs"), self.tag(r, "ds")
        is_long = "=" in (cs or "") or "=" in (ds or "")
        for found, brackets in ((cs, False), (ds, True)):
            if found is not None:
                wanted = differences(*place, spell=is_long, brackets=brackets)
                check(found == wanted, f"{'ds' if brackets else 'cs'} is not {wanted}", r)

    def contig(self, r: Any) -> str:
        return self.genome.get(r.reference_name or "", "")

    @staticmethod
    def tag(r: Any, name: str) -> Any:
        return r.get_tag(name) if r.has_tag(name) else None

    def split(self, heads: list[Any]) -> None:
        """Check that SA of each part of a split read lists the others, the primary first."""
        entries = [
            f"{r.reference_name},{r.reference_start + 1},{'-' if r.is_reverse else '+'},"
            f"{self.cigar_in_sa(r)},{r.mapping_quality},{self.tag(r, 'NM')};"
            for r in heads
        ]
        for i, r in enumerate(heads):
            self.problems.check(r.is_supplementary == (i > 0), "flag 0x800", r)
            others = "".join(entries[:i] + entries[i + 1 :]) or None
            self.problems.check(self.tag(r, "SA") == others, f"SA is not {others}", r)

    def cigar_in_sa(self, r: Any) -> str:
        """All of the CIGAR; of long reads, clips, one run of M, and one gap for the rest."""
        cigar = (r.cigarstring or "*").replace("H", "S")
        if not self.is_long or r.is_unmapped:
            return cigar
        ops = parse_cigar(cigar)
        on_read = sum(n for n, op in ops if op in "MI=X")
        on_ref = sum(n for n, op in ops if op in "MD=X")
        first = f"{ops[0][0]}S" if ops[0][1] == "S" else ""
        last = f"{ops[-1][0]}S" if ops[-1][1] == "S" else ""
        gap = f"{abs(on_read - on_ref)}{'I' if on_read > on_ref else 'D'}"
        return f"{first}{min(on_read, on_ref)}M{gap if on_read != on_ref else ''}{last}"

    def alternatives(self, group: list[Any], letters: str) -> None:
        """Check XA, entry by entry, against read and reference."""
        check = self.problems.check
        for r in group:
            text = self.tag(r, "XA")
            if text is None:
                continue
            check(not r.is_secondary and len(group) == self.n_heads(group), "XA beside -a", r)
            entries = text.split(";")
            check(entries.pop() == "" and 1 <= len(entries) <= MAX_XA, "XA syntax", r)
            own = (r.cigarstring or "").replace("H", "S")
            seen = {(r.reference_name, r.reference_start, r.is_reverse, own)}
            for entry in entries:
                name, place, cigar, distance = entry.rsplit(",", 3)
                start = int(place[1:]) - 1
                forward = opposite(letters) if place[0] == "-" else letters
                walked = walk(cigar, forward, start, self.genome.get(name, ""))
                if isinstance(walked, str):
                    check(False, f"XA: {walked}", r)
                    continue
                check(place[0] in "+-" and str(walked.edit_distance) == distance, "XA NM", r)
                check(walked.score >= 0.8 * (self.tag(r, "AS") or 0), "XA scores too little", r)
                key = (name, start, place[0] == "-", cigar)
                check(key not in seen, "XA has an alignment twice", r)
                seen.add(key)

    @staticmethod
    def n_heads(group: list[Any]) -> int:
        return sum(not r.is_secondary for r in group)

    def mate_fields(self, r: Any, mate: Any) -> None:
        """Check what a record says of its mate against the mate's primary."""
        check = self.problems.check
        if mate is None:
            check(not r.flag & 0xEB and r.next_reference_id == -1, "mate of a single read", r)
            check(r.next_reference_start == -1 and r.template_length == 0, "mate fields", r)
            check(not any(r.has_tag(t) for t in ("MC", "MQ", "ms")), "mate tags", r)
            return
        check(r.mate_is_unmapped == mate.is_unmapped, "flag 0x8", r)
        check(r.mate_is_reverse == mate.is_reverse, "flag 0x20", r)
        check(r.is_proper_pair == mate.is_proper_pair, "flag 0x2 of one mate only", r)
        check(r.next_reference_id == mate.reference_id, "RNEXT", r)
        check(r.next_reference_start == mate.reference_start, "PNEXT", r)
        mate_cigar = None if mate.is_unmapped else mate.cigarstring
        check(self.tag(r, "MC") == mate_cigar, f"MC is not {mate_cigar}", r)
        quality = None if mate.is_unmapped else mate.mapping_quality
        check(self.tag(r, "MQ") == quality, f"MQ is not {quality}", r)
        ms = sum(q for q in mate.query_qualities or [] if q >= 15)
        check(self.tag(r, "ms") == ms, f"ms is not {ms}", r)
        if (r.is_unmapped or mate.is_unmapped) and not r.flag & 0x900:
            place = (r.reference_id, r.reference_start)
            check(place == (mate.reference_id, mate.reference_start), "unmapped mate's place", r)
            check(not r.is_proper_pair, "proper with an unmapped mate", r)
        if r.is_proper_pair and not r.flag & 0x900:
            check(r.reference_id == mate.reference_id, "proper on two contigs", r)
            check(r.is_reverse != mate.is_reverse, "proper on one strand", r)
        check(r.template_length == self.template_length(r, mate), "TLEN", r)

    @staticmethod
    def template_length(r: Any, mate: Any) -> int:
        """From the 5' end of the aligned bases to that of the mate's."""
        if r.is_unmapped or mate.is_unmapped or r.reference_id != mate.reference_id:
            return 0
        mine, other = (x.reference_end if x.is_reverse else x.reference_start for x in (r, mate))
        return int(other - mine)
