"""``fmwave map --insert-size-from``: the model of another run, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mapper.cli.insert_size_file import read_model
from mapper.cli.main import main
from mapper.errors import InputFormatError
from mapper.mapping.pipeline import report_insert_size
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import assumed_model, estimate, model_from
from tests.helpers.mapping_runs import lines_of

RNG = np.random.default_rng(5)
MODELS = {
    "estimated": estimate(np.rint(RNG.normal(312.7, 41.3, 5000)).astype(np.int64)),
    "mate pairs": estimate(-np.rint(RNG.normal(3000, 500, 777)).astype(np.int64)),
    "one size": estimate(np.full(100, 250)),
    "too few pairs": estimate(np.array([300, 310])),
    "given": model_from(100 / 3, 0.1, 20, 50, 0),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_survives_the_file(name, tmp_path):
    model = MODELS[name]
    stats = RunStats()
    report_insert_size(stats, model)
    stats.write_json(str(tmp_path / "run.json"))

    read = read_model(tmp_path / "run.json")

    assert read.penalty.dtype == model.penalty.dtype
    assert read.penalty.tolist() == model.penalty.tolist()
    assert read[:2] + read[3:] == model[:2] + model[3:]


def test_no_estimate_is_told_and_null(tmp_path):
    texts = {}
    for name in ("too few pairs", "given", "one size"):
        stats = RunStats()
        report_insert_size(stats, MODELS[name])
        texts[name] = stats.report()
        found = stats.summary()["insert_size"]
        assert ((found["mean"], found["std"]) == (None, None)) == (name == "too few pairs")
    assert (
        "insert size not estimated, which takes 16 confident pairs: any from 1 to 1000 is proper"
        in texts["too few pairs"]
    )
    assert "insert size 33.3 ± 0.1, proper from 20 to 50 (given)" in texts["given"]
    assert "(100 pairs)" in texts["one size"]
    # As files of fmwave 0.1 before had it.
    zeros = {"mean": 0.0, "std": 0.0, "low": 1, "high": 1000, "pairs": 0}
    (tmp_path / "run.json").write_text(json.dumps({"insert_size": zeros}))
    assert read_model(tmp_path / "run.json").penalty.tolist() == assumed_model().penalty.tolist()


def test_a_run_that_met_no_pairs_used_the_assumed_model(tmp_path, caplog):
    RunStats().write_json(str(tmp_path / "run.json"))
    with caplog.at_level("WARNING", "mapper"):
        read = read_model(tmp_path / "run.json")
    assert read.penalty.tolist() == assumed_model().penalty.tolist()
    assert "run.json: that run met no pairs" in caplog.text


def test_models_differ():
    """Other sizes give other records, so the equality above is not trivial."""
    assert MODELS["too few pairs"].penalty.tolist() == assumed_model().penalty.tolist()
    assert MODELS["one size"].std == 0
    assert len({model.penalty.tobytes() for model in MODELS.values()}) == len(MODELS)


def test_a_part_of_a_sample_is_mapped_as_within_the_whole(world, tmp_path):
    """The last pairs mapped alone, with the model of all, give the last records of all."""
    n_lines = 4 * 40

    def run(*argv: str) -> None:
        assert main(["map", world.index_path, *argv, "-t", "1", "--quiet"]) == 0

    whole, part, alone = (tmp_path / f"{name}.bam" for name in ("whole", "part", "alone"))
    stats = str(tmp_path / "whole.json")
    run(world.first, world.second, "-o", str(whole), "--json-stats", stats)
    tails = []
    for number, path in enumerate((world.first, world.second)):
        tails.append(str(tmp_path / f"tail{number}.fq"))
        lines = Path(path).read_text().splitlines(keepends=True)
        Path(tails[-1]).write_text("".join(lines[-n_lines:]))
    sizes = [str(tmp_path / f"{name}.json") for name in ("part", "alone")]
    run(*tails, "-o", str(part), "--insert-size-from", stats, "--json-stats", sizes[0])
    run(*tails, "-o", str(alone), "--json-stats", sizes[1])

    records = lines_of(part)
    assert len(records) >= 2 * n_lines // 4
    assert records == lines_of(whole)[-len(records) :]
    of_whole, of_part, of_alone = (
        json.loads(Path(path).read_text())["insert_size"] for path in (stats, *sizes)
    )
    assert of_part == of_whole != of_alone


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "holds no insert size"),
        ('{"insert_size": null}', "holds no insert size"),
        ('{"insert_size": {"mean": 1}}', "numbers mean, std, low, high, pairs are expected"),
        (
            json.dumps({"insert_size": {"mean": 1, "std": -1, "low": 1, "high": 2, "pairs": 0}}),
            "std and pairs not below 0",
        ),
        (
            json.dumps({"insert_size": {"mean": None, "std": 1, "low": 1, "high": 2, "pairs": 0}}),
            "mean and std null: not estimated",
        ),
        (
            json.dumps({"insert_size": {"mean": 1, "std": 1, "low": 3, "high": 2, "pairs": 0}}),
            "low not above high",
        ),
    ],
)
def test_other_files_are_refused(content, message, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(content)
    with pytest.raises(InputFormatError, match="run\\.json") as error:
        read_model(path)
    assert message in str(error.value)


def test_command_line_errors(world, tmp_path, capsys):
    argv = ["map", world.index_path, world.first, world.second, "-o", str(tmp_path / "x.bam")]
    assert main([*argv, "-I", "300", "--insert-size-from", "x.json"]) == 2
    assert "give one of them" in capsys.readouterr().err
    assert main([*argv, "--insert-size-from", str(tmp_path / "none.json")]) == 1
    assert "none.json" in capsys.readouterr().err
    assert not (tmp_path / "x.bam").exists()
