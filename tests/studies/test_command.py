import json
import shlex

import pytest

from molslice.cli import main
from molslice.studies import STUDIES


@pytest.fixture
def molslice(capsys):
    """Run a command and return exit code, standard output and standard error."""

    def run(line):
        capsys.readouterr()
        try:
            code = main(shlex.split(line))
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


def test_list_names_every_study(molslice):
    code, out, err = molslice("study --list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == STUDIES.names()


def test_a_study_from_the_command_line(molslice, tmp_path):
    words = "--tokens 4,8 --queries 2 --repeats 1 --permutations 1 --seed 3 --json"
    code, out, err = molslice(f"study oversmoothing --out {tmp_path} {words}")
    assert code == 0
    assert "8 tokens" in err
    result = json.loads(out)
    assert result["study"] == "oversmoothing"
    assert result["files"] == {
        kind: str(tmp_path / f"oversmoothing.{kind}") for kind in ("csv", "png", "svg", "json")
    }
    assert len(list(tmp_path.iterdir())) == 4
    about = json.loads((tmp_path / "oversmoothing.json").read_text())
    assert about["seed"] == 3
    assert about["options"]["tokens"] == [4, 8]


def test_without_json_the_files_are_named(molslice, tmp_path, monkeypatch):
    monkeypatch.setattr(STUDIES.find("oversmoothing"), "draw", lambda self, findings, figure: None)
    words = "--tokens 4 --queries 2 --repeats 1 --permutations 1 --quiet"
    code, out, err = molslice(f"study oversmoothing --out {tmp_path} {words}")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        str(tmp_path / f"oversmoothing.{kind}") for kind in ("png", "svg", "csv", "json")
    ]


@pytest.mark.parametrize("name", STUDIES.names())
def test_help_of_a_study_lists_its_options(molslice, name):
    code, out, _ = molslice(f"study {name} --help")
    assert code == 0
    for option in STUDIES.options(name):
        assert f"--{option}" in out
    assert ("--runs" in out) == bool(STUDIES.find(name).unused_with_runs)


@pytest.mark.parametrize("words", ["study", "study oversmoothing", "study oversmoothing --out x --frob 1"])
def test_wrong_usage(molslice, words):
    code, out, err = molslice(words)
    assert (code, out) == (2, "")
    assert "error:" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("study frog --out {out}", "unknown study 'frog'"),
        ("study oversmoothing --out {out} --repeats many", "repeats is 'many', expected a whole number"),
        ("study oversmoothing --out {out} --runs gap-xtb", "takes no runs"),
        ("study spectrum --out {out} --runs nothing", "no model 'nothing'"),
        ("study permutation --out {out} --data {out}/none", "none"),
    ],
)
def test_bad_input_is_one_line(molslice, tmp_path, words, message):
    code, out, err = molslice(words.format(out=tmp_path))
    assert (code, out) == (1, "")
    assert err.startswith("molslice: error: ")
    assert len(err.splitlines()) == 1
    assert message in err
