"""Runs of the workflow for its tests, as users start it: one process and its exit status."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pysam
import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
PHIX = (DATA / "phix_R1.fq", DATA / "phix_R2.fq")
PORTIERA = (DATA / "portiera_R1.fq.gz", DATA / "portiera_R2.fq.gz")

needs_snakemake = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("snakemake", "matplotlib")),
    reason="snakemake or matplotlib is not installed: pip install -e '.[workflow]'",
)

CONFIG = f"reference: {DATA / 'phix174.fa'}\nsamples: samples.tsv\nunits: units.tsv\n"
SAMPLES_HEADER = "sample\tmark_duplicates\n"
UNITS_HEADER = "sample\tunit\tfq1\tfq2\tlibrary\tchunks\n"
SAMPLE = "phix\t\n"
UNIT = f"phix\trun1\t{PHIX[0]}\t{PHIX[1]}\t\t\n"


def environment() -> dict[str, str]:
    """Return the environment of a run: ``fmwave`` is that of this interpreter."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path}


def snakemake(
    directory: Path,
    *options: str,
    snakefile: Path = ROOT / "workflow" / "Snakefile",
    profile: str = "local-cpu",
    timeout: int = 600,
    first_on_path: Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the workflow in ``directory`` with a profile of ours, in ``environment()`` by default."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", snakefile]
    command += ["--directory", directory, "--profile", ROOT / "profiles" / profile]
    command += ["--cores", "2"] if profile == "local-cpu" else []
    env = environment() if env is None else dict(env)
    if first_on_path is not None:
        env["PATH"] = f"{first_on_path.parent}{os.pathsep}{env['PATH']}"
    return subprocess.run(
        [*map(str, command), *options],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )


def project(
    directory: Path,
    config: str = CONFIG,
    samples: str = SAMPLES_HEADER + SAMPLE,
    units: str = UNITS_HEADER + UNIT,
) -> Path:
    """Write the settings of a run; returns its directory."""
    (directory / "config").mkdir()
    (directory / "config" / "config.yaml").write_text(config)
    (directory / "samples.tsv").write_text(samples)
    (directory / "units.tsv").write_text(units)
    return directory


def copied(directory: Path, name: str, *paths: Path) -> str:
    """Copy read files; returns the cells fq1 and fq2. The same file in two units is refused."""
    cells = []
    for number, path in enumerate(paths, start=1):
        suffix = "".join(path.suffixes)
        shutil.copy(path, directory / f"{name}_R{number}{suffix}")
        cells.append(f"{name}_R{number}{suffix}")
    return "\t".join([*cells, ""][:2])


def unaligned(
    path: Path, sample: str, reads: tuple[Path, Path] = PHIX, single: Callable = lambda _: False
) -> None:
    """Write pairs as a BAM of unaligned reads with a read group and a tag.

    ``single`` says by the number of a pair whether only its first read is there, unpaired.
    """
    header = {"HD": {"VN": "1.6"}, "RG": [{"ID": "lane", "SM": sample, "LB": "lib"}]}
    with (
        pysam.AlignmentFile(str(path), "wb", header=header) as bam,
        pysam.FastxFile(str(reads[0])) as first,
        pysam.FastxFile(str(reads[1])) as second,
    ):
        for number, mates in enumerate(zip(first, second, strict=True)):
            flags = (0x4,) if single(number) else (0x4D, 0x8D)
            for flag, read in zip(flags, mates, strict=False):
                record = pysam.AlignedSegment(bam.header)
                record.query_name = (mates[0].name or "").removesuffix("/1")
                record.flag = flag
                record.query_sequence = (read.sequence or "").upper()
                record.query_qualities = pysam.qualitystring_to_array(read.quality or "")
                record.set_tag("RX", "ACGT")
                record.set_tag("RG", "lane")
                bam.write(record)


def records(path: Path, reference: Path | None = None) -> list[str]:
    """Return the records of a file as SAM lines without their read group."""
    with pysam.AlignmentFile(
        str(path), reference_filename=None if reference is None else str(reference)
    ) as file:
        return [
            "\t".join(f for f in r.to_string().split("\t") if not f.startswith("RG:Z:"))
            for r in file.fetch(until_eof=True)
        ]


def script_module(name: str) -> ModuleType:
    """Import a script of the workflow, which is no package."""
    path = ROOT / "workflow" / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(path.parent))  # as Snakemake does
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
