"""Checks of the files of runs that map or merge, before anything is read."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from mapper.errors import UsageError, option

STATISTICS = "statistics"
DUPLICATES = "counts of duplicates"


def check_tmp_dir(path: str | None) -> None:
    """Raise UsageError for ``--tmp-dir`` without a directory that can be written to."""
    if path is None:
        return
    if not Path(path).is_dir():
        raise UsageError(
            f"{option('tmp_dir', path)}: no such directory; make it, or name another one"
        )
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(
            f"{option('tmp_dir', path)}: no permission to write there; name another directory"
        )


def check_references(**paths: str | None) -> None:
    """Raise UsageError for a FASTA file, by the name of its option, that does not exist."""
    for name, path in paths.items():
        if path is not None and "://" not in path and not Path(path).exists():
            raise UsageError(
                f"{option(name, path)}: no such file; name the FASTA file, or leave the option out"
            )


def check_cigars(output_format: str, extended: bool) -> None:
    """Raise UsageError for = and X in CRAM, which gives M instead, but not in MC and SA."""
    if extended and output_format == "cram":
        raise UsageError(
            f"{option('extended_cigar')}: CRAM does not tell = and X from M; leave it out, or "
            "write BAM"
        )


def check_outputs(
    records: str, others: Mapping[str, str | None], reads: Sequence[str], inputs: Sequence[Any]
) -> list[str]:
    """Raise an error if an output cannot be made, or would replace an input or another output.

    Parameters
    ----------
    records
        The output for records.
    others
        Further outputs by what they hold: STATISTICS, DUPLICATES. None for one that is not wanted.
    reads, inputs
        Files of reads or records; other inputs, None for one that there is not.

    Returns
    -------
    The outputs that are files.
    """
    from mapper.io.input_file import same_file
    from mapper.io.output_file import STDOUT, check_output

    outputs = {"records": records}
    outputs |= {what: path for what, path in others.items() if path is not None}
    for what, path in outputs.items():
        if what != "records":
            check_output(path)
        if path == STDOUT:
            continue
        if any(same_file(path, read) for read in reads):
            raise UsageError(f"{path} is one of the read files; name another output")
        if any(given is not None and same_file(path, str(given)) for given in inputs):
            raise UsageError(f"{path} is read by this run; name another output")
    if records != STDOUT:
        others_given = [*reads, *inputs, *others.values()]
        _check_not_indexes(records, [str(path) for path in others_given if path is not None])
    for (what, path), (other, its_path) in combinations(outputs.items(), 2):
        if _is_one_output(path, its_path):
            raise UsageError(f"{what} and {other} would both go to {path}")
    return [path for path in outputs.values() if path != STDOUT]


def _is_one_output(first: str, second: str) -> bool:
    """Return True if two outputs are one file or pipe, standard output by any of its names."""
    from mapper.io.output_file import STDOUT

    if first == second or Path(first).resolve() == Path(second).resolve():
        return True
    try:
        found = [os.fstat(1) if path == STDOUT else Path(path).stat() for path in (first, second)]
    except OSError:  # one is still to be made
        return False
    return os.path.samestat(*found) and not stat.S_ISCHR(found[0].st_mode)  # a terminal, /dev/null


def _check_not_indexes(records: str, paths: Sequence[str]) -> None:
    """Raise UsageError for a path that is the name of an index of the output for records."""
    from mapper.io.samtools import index_files

    indexes = {index.resolve() for index in index_files(Path(records))}
    for path in paths:
        if Path(path).resolve() in indexes:
            raise UsageError(
                f"{path} has the name of an index of {records}, which the run removes or writes; "
                "choose another name"
            )
