"""The Snakemake workflow as its users run it: one process, its exit status and its files."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pysam
import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("snakemake") is None,
    reason="snakemake is not installed: pip install -e '.[workflow]'",
)

HEADER = "sample\tunit\tfq1\tfq2\n"
PHIX = f"phix\trun1\t{DATA / 'phix_R1.fq'}\t{DATA / 'phix_R2.fq'}\n"
CONFIG = f"reference: {DATA / 'phix174.fa'}\nunits: units.tsv\n"


def snakemake(
    directory: Path, *options: str, snakefile: Path = ROOT / "workflow" / "Snakefile"
) -> subprocess.CompletedProcess[str]:
    """Run the workflow in ``directory``; ``fmwave`` is that of this interpreter."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "snakemake", "--snakefile", snakefile]
    command += ["--directory", directory, "--profile", ROOT / "profiles" / "local-cpu"]
    return subprocess.run(
        [*map(str, command), "--cores", "2", *options],
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )


def project(directory: Path, config: str = CONFIG, units: str = HEADER + PHIX) -> Path:
    """Write the settings of a run; returns its directory."""
    (directory / "config").mkdir()
    (directory / "config" / "config.yaml").write_text(config)
    (directory / "units.tsv").write_text(units)
    return directory


def test_dry_run_of_the_bundled_settings(tmp_path):
    run = snakemake(ROOT, "--dry-run", "--forceall", "--nolock")
    assert run.returncode == 0, run.stdout
    for rule in ("fmwave_index", "fmwave_map", "bam_statistics", "summary"):
        assert f"rule {rule}:" in run.stdout


def test_pairs_and_single_reads_to_bam_and_statistics(tmp_path):
    single = f"phix\tsingle\t{DATA / 'phix_R1.fq'}\t\n"
    directory = project(tmp_path, units=HEADER + "# a comment\n" + PHIX + single)

    run = snakemake(directory)

    assert run.returncode == 0, run.stdout
    results = directory / "results"
    assert not (directory / "benchmarks").exists()
    for unit, n_reads in (("phix-run1", 90), ("phix-single", 45)):
        with pysam.AlignmentFile(str(results / "mapped" / f"{unit}.bam")) as bam:
            assert bam.has_index()
            assert bam.header["HD"]["SO"] == "coordinate"
            (read_group,) = bam.header["RG"]
            assert read_group == {"ID": unit, "SM": "phix", "LB": "phix", "PL": "ILLUMINA"}
            primary = [
                r for r in bam.fetch(until_eof=True) if not (r.is_secondary or r.is_supplementary)
            ]
        assert len(primary) == n_reads
        assert sum(r.is_mapped for r in primary) >= 0.85 * n_reads  # bwa mem: 94 % of the pairs
        for kind in ("flagstat.txt", "stats.txt", "idxstats.tsv", "map.json"):
            assert (results / "stats" / f"{unit}.{kind}").stat().st_size > 0
    summary = (results / "summary.tsv").read_text().splitlines()
    assert [line.split("\t")[:2] for line in summary] == [
        ["unit", "reads"],
        ["phix-run1", "90"],
        ["phix-single", "45"],
    ]

    again = snakemake(directory)
    assert "Nothing to be done" in again.stdout


def test_another_workflow_imports_this_one_and_moves_its_results(tmp_path):
    directory = project(tmp_path)
    importing = directory / "Snakefile"
    importing.write_text(
        f"""
module mapping:
    snakefile: "{ROOT / "workflow" / "Snakefile"}"
    config: {{"reference": "{DATA / "phix174.fa"}", "units": "units.tsv"}}
    pathvars:
        results="elsewhere",

use rule * from mapping as mapping_*

use rule fmwave_map from mapping as mapping_fmwave_map with:
    threads: 1
"""
    )

    run = snakemake(directory, "--dry-run", "mapping_all", snakefile=importing)

    assert run.returncode == 0, run.stdout
    assert "fmwave map elsewhere/index/reference.fmw" in run.stdout
    assert "-o elsewhere/mapped/phix-run1.bam --sort -t 1 " in run.stdout
    assert "> elsewhere/logs/map/phix-run1.log" in run.stdout


@pytest.mark.parametrize(
    ("config", "units", "messages"),
    [
        pytest.param(
            CONFIG + "threds: 2\n", HEADER + PHIX, ["unknown key threds", "known:"], id="key"
        ),
        pytest.param(
            CONFIG + "map: {threads: two}\n",
            HEADER + PHIX,
            ["config: map.threads: 'two' is not allowed", "a whole number of threads"],
            id="type",
        ),
        pytest.param("units: units.tsv\n", HEADER + PHIX, ["missing: reference"], id="required"),
        pytest.param(
            CONFIG,
            HEADER + PHIX + PHIX,
            ["units.tsv, unit 2: 'phix-run1' stands there twice"],
            id="duplicate",
        ),
        pytest.param(
            CONFIG,
            HEADER + PHIX + "phix\trun 2\tx.fq\t\n",
            ["units.tsv, unit 2: unit: 'run 2' is not allowed", "letters, digits"],
            id="name",
        ),
        pytest.param(
            CONFIG,
            "sample\tunit\tread1\n" + "a\tb\tc\n",
            ["unknown key read1", "missing: fq1"],
            id="column",
        ),
        pytest.param(CONFIG, HEADER, ["units.tsv: no unit"], id="empty"),
        pytest.param(
            CONFIG,
            HEADER + "phix\trun1\tnot/there.fq\t\n",
            ["Missing input files", "not/there.fq", "phix-run1"],
            id="reads",
        ),
        pytest.param(
            CONFIG.replace("phix174", "nowhere"),
            HEADER + PHIX,
            ["Missing input files", "nowhere.fa"],
            id="reference",
        ),
        pytest.param(
            CONFIG.replace("units.tsv", "sheet.tsv"),
            HEADER + PHIX,
            ["The sheet of units, 'sheet.tsv'"],
            id="sheet",
        ),
    ],
)
def test_bad_settings_stop_with_a_message_before_any_job(tmp_path, config, units, messages):
    directory = project(tmp_path, config, units)

    run = snakemake(directory)

    assert run.returncode != 0
    for message in messages:
        assert message in run.stdout
    assert "Traceback" not in run.stdout
    assert not (directory / "results").exists()
