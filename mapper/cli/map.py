"""``fmwave map``: map reads to an indexed reference."""

from __future__ import annotations

import argparse
import io
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from mapper.cli.duplicate_options import mark_options
from mapper.cli.map_files import add_files, check_files, lanes_of
from mapper.cli.sizes import memory_size, positive, thread_number
from mapper.cuda.devices import begin_opening, check_device_name, hold_device
from mapper.errors import MapperError, UsageError, naming_command_options
from mapper.mapping.options import (
    SHORT_READS,
    SWITCHES,
    TWO_PIECES,
    default_of,
    insert_size_model,
    map_params,
)
from mapper.params import BATCH_BASES, DEVICE_BATCH_BASES, MAX_READ_LEN, PRESETS, MapParams

if TYPE_CHECKING:
    from mapper.cli.map_batch import Row
    from mapper.mapping.job import MapJob, Resume
    from mapper.mapping.session import Session
    from mapper.pair.insert_size import InsertSizeModel

log = logging.getLogger(__name__)


class _Option(NamedTuple):
    """An option with a whole number for a stage; limits are those of `name`."""

    flags: tuple[str, str]
    name: str
    text: str


_OPTIONS = (
    _Option(("-A", "--match"), "match",
            "score of a match; of short reads the defaults of -B, -G, -E, -L, -T and -U are "
            "multiplied by it"),
    _Option(("-B", "--mismatch"), "mismatch", "penalty of a mismatch"),
    _Option(("-G", "--gap-open"), "gap_open",
            "penalty of opening a gap (the -O of bwa and minimap2); of long reads also two, "
            "such as -G 4,24 -E 2,1: a gap costs the lower of both sums"),
    _Option(("-E", "--gap-extend"), "gap_extend", "penalty of each gap base"),
    _Option(("-L", "--end-bonus"), "end_bonus", "bonus of reaching a read's end"),
    _Option(("-T", "--min-score"), "min_score",
            "lowest score to report; a read too short for it needs that of one mismatch"),
    _Option(("-U", "--unpaired-penalty"), "unpaired_penalty",
            "score a proper pair may lose against its mates' best"),
    _Option(("-k", "--seed-length"), "seed_len", "seed length; 0: by reference size"),
    _Option(("-c", "--max-occ"), "max_occ", "seeds more frequent are left out"),
)  # fmt: skip

EXAMPLES = """\
fmwave map ref.fmw reads_R1.fq.gz reads_R2.fq.gz -o out.bam --sort -t 16 -R '@RG\\tID:1\\tSM:sample'
fmwave map ref.fmw reads.fq.gz | samtools view -h -q 30
fmwave map ref.fmw --batch samples.tsv --sort"""
DOCUMENT = "docs/input-and-output.md"

_INSTEAD = {
    "-M": "is bwa's; leave it out: further parts of split reads are supplementary records (0x800), "
    "which current tools take",
    "-K": "is bwa's and minimap2's; leave it out: the output does not depend on batches or threads",
    "-v": "is bwa's; use --quiet, --verbose or --debug (and fmwave --version for the version)",
    "-x": "is minimap2's; use --preset sr, hifi, ont or asm (-a is not needed for SAM, see -O)",
}
"""Options of other mappers that users try here, and what to do instead."""


class _OfOtherMappers(argparse.Action):
    """An option that is refused with an explanation, its `const`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        parser.error(f"{self.option_strings[0]} {self.const}")


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of ``fmwave map``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "map",
        help="map reads to an indexed reference",
        description="Map short and long reads to an indexed reference and write BAM, CRAM, SAM "
        "or PAF.",
    )
    parser.add_argument("index", metavar="REF.fmw", help="index made by fmwave index")
    add_files(parser)
    _add_alignment(parser)
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "-t", "--threads", type=thread_number, default=len(os.sched_getaffinity(0)), metavar="N",
        help="threads that map, read and compress (default: all, %(default)s here)",
    )  # fmt: skip
    machine.add_argument(
        "--device", default="auto", metavar="auto|cpu|cuda[:0,1|:any]",
        help="where to compute; no effect on the result. cuda: every device that "
        "CUDA_VISIBLE_DEVICES names, or all; auto: those it names; without it one that no other "
        "run has; without a device the CPU; cuda:any: as auto, but without a device an error "
        "(default: %(default)s)",
    )  # fmt: skip
    machine.add_argument(
        "--jobs-per-device", type=positive, default=1, metavar="N",
        help="runs that may have a device at the same time, where auto looks for a free one; each "
        "plans with its part of the device's memory (default: %(default)s)",
    )  # fmt: skip
    machine.add_argument(
        "--memory", type=memory_size, metavar="SIZE",
        help="bound of the whole run, such as 500M or 24G: batches become smaller to keep it, "
        "and --sort has what is left (default: none, and for --sort 768M a thread)",
    )  # fmt: skip
    machine.add_argument(
        "--batch-bases", type=positive, metavar="N",
        help="bases mapped at a time by a thread; no effect on the result (default: "
        f"{BATCH_BASES}; with CUDA what fits its free memory, {DEVICE_BATCH_BASES} at most)",
    )  # fmt: skip
    for option, advice in _INSTEAD.items():
        parser.add_argument(
            option, action=_OfOtherMappers, nargs="?", const=advice, help=argparse.SUPPRESS
        )
    return parser


def _one_or_two(text: str) -> int | tuple[int, ...]:
    """Parse ``N`` or ``N,N``."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not 1 <= len(numbers) <= 2:
        raise argparse.ArgumentTypeError(f"{text!r}: N or N,N is expected")
    return numbers[0] if len(numbers) == 1 else numbers


def _add_alignment(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("alignment")
    group.add_argument(
        "--preset", choices=PRESETS, default=SHORT_READS,
        help=f"sr: single reads of more than {MAX_READ_LEN} bases are mapped as long ones; hifi, "
        "ont (PacBio HiFi and nanopore reads) or asm (assembled contigs): all single reads are. "
        "The options -A to -c below are of short reads; with hifi, ont and asm, -A to -T are of "
        "long ones, whose defaults are the preset's, and -U, -k and -c are refused "
        "(default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "-I", "--insert-size", metavar="MEAN[,SD[,MAX[,MIN]]]",
        help="insert size of proper pairs, 5' end to 5' end (default: estimated from the first "
        "pairs; SD is a tenth of MEAN, MAX and MIN are 4 SD away); negative, as "
        "-3000,300, where mates point outwards",
    )  # fmt: skip
    group.add_argument(
        "--insert-size-from", metavar="FILE",
        help="take exactly the insert size that another run used, from its --json-stats; for the "
        "parts of a sample mapped apart",
    )  # fmt: skip
    for option in _OPTIONS:
        group.add_argument(
            *option.flags, dest=option.name,
            type=_one_or_two if option.name in TWO_PIECES else int,
            metavar="N[,N]" if option.name in TWO_PIECES else "N",
            help=f"{option.text} (default: {default_of(option.name)})",
        )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Map, then report; with --batch, one sample after another."""
    check_device_name(args.device)
    begin_opening(args.device)
    from mapper.mapping.device_servers import begin_starting, end_unused

    begin_starting(args.device)
    try:
        return _map(args)
    finally:
        end_unused()


def _map(args: argparse.Namespace) -> int:
    from mapper.cli import map_batch
    from mapper.index.index import Index
    from mapper.mapping.session import Session

    params = _params(args)
    if args.batch is not None:
        rows, errors = map_batch.rows_of(args)
        jobs = map_batch.jobs_of(rows, errors, lambda row: _job(row, params))
    else:
        rows, jobs = [map_batch.Row(args)], [_job(args, params)]
    index, checks, finish_opening = Index.begin_to_open(args.index)
    with hold_device(args.device, args.jobs_per_device) as device:
        finish_opening()  # numba-cuda has been imported meanwhile
        with Session(index, checks, args.index) as session:
            for number, (row, job) in enumerate(zip(rows, jobs, strict=True)):
                with map_batch.one_run(row, number, len(rows)):
                    _run(row, replace(job, device=device, batch_bases=args.batch_bases), session)
    return 0


def _run(row: Row, job: MapJob, session: Session) -> None:
    """Map the reads of one run, write what it counted, and report."""
    from mapper.io.output_file import write_json
    from mapper.mapping.pipeline import map_reads

    args = row.args
    stats = map_reads(session.index, job, session)
    if args.json_stats:
        stats.write_json(args.json_stats)
    if args.markdup_stats:
        write_json(args.markdup_stats, stats.duplicates)
    lines = stats.report().splitlines()
    if args.verbose:
        lines += stats.stage_table().splitlines()
    for line in lines:
        log.info("%s", line)


def _job(args: argparse.Namespace, params: MapParams) -> MapJob:
    """Return the job of one run; raise UsageError for options that do not go together."""
    from mapper.cli.compile import HELPER_COMMAND
    from mapper.io.output import format_of
    from mapper.io.reads import Lane
    from mapper.mapping.job import MapJob
    from mapper.mapping.resume import check_resumable
    from mapper.sorting.options import SortOptions

    output_format = args.output_format or format_of(args.output)
    check_files(args, output_format)
    job = MapJob(
        reads=args.reads,
        output=args.output,
        output_format=output_format,
        interleaved=args.interleaved,
        orphans=args.orphans,
        read_group=args.read_group,
        lanes=[Lane(paths, line) for line, paths in lanes_of(args)],
        keep_comments=args.comments,
        reference=args.reference,
        input_reference=args.input_reference,
        command_line=shlex.join(["fmwave", *args.argv]),
        sort=SortOptions(args.tmp_dir, mark_options(args)) if args.sort else None,
        memory=args.memory,
        compression=args.compression,
        compress_on=args.compress_on,
        threads=args.threads,
        insert_size=_given_insert_size(args),
        progress=sys.stderr.isatty() and not args.quiet,
        params=params,
        compile_command=HELPER_COMMAND,
        resume=_resume(args),
    )
    if job.resume is not None:
        check_resumable(job)
    return job


def problem_of_options(words: Sequence[str]) -> str:
    """Return why ``fmwave map`` refuses options, whatever it maps; empty if it takes them."""
    from mapper.cli.main import OPTION_NAMES, parse_arguments

    messages = io.StringIO()
    argv = ["map", "REF.fmw", "READS.fq", "-o", "OUT.bam", *words]
    try:
        with redirect_stderr(messages), naming_command_options(OPTION_NAMES):
            args = parse_arguments(argv)
            args.argv = argv
            _job(args, _params(args))
    except MapperError as error:
        return str(error)
    except SystemExit:  # argparse; after --help there is no message
        return messages.getvalue().strip().rpartition("fmwave map: error: ")[2]
    return ""


def _resume(args: argparse.Namespace) -> Resume | None:
    from mapper.index.storage import checksum
    from mapper.mapping.job import Resume

    if args.resume is None:
        return None
    return Resume(checksum(args.index), args.resume == "restart", args.resume_seconds)


def _params(args: argparse.Namespace) -> MapParams:
    """Return the parameters of the stages; raise UsageError for values out of range."""
    given = {option.name: getattr(args, option.name) for option in _OPTIONS}
    given |= {"preset": args.preset, "cs": args.cs}
    switches = (args.eqx, args.soft_clip, args.all, args.ds)
    return map_params(given | dict(zip(SWITCHES, switches, strict=True)))


def _given_insert_size(args: argparse.Namespace) -> InsertSizeModel | None:
    if args.insert_size is not None and args.insert_size_from is not None:
        raise UsageError("--insert-size and --insert-size-from: give one of them")
    if args.insert_size_from is not None:
        from mapper.cli.insert_size_file import read_model

        return read_model(Path(args.insert_size_from))
    return None if args.insert_size is None else _insert_size(args.insert_size)


def _insert_size(text: str) -> InsertSizeModel:
    """Parse ``MEAN[,SD[,MAX[,MIN]]]``."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    return insert_size_model(numbers, text)
