"""flagstat, stats and idxstats of a BAM file through pysam, without samtools (Snakemake script)."""

from pathlib import Path

import pysam

try:
    for name in ("flagstat", "stats", "idxstats"):
        text = getattr(pysam, name)(snakemake.input.bam)
        Path(snakemake.output[name]).write_text(text)
except pysam.SamtoolsError as error:
    Path(snakemake.log[0]).write_text(f"{snakemake.input.bam}: {error}\n")
    raise
