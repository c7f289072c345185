"""``fmwave index``: build the index of a reference."""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from typing import Any

from mapper.cli.sizes import memory_size, thread_number
from mapper.params import IndexParams

log = logging.getLogger(__name__)

_DEFAULTS = IndexParams()
_FASTA_SUFFIXES = (".fa", ".fasta", ".fna")

EXAMPLES = """\
fmwave index ref.fa.gz -o ref.fmw
fmwave index ref.fa --memory 24G --verify
fmwave index GRCh38.fa --alt GRCh38.fa.alt --mask false_duplications.bed"""
DOCUMENT = "docs/index-format.md"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of ``fmwave index``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "index",
        help="build the index of a reference",
        description="Build the index of a reference. The memory need is printed, and checked, "
        "before the sequences are read, of a compressed file while they are; it is 7 to 8 bytes a "
        "base (fmwave info --plan SIZE).",
    )
    parser.add_argument(
        "fasta", type=Path, metavar="REF.fa[.gz]", help="reference: FASTA, plain, gzip or BGZF"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="REF.fmw",
        help="index directory (default: REF without .fa, .fasta, .fna and .gz, plus .fmw); "
        "an index of that name is replaced once the new one is complete; a directory that holds "
        "other files is refused",
    )
    output.add_argument(
        "--force", action="store_true", help="replace a damaged or foreign-version index too"
    )
    output.add_argument(
        "--verify", action="store_true", help="read the index back and compare its checksums"
    )
    marks = parser.add_argument_group("contigs and regions (docs/input-and-output.md)")
    which_alt = marks.add_mutually_exclusive_group()
    which_alt.add_argument(
        "--alt",
        type=Path,
        metavar="FILE",
        help="ALT contigs: bwa's .alt file, or a list of names; hits on them do not lower the "
        "mapping quality on the primary assembly (default: REF.fa.alt, if it exists)",
    )
    which_alt.add_argument(
        "--no-alt", action="store_true", help="all contigs are equal; ignore REF.fa.alt"
    )
    marks.add_argument(
        "--group",
        type=Path,
        metavar="FILE",
        help="lines of a contig, a tab and its group, such as the haplotypes of a diploid "
        "reference; hits in different groups do not lower each other's mapping quality",
    )
    marks.add_argument(
        "--mask",
        type=Path,
        metavar="BED",
        help="regions in which seeds find nothing, such as false duplications",
    )
    trade = parser.add_argument_group("memory against speed (docs/index-format.md)")
    trade.add_argument(
        "-q",
        "--occ-spacing",
        type=int,
        metavar="Q",
        default=_DEFAULTS.occ_spacing,
        help="BWT characters per Occ checkpoint: 64, 128, ... 1024 (default: %(default)s)",
    )
    trade.add_argument(
        "-p",
        "--sa-sampling",
        type=int,
        metavar="P",
        default=_DEFAULTS.sa_sampling,
        help="keep every P-th row of the suffix array; a power of two (default: 1 up to 17 Mbp, "
        "4 beyond)",
    )
    trade.add_argument(
        "--kmer-table",
        type=int,
        metavar="K",
        default=_DEFAULTS.kmer_len,
        help="k of the table where searches start, 0 to 14; 0 for none (default: by length, "
        "at most 14)",
    )
    machine = parser.add_argument_group("machine (no effect on the index)")
    machine.add_argument(
        "--device",
        default="auto",
        metavar="D",
        help="where suffixes are sorted: auto, cpu, cuda or cuda:1; auto takes a CUDA device for "
        "references over 17 Mbp that fit it (default: %(default)s)",
    )
    machine.add_argument(
        "--memory",
        type=memory_size,
        metavar="SIZE",
        help="memory to stay within, such as 24G; more makes larger blocks (default: what is "
        "available)",
    )
    machine.add_argument(
        "-t", "--threads", type=thread_number, metavar="N", help="threads (default: all cores)"
    )
    machine.add_argument(
        "--ignore-memory",
        action="store_true",
        help="start even where less memory is available than the build is expected to need",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Build, save and, if asked, verify."""
    start = time.perf_counter()
    params = IndexParams(args.occ_spacing, args.sa_sampling, args.kmer_table)
    output = args.output or default_output(args.fasta)

    from mapper.cuda.devices import check_device_name
    from mapper.host_memory import peak_bytes
    from mapper.index.index import Index
    from mapper.index.storage import target_path, verify

    target_path(output, force=args.force)  # raises before the work, not after
    check_device_name(args.device)
    index = Index.build(
        args.fasta,
        params,
        check_memory=not args.ignore_memory,
        device=args.device,
        memory=args.memory,
        threads=args.threads,
        alt=not args.no_alt if args.alt is None else args.alt,
        groups=args.group,
        mask=args.mask,
    )
    index.save(output, force=args.force)
    if args.verify:
        verify(output)
        log.info("%s: every checksum agrees", output)
    log.info(
        "%s: %d bases in %d contigs, %.1f MB (%.2f bytes a base); %.1f s, peak memory %.2f GB",
        output,
        index.contigs.lengths.sum(),
        len(index.contigs.names),
        index.n_bytes / 1e6,
        index.n_bytes / index.fm.n_rows,
        time.perf_counter() - start,
        peak_bytes() / 1e9,
    )
    return 0


def default_output(fasta: Path) -> Path:
    """Return the default index of a FASTA: in its folder, ``.fmw`` instead of its suffixes."""
    name = fasta.name.removesuffix(".gz").removesuffix(".bgz")
    for suffix in _FASTA_SUFFIXES:
        name = name.removesuffix(suffix)
    return fasta.parent / f"{name}.fmw"  # "." and "/" have no name to replace
