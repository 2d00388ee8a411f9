"""The list of checks and measurements on a GPU goes on after failures and repeats nothing."""

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ogb.utils import smiles2graph

from molslice.chem.featurize import molecule_arrays
from molslice.data.molecules.store import MoleculeStore
from tests.data.molecules.corpora import make_corpus
from tests.programs import load_program
from tests.real_data import embedded_smiles
from tests.serve.running import wait_until

ANSWER = "import json, sys\nfor line in sys.stdin:\n    name = line.strip()\n"


@pytest.fixture
def program(monkeypatch):
    program = load_program("gpu_list")
    steps = [program.Step(name, 30, dict) for name in ("a", "b", "c", "d")]
    monkeypatch.setattr(program, "list_steps", lambda options: steps)
    monkeypatch.setattr(program, "SHORTEST", 0.1)
    return program


@pytest.fixture
def run(program, monkeypatch, tmp_path):
    """Run the list with a program in place of the worker."""

    def run(code, minutes=1.0, earlier=None):
        (tmp_path / "worker.py").write_text(ANSWER + code)
        monkeypatch.setattr(program, "__file__", str(tmp_path / "worker.py"))
        monkeypatch.setattr(sys, "argv", ["gpu_list.py"])
        options = argparse.Namespace(
            minutes=minutes,
            out=tmp_path / "out",
            earlier=earlier,
            device="cpu",
            store=tmp_path,
            only="",
            pcqm4m=None,
            smiles=None,
            corpus=None,
            fit=[],
        )
        program.run_list(options)
        return json.loads((tmp_path / "out" / "gpu_list.json").read_text())["steps"]

    return run


def test_a_failed_step_is_recorded_and_the_next_ones_run(run):
    steps = run(
        "    outcome = 'failed' if name == 'b' else 'ok'\n"
        "    print(json.dumps({'outcome': outcome, 'reason': 'so', 'value': name}), flush=True)\n"
    )
    assert {name: one["outcome"] for name, one in steps.items()} == {
        "a": "ok",
        "b": "failed",
        "c": "ok",
        "d": "ok",
    }


def test_a_step_that_ends_the_program_is_recorded(run):
    steps = run("    if name == 'c': sys.exit(3)\n    print(json.dumps({'outcome': 'ok'}), flush=True)\n")
    assert steps["c"]["outcome"] == "failed"
    assert "no result" in steps["c"]["reason"]
    assert steps["d"]["outcome"] == "ok"


def test_only_failed_steps_are_repeated(run):
    run("    print(json.dumps({'outcome': 'failed' if name == 'b' else 'ok', 'run': 1}), flush=True)\n")
    steps = run("    print(json.dumps({'outcome': 'ok', 'run': 2}), flush=True)\n")
    assert {name: one["run"] for name, one in steps.items()} == {"a": 1, "b": 2, "c": 1, "d": 1}


def test_steps_of_another_commit_are_repeated_and_kept_until_then(program, run, monkeypatch):
    run("    print(json.dumps({'outcome': 'ok', 'run': 1}), flush=True)\n")
    monkeypatch.setattr(program, "find_commit", lambda: "another")
    steps = run(
        "    print(json.dumps({'outcome': 'failed' if name == 'b' else 'ok', 'run': 2}), flush=True)\n"
    )
    assert {name: one["run"] for name, one in steps.items()} == dict.fromkeys("abcd", 2)
    assert {one["commit"] for one in steps.values()} == {"another"}
    steps = run("    if name == 'b': sys.exit(3)\n", minutes=0.2)
    assert {name: one.get("run") for name, one in steps.items()} == {"a": 2, "b": None, "c": 2, "d": 2}


def test_a_step_stops_at_the_end_of_the_list(run):
    steps = run("    import time; time.sleep(20)\n", minutes=0.03)
    assert {name: one["outcome"] for name, one in steps.items()} == {"a": "failed"}


def test_the_list_has_each_step_once():
    program = load_program("gpu_list")
    sizes = {"model": "base", "second_model": "small", "small": False}
    inputs = {"store": "a", "pcqm4m": "b", "smiles": Path("c.csv"), "corpus": Path("e")}
    options = argparse.Namespace(**sizes, **inputs, device="cuda", fit=[("d/esol.csv.gz", "logS")])
    names = [step.name for step in program.list_steps(options)]
    assert len(names) == len(set(names)) > 20
    assert names[0] == "check losses softmax"
    assert {"base graphormer", "check resume", "bench data", "pretraining wide"} <= set(names)
    assert {"predict", "embed", "serve", "fit esol", "fit esol best"} <= set(names)
    options.pcqm4m = None
    assert not any(step.name.startswith("pcqm4m") for step in program.list_steps(options))


def test_graphs_of_a_store_equal_those_of_ogb(program):
    smiles = ["CC(C)CC(=O)NCC#N", "[Na+].CC(=O)[O-]", "C"]
    store = MoleculeStore.in_memory([molecule_arrays(text, atom_order="input") for text in smiles])
    for row, text in enumerate(smiles):
        graph, expected = program.ogb_graph(store, row), smiles2graph(text)
        assert graph.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(graph[name], values)


def test_a_table_to_fit_has_a_target(program):
    assert program.table_and_target("a:b/c.csv:y") == ("a:b/c.csv", "y")
    for text in ("a.csv", "a.csv:", ":y"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected FILE:TARGET"):
            program.table_and_target(text)


def test_kinds_of_steps_that_are_not_listed_are_named(program, monkeypatch):
    options = argparse.Namespace(pcqm4m=None, corpus=None, smiles=Path("a.csv"), fit=[])
    assert program.list_missing(options) == [
        "rates with the lengths of PCQM4M (no --pcqm4m)",
        "pretraining (no --corpus)",
        "fit (no --fit)",
    ]
    monkeypatch.setattr(program, "find_spec", lambda name: None)
    assert "commands (RDKit is not installed)" in program.list_missing(options)
    assert program.list_commands(options) == []


def test_commands_end_with_a_step_that_is_stopped(run, tmp_path):
    run(
        "    import subprocess, pathlib\n"
        "    child = subprocess.Popen(['sleep', '60'])\n"
        f"    pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
        "    child.wait()\n",
        minutes=0.05,
    )
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_running(pid))


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_numbers_that_are_not_finite_are_named(program):
    compared = program.differences_of([1.0, float("nan"), 1.0], [1.0, 1.0, 1.5])
    assert program.finite(compared) == {
        "largest": "nan",
        "first_step_that_differs": 1,
        "first_20": [0.0, "nan", 0.5],
    }


def test_a_command_that_fails_is_a_failed_step():
    with pytest.raises(RuntimeError, match=r"(?s)predict gap-xtb ended with 1: .*missing\.csv"):
        load_program("gpu_commands").run_command(
            "predict", "gap-xtb", "--input", "missing.csv", "--output", "out.csv"
        )


@pytest.fixture
def store(tmp_path):
    """Write a store of 60 molecules with a target, and a table of them."""
    smiles = embedded_smiles()[::200][:60]
    molecules = [molecule_arrays(text) for text in smiles]
    targets = np.arange(60, dtype=np.float32)[:, None] % 7
    part = MoleculeStore.in_memory(molecules, targets)
    MoleculeStore.write(tmp_path / "store", [part], source="test", target_names=["y"], target_units=[""])
    table = pd.DataFrame({"name": range(60), "smiles": smiles, "y": targets[:, 0]})
    table.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "store"


def test_a_continued_training_ends_with_the_same_weights(program, store):
    result = program.check_resume(argparse.Namespace(store=store, small=True, device="cpu"))
    for precision in ("32", "bf16-weights"):
        assert result[precision] == {"largest difference again": 0.0, "largest difference continued": 0.0}


def test_the_rate_of_a_pretraining_is_measured(program, tmp_path):
    corpus = make_corpus(tmp_path / "corpus", rows=1_000)
    options = argparse.Namespace(corpus=corpus, small=True, device="cpu")
    assert program.measure_pretraining("small", options)["rows_per_second"] > 0


@pytest.mark.slow
def test_the_rewrite_of_graphormer_and_commands_are_timed(program, store, tmp_path):
    options = argparse.Namespace(store=store, pcqm4m=None, small=True, device="cpu")
    assert program.measure_graphormer("slim", options)["molecules_per_second"] > 0
    commands = load_program("gpu_commands")
    for name in ("predict", "embed"):
        result = getattr(commands, f"measure_{name}")(tmp_path / "table.csv", "cpu", small=True)
        assert result["rows"] == 60
        assert result["largest_difference"] == 0.0
    result = commands.measure_serving(tmp_path / "table.csv", "cpu", small=True)
    assert result["largest_difference"] == 0.0
    assert len(result["cpu, 20 molecules, first and fastest ms"]) == 2
    result = commands.measure_loading(store, "cpu", small=True)
    stages = [row["stage"] for row in result["result"]["rows"]]
    assert stages[-1] == "batches of 64, fixed shapes on cpu"
    options = argparse.Namespace(
        device="cpu", small=True, smiles=tmp_path / "smiles.csv", fit=[(str(tmp_path / "table.csv"), "y")]
    )
    pd.read_csv(tmp_path / "table.csv").drop(columns="y").to_csv(options.smiles, index=False)
    steps = {step.name: step for step in program.list_commands(options)}
    assert steps["fit table best"].run()["quality"] == "fast"
    (tmp_path / "table.csv").unlink()
    assert steps["embed"].run()["rows"] == 60  # of its own table
