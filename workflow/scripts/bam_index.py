"""Index a sorted BAM file (Snakemake script)."""

from pathlib import Path

import pysam

try:
    pysam.index(snakemake.input[0], snakemake.output[0])
except pysam.SamtoolsError as error:
    Path(snakemake.log[0]).write_text(f"{snakemake.input[0]}: {error}\n")
    raise
