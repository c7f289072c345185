"""Refuse BAM files whose own read groups are of another sample than the sheet says, or of none."""

import argparse

import pysam


def problem_of(path: str, sample: str, library: str | None) -> str:
    """Return why a file is refused; nothing if all its read groups are as the sheet says."""
    try:
        with pysam.AlignmentFile(path, check_sq=False) as file:
            groups = file.header.to_dict().get("RG", [])
    except (OSError, ValueError) as error:
        return str(error)
    expected = {"SM": ("sample", sample)} | ({"LB": ("library", library)} if library else {})
    for tag, (what, name) in expected.items():
        found = {str(group.get(tag, "(none)")) for group in groups} or {"(none)"}
        if others := found - {name}:
            names = ", ".join(sorted(others))
            return (
                f"read groups of {what} {names}, in {what} {name} of the sheet; correct the header "
                "(samtools reheader) or the sheet"
            )
    return ""


def main() -> None:
    """End with a message if a read group of a file is not the one that the sheet says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", help="LB of all read groups, where the sheet says it")
    parser.add_argument("sample", help="SM of all read groups")
    parser.add_argument("paths", nargs="+", help="BAM, CRAM or SAM")
    args = parser.parse_args()
    for path in args.paths:
        if problem := problem_of(path, args.sample, args.library):
            parser.exit(1, f"error: {path}: {problem}\n")


if __name__ == "__main__":
    main()
