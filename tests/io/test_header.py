"""Make header text and parse read groups, and refuse malformed ones."""

from __future__ import annotations

import pysam
import pytest

from mapper import __version__
from mapper.errors import UsageError
from mapper.io.header import bam_header, header_field, header_text, parse_read_group


def test_lines():
    text = header_text(["c1", "c2"], [5, 7], "fmwave map\ta\nb", r"@RG\tID:x y\tSM:s")
    assert text == (
        "@HD\tVN:1.6\tSO:unsorted\tGO:query\n@SQ\tSN:c1\tLN:5\n@SQ\tSN:c2\tLN:7\n"
        f"@RG\tID:x y\tSM:s\n@PG\tID:fmwave\tPN:fmwave\tVN:{__version__}\tCL:fmwave map a b\n"
    )
    assert header_text([], [], "", sort=True).startswith("@HD\tVN:1.6\tSO:coordinate\n@PG")


def test_alt_contigs_have_a_field_of_their_own():
    text = header_text(["c1", "c2"], [5, 7], "fmwave map", alt_names=["c2"])
    assert "@SQ\tSN:c1\tLN:5\n@SQ\tSN:c2\tLN:7\tAH:*\n" in text


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


def lines_of(text: str, kind: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"@{kind}\t")]


def ids_and_previous(text: str) -> list[tuple[str, str]]:
    return [(header_field(line, "ID"), header_field(line, "PP")) for line in lines_of(text, "PG")]


def test_input_headers_are_merged():
    first = ["@HD\tVN:1.6", "@SQ\tSN:x\tLN:1", "@RG\tID:a\tSM:s", "@PG\tID:p\tCL:one", "@CO\tfirst"]
    second = [
        "@RG\tID:b\tSM:s",
        "@RG\tID:a\tSM:s",
        "@PG\tID:p\tCL:two",
        "@PG\tID:q\tPP:p",
        "@CO\tx",
    ]
    text = header_text(["chr1"], [9], "fmwave map", inputs=[first, second, first])
    assert lines_of(text, "SQ") == ["@SQ\tSN:chr1\tLN:9"]
    assert lines_of(text, "RG") == ["@RG\tID:a\tSM:s", "@RG\tID:b\tSM:s"]
    assert lines_of(text, "CO") == ["@CO\tfirst", "@CO\tx", "@CO\tfirst"]
    # The second p is another program; what followed it follows it still.
    assert ids_and_previous(text) == [
        ("p", ""), ("p.1", ""), ("q", "p.1"), ("fmwave", "p"), ("fmwave.1", "q")
    ]  # fmt: skip
    assert "@PG\tID:p.1\tCL:two" in text
    assert pysam.AlignmentHeader.from_text(text).to_dict()["PG"][-1]["PP"] == "q"


def test_our_own_programs_get_numbers():
    text = header_text(["c"], [9], "fmwave map")
    for n in range(1, 4):
        text = header_text(["c"], [9], "fmwave map", inputs=[text.splitlines()])
        expected = ["fmwave", *(f"fmwave.{i}" for i in range(1, n + 1))]
        assert ids_and_previous(text) == list(zip(expected, ["", *expected], strict=False))


def test_equal_lines_behind_different_programs_are_two_programs():
    lanes = [
        [f"@PG\tID:bwa\tCL:bwa mem {lane}", "@PG\tID:samtools\tPP:bwa\tCL:samtools sort -"]
        for lane in ("one", "two", "two")
    ]
    text = header_text(["c"], [9], "", sort=True, inputs=lanes)
    assert ids_and_previous(text) == [
        ("bwa", ""), ("samtools", "bwa"), ("bwa.1", ""), ("samtools.1", "bwa.1"),
        ("fmwave", "samtools"), ("fmwave.1", "samtools.1"),
    ]  # fmt: skip


def test_a_number_that_an_input_has_given_is_not_given_again():
    inputs = [["@PG\tID:p\tCL:one"], ["@PG\tID:p.1\tPP:p\tCL:two", "@PG\tID:p\tCL:three"]]
    text = header_text(["c"], [9], "", inputs=inputs)
    ids = [name for name, _ in ids_and_previous(text)]
    assert len(set(ids)) == len(ids) == 5
    previous = {header_field(line, "CL"): header_field(line, "PP") for line in lines_of(text, "PG")}
    own = {header_field(line, "CL"): header_field(line, "ID") for line in lines_of(text, "PG")}
    assert previous["two"] == own["three"]


def test_programs_in_a_circle_or_without_an_id_stay():
    lines = ["@PG\tID:a\tPP:b", "@PG\tID:b\tPP:a", "@PG\tPN:x"]
    assert sorted(lines_of(header_text(["c"], [9], "", inputs=[lines]), "PG")[:3]) == sorted(lines)


def test_read_groups_that_differ_are_refused():
    with pytest.raises(
        UsageError,
        match=r"'a' .* two ways: '@RG\\tID:a' in 1.bam, and '@RG\\tID:a\\tSM:y' in 3.bam;",
    ):
        header_text(
            ["c"], [9], "", inputs=[["@RG\tID:a"], ["@RG\tID:a"], ["@RG\tID:a\tSM:y"]],
            input_names=["1.bam", "2.bam", "3.bam"],
        )  # fmt: skip
    with pytest.raises(UsageError, match="read group 'a' is described in two ways"):
        header_text(["c"], [9], "", "@RG\\tID:a\\tSM:x", inputs=[["@RG\tID:a"]])
    with pytest.raises(UsageError, match="read group 'a' is described in two ways"):
        header_text(["c"], [9], "", ["@RG\\tID:a\\tSM:x", "@RG\\tID:a\\tSM:y"])


def test_a_read_group_given_twice_is_one():
    text = header_text(["c"], [9], "", ["@RG\\tID:a\\tSM:x", "@RG\tID:a\tSM:x", "@RG\\tID:b"])
    assert lines_of(text, "RG") == ["@RG\tID:a\tSM:x", "@RG\tID:b"]


def test_bytes_that_are_no_utf8_stay():
    line = b"@CO\tna\xefve".decode("utf-8", "surrogateescape")
    assert b"na\xefve" in bam_header(header_text(["c"], [9], "", inputs=[[line]]), ["c"], [9])
