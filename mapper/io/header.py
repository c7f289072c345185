"""Make and parse the SAM header, as text and in BAM."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest

from mapper import __version__
from mapper.errors import UsageError

MAX_CONTIG_LENGTH = (1 << 31) - 1
"""BAM and its index hold positions as signed 32-bit integers."""

CONTIG_NAME = re.compile(r"[0-9A-Za-z!#$%&+./:;?@^_|~-][0-9A-Za-z!#$%&*+./:;=?@^_|~-]*")
"""Contig names that SAM allows (SAM specification, section 1.2.1)."""

_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9]:[^\x00-\x1f\x7f]+")


def parse_read_group(text: str) -> tuple[str, str]:
    r"""Return the header line and the ID of a read group given as ``@RG\tID:x\tSM:y``.

    Fields are separated by tabs or by a backslash and a "t", as in bwa and others.

    Raises
    ------
    UsageError
        If it does not begin with @RG, has no single ID, or a field is not ``TAG:value``.
    """
    line = text.replace("\\t", "\t")
    kind, *fields = line.split("\t")
    example = r"expected something like '@RG\tID:run1\tSM:sample1'"
    if kind != "@RG":
        raise UsageError(f"read group {text!r} does not begin with '@RG' and a tab; {example}")
    tags = []
    for field in fields:
        if not _FIELD.fullmatch(field):
            raise UsageError(f"read group field {field!r} is not TAG:value; {example}")
        tags.append(field[:2])
    for tag in tags:
        if tags.count(tag) > 1:
            raise UsageError(f"read group {text!r} has {tag} twice; {example}")
    if "ID" not in tags:
        raise UsageError(f"read group {text!r} has no ID; {example}")
    name = fields[tags.index("ID")][3:]
    if not name.isascii():  # it goes into the RG tag of every record
        raise UsageError(f"read group ID {name!r} has characters that are not ASCII; {example}")
    return line, name


def header_text(
    contig_names: Sequence[str],
    contig_lengths: Sequence[int],
    command_line: str,
    read_group: str | Sequence[str] | None = None,
    sort: bool = False,
    inputs: Sequence[Sequence[str]] = (),
    alt_names: Collection[str] = (),
    input_names: Sequence[str] = (),
) -> str:
    r"""Return the header lines, each with its newline.

    Parameters
    ----------
    contig_names, contig_lengths
        Contigs in the order of their ``ref_id``; lengths in bases.
    command_line
        For @PG; control characters become spaces.
    read_group
        As for :func:`parse_read_group`; one, or several.
    sort
        The records will be ordered by coordinate; otherwise mates are next to each other.
    inputs
        Header lines of each input file: @RG, @PG and @CO are kept, and the @PG chain continues.
    alt_names
        Contigs that are alternate loci, of which place it is not known: they get ``AH:*``.
    input_names
        Of the inputs, for messages.

    Raises
    ------
    UsageError
        If BAM does not allow a contig's name or length, a read group is malformed, or two have
        the same ID.
    """
    _check_contigs(contig_names, contig_lengths)
    order = "SO:coordinate" if sort else "SO:unsorted\tGO:query"
    lines = [f"@HD\tVN:1.6\t{order}"]
    lines += [
        f"@SQ\tSN:{name}\tLN:{length}" + ("\tAH:*" if name in alt_names else "")
        for name, length in zip(contig_names, contig_lengths, strict=True)
    ]
    groups = [read_group] if isinstance(read_group, str) else read_group or []
    own_groups = [parse_read_group(group)[0] for group in groups]
    lines += _merge_read_groups(own_groups, inputs, input_names)
    programs = _merge_programs(inputs)
    command_line = re.sub(r"[\x00-\x1f\x7f]", " ", command_line)
    taken = {header_field(line, "ID"): 0 for line in programs}
    for previous in _chain_ends(programs) or [""]:
        own = _take_id("fmwave", taken)
        chained = f"\tPP:{previous}" if previous else ""
        programs.append(f"@PG\tID:{own}\tPN:fmwave{chained}\tVN:{__version__}\tCL:{command_line}")
    lines += programs
    lines += [line for lines in inputs for line in lines if line.startswith("@CO\t")]
    return "".join(f"{line}\n" for line in lines)


def header_lines(text: str) -> list[str]:
    """Return the lines of a header's text, without their ends (LF or CRLF).

    ``str.splitlines`` ends lines at form feeds and at line separators of Unicode, too, which may
    stand in a field.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def header_field(line: str, tag: str) -> str:
    """Return the value of a field of a header line; empty if the line has none."""
    for field in line.split("\t")[1:]:
        if field.startswith(f"{tag}:"):
            return field[len(tag) + 1 :]
    return ""


def _merge_read_groups(
    own: Sequence[str], inputs: Sequence[Sequence[str]], input_names: Sequence[str]
) -> list[str]:
    """Return all @RG lines, each once."""
    sources = dict.fromkeys(own, "")
    for header, source in zip_longest(inputs, input_names, fillvalue=""):
        for line in header:
            if line.startswith("@RG\t"):
                sources.setdefault(line, str(source))
    lines: dict[str, str] = {}
    for line in sources:
        name = header_field(line, "ID")
        other = lines.setdefault(name, line)
        if other != line:
            raise UsageError(
                f"read group {name!r} is described in two ways: {_shown(other, sources[other])}, "
                f"and {_shown(line, sources[line])}; give each its own ID, or both the same line"
            )
    return list(sources)


def _shown(line: str, source: str) -> str:
    """Return a header line for a message, and the name of its file if it is of one."""
    shown = line.replace("\t", r"\t")
    return f"'{shown}' in {source}" if source else f"'{shown}'"


def _merge_programs(inputs: Sequence[Sequence[str]]) -> list[str]:
    """Return all @PG lines, each program once; an ID that names another one gets a number.

    Two lines are of one program if they are equal and what ran before it is: equal lines of
    ``samtools sort`` behind the mappers of two lanes are two programs.
    """
    merged: list[str] = []
    ids: dict[str, str] = {}  # by the line, with the new ID of the program before
    taken: dict[str, int] = {}
    for header in inputs:
        renamed: dict[str, str] = {}
        for original in _previous_first([line for line in header if line.startswith("@PG\t")]):
            line = _with_ids(original, "PP", renamed)
            name = header_field(line, "ID")
            if line not in ids:
                ids[line] = _take_id(name, taken)
                merged.append(_with_ids(line, "ID", {name: ids[line]}))
            renamed.setdefault(name, ids[line])
    return merged


def _previous_first(programs: Sequence[str]) -> list[str]:
    """Return @PG lines in an order in which every program follows the one that its PP names."""
    by_id: dict[str, str] = {}
    for line in programs:
        if name := header_field(line, "ID"):
            by_id.setdefault(name, line)
    ordered: dict[str, None] = {}
    for program in programs:
        chain: dict[str, None] = {}
        at: str | None = program
        while at is not None and at not in ordered and at not in chain:
            chain[at] = None
            at = by_id.get(header_field(at, "PP"))
        ordered |= dict.fromkeys(reversed(chain))
    return list(ordered)


def _with_ids(line: str, tag: str, renamed: Mapping[str, str]) -> str:
    """Return a header line in which the ID that a field holds is replaced by its new one."""
    fields = line.split("\t")
    for i, field in enumerate(fields):
        if field.startswith(f"{tag}:"):
            fields[i] = f"{tag}:{renamed.get(field[3:], field[3:])}"
    return "\t".join(fields)


def _chain_ends(programs: Sequence[str]) -> list[str]:
    """Return the IDs that no other program follows."""
    followed = {header_field(line, "PP") for line in programs}
    ids = dict.fromkeys(header_field(line, "ID") for line in programs)
    return [name for name in ids if name and name not in followed]


def _take_id(name: str, taken: dict[str, int]) -> str:
    """Return a name with the first number behind it that makes an ID which is not taken, and take.

    Parameters
    ----------
    taken
        IDs, with the last number that was tried behind each.
    """
    free = name
    while free in taken:
        taken[name] += 1
        free = f"{name}.{taken[name]}"
    taken[free] = 0
    return free


def bam_header(text: str, contig_names: Sequence[str], contig_lengths: Sequence[int]) -> bytes:
    """Return the uncompressed start of a BAM file, up to its first record."""
    raw = text.encode("utf-8", "surrogateescape")
    parts = [b"BAM\x01", struct.pack("<i", len(raw)), raw, struct.pack("<i", len(contig_names))]
    for name, length in zip(contig_names, contig_lengths, strict=True):
        terminated = name.encode("ascii") + b"\0"
        parts += [struct.pack("<i", len(terminated)), terminated, struct.pack("<i", length)]
    return b"".join(parts)


def _check_contigs(names: Sequence[str], lengths: Sequence[int]) -> None:
    seen = set()
    for name, length in zip(names, lengths, strict=True):
        if not CONTIG_NAME.fullmatch(name):
            raise UsageError(f"contig name {name!r} is not allowed in SAM; rename the contig")
        if name in seen:
            raise UsageError(f"contig name {name!r} occurs twice; rename one of the contigs")
        seen.add(name)
        if not 1 <= length <= MAX_CONTIG_LENGTH:
            raise UsageError(
                f"contig {name!r} has {length} bases; BAM takes 1 to {MAX_CONTIG_LENGTH}; split it"
            )
