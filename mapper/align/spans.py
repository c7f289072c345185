"""Spans: which ends of a pair may stay unaligned, by name or by number of symbols."""

from __future__ import annotations

from mapper.align.edit.wavefront import Ends
from mapper.align.pairs import MAX_LENGTH
from mapper.errors import UsageError

ALL = MAX_LENGTH
"""As much of an end as there is."""

SPANS = {
    "global": Ends(0, 0, 0, 0),
    "semiglobal": Ends(0, 0, ALL, ALL),
    "prefix": Ends(0, 0, 0, ALL),
}
"""``global``: both sequences whole. ``semiglobal``: the whole query somewhere in the
reference (edlib's HW). ``prefix``: the whole query at the reference's start (edlib's SHW)."""

Span = str | tuple[int, int, int, int]


def ends_of(span: Span) -> Ends:
    """Return the free ends that a span means.

    Parameters
    ----------
    span
        A name of SPANS, or the symbols that may stay unaligned at the query's begin and end
        and the reference's begin and end (*ends-free* alignment).

    Raises
    ------
    UsageError
        For anything else.
    """
    if isinstance(span, str):
        if span not in SPANS:
            raise UsageError(f"span {span!r}: one of {', '.join(SPANS)} is expected")
        return SPANS[span]
    try:
        if len(span) == 4 and min(span) >= 0 and all(int(free) == free for free in span):
            return Ends(*(min(int(free), ALL) for free in span))
    except TypeError:  # no numbers
        pass
    raise UsageError(f"span {span!r}: four whole numbers of free symbols, 0 or more, are expected")
