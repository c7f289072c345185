"""``fmwave seed``: every match of the k-mers of reads."""

from __future__ import annotations

import argparse
import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from mapper.errors import UsageError
from mapper.parallel.map import MAX_THREADS
from mapper.params import KmerParams

log = logging.getLogger(__name__)

_DEFAULTS = KmerParams(kmer_len=20)
NO_LIMIT = 2**30

EXAMPLES = """\
fmwave seed ref.fmw reads.fq.gz -k 20 --mismatches 2 -o hits.tsv"""
DOCUMENT = "docs/kmer-seeding.md"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of ``fmwave seed``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "seed",
        help="find all matches of k-mers",
        description="Find every place of an indexed reference where a k-mer of the reads, or its "
        "reverse complement, matches with at most so many substitutions. Writes lines of read, "
        "offset in the read, strand, contig, position (0-based, leftmost base) and mismatches, "
        "in that order. k-mers with an ambiguous base (N) are left out; an N of the reference "
        "mismatches everything.",
    )
    parser.add_argument("index", metavar="REF.fmw", help="index made by fmwave index")
    parser.add_argument(
        "reads", metavar="READS",
        help="FASTQ, FASTA, or a list with one sequence a line (its own name), plain or gzip; "
        "- is standard input",
    )  # fmt: skip
    kmers = parser.add_argument_group("k-mers")
    kmers.add_argument(
        "-k", "--kmer-length", type=int, default=_DEFAULTS.kmer_len, metavar="K",
        help="bases of a k-mer, 1 to 64 (default: %(default)s)",
    )  # fmt: skip
    kmers.add_argument(
        "--stride", type=int, default=1, metavar="S",
        help="one k-mer starts every S bases of a read (default: %(default)s)",
    )  # fmt: skip
    kmers.add_argument(
        "--mismatches", type=int, default=_DEFAULTS.max_mismatches, metavar="M",
        help="substitutions allowed anywhere in a k-mer: 0, 1 or 2 (default: %(default)s)",
    )  # fmt: skip
    kmers.add_argument(
        "--max-hits", type=int, default=_DEFAULTS.max_hits, metavar="H",
        help="leave out k-mers with more matches than this, both strands together; their number "
        "is reported; 0: no limit, and memory that grows with the matches (default: %(default)s)",
    )  # fmt: skip
    _add_files_and_machine(parser)
    return parser


def _add_files_and_machine(parser: argparse.ArgumentParser) -> None:
    files = parser.add_argument_group("input and output")
    files.add_argument(
        "-o", "--output", default="-", metavar="OUT.tsv",
        help="appears only when complete (default: standard output)",
    )  # fmt: skip
    files.add_argument(
        "--skipped",
        metavar="FILE.tsv",
        help="list the k-mers that --max-hits left out: read, offset",
    )  # fmt: skip
    files.add_argument(
        "--input-format", choices=("fastq", "fasta", "list"), metavar="fastq|fasta|list",
        help="format of READS (default: by its first character; a list that is standard input "
        "or a pipe must be named)",
    )  # fmt: skip
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "-t", "--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
        help="threads that search (on the CPU) and write (default: all, %(default)s here)",
    )  # fmt: skip
    machine.add_argument(
        "--device", default="auto", metavar="auto|cpu|cuda[:0,1]",
        help="where to search, as for fmwave map: all visible CUDA devices, or some; auto: those "
        "of CUDA_VISIBLE_DEVICES, or a free one, or the CPU (default: %(default)s)",
    )  # fmt: skip
    machine.add_argument(
        "--batch-kmers", type=int, metavar="N",
        help="k-mers searched at a time; no effect on the result (default: by device)",
    )  # fmt: skip


def _check_outputs(args: argparse.Namespace) -> None:
    """Raise UsageError if an output would overwrite the reads or the other output."""
    from mapper.io.input_file import same_file
    from mapper.io.output_file import STDOUT

    if args.skipped is not None and (
        args.skipped == args.output or Path(args.skipped).resolve() == Path(args.output).resolve()
    ):
        raise UsageError(f"--skipped {args.skipped}: is the output; name another file")
    for output in (args.output, args.skipped):
        if output not in (None, STDOUT) and same_file(output, args.reads):
            raise UsageError(f"{output} is the file of reads; name another output")


def run(args: argparse.Namespace) -> int:
    """Search, then report."""
    start = time.perf_counter()
    params = _params(args)
    _check_outputs(args)

    from mapper.cuda.devices import check_device_name, hold_device

    check_device_name(args.device)

    from mapper.index.index import Index
    from mapper.kmers.pipeline import SeedJob, seed_reads

    index, checks = Index.open_checked(args.index)
    job = SeedJob(
        reads=args.reads,
        output=args.output,
        params=params,
        stride=args.stride,
        skipped=args.skipped,
        file_format=args.input_format or _format_of_pipe(args.reads),
        threads=args.threads,
        batch_kmers=args.batch_kmers,
        checks=checks,
    )
    with hold_device(args.device) as device:
        counts = seed_reads(index, replace(job, device=device))
    many = f"{counts.skipped} with more than {params.max_hits} matches, " if args.max_hits else ""
    log.info(
        "%d reads, %d k-mers: %d matched, %d matches; left out: %s%d with an ambiguous base; "
        "%.1f s",
        counts.reads, counts.kmers, counts.matched, counts.hits, many, counts.ambiguous,
        time.perf_counter() - start,
    )  # fmt: skip
    return 0


def _format_of_pipe(path: str) -> str | None:
    """Return the format assumed for a pipe, which cannot be read twice; None for a regular file."""
    from mapper.io.output_file import is_special

    return "fastq" if is_special(Path(path)) else None


def _params(args: argparse.Namespace) -> KmerParams:
    for option, value, low, high in (
        ("-k", args.kmer_length, 1, 64),
        ("--stride", args.stride, 1, 2**31 - 1),
        ("--mismatches", args.mismatches, 0, 2),
        ("--max-hits", args.max_hits, 0, NO_LIMIT),
        ("--threads", args.threads, 1, MAX_THREADS),
        ("--batch-kmers", 1 if args.batch_kmers is None else args.batch_kmers, 1, 1 << 24),
    ):
        if not low <= value <= high:
            raise UsageError(f"{option} {value}: {low} to {high} is expected")
    return _DEFAULTS._replace(
        kmer_len=args.kmer_length,
        max_mismatches=args.mismatches,
        max_hits=args.max_hits or NO_LIMIT,
    )
