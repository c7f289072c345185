"""The ``fmwave`` command: parser, logging, exit status.

A subcommand is a module ``mapper/cli/NAME.py`` with

- ``add_parser(subparsers)``, which adds its parser and returns it;
- ``run(args) -> int``, which does the work and returns the exit status;
- ``EXAMPLES``, command lines for its help, and ``DOCUMENT``, the page that tells more.

Only the module of the given subcommand is imported, and it imports compiled code in
``run``, so that help and usage errors are instant.

Exit status: 0 done; 1 bad data or too little memory; 2 usage; 3 device; 4 output;
141 the reader of a help text or report on stdout went away (4 if it read records); 128 + n ended by
signal n (``signals.STOPPING``): 130 interrupted (SIGINT), 143 terminated (SIGTERM).
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import logging
import os
import re
import signal
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from mapper import __version__
from mapper.cli.process_limits import problem_of_limits
from mapper.cli.standard_streams import open_closed_streams, report
from mapper.errors import DeviceError, MapperError, ResourceError, naming_command_options
from mapper.parallel import signals

log = logging.getLogger("mapper")

SUBCOMMANDS = {
    "index": "build the index of a reference",
    "map": "map reads to an indexed reference",
    "merge": "merge sorted parts of a sample, mark duplicates, index",
    "seed": "find all matches of k-mers",
    "align": "align pairs of sequences: distances and CIGARs",
    "distance": "edit distance, and path, of two very long sequences",
    "compile": "compile the stages of map before its first run",
    "info": "show versions, this machine, and what an index holds",
}
"""Name and one line of help of each subcommand, in the order of the help."""


EXAMPLES = """\
fmwave index ref.fa.gz -o ref.fmw
fmwave map ref.fmw reads_R1.fq.gz reads_R2.fq.gz -o out.bam --sort
fmwave COMMAND --help"""
DOCUMENT = "README.md"

OPTION_NAMES = {
    "seed_len": "--seed-length", "extended_cigar": "--eqx", "all_alignments": "--all",
    "soft_clip_supplementary": "--soft-clip", "keep_comments": "--comments",
}  # fmt: skip
"""Options of the command that are not named as the arguments of Python."""

EXIT_STATUS = """\
0 done; 1 bad input or index, or too little memory; 2 usage; 3 a device that cannot be used;
4 output that cannot be written; 130 interrupted (Ctrl-C); 141 the reader of a report went away;
143 terminated"""
"""Exit status of every subcommand, for the help."""

GC_THRESHOLD = 200_000
"""New objects between two garbage collections."""


_STOPPED = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "ended by SIGHUP: the terminal or connection was closed",
    signal.SIGXCPU: "ended by SIGXCPU: the limit of CPU time is reached",
}
"""Messages of runs that a signal ended; of others the signal's name."""


class _Parser(argparse.ArgumentParser):
    """A parser with examples in its help, which itself refuses arguments that it does not know.

    argparse leaves these to the command's parser, whose usage says nothing of the subcommand's
    options. It also drops the error of a help that cannot be written; this class raises it.
    """

    examples, document = "", ""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Else what begins with "-" and is no single number would be taken for an option.
        self._negative_number_matcher = re.compile(r"-[\d.][-\d.,]*$")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options and an empty list, or exit with this parser's usage."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = "give all files side by side, and no more than the usage says"
            hint = "" if unknown[0].startswith("-") else f"; {hint}"
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return known, unknown

    def format_help(self) -> str:
        """Return the help, with examples, the page of the documentation and the exit status."""
        parts = {
            "examples": self.examples,
            "documentation": f"{self.document} in fmwave's repository",
            "exit status": EXIT_STATUS,
        }
        texts = [f"{title}:\n{textwrap.indent(text, '  ')}\n" for title, text in parts.items()]
        return "\n".join([super().format_help(), *texts])

    def print_help(self, file: Any = None) -> None:
        """Write the help, by default to standard output.

        Raises
        ------
        OutputError, BrokenPipeError
            If standard output cannot be written to, or its reader went away.
        """
        if file is None:
            report(self.format_help())
        else:
            super().print_help(file)


class _Version(argparse.Action):
    """Write the version and exit, like argparse's own action; raise if it cannot be written."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        report(f"fmwave {__version__}\n")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's) and return the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    with naming_command_options(OPTION_NAMES):
        return _main(argv)


def _main(argv: Sequence[str]) -> int:
    debug = "--debug" in argv
    try:
        args = parse_arguments(argv)
        args.argv = argv
        debug = args.debug
        start_logging(debug=args.debug, quiet=args.quiet)
        # Not before: a signal during start-up should simply end the process.
        signals.raise_on_signals()
        status: int = args.run(args)
        return status
    except SystemExit as stop:  # argparse: help, version or usage error
        return stop.code if isinstance(stop.code, int) else 2
    except MapperError as error:
        if signals.caught:  # samtools gets the terminal's signals too, and its end is an error
            return _stopped(debug)
        return _fail(str(error), error.exit_status, debug)
    except BrokenPipeError:
        # The reader of our output went away, as `head` does. Python would print an error when it
        # flushes stdout at exit, so stdout becomes /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (KeyboardInterrupt, signals.Terminated):
        return _stopped(debug)
    except Exception as error:
        # A compiler that is interrupted may raise any exception.
        if signals.caught:
            return _stopped(debug)
        if problem := problem_of_limits(error):
            return _fail(problem, ResourceError.exit_status, debug)
        if problem := _problem_of_driver(error):
            return _fail(problem, DeviceError.exit_status, debug)
        if problem := _problem_of_links(error):
            return _fail(problem, MapperError.exit_status, debug)
        raise
    finally:
        signals.stop_raising()


def _problem_of_driver(error: Exception) -> str:
    """Return the message for an error of a CUDA driver; empty for any other error."""
    api = sys.modules.get("mapper.cuda.api")  # not imported: no driver has been called
    if api is None or not api.is_driver_error(error):
        return ""
    return f"{api.problem_of(error)}; --device cpu does without a device"


def _problem_of_links(error: Exception) -> str:
    """Return the message for links that lead to each other; empty for any other error."""
    # What Path.resolve() raises before Python 3.13; later the system refuses to open the file.
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop from"):
        return f"{str(error)[len('Symlink loop from ') :]}: is a link that leads to itself"
    return ""


def entry() -> NoReturn:
    """Run as the console script."""
    set_up_process()
    status = main()
    if signals.caught:
        # Python would wait for its threads, and an alignment may take hours; and it would end by
        # SIGINT, not with the status, if that came during `exec`.
        with suppress(OSError):  # the terminal may be gone
            sys.stderr.flush()
        from mapper.io.output_file import remove_unfinished  # as help needs none of it

        remove_unfinished()
        os._exit(status)
    sys.exit(status)


def set_up_process() -> None:
    """Set up signals, streams and garbage collection, before anything large is imported."""
    signals.end_at_once()
    open_closed_streams()
    # NumPy's BLAS, which is not used, would start a thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports and compiled code make objects that stay; a garbage collection after every 700 took a
    # tenth of the start-up time.
    gc.set_threshold(GC_THRESHOLD)
    # Garbage collections at exit would take 0.15 s; the system frees the memory anyway.
    atexit.register(gc.freeze)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line, importing only the module of its subcommand.

    Returns
    -------
    The options; ``run`` is the subcommand's function.
    """
    parser = _Parser(
        prog="fmwave", description="Map DNA reads to a reference, on the GPU or the CPU."
    )
    parser.examples, parser.document = EXAMPLES, DOCUMENT
    parser.add_argument("--version", action=_Version, help="show program's version number and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((word for word in argv if not word.startswith("-")), None)
    for name, line in SUBCOMMANDS.items():
        if name == wanted:
            module = importlib.import_module(f"mapper.cli.{name}")
            subparser = module.add_parser(subparsers)
            subparser.set_defaults(run=module.run)
            subparser.examples, subparser.document = module.EXAMPLES, module.DOCUMENT
            _add_common(subparser)
        else:
            subparsers.add_parser(name, help=line, add_help=False)
    return parser.parse_args(argv)


def _add_common(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("messages")
    group.add_argument("--quiet", action="store_true", help="only warnings and errors on stderr")
    group.add_argument("--debug", action="store_true", help="more messages; tracebacks of errors")


def start_logging(*, debug: bool, quiet: bool) -> None:
    """Send the package's messages to stderr, once, even if this is called again."""
    log.setLevel(logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO)
    for handler in log.handlers[:]:
        log.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("fmwave: %(message)s"))
    log.addHandler(handler)


def _stopped(debug: bool) -> int:
    """Print that a signal ended the run, the first that came, and return the exit status."""
    number = signals.caught[0] if signals.caught else signal.SIGINT
    return _fail(_STOPPED.get(number, f"ended by {number.name}"), 128 + number, debug)


def _fail(message: str, status: int, debug: bool) -> int:
    """Print an error and return `status`; with `debug`, print the traceback too."""
    signals.stop_raising()  # at once: freeing objects of the error may take long
    with suppress(OSError):  # the terminal may be gone
        if debug:
            import traceback

            traceback.print_exc()
        sys.stderr.write(f"fmwave: error: {message}\n")
    return status


if __name__ == "__main__":
    entry()
