"""What to tell the user about a BAM, CRAM or SAM file that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence

from mapper.errors import InputFormatError
from mapper.io import bam_reader as scan
from mapper.io.fastq_errors import format_error, show

_EXPORT = "export the file again"
_GROUP = "group mates with `samtools collate`, or take single reads out by `samtools view -F 1`"
_REASONS = {
    scan.CUT_OFF: ("the file ends inside the record (truncated)", "copy or export it again"),
    scan.BAD_RECORD: ("its lengths contradict each other (damaged)", _EXPORT),
    scan.BAD_NAME: ("the read name is empty, not closed, or has a control character", _EXPORT),
    scan.BAD_BASE: (
        "a base is given as '=', equal to a reference that is not at hand",
        "restore the bases with `samtools calmd`, without -e",
    ),
    scan.BAD_QUALITY: ("a base quality is above 93", _EXPORT),
    scan.BAD_TAGS: ("its tags are malformed", _EXPORT),
    scan.NO_SEQUENCE: (
        "it is aligned and has no sequence", "take a file that holds the reads' bases",
    ),
    scan.UNKNOWN_READ_GROUP: (
        "its read group (RG) stands in no @RG line of the header",
        "add the line with `samtools reheader`",
    ),
    scan.BAD_SEGMENT: (
        "flagged paired (0x1), and neither or both of first (0x40) and last (0x80)",
        "repair the flags; templates of more than two reads are not mapped",
    ),
}  # fmt: skip


def explain(
    status: int, name: str, number: int, record: bytes, header: Sequence[str]
) -> InputFormatError:
    """Return the error for a status of :mod:`mapper.io.bam_reader`.

    Parameters
    ----------
    status
        What the scan found.
    name, number
        File, and 1-based number of the record in it, skipped ones counted.
    record
        The file's bytes from the start of the record on, as far as they are in memory.
    header
        Lines of the file's header.
    """
    read = _name_of(record)
    if status == scan.NO_MATE:
        following = _next_primary(record)
        what = f"the next read is {show(_name_of(following))}" if following else "the file ends"
        if any(line.startswith("@HD\t") and "SO:coordinate" in line for line in header):
            what += "; the file is sorted by coordinate"
        return format_error(
            name, number, f"{show(read)} is flagged paired, and its mate does not follow: {what}",
            _GROUP,
        )  # fmt: skip
    reason, remedy = _REASONS[status]
    if status not in (scan.CUT_OFF, scan.BAD_RECORD, scan.BAD_NAME):
        reason = f"{show(read)}: {reason}"
    return format_error(name, number, reason, remedy)


def _name_of(record: bytes) -> bytes:
    return record[36 : 36 + record[12]].split(b"\0")[0] if len(record) > 36 else b""


def _size(record: bytes) -> int:
    return 4 + int.from_bytes(record[:4], "little")


def _next_primary(record: bytes) -> bytes:
    """Return the bytes from the next primary record on; none if there is none in memory."""
    record = record[_size(record) :]
    while len(record) > 36 and int.from_bytes(record[18:20], "little") & scan.NOT_PRIMARY:
        record = record[_size(record) :]
    return record
