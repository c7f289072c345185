"""Usage of ``fmwave merge``, and of the options on duplicates that it shares with map."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mapper.cli import merge
from mapper.cli.duplicate_options import mark_options
from mapper.cli.main import main, parse_arguments
from mapper.errors import UsageError
from mapper.sorting.options import MarkOptions


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a.bam", "b.bam", "ref.fa"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "link.bam").symlink_to("a.bam")
    os.link(tmp_path / "a.bam", tmp_path / "hard.bam")
    (tmp_path / "directory").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def error_of(words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run the command; return its exit status and the one line that says why it failed."""
    status = main(words.split())
    out, err = capsys.readouterr()
    (line,) = [line for line in err.splitlines() if "error: " in line]
    assert out == ""
    assert "Traceback" not in err
    return status, line


NEEDS = "needs --markdup, which finds the duplicates; give both, or neither"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "required: PART.bam, -o/--output"),
        ("a.bam", "required: -o/--output"),
        ("a.bam -o x.vcf", "output x.vcf: name it .bam, .cram, .sam"),
        ("a.bam -o x.paf", "output x.paf: parts are merged to BAM, CRAM or SAM"),
        ("a.bam -o x.bam -O paf", "invalid choice: 'paf'"),
        ("a.bam -o x.cram", "name its FASTA file with --reference"),
        ("a.bam -o x.bam --compression 10", "--compression: invalid choice"),
        ("a.bam b.bam a.bam -o x.bam", "a.bam is given twice; give each part once"),
        ("a.bam link.bam -o x.bam", "link.bam is given twice"),
        ("a.bam hard.bam -o x.bam", "hard.bam is given twice"),
        ("- a.bam - -o x.bam", "standard input is given twice"),
        ("a.bam b.bam -o a.bam", "a.bam is one of the read files; name another output"),
        ("a.bam b.bam -o link.bam", "link.bam is one of the read files"),
        ("a.bam -o x.bam --markdup --markdup-stats a.bam", "a.bam is one of the read files"),
        ("a.bam -o ref.fa -O cram --reference ref.fa", "ref.fa is read by this run"),
        ("a.bam -o x.bam --markdup --markdup-stats x.bam",
         "records and counts of duplicates would both go to x.bam"),
        ("a.bam -o x.bam --markdup --markdup-stats x.bam.bai",
         "x.bam.bai has the name of an index of x.bam"),
        ("a.bam -o x.bam --markdup --markdup-stats ./x.csi", "x.csi has the name of an index"),
        ("a.bam -o x.bam --optical-distance 100", f"--optical-distance {NEEDS}"),
        ("a.bam -o x.bam --optical-distance 0", f"--optical-distance {NEEDS}"),
        ("a.bam -o x.bam --barcode-tag RX", f"--barcode-tag {NEEDS}"),
        ("a.bam -o x.bam --remove-duplicates", f"--remove-duplicates {NEEDS}"),
        ("a.bam -o x.bam --mark-supplementary", f"--mark-supplementary {NEEDS}"),
        ("a.bam -o x.bam --markdup-stats x.json", f"--markdup-stats {NEEDS}"),
        ("a.bam -o x.bam --markdup --optical-distance -1", "-1: a whole number of pixels"),
        ("a.bam -o x.bam --markdup --optical-distance 1e3", "1e3: a whole number of pixels"),
        ("a.bam -o x.bam --markdup --optical-distance 2147483648", "0 to 2147483647"),
        ("a.bam -o x.bam --markdup --barcode-tag RXX", "RXX: the two characters of a SAM tag"),
        ("a.bam -o x.bam --markdup --barcode-tag 1X", "1X: the two characters of a SAM tag"),
        ("a.bam -o x.bam --tmp-dir none", "--tmp-dir none: no such directory; make it"),
        ("a.bam -o x.bam --tmp-dir a.bam", "--tmp-dir a.bam: no such directory"),
        ("a.bam -o x.bam --memory lots", "a size such as 500M"),
        ("a.bam -o x.bam --memory 1", "1: at least 1M is expected; without a unit it is bytes: "
         "did you mean 1G?"),
        ("a.bam -o x.bam --memory 500k", "500k: at least 1M is expected"),
        ("a.bam -o x.bam --reference none.fa", "--reference none.fa: no such file"),
        ("a.bam -o x.bam -t 0", "a whole number of at least 1"),
    ],
)  # fmt: skip
def test_wrong_use(place, words, message, capsys):
    before = {path: path.is_file() and path.read_bytes() for path in place.iterdir()}
    status, line = error_of(f"merge {words}", capsys)
    assert status == UsageError.exit_status
    assert message in line
    assert {path: path.is_file() and path.read_bytes() for path in place.iterdir()} == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--optical-distance 100", f"--optical-distance {NEEDS}"),
        ("--sort --markdup-stats x.json", f"--markdup-stats {NEEDS}"),
        ("--markdup --remove-duplicates", "--markdup needs --sort"),
        ("--sort --markdup --markdup-stats out.bam", "would both go to out.bam"),
        ("--sort --markdup --markdup-stats x.json --json-stats x.json",
         "statistics and counts of duplicates would both go to x.json"),
        ("--sort --markdup --markdup-stats a.bam", "a.bam is one of the read files"),
        ("--sort --tmp-dir none", "--tmp-dir none: no such directory"),
    ],
)  # fmt: skip
def test_map_takes_the_same_options(place, words, message, capsys):
    status, line = error_of(f"map ref.fmw a.bam -o out.bam {words}", capsys)
    assert status == UsageError.exit_status
    assert message in line


def test_one_file_of_counts_cannot_serve_a_batch(place, capsys):
    (place / "sheet.tsv").write_text("output\treads1\nx.bam\ta.bam\ny.bam\tb.bam\n")
    words = "map ref.fmw --batch sheet.tsv --sort --markdup --markdup-stats x.json"
    assert "all samples would write one file" in error_of(words, capsys)[1]


@pytest.mark.parametrize("command", ["merge a.bam -o x.bam", "map ref.fmw a.bam --sort -o x.bam"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", None),
        ("--markdup", MarkOptions()),
        ("--markdup --optical-distance 0", MarkOptions()),
        ("--markdup --optical-distance 2500 --barcode-tag RX",
         MarkOptions(optical_distance=2500, barcode_tag="RX")),
        ("--markdup --remove-duplicates --mark-supplementary --markdup-stats x.json",
         MarkOptions(remove=True, supplementary=True)),
    ],
)  # fmt: skip
def test_options_on_duplicates(command, words, expected):
    assert mark_options(parse_arguments(f"{command} {words}".split())) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [("-o x.bam", "bam"), ("-o x.sam", "sam"), ("-o -", "sam"), ("-o - -O bam", "bam"),
     ("-o x.out -O cram --reference ref.fa", "cram")],
)  # fmt: skip
@pytest.mark.usefixtures("place")
def test_the_format(words, expected):
    args = parse_arguments(["merge", "a.bam", "b.bam", *words.split()])
    assert merge._check(args) == expected


@pytest.mark.usefixtures("place")
def test_bam_does_not_go_to_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "BAM would go to the terminal" in error_of("merge a.bam -o - -O bam", capsys)[1]


def test_a_directory_that_is_closed_to_the_user(place, monkeypatch, capsys):
    monkeypatch.setattr(os, "access", lambda *_: False)
    line = error_of("merge a.bam -o x.bam --tmp-dir directory", capsys)[1]
    assert "--tmp-dir directory: no permission to write there" in line
