"""What a BAI or CSI index holds, by the SAM specification."""

from __future__ import annotations

import gzip
import struct
from typing import Any, NamedTuple


class NaiveContig(NamedTuple):
    bins: dict[int, list[tuple[int, int]]]  # chunks of each bin; the one with counts included
    loffsets: dict[int, int]  # of each bin; CSI only
    linear: list[int]  # BAI only


class NaiveIndex(NamedTuple):
    depth: int
    contigs: list[NaiveContig]
    n_no_coor: int


def parse_index(data: bytes) -> NaiveIndex:
    """Parse the bytes of a .bai or .csi; all of them must belong to it."""
    is_csi = data[:2] == b"\x1f\x8b"
    if is_csi:
        data = gzip.decompress(data)
    at = 4

    def take(layout: str) -> Any:
        nonlocal at
        (value,) = struct.unpack_from("<" + layout, data, at)
        at += struct.calcsize(layout)
        return value

    assert data[:4] == (b"CSI\1" if is_csi else b"BAI\1")
    depth = 5
    if is_csi:
        assert take("i") == 14
        depth = take("i")
        assert take("i") == 0
    contigs = []
    for _ in range(take("i")):
        bins, loffsets, linear = {}, {}, []
        for _ in range(take("i")):
            number = take("I")
            assert number not in bins
            if is_csi:
                loffsets[number] = take("Q")
            bins[number] = [(take("Q"), take("Q")) for _ in range(take("i"))]
        if not is_csi:
            linear = [take("Q") for _ in range(take("i"))]
        contigs.append(NaiveContig(bins, loffsets, linear))
    n_no_coor = take("Q")
    assert at == len(data)
    return NaiveIndex(depth, contigs, n_no_coor)
