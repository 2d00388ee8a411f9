"""Tests of the command `molslice bench`."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from molslice.bench import rounds as module
from molslice.cli import build_parser, main
from molslice.cli.arguments import split_overrides
from molslice.cli.bench import ACTIONS
from tests.bench.jobs import answer
from tests.bench.training_jobs import store
from tests.programs import ROOT

SMALL = ["--dim", "8", "--num-layers", "1", "--num-heads", "2", "--batch-size", "2", "--threads", "1"]
QUICK = ["--rounds", "1", "--steps", "1", "--quiet"]


@pytest.fixture
def molslice(capsys):
    """Run `bench` and return exit code, standard output and standard error."""

    def run(*words):
        try:
            code = main(["bench", *map(str, words)])
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


def test_measuring_with_a_budget_continues(molslice, tmp_path):
    words = ["--attention", "softmax:fused=false", "--lengths", "16,1024", *SMALL, *QUICK]
    code, out, err = molslice(*words, "--budget-gb", "0.01", "--out", tmp_path, "--json")
    assert (code, err) == (0, "")
    cells = json.loads(out)["cells"]
    assert [cell["outcome"] for cell in cells] == ["ok", "OOM"]
    assert 0 < cells[0]["peak_bytes"]["median"] < 0.01e9
    kept = json.loads((tmp_path / "bench.json").read_text())["measurements"]

    code, out, err = molslice(*words, "--budget-gb", "0.01", "--out", tmp_path)
    assert (code, err) == (0, "")
    assert re.search(r"\| softmax:fused=false +\| +[\d.]+ +\| +OOM \|", out)
    assert json.loads((tmp_path / "bench.json").read_text())["measurements"] == kept
    assert (tmp_path / "table.md").read_text() == out


def test_a_setting_with_flags_that_win(molslice, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "run_job", lambda job: asked.append(job) or answer())
    code, out, _ = molslice(
        "--setting", "sliceformer_text", "--attention", "flow", "--batch-size", "2", *QUICK
    )
    assert code == 0
    assert [job.length for job in asked] == [1024, 2048, 3072, 4096]
    assert {(job.dim, job.ffn_dim, job.num_layers, job.num_heads, job.batch_size) for job in asked} == {
        (256, 1024, 4, 4, 2)
    }
    assert "Training steps/s, published" in out


def test_an_interruption_ends_with_130_and_keeps_what_is_measured(molslice, monkeypatch, tmp_path):
    calls = iter([answer(), KeyboardInterrupt()])

    def run_job(job):
        answer = next(calls)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(module, "run_job", run_job)
    code, out, err = molslice("--attention", "softmax,flow", "--lengths", "8", *SMALL, "--out", tmp_path)
    assert code == 130
    assert "..." in out
    assert "the same command continues" in err
    assert len(json.loads((tmp_path / "bench.json").read_text())["measurements"]) == 1


def test_an_entry_that_fails_is_reported_after_the_others(molslice, monkeypatch):
    def run_job(job):
        return answer() if job.attention == "flow" else {"outcome": "failed", "reason": "a fault"}

    monkeypatch.setattr(module, "run_job", run_job)
    code, out, err = molslice("--attention", "softmax,flow", "--lengths", "8", *SMALL, *QUICK)
    assert code == 1
    assert re.search(r"\| flow +\|  10.00 \|", out)
    assert err == "molslice: error: softmax failed at 8 tokens: a fault\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--attention", "softmax,frog"], "unknown attention 'frog'"),
        (["--attention", "slice_sort", "--causal"], "no causal form"),
        (["--setting", "sliceformer"], "sliceformer_text"),
        (["--dtype", "fp8"], "fp16"),
        (["--device", "frog"], "frog"),
        (["--dim", "10", "--num-heads", "4"], "multiple"),
        (["--score", "no.csv"], "no.csv"),
    ],
)
def test_bad_input_is_one_line(molslice, words, message):
    code, out, err = molslice(*words)
    assert (code, out) == (1, "")
    assert re.fullmatch(r"molslice: error: .+\n", err)
    assert message in err


@pytest.mark.parametrize(
    "words",
    [
        ["--lengths", "8,x"],
        ["--lengths", ""],
        ["--rounds", "0"],
        ["--budget-gb", "-1"],
        ["--seconds", "nan"],
        ["--steps", "1", "--seconds", "1"],
        ["--batch-size", "1", "--batch-tokens", "8"],
        ["--model.dim", "8"],
    ],
)
def test_wrong_usage(molslice, words):
    code, out, err = molslice(*words)
    assert (code, out) == (2, "")
    assert "error:" in err


def test_the_default_action_measures_attentions(molslice, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "run_job", lambda job: asked.append(job) or answer())
    for words in ([], ["attention"]):
        assert (
            molslice(*words, "--attention", "flow", "--lengths", "8", "--budget-gb", "1", *SMALL, *QUICK)[0]
            == 0
        )
    assert asked[0] == asked[1]
    assert "--lengths" in molslice("attention", "--help")[1]
    code, out, _ = molslice("--help")
    assert code == 0
    assert "default: attention" in out


def test_help_of_actions_shows_examples_that_parse(molslice):
    for action in ACTIONS:
        code, out, _ = molslice(action, "--help")
        assert code == 0
        examples = out.partition("example:\n")[2].strip().splitlines()
        assert examples
        for example in examples:
            program, *words = shlex.split(example, comments=True)
            args = build_parser().parse_args(split_overrides(words)[0])
            assert (program, args.verb, args.action) == ("molslice", "bench", action)


def test_training_is_measured_without_rdkit(tmp_path):
    (tmp_path / "blocked" / "rdkit").mkdir(parents=True)
    (tmp_path / "blocked" / "rdkit" / "__init__.py").write_text("raise ImportError('rdkit is not installed')")
    path = store(tmp_path / "store", [2, 3, 4]).path
    words = ["--models", "quickstart", "--attentions", "slice_sort", "--rounds", "1", "--steps", "2"]
    words += ["--store", path, "--threads", "1", "--json", "--quiet", "--model.num_layers", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "blocked"), str(ROOT)])}
    command = [sys.executable, "-m", "molslice", "bench", "train", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    out = done.stdout
    (row,) = json.loads(out)["rows"]
    assert (row["model"], row["attention"], row["outcome"]) == ("quickstart", "slice_sort", "ok")
    assert row["molecules_per_second"]["median"] > 0
    assert json.loads(out)["measurements"][0]["molecules"] == 6
    assert json.loads(out)["conditions"]["settings"] == {"model.num_layers": "1"}


def test_the_data_path_is_measured(molslice, tmp_path):
    path = store(tmp_path / "store", [2, 3, 4]).path
    words = ["--store", path, "--rounds", "1", "--seconds", "0.01", "--batch-size", "2", "--quiet"]
    code, out, err = molslice("data", *words)
    assert (code, err) == (0, "")
    assert re.search(r"\| batches of 2 +\| +[\d.,]+ \| ", out)
    assert "3 molecules of chains: 3 atoms in the median" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["data", "--store", "nowhere"], 1, "nowhere"),
        (["data", "--token-budget", "8"], 2, "--token-budget needs --batch-size"),
        (["data", "--model.dim", "8"], 2, "--model.dim"),
        (["train", "--models", "frog"], 1, "unknown model 'frog'"),
        (["train", "--store", "nowhere"], 1, "nowhere"),
        (["train", "--device", "cuda:99"], 1, "cuda:99"),
        (["train", "--model.frog", "1"], 1, "frog"),
        (["train", "--models", "slim", "--config", "x.yaml"], 2, "not allowed with"),
        (["train", "--store", "a", "--input", "b"], 2, "not allowed with"),
        (["frog"], 2, "frog"),
    ],
)
def test_bad_arguments_of_actions(molslice, words, code, message):
    found, out, err = molslice(*words)
    assert (found, out) == (code, "")
    assert message in err
