"""Tests of the properties of every study."""

import inspect
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from molslice.config.conversion import convert_text
from molslice.inference.load import load_model
from molslice.studies import STUDIES, models, run_study
from molslice.studies.base import Request, study_options
from molslice.types import MolsliceError

SMALL = {"tokens": (4, 8), "queries": 2, "channels": 2, "repeats": 1, "permutations": 1}


def test_the_studies_of_the_package():
    assert STUDIES.names() == ["correlation", "maps", "oversmoothing", "permutation", "spectrum"]


@pytest.mark.parametrize("name", STUDIES.names())
def test_options_have_defaults_and_help_and_are_kept(name):
    study = STUDIES.build(name)
    options = study_options(STUDIES.find(name))
    assert set(options) == set(STUDIES.options(name))
    for option in options.values():
        assert option.default is not inspect.Parameter.empty
        assert option.help
        assert getattr(study, option.name) == option.default
    request = Request(Path())
    assert study.settings(request) == {option.name: option.default for option in options.values()}
    assert set(study.unused_with_runs) <= set(options)
    used = study.settings(replace(request, runs=("run",)))
    assert set(used) == set(options) - set(study.unused_with_runs)
    assert 20 < len(study.summary) < 100


def test_values_are_read_from_text():
    options = study_options(STUDIES.find("permutation"))
    tokens = study_options(STUDIES.find("oversmoothing"))["tokens"]
    for option, text, value in (
        (options["attentions"], "softmax, slice_sort:order=half", ("softmax", "slice_sort:order=half")),
        (options["depth"], "3", 3),
        (options["image"], "a/b.png", Path("a/b.png")),
        (options["data"], "[a", "[a"),
        (tokens, "10,20", (10, 20)),
    ):
        assert convert_text(text, option.type, option.name) == value
    for option, text, words in (
        (options["depth"], "deep", "depth is 'deep'"),
        (options["depth"], "2.0", "depth is 2.0"),
        (tokens, "10,x", r"tokens\[1\] is 'x'"),
    ):
        with pytest.raises(MolsliceError, match=f"{words}, expected a whole number"):
            convert_text(text, option.type, option.name)


def test_the_same_request_gives_the_same_files(tmp_path):
    first = run_study("oversmoothing", tmp_path / "a", options=SMALL)
    again = run_study("oversmoothing", tmp_path / "b", options=SMALL)
    for kind in ("csv", "png", "svg", "json"):
        one, two = (result.files[kind].read_bytes() for result in (first, again))
        assert one == two, kind


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("oversmoothing", {"tokens": (1,)}, "tokens is"),
        ("oversmoothing", {"repeats": 0}, "repeats is 0"),
        ("oversmoothing", {"toknes": (4,)}, "did you mean 'tokens'"),
        ("permutation", {"dim": 10, "heads": 4}, "dim is 10"),
        ("permutation", {"attentions": ("sotfmax",)}, "did you mean 'softmax'"),
        ("permutation", {"depth": 0}, "depth is 0"),
        ("spectrum", {"models": ("sotfmax",)}, "did you mean 'softmax'"),
        ("spectrum", {"models": ()}, "no model to study"),
        ("maps", {"smiles": "no"}, "aromatic"),
        ("maps", {"layer": 0}, "layer is 0"),
        ("correlation", {"seeds": 0}, "seeds is 0"),
        ("correlaton", {}, "did you mean 'correlation'"),
    ],
)
def test_a_bad_request_is_refused_in_words(tmp_path, data, name, options, message):
    takes_data = name in ("permutation", "spectrum", "maps", "correlation")
    with pytest.raises(MolsliceError, match=message):
        run_study(name, tmp_path, options={**options, **({"data": data} if takes_data else {})})
    assert not list(tmp_path.glob("*.csv"))


def test_runs_are_refused_where_no_model_is_looked_at(tmp_path, runs):
    with pytest.raises(MolsliceError, match="takes no runs"):
        run_study("oversmoothing", tmp_path, runs=[runs["softmax"]], options=SMALL)


def test_options_that_runs_replace_are_refused(tmp_path, runs):
    options = {"steps": 4, "models": ("flow",), "atoms": 5}
    with pytest.raises(MolsliceError, match="'spectrum' with runs does not use steps, models"):
        run_study("spectrum", tmp_path, runs=[runs["softmax"]], options=options)
    assert not list(tmp_path.iterdir())


def test_maps_of_given_runs_need_no_data(tmp_path, runs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_study("maps", tmp_path, runs=[runs["softmax"]], options={"layer": 1}, quiet=True)
    options = json.loads(result.files["json"].read_text())["options"]
    assert options["layer"] == 1
    assert not {"models", "steps", "data"} & set(options)


def test_a_model_without_attention_is_refused(tmp_path, runs, data, monkeypatch):
    class Other:
        model = torch.nn.Linear(2, 2)
        config = load_model(runs["softmax"]).config

    monkeypatch.setattr(models, "load_network", lambda run: Other)
    with pytest.raises(MolsliceError, match="without attention"):
        run_study("spectrum", tmp_path, runs=["other"], options={"data": data})


def test_a_stopped_training_of_a_study_names_the_command_that_continues(tmp_path, data, monkeypatch):
    def train(config, run, **options):
        raise KeyboardInterrupt("the same command with --resume continues")

    monkeypatch.setattr(models, "train", train)
    with pytest.raises(
        KeyboardInterrupt, match="^stopped while training softmax; the same command continues$"
    ):
        run_study("spectrum", tmp_path, options={"data": data, "models": ("softmax",), "steps": 1})
