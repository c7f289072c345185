"""Options and checks on outputs that ``fmwave map`` and ``fmwave merge`` share."""

from __future__ import annotations

import sys
from typing import Any

from mapper.errors import UsageError


def add_tmp_dir(group: Any, what: str) -> None:
    """Add ``--tmp-dir`` to a group of a parser; `what` says what the files hold."""
    group.add_argument(
        "--tmp-dir", metavar="DIR",
        help=f"directory for temporary files, {what} (default: TMPDIR if that is set, else that "
        "of the output)",
    )  # fmt: skip


def check_not_terminal(output: str, output_format: str) -> None:
    """Raise UsageError if BAM or CRAM would go to a terminal."""
    if output == "-" and sys.stdout.isatty() and output_format in ("bam", "cram"):
        what = output_format.upper()
        raise UsageError(f"{what} would go to the terminal; name a file with -o, or use -O sam")
