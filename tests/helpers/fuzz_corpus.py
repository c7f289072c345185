"""Seed inputs of the fuzz tests: small files that broke other readers of FASTQ.

Each has its outcome: how many reads it gives, or a part of the message that refuses it.
"""

from __future__ import annotations

import gzip

from mapper.io.bgzf import EOF_BLOCK, compress_block, deflater

READ = b"@r\nACGT\n+\nIIII\n"


def block(data: bytes) -> bytes:
    """Return a BGZF block."""
    return compress_block(memoryview(data), deflater(1))


def with_field(packed: bytes, field: bytes) -> bytes:
    """Put another extra field in front of a BGZF block's own."""
    extra = int.from_bytes(packed[10:12], "little") + len(field)
    size = int.from_bytes(packed[16:18], "little") + len(field)
    head = packed[:10] + extra.to_bytes(2, "little") + field + packed[12:16]
    return head + size.to_bytes(2, "little") + packed[18:]


def patched(packed: bytes, at: int, value: bytes) -> bytes:
    at %= len(packed)
    return packed[:at] + value + packed[at + len(value) :]


BLOCK = block(READ * 20)
BEHIND = "other bytes follow the end of the gzip data"

# Wrong wherever in a file they stand.
BROKEN_RECORDS: dict[str, tuple[bytes, str]] = {
    "no @": (b"bad\nA\n+\nI\n", "begins with 'ba"),
    "blank line": (b"\n@x\nA\n+\nI\n", "an empty line where '@'"),
    "no +": (b"@x\nA\n-\nI\n", "third line is '-' where '+'"),
    "no + but @": (b"@x\nA\n@y\nA\n", "third line is '@y' where '+'"),
    "no + but a quality of letters": (b"@x\nACGT\nDBGA\n", "third line is 'DBGA' where '+'"),
    "no + but bases": (b"@x\nACGT\nACGT\n@y\nA\n+\nI\n", "third line is 'ACGT' where '+'"),
    "no name": (b"@\nA\n+\nI\n", "has no name"),
    "no name but a comment": (b"@ x\nA\n+\nI\n", "has no name"),
    "no name but its end": (b"@/1\nA\n+\nI\n", "has no name"),
    "name with @": (b"@@x\nA\n+\nI\n", "read name '@x' begins with '@'"),
    "multi-line": (b"@x\nACGT\nACGT\n+\nIIII\nIIII\n", "multi-line FASTQ"),
    "quality short": (b"@x\nACGT\n+\nIII\n", "3 quality characters for 4 bases"),
    "quality wrapped": (b"@x\nACGT\n+\nII\nII\n", "multi-line FASTQ"),
    "quality short, CRLF": (b"@x\r\nACGT\r\n+\r\nIII\r\n", "3 quality characters for 4 bases"),
    "quality long": (b"@x\nACGT\n+\nIIIII\n", "5 quality characters for 4 bases"),
    "quality missing": (b"@x\nACGT\n+\n\n", "0 quality characters for 4 bases"),
    "quality without bases": (b"@x\n\n+\nII\n", "2 quality characters for 0 bases"),
    "no letter": (b"@x\nAC*T\n+\nIIII\n", "character '*' in the sequence"),
    "E": (b"@x\nACET\n+\nIIII\n", "character 'E' in the sequence"),
    "space in sequence": (b"@x\nACG \n+\nIIII\n", "character ' ' in the sequence"),
    "CR in sequence": (b"@x\nAC\rT\n+\nIIII\n", "in the sequence"),
    "NUL in quality": (b"@x\nACGT\n+\nII\0I\n", r"character '\x00' in the quality"),
    "space after quality": (b"@x\nACGT\n+\nIIII \n", "character ' ' in the quality"),
    "DEL in quality": (b"@x\nACGT\n+\nIII\x7f\n", r"character '\x7f' in the quality"),
    "8-bit name": (b"@x\xe9\nA\n+\nI\n", r"character '\xe9' in the read name"),
    "NUL in name": (b"@x\0y\nA\n+\nI\n", r"character '\x00' in the read name"),
    "old Mac lines": (b"@x\rA\r+\rI\r", r"character '\x0d' in the read name"),
    "long name": (b"@" + b"n" * 255 + b"\nA\n+\nI\n", "longer than 254"),
    "very long name": (b"@" + b"n" * 300 + b"\nA\n+\nI\n", "longer than 254"),
    "ends in name": (b"@x", "ends inside the record"),
    "ends after name": (b"@x\n", "ends inside the record"),
    "ends in sequence": (b"@x\nACG", "ends inside the record"),
    "ends after sequence": (b"@x\nACGT\n", "ends inside the record"),
    "ends in +": (b"@x\nACGT\n+", "ends inside the record"),
    "ends after +": (b"@x\nACGT\n+\n", "ends inside the record"),
    "ends in quality": (b"@x\nACGT\n+\nIII", "ends inside the record"),
}  # fmt: skip

CORPUS: dict[str, tuple[bytes, int | str]] = {
    "one read": (READ, 1),
    "no last line end": (READ[:-1], 1),
    "CRLF": (READ.replace(b"\n", b"\r\n"), 1),
    "CRLF in one line": (READ.replace(b"T\n", b"T\r\n"), 1),
    "CR inside a line": (b"@r\nAC\rGT\n+\nIIIII\n", "no IUPAC"),
    "blank lines at the end": (READ + b"\n\r\n\n", 1),
    "blank line between": (READ + b"\n" + READ, "record 2: an empty line"),
    "blank line first": (b"\n" + READ, "record 1: an empty line"),
    "space first": (b" " + READ, "not FASTQ"),
    "byte order mark": (b"\xef\xbb\xbf" + READ, "byte order mark"),
    "UTF-16": (READ.decode().encode("utf-16"), "not FASTQ"),
    "empty read": (b"@r\n\n+\n\n", 1),
    "empty read without last line end": (b"@r\n\n+\n", 1),
    "only a mark": (b"@", "ends inside the record"),
    "@ in a name": (b"@x@\nA\n+\nI\n", 1),
    "name of 254": (b"@" + b"n" * 254 + b"/1\nA\n+\nI\n", 1),
    "quality of 93": (b"@r\nA\n+\n~\n", 1),
    "quality like a record": (b"@r\nACGT\n+\n@+>I\n" + READ, 2),
    "quality like a third line": (b"@r\nA\n+\n+\n" + READ, 2),
    "other name behind the plus": (b"@r\nA\n+s\nI\n", 1),
    "no plus": (b"@r\nA\nI\nI\n", "third line"),
    "IUPAC, lower case, U and dot": (b"@r\nacgtnRYKMSWBDHVU.\n+\nIIIIIIIIIIIIIIIII\n", 1),
    "FASTA": (b">r\nAC\n\nGT\n>s\n", 2),
    "FASTA without a name": (b">\nAC\n", "has no name"),
    "FASTA with @": (b">@HD\nAC\n", "record 1: read name '@HD' begins with '@'"),
    "FASTQ behind FASTA": (b">r\nAC\n" + READ, "no IUPAC"),
    "FASTA behind FASTQ": (READ + b">r\nAC\n", "record 2: begins with '>r'"),
    "SAM": (b"r\t4\t*\t0\t0\t*\t*\t0\t0\tA\tI\n", "not FASTQ"),
    "gzip": (gzip.compress(READ), 1),
    "two members": (gzip.compress(READ) + gzip.compress(READ), 2),
    "a member inside a record": (gzip.compress(READ[:7]) + gzip.compress(READ[7:]), 1),
    "an empty member first": (gzip.compress(b"") + gzip.compress(READ), 1),
    "gzip in gzip": (gzip.compress(gzip.compress(READ)), "not FASTQ"),
    "zeros behind gzip": (gzip.compress(READ) + bytes(512), 1),
    "text behind gzip": (gzip.compress(READ) + READ, BEHIND),
    "a line end behind gzip": (gzip.compress(READ) + b"\n", BEHIND),
    "nine bytes behind gzip": (gzip.compress(READ) + b"\x1fgarbage!", BEHIND),
    "bytes behind zeros behind gzip": (gzip.compress(READ) + bytes(9) + b"x", BEHIND),
    "a line end behind two members": (gzip.compress(READ) * 2 + b"\n", BEHIND),
    "a line end behind BGZF": (BLOCK + EOF_BLOCK + b"\n", BEHIND),
    "text behind BGZF": (BLOCK + EOF_BLOCK + READ, BEHIND),
    "a line end behind gzip behind BGZF": (BLOCK + gzip.compress(READ) + b"\n", BEHIND),
    "two members, one cut off": ((gzip.compress(READ) * 2)[:-9], "end early"),
    "half a header behind gzip": (gzip.compress(READ) + b"\x1f\x8b", "end early"),
    "BGZF": (BLOCK + EOF_BLOCK, 20),
    "BGZF without an end block": (BLOCK, 20),
    "an end block in the middle": (BLOCK + EOF_BLOCK + BLOCK + EOF_BLOCK, 40),
    "gzip behind BGZF": (BLOCK + gzip.compress(READ), 21),
    "BGZF behind gzip": (gzip.compress(READ) + BLOCK, 21),
    "another field in the header": (with_field(BLOCK, b"XY\3\0abc") + EOF_BLOCK, 20),
    "a field that exceeds the header: gzip, not BGZF": (patched(BLOCK, 14, b"\xff\xff"), 20),
    "BGZF's size too small": (patched(BLOCK, 16, b"\x20\0"), "damaged"),
    "BGZF's size too large": (patched(BLOCK, 16, b"\xff\xff"), "end early"),
    "BGZF's plain size huge": (patched(BLOCK, -4, b"\xff\xff\xff\xff"), "impossible length"),
    "BGZF's plain size too small": (patched(BLOCK, -4, b"\x01\0\0\0"), "length of a block differs"),
    "BGZF's plain size too large": (patched(BLOCK, -4, b"\0\0\1\0"), "length of a block differs"),
    "BGZF's check sum": (patched(BLOCK, -8, b"\0\0\0\0"), "CRC check failed"),
    "bzip2": (b"BZh91AY&SY", "bzip2"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00", "zstd"),
    "xz": (b"\xfd7zXZ\0\0", "xz"),
    "zip": (b"PK\x03\x04\x14\0", "zip"),
    "nothing": (b"", 0),
    "blank lines alone": (b"\n\n\n", 0),
}  # fmt: skip
CORPUS |= {f"first, {name}": row for name, row in BROKEN_RECORDS.items()}
