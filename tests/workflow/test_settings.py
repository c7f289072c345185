"""Wrong settings stop before any job, with a line that says what to do."""

from __future__ import annotations

import argparse
import ast
import re
import shutil
from collections.abc import Iterator

import pytest

from mapper.cli import map as map_command
from tests.helpers.workflow_runs import (
    CONFIG,
    DATA,
    PHIX,
    ROOT,
    SAMPLE,
    SAMPLES_HEADER,
    UNIT,
    UNITS_HEADER,
    environment,
    needs_snakemake,
    project,
    snakemake,
)

pytestmark = needs_snakemake

SAMPLES = SAMPLES_HEADER + SAMPLE
UNITS = UNITS_HEADER + UNIT


def case(name, messages, config=CONFIG, samples=SAMPLES, units=UNITS, marks=()):
    return pytest.param(config, samples, units, messages, id=name, marks=marks)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("config", "samples", "units", "messages"),
    [
        # Several faults in one run: each must be told of.
        case(
            "config",
            [
                "unknown key threds",
                "known: ",
                "config: map.threads: 'two' is not allowed. Expected: a whole number of threads",
                "config: duplicates.mark: 'maybe' is not allowed. Expected: true or false",
                "config: output.format: 'sam' is not allowed. Expected: bam or cram",
            ],
            config=CONFIG
            + "threds: 2\nmap: {threads: two}\nduplicates: {mark: maybe}\noutput: {format: sam}\n",
        ),
        case(
            "interleaved",
            ["config: map.extra: --interleaved (-p) is not allowed. Expected: mates in two files"],
            config=CONFIG + "map: {extra: '-k 20 -Cp'}\n",
        ),
        case(
            "options of the rules",
            [
                f"config: map.extra: {name} is not allowed. Expected: "
                for name in (
                    "--read-group (-R)", "--output (-o)", "--output-format (-O)", "--markdup",
                    "--remove-duplicates", "--json-stats", "--lane", "--mark-supplementary",
                    "--threads (-t)", "--resume", "--optical-distance", "--input-reference",
                )
            ],
            config=CONFIG
            + "map: {extra: \"-aR'@RG\\\\tID:1' --lan=x -oa.bam -Ocram --mark-supplementary "
            + "--markdup --rem --js x.json -Yt4 --resume --opt=100 --input-reference x.fa\"}\n",
        ),
        case(
            "quotes",
            ["config: map.extra: \"-R 'x\": No closing quotation"],
            config=CONFIG + "map: {extra: \"-R 'x\"}\n",
        ),
        case(
            "pathvars",
            ["config: pathvars: unknown key result (known: results, logs, benchmarks)"],
            config=CONFIG + "pathvars: {disk: out, logs: <disk>/logs, result: <disk>/results}\n",
        ),
        case("required", ["config: missing: reference, samples"], config="units: units.tsv\n"),
        case(
            "units",
            [
                "units.tsv, line 3: 'phix-run1' stands there twice",
                "units.tsv, line 4: unit: 'run 2' is not allowed. Expected: letters, digits",
                "units.tsv, line 5: chunks: 'many' is not allowed. Expected: a whole number",
                "units.tsv, line 6: fq1 and fq2 are the same file",
                "phix_R1.fq' stands in several units: phix-run1, phix-other",
            ],
            units=UNITS
            + UNIT
            + "phix\trun 2\tx.fq\t\t\t\n"
            + "phix\trun3\ty.fq\t\t\tmany\n"
            + "phix\trun4\tz.fq\tz.fq\t\t\n"
            + UNIT.replace("run1", "other"),
        ),
        case(
            "column",
            ["units.tsv, line 2: unknown column read1 (known: sample, unit, fq1, "],
            units="# reads\nsample\tunit\tread1\nphix\tb\tc\n",
        ),
        case(
            "reads",
            [
                "units.tsv, line 2: missing: fq1, or bam; one of them is expected",
                "units.tsv, line 3: fq1 and bam are both given; give one of them",
            ],
            units="sample\tunit\tfq1\tbam\nphix\ta\t\t\nphix\tb\tx.fq\tx.bam\n",
        ),
        case(
            "one column",
            ["samples.tsv, line 2: sample: 'phi x' is not allowed. Expected: letters, digits"],
            samples="sample\nphi x\n",
        ),
        *(
            case(extra, [f"config: map.extra: {message}"], f"{CONFIG}map: {{extra: '{extra}'}}\n")
            for extra, message in (
                ("--foo", "unrecognized arguments: --foo"),
                ("foo.fq", "unrecognized arguments: foo.fq"),
                ("-A 0", "--match 0: 1 to 20 is expected"),
                ("--memory 10", "argument --memory: 10: at least 1M"),
                ("-I 300 --insert-size-from x", "--insert-size and --insert-size-from: give one"),
                ("-G 4,24", "--gap-open 4,24: gaps of short reads have one number"),
            )
        ),
        case(
            "column twice",
            ["units.tsv, line 2: column fq1 stands there twice"],
            units="# of run 1\nsample\tunit\tfq1\tfq1\t\t\n"
            + f"phix\trun1\t{PHIX[0]}\t{PHIX[1]}\t\t\n",
        ),
        case(
            "reads under two names",
            [
                "units.tsv, line 2: fq1 and fq2 are the same file",
                f"units.tsv: '{PHIX[0]}' and '{DATA}/./phix_R1.fq', one file, stands in several "
                "units: phix-run1, phix-run2",
            ],
            units=UNITS_HEADER
            + f"phix\trun1\t{PHIX[0]}\t{DATA}/../data/phix_R1.fq\t\t\n"
            + f"phix\trun2\t{DATA}/./phix_R1.fq\t{PHIX[1]}\t\t\n",
        ),
        case(
            "library",
            [
                "units.tsv, line 2: library: 'pool 1 ' is not allowed. Expected: name of the",
                "units.tsv, line 3: library: ' ' is not allowed",
            ],
            units=UNITS_HEADER
            + f"phix\trun1\t{PHIX[0]}\t\tpool 1 \t\nphix\trun2\t{PHIX[1]}\t\t \t\n",
        ),
        case(
            "samples",
            [
                "samples.tsv, line 2: mark_duplicates: 'perhaps' is not allowed. Expected: yes",
                "samples.tsv, line 3: 'phix' stands there twice",
            ],
            samples=SAMPLES_HEADER + "phix\tperhaps\nphix\t\n",
        ),
        case(
            "unmatched",
            [
                "units.tsv: sample 'phix' is not in samples.tsv",
                "samples.tsv: sample 'phi' has no unit in units.tsv",
            ],
            samples=SAMPLES_HEADER + "phi\t\n",
        ),
        case("no unit", ["units.tsv: no unit"], units=UNITS_HEADER),
        case("no samples sheet", ["The sheet of samples, 's.tsv' (config key samples)"],
             config=CONFIG.replace("samples.tsv", "s.tsv")),
        case(
            "missing files",
            [
                "units.tsv, line 4: fq1: 'not/there.fq': there is no such file",
                "units.tsv, line 5: fq2: '.': is a directory",
            ],
            # Lines that are skipped count, as in an editor.
            units=UNITS_HEADER
            + "# a comment\n\nphix\trun1\tnot/there.fq\t\t\t\n"
            + f"phix\trun2\t{PHIX[0]}\t.\t\t\n",
        ),
        case(
            "spaces",
            [
                "units.tsv, line 1: spaces between the cells; a tab is expected",
                "units.tsv, line 2: spaces between the cells; a tab is expected",
            ],
            units=UNITS.replace("\t", "  "),
        ),
        case(
            "commas",
            ["units.tsv, line 1: commas between the cells; a tab is expected"],
            units=UNITS.replace("\t", ","),
        ),
        case(
            "multiqc",
            ["config: report.multiqc: MultiQC is not installed: pip install multiqc"],
            config=CONFIG + "report: {multiqc: true}\n",
            marks=pytest.mark.skipif(
                shutil.which("multiqc", path=environment()["PATH"]) is not None,
                reason="multiqc is installed",
            ),
        ),
        case(
            "missing reference",
            ["Missing input files", "nowhere.fa"],
            config=CONFIG.replace("phix174", "nowhere"),
        ),
        case(
            "gpu model",
            ["config: gpu.model: 'B9000' is not in the table of GPUs (L4, A10,", "H200"],
            config=CONFIG + "gpu: {model: B9000}\n",
        ),
    ],
)  # fmt: skip
def test_bad_settings_stop_with_a_message_before_any_job(
    tmp_path, config, samples, units, messages
):
    directory = project(tmp_path, config, samples, units)

    run = snakemake(directory)

    assert run.returncode != 0
    for message in messages:
        assert message in run.stdout
    assert "Traceback" not in run.stdout
    assert not (directory / "results").exists()


@pytest.mark.medium
def test_reads_that_an_importing_workflow_makes_need_not_be_there_yet(tmp_path):
    units = UNITS_HEADER + "phix\trun1\treads/a.fq\t\t\t\n"
    directory = project(tmp_path, units=units)
    importing = directory / "Snakefile"
    settings = {"samples": "samples.tsv", "units": "units.tsv"}
    settings["reference"] = str(DATA / "phix174.fa")
    importing.write_text(
        f"""
rule reads:
    output:
        "reads/a.fq",
    shell:
        "cp {PHIX[0]} {{output}}"

module mapping:
    snakefile: "{ROOT / "workflow" / "Snakefile"}"
    config: {settings}

use rule * from mapping as mapping_*
"""
    )
    run = snakemake(directory, "--dry-run", "mapping_all", snakefile=importing)
    assert run.returncode == 0, run.stdout
    assert "rule reads:" in run.stdout


@pytest.mark.medium
@pytest.mark.parametrize(
    ("config", "reads", "message"),
    [
        (CONFIG, "a{1}.fq", "units.tsv, line 2: fq1: 'a{1}.fq': Snakemake takes what is in braces"),
        (f"{CONFIG}index: {{mask: 'm{{1}}.bed'}}\n", PHIX[0],
         "config: index.mask: 'm{1}.bed': Snakemake takes what is in braces"),
    ],
)  # fmt: skip
def test_braces_in_the_name_of_a_file_are_told_of(tmp_path, config, reads, message):
    shutil.copy(PHIX[0], tmp_path / "a{1}.fq")
    project(tmp_path, config, units=f"{UNITS_HEADER}phix\trun1\t{reads}\t\t\t\n")
    run = snakemake(tmp_path, "--dry-run")
    assert run.returncode != 0
    assert message in run.stdout
    assert "WildcardError" not in run.stdout


@pytest.mark.medium
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mapped/typo.bam", "sample 'typo' is not in samples.tsv"),
        ("stats/phix-typo.1-of-1.map.json", "unit 'phix-typo' is not in units.tsv"),
    ],
)
def test_a_target_of_no_sheet_is_told_to_be_none(tmp_path, target, message):
    run = snakemake(project(tmp_path), "--dry-run", "--", f"results/{target}")
    assert run.returncode != 0
    assert message in run.stdout
    assert "KeyError" not in run.stdout


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "length", "message"),
    [
        ("csi", None, "has no contig of more than 536870912 bases, and BAM gets a .bai"),
        ("csi", 2**29, "has no contig of more than 536870912 bases, and BAM gets a .bai"),
        ("bai", 2**29 + 1, "has a contig of more than 536870912 bases, and BAM gets a .csi"),
        ("csi", 2**29 + 1, None),
    ],
)
def test_an_index_that_does_not_suit_the_contigs_is_refused(tmp_path, kind, length, message):
    """By the .fai of the reference, or its size."""
    shutil.copy(DATA / "phix174.fa", tmp_path / "phix.fa")
    if length is not None:
        (tmp_path / "phix.fa.fai").write_text(f"short\t9\t7\t60\t61\nlong\t{length}\t30\t60\t61\n")
    config = CONFIG.replace(str(DATA / "phix174.fa"), "phix.fa")
    directory = project(tmp_path, f"{config}map: {{index_kind: {kind}}}\n")
    run = snakemake(directory, "--dry-run")
    assert (run.returncode != 0) == (message is not None), run.stdout
    assert f"config: map.index_kind: {kind}: phix.fa {message}" in run.stdout or message is None


@pytest.mark.medium
@pytest.mark.parametrize("chunks", [1, 2])
def test_an_index_that_does_not_suit_the_contigs_is_refused_before_mapping(tmp_path, chunks):
    """Of a packed reference without .fai nothing is known until fmwave has indexed it."""
    config = CONFIG.replace("phix174.fa", "portiera.fa.gz")
    config += f"map: {{index_kind: csi, chunks: {chunks}}}\n"
    run = snakemake(project(tmp_path, config))
    assert run.returncode != 0
    message = "error: map.index_kind: csi, in the config: the longest contig has 358242 bases"
    assert message in run.stdout
    logs = [path.read_text() for path in (tmp_path / "results" / "logs" / "map").iterdir()]
    assert logs
    assert all("computing on" not in log for log in logs)


def keys(schema: dict, prefix: str = "") -> Iterator[tuple[str, dict]]:
    """Yield each key that settings may have, with what its schema says."""
    for name, part in schema["properties"].items():
        if "properties" in part:
            yield from keys(part, f"{prefix}{name}.")
        else:
            yield prefix + name, part


@pytest.mark.parametrize("kind", ["config", "samples", "units"])
def test_every_key_is_documented_with_its_default(kind):
    yaml = pytest.importorskip("yaml")
    schema = yaml.safe_load((ROOT / "workflow" / "schemas" / f"{kind}.schema.yaml").read_text())
    text = (ROOT / "config" / "README.md").read_text()
    title = "config.yaml" if kind == "config" else f"{kind}.tsv"
    table = text.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = {
        cells[1].strip("` "): cells[3].strip()
        for cells in (line.split("|") for line in table.splitlines())
        if len(cells) > 4 and cells[1].startswith(" `")
    }
    expected = dict(keys(schema))
    if kind == "config":
        expected["pathvars.results"] = {"default": "results", **expected.pop("pathvars")}
    assert set(rows) == set(expected)
    for name, part in expected.items():
        written = str(part.get("default", "")).replace("True", "true").replace("False", "false")
        stated = rows[name].replace("`", "")
        assert stated.startswith(written or ("required", "empty")), name
        assert ("required" in stated) == (name in schema["required"]) or "or " in stated, name


EXTRA = {
    "--orphans", "--comments", "--compression", "--compress-on", "--all", "--eqx", "--cs",
    "--cs=long", "--cs=short", "--ds", "--soft-clip", "--resume-seconds", "--verbose",
    "--insert-size", "--insert-size-from", "--match", "--mismatch", "--gap-open", "--gap-extend",
    "--end-bonus", "--min-score", "--unpaired-penalty", "--seed-length", "--max-occ", "--memory",
    "--batch-bases", "--quiet", "--debug", "--help",
}  # fmt: skip
"""Options of fmwave map that every rule takes which has ``map.extra`` in its command."""


def test_extra_takes_every_option_that_has_no_place_elsewhere():
    """And none that has, by whatever short form argparse takes for it."""
    module = ast.parse((ROOT / "workflow" / "rules" / "settings.smk").read_text())
    wanted = [
        part
        for part in module.body
        if (isinstance(part, ast.FunctionDef) and part.name == "names_option")
        or (isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "NOT_EXTRA")
    ]
    settings: dict = {"re": re}
    exec(compile(ast.Module(wanted, []), "settings.smk", "exec"), settings)
    refused = {name: (letter, name, short) for letter, name, short, _ in settings["NOT_EXTRA"]}
    parser = map_command.add_parser(argparse.ArgumentParser().add_subparsers())
    for common in ("--quiet", "--debug"):  # of all commands, added elsewhere
        parser.add_argument(common)
    options = {word: action for action in parser._actions for word in action.option_strings}
    names = {word for word in options if word.startswith("--")}
    assert EXTRA | set(refused) == names
    assert not EXTRA & set(refused)
    for name in refused:
        letters = [word[1:] for word in options[name].option_strings if word not in names]
        assert letters == [refused[name][0]] * len(letters), name
    for word in {name[:end] for name in names for end in range(3, len(name) + 1)}:
        meant = [word] if word in names else [name for name in names if name.startswith(word)]
        if len({id(options[name]) for name in meant}) == 1 and "=" not in word:
            found = [n for n, entry in refused.items() if settings["names_option"]([word], *entry)]
            assert found == [name for name in meant if name in refused], word
