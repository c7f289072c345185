"""The help of the command and of its subcommands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mapper.cli.main import SUBCOMMANDS, main, parse_arguments

ROOT = Path(__file__).parents[2]


def help_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    """Return the lines of each part of the help, by title."""
    assert main([*words, "--help"]) == 0
    parts: dict[str, list[str]] = {"": []}
    for line in capsys.readouterr().out.splitlines():
        if re.fullmatch("[a-z ]+:", line):
            parts[line.removesuffix(":")] = []
        elif line:
            parts[list(parts)[-1]].append(line.strip())
    return parts


@pytest.mark.parametrize("size", ["-3000", "-3000,300", "-3000,300.5,-2000,-4000"])
def test_a_negative_size_is_no_option(size: str) -> None:
    assert parse_arguments(["map", "x.fmw", "r.fq", "-I", size]).insert_size == size


@pytest.mark.parametrize("words", [[], *([name] for name in SUBCOMMANDS)], ids=" ".join)
def test_help_has_examples_a_page_and_the_exit_status(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parts = help_of(words, capsys)
    (page,) = parts["documentation"]
    assert (ROOT / page.split()[0]).is_file()
    codes = re.findall(r"(?:^|; )(\d+) ", " ".join(parts["exit status"]))
    assert codes == ["0", "1", "2", "3", "4", "130", "141", "143"]
    assert parts["examples"]
    for line in parts["examples"]:
        command = shlex.split(line.partition(" | ")[0])
        argv = command[command.index("fmwave") + 1 :]
        if argv[0] != "COMMAND":
            assert parse_arguments(argv).command == (words or argv)[0]


@pytest.mark.parametrize(
    ("words", "program"),
    [(["--some", "info"], "fmwave"), *(([name, "--some", *"xy"], f"fmwave {name}") for name in
     ("index", "seed", "align", "distance", "compile", "info"))],
)  # fmt: skip
def test_an_unknown_option_ends_in_the_usage_of_its_command(
    words: list[str], program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"usage: {program} [-h]")
    assert err.splitlines()[-1].startswith(f"{program}: error: unrecognized arguments: --some")
