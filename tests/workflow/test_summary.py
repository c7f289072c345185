"""The lines of samples."""

from __future__ import annotations

import pytest

from tests.helpers.workflow_runs import script_module


@pytest.fixture(scope="module")
def script():
    return script_module("summary")


@pytest.mark.parametrize(
    ("mapped", "insert_size", "expected"),
    [
        ("900", "401.5", ("1.5e-03", "401.5")),
        ("900", "0.0", ("1.5e-03", "NA")),  # single reads
        ("0", "0.0", ("NA", "NA")),  # nothing is mapped
    ],
)
def test_what_has_no_value_is_missing_and_not_zero(script, tmp_path, mapped, insert_size, expected):
    path = tmp_path / "x.stats.txt"
    numbers = {
        "reads MQ0": "3", "bases mapped (cigar)": mapped, "error rate": "1.5e-03",
        "insert size average": insert_size,
    }  # fmt: skip
    path.write_text("".join(f"SN\t{key}:\t{value}\t# why\n" for key, value in numbers.items()))
    found = script.stats_numbers(str(path))
    assert (found["error_rate"], found["insert_size_mean"]) == expected
    assert found["mapq0"] == "3"
