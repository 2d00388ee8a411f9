"""Tests of the command `molslice bench`."""

import json
import re

import pytest

from molslice.bench import run as module
from molslice.cli import main
from tests.bench.jobs import answer

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
    monkeypatch.setattr(module, "run_job", lambda job, timeout: asked.append(job) or answer())
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

    def run_job(job, timeout):
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
    def run_job(job, timeout):
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
