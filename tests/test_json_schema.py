"""docs/json.schema.json describes the JSON of each command; tests/json_results.py checks it in all tests."""

import argparse
import json
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from molslice.cli import build_parser, find_verbs, main
from molslice.cli.predict import write_json
from tests.json_results import SCHEMA, check

ROOT = Path(__file__).resolve().parents[1]


def commands_with_json():
    """Return the commands that have `--json`. A study has it after its name."""
    commands = {"study"} & find_verbs().keys()
    parsers = [("", build_parser())]
    for name, parser in parsers:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += [(f"{name} {word}".strip(), inner) for word, inner in action.choices.items()]
            elif "--json" in action.option_strings:
                commands.add(name)
    return commands


def test_each_command_has_a_schema():
    Draft202012Validator.check_schema(SCHEMA)
    shared = {"refusals", "target", "run", "split errors"}
    assert SCHEMA["$defs"].keys() - shared == commands_with_json()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert SCHEMA["$id"] == f"{project['urls']['Documentation']}json.schema.json"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("predict", ["predict", "gap-xtb", "--interval", "0.9", "--domain", "--smiles", "CCO", "not one"]),
        ("explain", ["explain", "gap-xtb", "--smiles", "CCO", "not one"]),
        ("models", ["models"]),
        ("params", ["params", "--config", str(ROOT / "configs" / "molecule" / "quickstart.yaml")]),
    ],
)
def test_results_fit_it(command, words, capsys):
    assert main([*words, "--json"]) == 0
    check(command, json.loads(capsys.readouterr().out))


def test_results_that_do_not_fit_are_found():
    good = {"model": "a", "files": ["b"]}
    check("predict", good)
    with pytest.raises(AssertionError, match="does not fit"):
        check("predict", {"model": 1, "files": ["b"]})
    with pytest.raises(AssertionError, match=r"does not describe \['surprise'\]"):
        check("predict", {**good, "surprise": 1})
    args = argparse.Namespace(verb="report")  # as a command has it
    with pytest.raises(AssertionError, match="report --json does not fit"):
        write_json({"model": args.verb})


def test_results_about_a_fit_fit_it(tmp_path, capsys):
    table, model = tmp_path / "table.csv", tmp_path / "model"
    lines = [f"{'C' * size}O,{size % 7}" for size in range(1, 41)]
    table.write_text("\n".join(["smiles,y", *lines]))
    fit = ["fit", str(table), "--target", "y", "--out", str(model), "--quality", "fast", "--no-encoder"]
    predict = [
        "predict",
        str(model),
        "--input",
        str(table),
        "--output",
        str(tmp_path / "out.csv"),
        "--metrics",
    ]
    for words in (
        fit,
        predict,
        ["evaluate", str(model), "--split", "train"],
        ["report", str(model), "--out", str(tmp_path / "page.html")],
    ):
        assert main([*words, "--json", "--quiet"]) == 0
        check(words[0], json.loads(capsys.readouterr().out))
