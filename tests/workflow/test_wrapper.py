"""The wrapper of fmwave map in a rule, and the metadata of the workflow."""

from __future__ import annotations

import json
import re

import pysam
import pytest

from tests.helpers.workflow_runs import DATA, PHIX, ROOT, needs_snakemake, snakemake

yaml = pytest.importorskip("yaml", reason="comes with snakemake: pip install -e '.[workflow]'")
pytestmark = needs_snakemake


@pytest.mark.medium
def test_a_rule_with_the_wrapper(tmp_path):
    wrapper = ROOT / "wrappers" / "fmwave" / "map"
    text = (wrapper / "test" / "Snakefile").read_text()
    text = text.replace("master/bio/fmwave/map", f"file://{wrapper}")
    index = f"""
rule index:
    output:
        directory("genome.fmw"),
    shell:
        "fmwave index {DATA / "phix174.fa"} -o {{output}} --quiet"
"""
    (tmp_path / "reads").mkdir()
    for mate, path in enumerate(PHIX, start=1):
        (tmp_path / "reads" / f"a_R{mate}.fq").symlink_to(path)
        lines = path.read_text().splitlines(keepends=True)
        (tmp_path / "reads" / f"b_R{mate}.fq").write_text("".join(lines[: 4 * 5]))
    more = """
use rule fmwave_map as with_its_insert_size with:
    input:
        reads=["reads/b_R1.fq", "reads/b_R2.fq"],
        idx="genome.fmw",
        insert_size="stats/a.json",
    output:
        bam="mapped/b.bam",
        json="stats/b.json",
    params:
        read_group="",
    log:
        "logs/fmwave/b.log",
"""
    (tmp_path / "Snakefile").write_text(text + index + more)

    targets = ("mapped/a.bam", "mapped/b.bam")
    run = snakemake(tmp_path, *targets, snakefile=tmp_path / "Snakefile")

    assert run.returncode == 0, run.stdout
    with pysam.AlignmentFile(str(tmp_path / "mapped" / "a.bam")) as bam:
        assert bam.has_index()
        assert bam.header["RG"] == [{"ID": "a", "SM": "a"}]
    a, b = (json.loads((tmp_path / "stats" / f"{name}.json").read_text()) for name in "ab")
    assert (a["counts"]["reads"], b["counts"]["reads"]) == (90, 10)
    assert a["insert_size"] == b["insert_size"]
    assert b["insert_size"]["pairs"] > 5  # more than it has itself


def test_the_wrapper_and_catalog_files_have_what_their_readers_want():
    meta = yaml.safe_load((ROOT / "wrappers/fmwave/map/meta.yaml").read_text())
    assert {"name", "description", "url", "authors", "input", "output", "params"} <= set(meta)
    environment = yaml.safe_load((ROOT / "wrappers/fmwave/map/environment.yaml").read_text())
    assert environment["channels"][-1] == "nodefaults"
    catalog = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())
    assert set(catalog["usage"]["software-stack-deployment"]) == {
        "conda", "apptainer", "apptainer+conda",
    }  # fmt: skip
    assert catalog["usage"]["report"] is True


def test_no_address_is_made_up():
    """Where a user's own belongs, it is asked for: no OWNER, no BUCKET to be taken for real."""
    for folder in ("config", "container", "profiles", "workflow", "wrappers"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert not re.search(r"OWNER|BUCKET", path.read_text()), path


def test_the_container_copies_what_is_there():
    for line in (ROOT / "container" / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            *sources, _ = line.split()[1:]
            for source in sources:
                assert (ROOT / source).exists(), source
