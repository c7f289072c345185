"""The parts of a sample to one marked, indexed BAM or CRAM file (Snakemake script).

Parts are merged in input order. samtools keeps that order among records of one position, as
its sort does, so the result does not depend on how a unit was cut into parts. Duplicates are
looked for within a library, which samtools markdup does not know of: each library is marked by
itself. The files get their names when they are complete, the index last.
"""

from rule_log import errors_in_one_line, start_log

start_log(globals().get("snakemake"))  # before imports that may fail

import json
import os
import shutil
import tempfile
from pathlib import Path

import pysam

CRAM = ("--output-fmt", "cram,version=3.0")  # 3.1, htslib's default, is news to many readers


def merged(parts: list[str], target: Path, options: list[str]) -> str:
    """Merge sorted files; one alone is left where it is."""
    if len(parts) == 1:
        return parts[0]
    # -c: chunks of a unit share their @RG. -s: the same @PG suffixes in each run.
    pysam.merge("-c", "-s", "1", "--no-PG", *options, "-o", str(target), *parts)
    return str(target)


def mark(source: str, target: Path, counts: Path, distance: int, options: list[str]) -> None:
    """Mark the duplicates of a sorted file; primary reads' supplementary ones with them."""
    optical = ["-d", str(distance)] if distance else []
    pysam.markdup(
        *("-S", "--json", "-f", str(counts), "-T", str(target.with_suffix(".tmp")), "--no-PG"),
        *(*optical, *options, source, str(target)),
    )


def total(counts: list[Path]) -> str:
    """Return the counts of markdup over all libraries, in its own JSON format."""
    sums: dict[str, int] = {}
    for path in counts:
        for key, value in json.loads(path.read_text()).items():
            # A library's size cannot be added up with another's.
            if isinstance(value, int) and not (len(counts) > 1 and key.startswith("ESTIMATED")):
                sums[key] = sums.get(key, 0) + value
    return json.dumps({"COMMAND": "samtools markdup", **sums}, indent=1)


def finish(scratch: Path) -> tuple[Path, str]:
    """Return the finished file, in `scratch`, and the duplicates' counts."""
    threads = ["-@", str(max(0, snakemake.threads - 1))]
    final = scratch / Path(snakemake.output.alignments).name
    into_final = [*threads]
    if final.suffix == ".cram":
        into_final += [*CRAM, "--reference", str(snakemake.input.reference)]
    libraries: dict[str, list[str]] = {}
    for part, library in zip(snakemake.input.parts, snakemake.params.libraries, strict=True):
        libraries.setdefault(library, []).append(part)
    if not snakemake.params.mark_duplicates:
        libraries = {"all": list(snakemake.input.parts)}

    marked, counts = [], []
    for number, parts in enumerate(libraries.values()):
        bam = merged(parts, scratch / f"{number}.bam", ["-l", "1", *threads])
        if snakemake.params.mark_duplicates:
            alone = len(libraries) == 1
            target = final if alone else scratch / f"{number}.marked.bam"
            counts.append(scratch / f"{number}.json")
            options = into_final if alone else threads
            mark(bam, target, counts[-1], snakemake.params.optical_distance, options)
            bam = str(target)
        marked.append(bam)
    if len(marked) > 1:
        merged(marked, final, into_final)
    elif not final.exists():
        if final.suffix == ".bam":
            shutil.copyfile(marked[0], final)
        else:
            options = [*into_final, "-o", str(final), marked[0]]
            pysam.view("--no-PG", *options, catch_stdout=False)
    return final, total(counts) if counts else json.dumps({"duplicates": "not marked"})


def check_read_groups(parts: list[str], sample: str) -> None:
    """Refuse records of another sample, or of none: read groups of a BAM are not ours."""
    for part in parts:
        with pysam.AlignmentFile(part, check_sq=False) as bam:
            groups = bam.header.to_dict().get("RG", [])
        others = {str(group.get("SM")) for group in groups} - {sample}
        if not groups or others:
            raise ValueError(
                f"{part}: read groups of sample {', '.join(sorted(others)) or '(none)'}, in sample "
                f"{sample} of the sheet; correct the header (samtools reheader) or the sheet"
            )


def main() -> None:
    """Run as the rule says."""
    alignments, index = Path(snakemake.output.alignments), Path(snakemake.output.index)
    check_read_groups(list(snakemake.input.parts), snakemake.wildcards.sample)
    with tempfile.TemporaryDirectory(prefix=f".{alignments.name}-", dir=alignments.parent) as name:
        final, counts = finish(Path(name))
        made_index = final.with_name(index.name)
        kind = ["-c"] if index.suffix == ".csi" else []
        pysam.index(*kind, "-o", str(made_index), str(final))
        Path(snakemake.output.markdup).write_text(counts)
        final.replace(alignments)
        os.utime(made_index)
        made_index.replace(index)


with errors_in_one_line(pysam.SamtoolsError):
    main()
