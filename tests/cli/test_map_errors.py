"""Usage errors of ``fmwave map``: one clear line, the documented exit status, no output."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from mapper.cli.main import main
from mapper.errors import DeviceError, IndexFormatError, InputFormatError, OutputError, UsageError
from mapper.io.samtools import check_fasta
from tests.helpers.mapping_runs import World
from tests.helpers.simulate import write_fastq

USAGE, DATA, OUTPUT, DEVICE = (
    error.exit_status for error in (UsageError, InputFormatError, OutputError, DeviceError)
)


@pytest.fixture
def place(world: World, tmp_path: Path) -> Path:
    """A directory with an index, and files that users may mistake for other ones."""
    assert IndexFormatError.exit_status == DATA == 1
    assert (USAGE, DEVICE, OUTPUT) == (2, 3, 4)
    for copy in ("ref.fmw", "version.fmw", "cut.fmw"):
        shutil.copytree(world.index_path, tmp_path / copy)
    meta = tmp_path / "version.fmw" / "meta.json"
    meta.write_text(meta.read_text().replace('"format_version": 1,', '"format_version": 99,'))
    planes = tmp_path / "cut.fmw" / "ref_planes.npy"
    planes.write_bytes(planes.read_bytes()[:-100])
    (tmp_path / "directory.bam").mkdir()
    (tmp_path / "i.bam.bai").mkdir()
    (tmp_path / "empty.fmw").mkdir()
    write_fastq(tmp_path / "1.fq", world.reads[:20:2])
    write_fastq(tmp_path / "2.fq", world.reads[1:20:2])
    write_fastq(tmp_path / "nine.fq", world.reads[:9])
    write_fastq(tmp_path / "shifted.fq", world.reads[3:22:2])
    write_fastq(tmp_path / "eight.fq", world.reads[1:16:2])
    (tmp_path / "ref.fa").write_text(">chr1\nACGT\n")
    (tmp_path / "ref.fa.gz").write_bytes(gzip.compress(b">chr1\nACGT\n"))
    (tmp_path / "nothing").write_bytes(b"")
    (tmp_path / "prose.fa").write_text(">x\nNo bases\n")
    (tmp_path / "casava.fq").write_text("@x 1:N:0:ACGT\nACGT\n+\nIIII\n")
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 10)
    compressed = gzip.compress((tmp_path / "1.fq").read_bytes())
    (tmp_path / "cut.fq.gz").write_bytes(compressed[:-200])
    (tmp_path / "flipped.fq.gz").write_bytes(compressed[:-8] + bytes(8))
    (tmp_path / "ended.fq").write_text((tmp_path / "1.fq").read_text()[:-150])
    (tmp_path / "link.fq").symlink_to("1.fq")
    os.mkfifo(tmp_path / "pipe.bam")
    return tmp_path


CASES = {
    # the index
    "no arguments": ("", USAGE, "required: REF.fmw, READS"),
    "no reads": ("ref.fmw", USAGE, "required: READS"),
    "no index": ("none.fmw 1.fq", DATA, "none.fmw: no such index; 'fmwave index"),
    "index forgotten": ("1.fq 2.fq", DATA, "1.fq: is a file, and an index is a directory"),
    "reference for index": ("ref.fa 1.fq", DATA, "'fmwave index"),
    "empty directory": ("empty.fmw 1.fq", DATA, "holds no meta.json"),
    "other version": ("version.fmw 1.fq", DATA, "format 99; this fmwave reads formats 1 and 2"),
    "cut index": ("cut.fmw 1.fq", DATA, "ref_planes.npy"),
    # the reads
    "no such reads": ("ref.fmw none.fq", DATA, "none.fq: no such file"),
    "no such mates": ("ref.fmw 1.fq none.fq", DATA, "none.fq: no such file"),
    "directory of reads": ("ref.fmw empty.fmw", DATA, "is a directory; name a file"),
    "broken FASTA": ("ref.fmw prose.fa", DATA, "prose.fa: record 1: character 'o' in the sequence"),
    "noise": ("ref.fmw noise", DATA, "noise: not FASTQ"),
    "BAM and FASTQ": ("ref.fmw old.bam 1.fq", USAGE, "old.bam is BAM, 1.fq is FASTQ; give FASTQ"),
    "interleaved BAM": ("ref.fmw old.bam -p", USAGE, "says itself what are mates; drop"),
    "BAM twice": ("ref.fmw old.bam old.bam", USAGE, "old.bam given twice"),
    "index as reads": ("ref.fmw ref.fmw/meta.json", DATA, "not FASTQ"),
    "odd interleaved": ("ref.fmw -p nine.fq", DATA, "nine.fq: 9 reads, an odd number"),
    "single taken for interleaved": ("ref.fmw -p 1.fq", DATA, "mates out of step: record 1"),
    "same file twice": ("ref.fmw 1.fq ./1.fq", USAGE, "given twice"),
    "same file by a link": ("ref.fmw 1.fq link.fq", USAGE, "given twice"),
    "three files": ("ref.fmw 1.fq 2.fq nine.fq", USAGE, "3 read files; give one, or two"),
    "two interleaved": ("ref.fmw 1.fq 2.fq -p", USAGE, "cannot be interleaved"),
    "stdin twice": ("ref.fmw - -", USAGE, "given twice"),
    "mates out of step": ("ref.fmw 1.fq shifted.fq", DATA, "or files of single reads as lanes"),
    "mates end early": ("ref.fmw 1.fq eight.fq", DATA, "eight.fq ends after 8 reads"),
    "empty mates": ("ref.fmw 1.fq nothing", DATA, "nothing ends after 0 reads"),
    "cut gzip": ("ref.fmw cut.fq.gz", DATA, "cut.fq.gz: the gzip data end early"),
    "damaged gzip": ("ref.fmw flipped.fq.gz", DATA, "flipped.fq.gz: the gzip data are damaged"),
    "ends in a record": ("ref.fmw ended.fq", DATA, "ended.fq: record 10: "),
    "no tags in comments": (
        "ref.fmw -C casava.fq",
        DATA,
        "'1:N:0:ACGT' in the comment is",
    ),
    "comments of BAM": ("ref.fmw old.bam -C", USAGE, "drop --comments"),
    "lane without files": (
        r"ref.fmw 1.fq -R @RG\tID:a --lane 2.fq",
        USAGE,
        "its files are expected",
    ),
    "lane without group": (
        r"ref.fmw 1.fq -R @RG\tID:a --lane 2.fq nine.fq",
        USAGE,
        "does not begin with '@RG'",
    ),
    "first lane without group": (r"ref.fmw 1.fq --lane @RG\tID:b 2.fq", USAGE, "with -R"),
    "lanes of one group": (
        r"ref.fmw 1.fq -R @RG\tID:a\tSM:x --lane @RG\tID:a\tSM:x\tLB:l 2.fq",
        USAGE,
        "'a' is described",
    ),
    "lanes of two samples": (
        r"ref.fmw 1.fq -R @RG\tID:a\tSM:x --lane @RG\tID:b\tSM:x 2.fq --lane @RG\tID:c 2.fq",
        USAGE,
        "SM is missing, and x in -R; an output is one sample",
    ),
    "file in two lanes": (
        r"ref.fmw 1.fq -R @RG\tID:a --lane @RG\tID:b 1.fq",
        USAGE,
        "1.fq given twice",
    ),
    "lane of three": (
        r"ref.fmw 1.fq -R @RG\tID:a --lane @RG\tID:b 2.fq nine.fq eight.fq",
        USAGE,
        "3 read files",
    ),
    # the outputs
    "unknown suffix": ("ref.fmw 1.fq -o x.txt", USAGE, "name it .bam, .cram, .sam or .paf"),
    "directory": ("ref.fmw 1.fq -o directory.bam", OUTPUT, "is a directory; name a file"),
    "directory as index": ("ref.fmw 1.fq --sort -o i.bam", OUTPUT, "i.bam.bai: is a directory"),
    "no such directory": ("ref.fmw 1.fq -o no/x.bam", OUTPUT, "does not exist; make it first"),
    "sorted PAF": ("ref.fmw 1.fq -o x.paf --sort", USAGE, "PAF is not sorted"),
    "output is input": ("ref.fmw 1.fq -o link.fq -O sam", USAGE, "is one of the read files"),
    "statistics over reads": ("ref.fmw 1.fq --json-stats 1.fq", USAGE, "is one of the read files"),
    "output is reference": (
        "ref.fmw 1.fq -o ref.fa -O cram --reference ref.fa",
        USAGE,
        "ref.fa is read by this run",
    ),
    "statistics over a reference": (
        "ref.fmw 2.fq --input-reference ref.fa --json-stats ref.fa",
        USAGE,
        "ref.fa is read by this run",
    ),
    "output in the index": (
        "ref.fmw 1.fq -o ref.fmw/meta.json -O sam",
        USAGE,
        "would lie in the index",
    ),
    "threads beyond reason": ("ref.fmw 1.fq -t 99999999999", USAGE, "at most 4096 threads"),
    "statistics over records": ("ref.fmw 1.fq -o x.sam --json-stats ./x.sam", USAGE, "both go to"),
    "both to stdout": ("ref.fmw 1.fq --json-stats -", USAGE, "both go to"),
    "statistics nowhere": ("ref.fmw 1.fq --json-stats no/x", OUTPUT, "does not exist"),
    "statistics directory": ("ref.fmw 1.fq --json-stats empty.fmw", OUTPUT, "is a directory"),
    "format": ("ref.fmw 1.fq -O vcf", USAGE, "invalid choice: 'vcf'"),
    "compression": ("ref.fmw 1.fq --compression 10", USAGE, "--compression: invalid choice"),
    "CRAM without reference": ("ref.fmw 1.fq -o x.cram", USAGE, "FASTA file with --reference"),
    "CRAM of other reference": (
        "ref.fmw 1.fq -o x.cram --reference ref.fa",
        USAGE,
        "contig 'chr1' is not that of the index",
    ),
    "CRAM of a reference that samtools does not read": (
        "ref.fmw 1.fq -o x.cram --reference ref.fa.gz",
        USAGE,
        "ref.fa.gz: compressed with gzip, and CRAM needs it plain or by bgzip",
    ),
    "CRAM of no reference": (
        "ref.fmw 1.fq -o x.cram --reference none.fa",
        USAGE,
        "--reference none.fa: no such file",
    ),
    "BAM of no reference": (
        "ref.fmw 1.fq --reference none.fa",
        USAGE,
        "--reference none.fa: no such file",
    ),
    "FASTQ of no reference": (
        "ref.fmw 1.fq --input-reference none.fa",
        USAGE,
        "--input-reference none.fa: no such file",
    ),
    "CRAM with = and X": (
        "ref.fmw 1.fq -o x.cram --reference ref.fa --eqx",
        USAGE,
        "--eqx: CRAM does not tell = and X from M",
    ),
    "no BAM to compress": (
        "ref.fmw 1.fq -o x.sam --compress-on device",
        USAGE,
        "--compress-on device is for BAM, and the output is SAM",
    ),
    "duplicates unsorted": ("ref.fmw 1.fq -o x.bam --markdup", USAGE, "--markdup needs --sort"),
    # read group, machine
    "read group": ("ref.fmw 1.fq -R sample", USAGE, "does not begin with '@RG'"),
    "empty read group": ("ref.fmw 1.fq -R ''", USAGE, "does not begin with '@RG'"),
    "read group ID": (r"ref.fmw 1.fq -R @RG\tSM:x", USAGE, "has no ID"),
    "unknown device": ("ref.fmw 1.fq --device gpu:0", USAGE, "--device gpu:0: auto, cpu"),
    "compression without a device": (
        "ref.fmw 1.fq -o x.bam --device cpu --compress-on device",
        USAGE,
        "--compress-on device needs a CUDA device; the run has none",
    ),
    "no such device": ("ref.fmw 1.fq --device cuda:99", DEVICE, "--device cuda:99: "),
    "no threads": ("ref.fmw 1.fq -t 0", USAGE, "-t/--threads: 0: a whole number"),
    "word of threads": ("ref.fmw 1.fq -t two", USAGE, "-t/--threads: two: a whole number"),
    "no batch": ("ref.fmw 1.fq --batch-bases 0", USAGE, "--batch-bases: 0: a whole number"),
    "word of memory": ("ref.fmw 1.fq --memory lots", USAGE, "a size such as 500M"),
    "no memory": ("ref.fmw 1.fq --memory 0", USAGE, "a size such as 500M"),
    "memory without a unit": ("ref.fmw 1.fq --memory 10", USAGE, "bytes: did you mean 10G?"),
    "endless memory": ("ref.fmw 1.fq --memory inf", USAGE, "a size such as 500M"),
    "unknown option": ("ref.fmw 1.fq --fast", USAGE, "unrecognized arguments: --fast"),
    # scores and seeds
    **{
        f"{option} {value}": (f"ref.fmw 1.fq {option} {value}", USAGE, message)
        for option, value, message in (
            ("-A", "0", "--match 0: 1 to 20 is expected"),
            ("-A", "21", "--match 21: 1 to 20"),
            ("-B", "-1", "--mismatch -1: 1 to 200"),
            ("-G", "201", "--gap-open 201: 0 to 200"),
            ("-E", "0", "--gap-extend 0: 1 to 200"),
            ("-L", "1001", "--end-bonus 1001: 0 to 1000"),
            ("-T", "0", "--min-score 0: 1 to 20000"),
            ("-U", str(2**62), f"--unpaired-penalty {2**62}: 0 to 1000000"),
            ("-k", "9", "--seed-length 9: 0 or at least 10"),
            ("-k", "1001", "--seed-length 1001: 0 to 1000"),
            ("-c", "0", "--max-occ 0: 1 to 1000000"),
            ("-A", "one", "invalid int value: 'one'"),
            ("-G", "4,x", "'4,x': N or N,N is expected"),
            ("-E", "1,2,3", "'1,2,3': N or N,N is expected"),
            ("-G", "4,24", "--gap-open 4,24: gaps of short reads have one number"),
            ("--preset ont -G", "4,201", "--gap-open 4,201: 0 to 200, or two such numbers, are"),
            ("--preset ont -E", "1,2", "gap extensions 1 and 2"),
            ("--preset ont -k", "15", "--seed-length 15 and --preset ont: it is of short reads"),
            ("-I", "long", "MEAN[,SD[,MAX[,MIN]]] is expected"),
            ("-I", "''", "MEAN[,SD[,MAX[,MIN]]] is expected"),
            ("-I", "1,2,3,4,5", "MEAN[,SD[,MAX[,MIN]]] is expected"),
            ("-I", "nan", "sizes of at most 1000000"),
            ("-I", "inf", "sizes of at most 1000000"),
            ("-I", "300,nan", "sizes of at most 1000000"),
            ("-I", "300,30,1e9", "sizes of at most 1000000"),
            ("-I=-5", "", "--insert-size -5: MEAN of at least 20 is expected"),
            ("-I", "0", "MEAN of at least 20 is expected, or of at most -20"),
            ("-I", "19,5", "MEAN of at least 20 is expected"),
            ("-I", "300,0", "SD must be positive"),
            ("-I", "300,30,200", "in ascending order are expected, and they are 180, 300 and 200"),
            ("-I", "300,30,400,350", "and they are 350, 300 and 400"),
            ("-I", "300,10,200,400", "and they are 400, 300 and 200"),
            ("-I", "-3000,300,-3500", "and they are -4200, -3000 and -3500"),
            ("-o out.bam", "2.fq", "arguments: 2.fq; give all files side by side"),
        )
    },
}


TO_STDOUT = ("ref.fmw 1.fq --json-stats -",)


@pytest.mark.medium
@pytest.mark.parametrize(("words", "status", "message"), CASES.values(), ids=CASES)
def test_wrong_use(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], words: str, status: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(place)
    if "old.bam" in words:
        assert main(["map", "ref.fmw", "1.fq", "-o", "old.bam", "--quiet"]) == 0
    before = contents(place)
    argv = ["map", *(word.replace("''", "") for word in words.split(" ") if word)]
    if "-o" not in argv and words not in TO_STDOUT:
        argv += ["-o", "out.bam"]
    assert main(argv) == status
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if "error: " in line]
    assert len(lines) == 1
    assert lines[0].startswith("fmwave")
    assert message in lines[0]
    assert err.endswith(f"{lines[0]}\n")
    assert "Traceback" not in err
    assert out == ""
    assert contents(place) == before
    assert (place / "pipe.bam").is_fifo()


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() if path.is_file() else b"" for path in directory.rglob("*")
    }


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mapp", "ref.fmw", "1.fq"]) == USAGE
    assert "invalid choice: 'mapp' (choose from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-M", "-M is bwa's; leave it out: further parts of split reads are supplementary"),
        ("-K 100000000", "-K is bwa's and minimap2's; leave it out"),
        ("-v3", "-v is bwa's; use --quiet, --verbose or --debug"),
        ("-ax sr", "-x is minimap2's; use --preset"),
        ("--max-mismatches 3", "unrecognized arguments: --max-mismatches 3"),
    ],
)
def test_options_of_other_mappers(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The usage is that of the subcommand, and says what to do instead."""
    assert main(["map", "ref.fmw", "1.fq", *words.split()]) == USAGE
    err = capsys.readouterr().err
    assert err.startswith("usage: fmwave map [-h]")
    assert err.splitlines()[-1].startswith(f"fmwave map: error: {message}")


def test_bam_does_not_go_to_a_terminal(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["map", world.index_path, world.first, "-O", "bam"]) == USAGE
    assert "BAM would go to the terminal" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_directory_without_permission(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o500)
    assert main(["map", world.index_path, world.first, "-o", str(tmp_path / "x.bam")]) == OUTPUT
    assert "no permission to write" in capsys.readouterr().err


def test_an_index_of_the_reference_must_be_there_or_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fasta = tmp_path / "ref.fa"
    fasta.write_text(">chr1\nACGT\n")
    check_fasta(fasta)
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)  # root may write anywhere
    with pytest.raises(UsageError, match=r"ref.fa: CRAM needs its index \(ref.fa.fai\)"):
        check_fasta(fasta)
    (tmp_path / "ref.fa.fai").write_text("chr1\t4\t6\t4\t5\n")
    check_fasta(fasta)
    check_fasta(tmp_path / "none.fa")  # reported by the function that reads it


@pytest.mark.parametrize("batch_bases", ["9000", "3000000"])
@pytest.mark.parametrize("estimation_pairs", [100, 16384])
def test_pairs_of_which_none_is_proper_are_told(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, batch_bases: str, estimation_pairs: int,
) -> None:  # fmt: skip
    """R1 twice, without marks; and an insert size that the library has not."""
    monkeypatch.setattr("mapper.mapping.pipeline.ESTIMATION_PAIRS", estimation_pairs)
    copy = tmp_path / "copy.fq"
    shutil.copy(world.first, copy)
    argv = ["map", world.index_path, "-O", "sam", "-o", str(tmp_path / "x.sam"), "--quiet"]
    argv += ["--batch-bases", batch_bases]
    with caplog.at_level("WARNING", "mapper"):
        assert main([*argv, world.first, world.second]) == 0
        assert main([*argv, world.first]) == 0
        assert caplog.messages == []
        for reads in ([world.first, str(copy)], [world.first, world.second, "-I", "900000,10"]):
            assert main([*argv, *reads]) == 0
            (message,) = caplog.messages
            caplog.clear()
            if batch_bases == "3000000":
                assert message.startswith("none of the first 600 pairs is proper, though 1")
            assert "is proper, though" in message
        write_fastq(tmp_path / "few.1.fq", world.reads[:20:2])
        write_fastq(tmp_path / "few.2.fq", world.reads[:20:2])
        assert main([*argv, str(tmp_path / "few.1.fq"), str(tmp_path / "few.2.fq")]) == 0
        assert caplog.messages == []


def test_mates_that_were_not_declared_are_told(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    argv = ["map", world.index_path, world.both, "-O", "sam", "-o", str(tmp_path / "x.sam")]
    with caplog.at_level("WARNING", "mapper"):
        assert main([*argv, "-p", "--quiet"]) == 0
        assert main(["map", world.index_path, world.first, *argv[3:], "--quiet"]) == 0
        assert caplog.messages == []
        assert main([*argv, "--quiet"]) == 0
    assert [line.partition(", ")[0] for line in caplog.messages] == [
        "the first two single reads have one name"
    ]


def test_a_preset_for_long_reads_does_not_map_pairs(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fastq = [str(write_fastq(tmp_path / f"{i}.fq", world.reads[i:40:2])) for i in range(2)]
    argv = ["map", world.index_path, "-O", "sam", "-o", str(tmp_path / "x.sam"), "--quiet"]
    with caplog.at_level("WARNING", "mapper"):
        assert main([*argv, *fastq]) == 0
        assert main([*argv, "--preset", "hifi", fastq[0]]) == 0
        assert caplog.messages == []
        for scores, unused in (
            ([], ""),
            (["-A", "3", "-G", "9,30"], " with their default scores, and those given (--match to "
             "--min-score) are not used"),
        ):  # fmt: skip
            assert main([*argv, "--preset", "hifi", *fastq, *scores]) == 0
            assert caplog.messages == [
                f"pairs are mapped as short reads{unused}; --preset hifi, ont or asm is for single "
                "reads"
            ]
            caplog.clear()


@pytest.mark.medium
@pytest.mark.parametrize("words", ["ref.fmw 1.fq -o a.sam", "ref.fmw a.sam -o x.sam", "a.sam 1.fq"])
def test_a_link_that_leads_to_itself(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    monkeypatch.chdir(place)
    Path("a.sam").symlink_to("b.sam")
    Path("b.sam").symlink_to("a.sam")
    before = contents(place)
    assert main(["map", *words.split()]) in (DATA, OUTPUT)
    _, err = capsys.readouterr()
    assert err.startswith("fmwave: error: ") and err.count("\n") == 1 and "a.sam" in err
    assert "leads to itself" in err or "symbolic links" in err  # by the system, since Python 3.13
    assert contents(place) == before
