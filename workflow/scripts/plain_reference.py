"""Write the reference as plain FASTA with a .fai, for CRAM (Snakemake script)."""

from rule_log import errors_in_one_line, named, start_log

start_log(globals().get("snakemake"))  # before imports that may fail

import os
import shutil
from pathlib import Path

import pysam
from isal import igzip, igzip_lib

source, target = Path(snakemake.input.fasta), Path(snakemake.output.fasta)
temporary = target.with_name(f".{target.name}.{os.getpid()}")
READING = (igzip_lib.IsalError, pysam.SamtoolsError)
with errors_in_one_line(), named(source, *READING):
    try:
        with source.open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream = igzip.IGzipFile(fileobj=raw, mode="rb") if is_gzip else raw
            with temporary.open("wb") as out:
                shutil.copyfileobj(stream, out, 1 << 20)
        pysam.faidx(str(temporary), "--fai-idx", snakemake.output.fai)
        temporary.replace(target)
        os.utime(snakemake.output.fai)  # htslib wants the index no older than the sequence
    finally:
        temporary.unlink(missing_ok=True)
