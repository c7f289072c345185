"""Header text, read groups, and what is refused."""

from __future__ import annotations

import pytest

from mapper import __version__
from mapper.errors import UsageError
from mapper.io.header import header_text, parse_read_group


def test_lines():
    text = header_text(["c1", "c2"], [5, 7], "fmwave map\ta\nb", r"@RG\tID:x y\tSM:s")
    assert text == (
        "@HD\tVN:1.6\tSO:unsorted\tGO:query\n@SQ\tSN:c1\tLN:5\n@SQ\tSN:c2\tLN:7\n"
        f"@RG\tID:x y\tSM:s\n@PG\tID:fmwave\tPN:fmwave\tVN:{__version__}\tCL:fmwave map a b\n"
    )
    assert header_text([], [], "", sort=True).startswith("@HD\tVN:1.6\tSO:coordinate\n@PG")


def test_read_group_id():
    assert parse_read_group("@RG\tSM:s\tID:a:b") == ("@RG\tSM:s\tID:a:b", "a:b")


@pytest.mark.parametrize(
    "text",
    ["", "ID:x", "@RG", r"@RG\tSM:x", r"@RG\tID:", r"@RG\tID", r"@RG\tID:a\tID:b", "@RG ID:a",
     "@RG\tID:a\nSM:b", r"@RG\tID:a\t", "@RG\tID:é"],
)  # fmt: skip
def test_malformed_read_groups(text):
    with pytest.raises(UsageError, match="read group"):
        parse_read_group(text)


@pytest.mark.parametrize(
    ("names", "lengths"),
    [(["a b"], [1]), ([""], [1]), (["="], [1]), (["a", "a"], [1, 1]), (["a"], [0]),
     (["a"], [1 << 31])],
)  # fmt: skip
def test_contigs_that_bam_cannot_hold(names, lengths):
    with pytest.raises(UsageError, match="contig"):
        header_text(names, lengths, "")
