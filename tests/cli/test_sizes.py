"""Parsers of numbers, sizes and threads of all commands."""

from __future__ import annotations

import argparse

import pytest

from mapper.cli.main import main
from mapper.cli.sizes import positive, size, thread_number


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("500M", 500_000_000), ("3.1G", 3_100_000_000), ("2k", 2000), ("2K", 2000),
     ("1TB", 10**12), ("0.5G", 500_000_000)],
)  # fmt: skip
def test_sizes_are_decimal(text: str, value: int) -> None:
    assert size(text) == value


@pytest.mark.parametrize("text", ["", "0", "0.0001k", "-1G", "inf", "nan", "1e9", "4 G", "4GiB"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="a size such as 500M or 24G"):
        size(text)


def test_threads_and_other_counts() -> None:
    assert (positive("7"), thread_number("4096")) == (7, 4096)
    for text in ("0", "-1", "1.5", "x"):
        with pytest.raises(argparse.ArgumentTypeError, match="at least 1"):
            thread_number(text)
    with pytest.raises(argparse.ArgumentTypeError, match="at most 4096"):
        thread_number("4097")


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--verify"], "name the index"), (["--device", "cpu"], "belongs to --plan")],
)
def test_options_of_info_that_say_nothing(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_plan_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--plan", "0"]) == 2
    assert "0: a size such as 500M or 24G is expected" in capsys.readouterr().err
