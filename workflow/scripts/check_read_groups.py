"""Refuse files with records of another sample, or of none: the read groups of a BAM are not ours.

A program: its arguments are the sample's name and the files.
"""

import sys

import pysam


def main(sample: str, *paths: str) -> None:
    """End with a message if a read group of a file is not one of the sample."""
    for path in paths:
        try:
            with pysam.AlignmentFile(path, check_sq=False) as file:
                groups = file.header.to_dict().get("RG", [])
        except (OSError, ValueError) as error:
            sys.exit(f"error: {path}: {error}")
        others = {str(group.get("SM")) for group in groups} - {sample}
        if not groups or others:
            sys.exit(
                f"error: {path}: read groups of sample {', '.join(sorted(others)) or '(none)'}, in "
                f"sample {sample} of the sheet; correct the header (samtools reheader) or the sheet"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
