"""The options on duplicates, which ``fmwave map`` and ``fmwave merge`` share."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from mapper.errors import UsageError

if TYPE_CHECKING:
    from mapper.sorting.options import MarkOptions

_TAG = re.compile("[A-Za-z][A-Za-z0-9]")
_MOST_DISTANCE = (1 << 31) - 1

_OF_MARKDUP = {
    "optical_distance": "--optical-distance",
    "barcode_tag": "--barcode-tag",
    "remove_duplicates": "--remove-duplicates",
    "mark_supplementary": "--mark-supplementary",
    "markdup_stats": "--markdup-stats",
}
"""Options that mean nothing without --markdup: destination and name."""


def add_duplicate_options(group: Any, condition: str = "") -> None:
    """Add ``--markdup`` and the options that need it to a group of a parser.

    `condition` is put before the help of ``--markdup``.
    """
    group.add_argument(
        "--markdup", action="store_true",
        help=f"{condition}flag duplicates (0x400) as samtools markdup -c does, within each library",
    )  # fmt: skip
    group.add_argument(
        "--optical-distance", type=_distance, metavar="N",
        help="with --markdup, tell optical duplicates: those at most N pixels apart on a tile, by "
        "the coordinates in read names; 100, or 2500 for patterned flow cells (default: do not)",
    )  # fmt: skip
    group.add_argument(
        "--barcode-tag", type=_tag, metavar="TAG",
        help="with --markdup, only reads of the same molecular barcode in this tag, as RX, are "
        "duplicates",
    )  # fmt: skip
    group.add_argument(
        "--remove-duplicates",
        action="store_true",
        help="with --markdup, leave duplicates out instead of flagging them",
    )
    group.add_argument(
        "--mark-supplementary", action="store_true",
        help="with --markdup, flag the supplementary, secondary and unmapped records of "
        "duplicates, too",
    )  # fmt: skip
    group.add_argument(
        "--markdup-stats", metavar="FILE",
        help="with --markdup, write its counts as samtools markdup does in JSON",
    )  # fmt: skip


def mark_options(args: argparse.Namespace) -> MarkOptions | None:
    """Return how to mark duplicates; None if they are not to be marked.

    Raises
    ------
    UsageError
        If an option is given that needs ``--markdup``, without it.
    """
    from mapper.sorting.options import MarkOptions

    if not args.markdup:
        for dest, name in _OF_MARKDUP.items():
            given = getattr(args, dest)
            if given is not None and given is not False:  # a distance of 0 is given, too
                raise UsageError(
                    f"{name} needs --markdup, which finds the duplicates; give both, or neither"
                )
        return None
    return MarkOptions(
        optical_distance=args.optical_distance or 0,
        barcode_tag=args.barcode_tag or "",
        remove=args.remove_duplicates,
        supplementary=args.mark_supplementary,
    )


def _distance(text: str) -> int:
    """Parse a number of pixels."""
    if not re.fullmatch("[0-9]+", text) or int(text) > _MOST_DISTANCE:
        raise argparse.ArgumentTypeError(
            f"{text}: a whole number of pixels is expected, 0 to {_MOST_DISTANCE}"
        )
    return int(text)


def _tag(text: str) -> str:
    """Parse the name of a SAM tag."""
    if not _TAG.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text}: the two characters of a SAM tag, as RX")
    return text
