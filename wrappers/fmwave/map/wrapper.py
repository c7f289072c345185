"""Snakemake wrapper for fmwave map."""

__author__ = "The fmwave developers"
__license__ = "MIT"

from snakemake.shell import shell

log = snakemake.log_fmt_shell(stdout=True, stderr=True)
extra = snakemake.params.get("extra", "")
read_group = snakemake.params.get("read_group", "")
json = snakemake.output.get("json", "")

reads = snakemake.input.reads
reads = [reads] if isinstance(reads, str) else list(reads)
if len(reads) not in (1, 2):
    raise ValueError(f"input reads: {len(reads)} files; one or two of mates are expected")

options = ["--read-group", read_group] if read_group else []
options += ["--json-stats", json] if json else []
insert_size = snakemake.input.get("insert_size", "")
options += ["--insert-size-from", insert_size] if insert_size else []
bam = snakemake.output.bam

shell(
    "fmwave map {snakemake.input.idx:q} {reads:q} --output {bam:q} --sort"
    " --threads {snakemake.threads} {options:q} {extra} {log}"
)
