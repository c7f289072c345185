"""SAM lines of placed reads, written out by the rules, from letters and plain objects.

Alignments are objects with the columns of an AlignmentBatch and `cigar` as ``= X I D`` text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.naive.gotoh import parse_cigar
from tests.naive.seeds import oriented

UNUSED, PRIMARY, SUPPLEMENTARY, SECONDARY = range(4)


class Contig(NamedTuple):
    name: str
    start: int  # in the text


class PlacedRead(NamedTuple):
    """A read with its alignments and what became of each."""

    name: str
    letters: str
    quals: list[int]
    alignments: list[Any]
    roles: list[int]
    heads: list[int]  # row of the head among the alignments
    mapq: list[int]
    sub_score: list[int]
    proper: bool

    @property
    def primary(self) -> int | None:
        return self.roles.index(PRIMARY) if PRIMARY in self.roles else None

    def primary_alignment(self) -> Any:
        return None if self.primary is None else self.alignments[self.primary]


class Options(NamedTuple):
    extended_cigar: bool = False
    soft_clip_supplementary: bool = False
    all_alignments: bool = False
    max_xa: int = 5
    xa_ratio: float = 0.8
    read_group: str = ""


def written_cigar(a: Any, read_len: int, clip: str, extended: bool) -> str:
    """CIGAR with clips; = and X joined to M unless asked for."""
    spelled = clip * a.query_start
    for length, op in parse_cigar(a.cigar):
        spelled += length * (op if extended or op not in "=X" else "M")
    spelled += clip * (read_len - a.query_end)
    text, run = "", 0
    for i, op in enumerate(spelled):
        run += 1
        if i + 1 == len(spelled) or spelled[i + 1] != op:
            text, run = f"{text}{run}{op}", 0
    return text


def mismatch_string(a: Any, text: str) -> str:
    """MD: runs of matches, reference bases of mismatches, and ^ with deleted ones."""
    result, run, pos = "", 0, a.text_start
    for length, op in parse_cigar(a.cigar):
        if op == "=":
            run += length
        elif op == "X":
            for base in text[pos : pos + length]:
                result, run = f"{result}{run}{base}", 0
        elif op == "D":
            result, run = f"{result}{run}^{text[pos : pos + length]}", 0
        pos += 0 if op == "I" else length
    return f"{result}{run}"


class Writer:
    """Writes the lines of reads; for pairs, mates are given as neighbours."""

    def __init__(self, contigs: list[Contig], text: str, options: Options) -> None:
        self.contigs, self.text, self.options = contigs, text, options

    def place(self, a: Any) -> tuple[str, int]:
        contig = self.contigs[a.ref_id]
        return contig.name, a.text_start - contig.start + 1

    def lines(self, reads: list[PlacedRead], paired: bool) -> list[str]:
        result = []
        for i, read in enumerate(reads):
            mate = reads[i ^ 1] if paired else None
            shown = [read.primary]
            for j, role in enumerate(read.roles):
                if role == SUPPLEMENTARY or (role == SECONDARY and self.options.all_alignments):
                    shown.append(j)
            result += [self.line(read, j, mate, i % 2 == 0) for j in shown]
        return result

    def line(self, read: PlacedRead, row: int | None, mate: PlacedRead | None, first: bool) -> str:
        mine = None if row is None else read.alignments[row]
        other = mate.primary_alignment() if mate else None
        role = PRIMARY if row is None else read.roles[row]
        name, pos = self.place(mine or other) if mine or other else ("*", 0)
        # A mate without a place is where this read's primary is.
        partner = (other or read.primary_alignment()) if mate else None
        next_name, next_pos = self.place(partner) if partner else ("*", 0)
        letters = oriented(read.letters, mine.strand if mine else 0)
        quals = read.quals[::-1] if mine and mine.strand else read.quals
        cigar = "*"
        if mine:
            hard = role == SUPPLEMENTARY and not self.options.soft_clip_supplementary
            cigar = written_cigar(
                mine, len(letters), "H" if hard else "S", self.options.extended_cigar
            )
            if hard:
                letters = letters[mine.query_start : mine.query_end]
                quals = quals[mine.query_start : mine.query_end]
        if role == SECONDARY:
            letters, quals = "", []
        fields = [
            read.name,
            self.flag(read, mine, role, mate, other, first),
            name,
            pos,
            read.mapq[row] if mine and role != SECONDARY else 0,
            cigar,
            "=" if next_name == name != "*" else next_name,
            next_pos,
            self.template_len(mine, other) if mine and other else 0,
            letters or "*",
            "".join(chr(q + 33) for q in quals) if quals and quals[0] != 255 else "*",
        ]
        return "\t".join(map(str, fields + self.tags(read, row, mate)))

    @staticmethod
    def flag(read: Any, mine: Any, role: int, mate: Any, other: Any, first: bool) -> int:
        flag = 4 * (mine is None) + 16 * bool(mine and mine.strand)
        flag += 256 * (role == SECONDARY) + 2048 * (role == SUPPLEMENTARY)
        if mate:
            flag += 1 + 2 * read.proper + 8 * (other is None) + 32 * bool(other and other.strand)
            flag += 64 if first else 128
        return flag

    @staticmethod
    def template_len(mine: Any, other: Any) -> int:
        if mine.ref_id != other.ref_id:
            return 0
        ends = [a.text_end if a.strand else a.text_start for a in (mine, other)]
        return ends[1] - ends[0]

    def tags(self, read: PlacedRead, row: int | None, mate: PlacedRead | None) -> list[str]:
        tags = []
        if row is not None:
            a = read.alignments[row]
            tags += [f"NM:i:{a.edit_distance}", f"MD:Z:{mismatch_string(a, self.text)}"]
            tags += [f"AS:i:{a.score}"]
            if read.roles[row] != SECONDARY:
                tags += [f"XS:i:{read.sub_score[row]}"]
                tags += self.split(read, row) + self.alternatives(read, row)
        if mate and mate.primary is not None:
            other = mate.primary_alignment()
            cigar = written_cigar(other, len(mate.letters), "S", self.options.extended_cigar)
            tags += [f"MC:Z:{cigar}", f"MQ:i:{mate.mapq[mate.primary]}"]
        if mate:
            tags += [f"ms:i:{sum(q for q in mate.quals if 15 <= q < 255)}"]
        if self.options.read_group:
            tags += [f"RG:Z:{self.options.read_group}"]
        return tags

    def split(self, read: PlacedRead, row: int) -> list[str]:
        """SA: the other parts of a split read, its primary first."""
        heads = [j for j, role in enumerate(read.roles) if role in (PRIMARY, SUPPLEMENTARY)]
        heads.sort(key=lambda j: read.roles[j] != PRIMARY)
        places = ""
        for j in heads:
            if j != row:
                a = read.alignments[j]
                name, pos = self.place(a)
                cigar = written_cigar(a, len(read.letters), "S", self.options.extended_cigar)
                strand = "-" if a.strand else "+"
                places += f"{name},{pos},{strand},{cigar},{read.mapq[j]},{a.edit_distance};"
        return [f"SA:Z:{places}"] if places else []

    def alternatives(self, read: PlacedRead, row: int) -> list[str]:
        """XA: what competes with this head and scores nearly as much, unless it is too many."""
        if self.options.all_alignments:
            return []
        bar = self.options.xa_ratio * read.alignments[row].score
        listed = [
            a for a, role, head in zip(read.alignments, read.roles, read.heads, strict=True)
            if role == SECONDARY and head == row and a.score >= bar
        ]  # fmt: skip
        if not 0 < len(listed) <= self.options.max_xa:
            return []
        places = ""
        for a in listed:
            name, pos = self.place(a)
            cigar = written_cigar(a, len(read.letters), "S", self.options.extended_cigar)
            places += f"{name},{'-' if a.strand else '+'}{pos},{cigar},{a.edit_distance};"
        return [f"XA:Z:{places}"]
