"""Refuse to map where the index of BAM will not be of the kind that the rules expect.

A program: its arguments are an index of fmwave and the kind, bai or csi. Here all know the lengths
of contigs, before they map; at its start the workflow may not.
"""

import json
import sys
from pathlib import Path

MAX_BAI_LENGTH = 2**29  # bases; fmwave writes .csi if a contig is longer


def main(index: str, expected: str) -> None:
    """End with a message if fmwave will write another kind."""
    lengths = json.loads((Path(index) / "meta.json").read_text())["contigs"]["lengths"]
    longest = max(lengths)
    kind = "csi" if longest > MAX_BAI_LENGTH else "bai"
    if kind != expected:
        sys.exit(
            f"error: map.index_kind: {expected}, in the config: the longest contig has {longest} "
            f"bases, and BAM gets a .{kind}. Expected: {kind}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
