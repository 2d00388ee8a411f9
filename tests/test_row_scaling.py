"""The programs that measure and draw the error against the number of training rows, with few molecules."""

import csv
import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from molslice.attention import ATTENTIONS
from molslice.model import MODELS
from molslice.model.base import AttentionChoice
from molslice.testing import CHECKS, subjects_of
from molslice.types import AttentionSpec, DataSpec, TokenContext
from tests.programs import load_program

SPEC = AttentionSpec(8, 2, num_layers=2, pair_bias_mode="logits")


@pytest.fixture
def program(monkeypatch):
    program = load_program("row_scaling")
    sizes = {"model.num_layers": "1", "model.num_heads": "2"}
    monkeypatch.setattr(program, "PLAIN", {**program.PLAIN, **sizes})
    monkeypatch.setattr(program, "STEPS", {20: 4, 40: 4, 60: 4})
    monkeypatch.setattr(program, "VALID_ROWS", 16)
    monkeypatch.setattr(program, "VALIDATIONS", 2)
    monkeypatch.setattr(program, "SOURCE", program.ROOT / "data" / "gap_xtb")
    monkeypatch.setattr(program, "run_all", lambda run, calls, jobs: ((call, run(*call)) for call in calls))
    yield program
    for name in ("gps", "drop_path"):
        MODELS.remove(name)
    ATTENTIONS.remove("score_state")


@pytest.fixture
def score_state():
    ATTENTIONS.add("score_state", load_program("score_state").ScoreState)
    yield
    ATTENTIONS.remove("score_state")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_attention_that_hands_on_its_scores_keeps_the_contract(score_state, check):
    # the softmax cancels the bias of the keys, and the mixture of the heads acts on the next layer
    for subject in subjects_of("score_state", canceled={"key.bias", "head_mix"}):
        check(subject)


def test_scores_are_added_to_the_pair_bias_of_the_next_layer(score_state):
    layers = [ATTENTIONS.build("score_state", replace(SPEC, layer=layer), options={}) for layer in (0, 1)]
    layers = [layer.double().eval() for layer in layers]
    mixture = torch.randn(SPEC.num_heads, SPEC.num_heads, dtype=torch.float64)
    layers[0].head_mix.data = mixture
    tokens, mask = torch.randn(2, 5, SPEC.dim, dtype=torch.float64), torch.ones(2, 5, dtype=torch.bool)
    bias = torch.randn(2, SPEC.num_heads, 5, 5, dtype=torch.float64)
    output = layers[0](tokens, TokenContext(mask, bias))
    query, key = (layers[0].split_heads(f(tokens)) for f in (layers[0].query, layers[0].key))
    scores = query @ key.transpose(2, 3) / SPEC.head_dim**0.5 + bias
    mixed = sum(mixture[:, head, None, None] * scores[:, None, head] for head in range(SPEC.num_heads))
    torch.testing.assert_close(output.carry, bias + mixed)
    second = layers[1](output.tokens, TokenContext(mask, bias, carry=output.carry))
    assert second.carry is None
    second.tokens.sum().backward()
    assert layers[0].head_mix.grad.abs().min() > 0


def test_the_layers_of_drop_path_have_growing_rates(program):
    spec = program.DropPathSpec(num_layers=3, dim=8, ffn_dim=8, num_heads=2, drop_path=0.2)
    model = spec.build(AttentionChoice("softmax"), DataSpec(1))
    assert [layer.drop_path for layer in model.encoder.layers] == pytest.approx([0.0, 0.1, 0.2])


def test_samples_are_nested_and_runs_are_not_repeated(program, tmp_path, monkeypatch):
    runs, out = tmp_path / "runs", tmp_path / "results"
    words = ["--runs", str(runs), "--out", str(out), "--dims", "16", "--rows", "20", "60"]
    words += [
        "--entries",
        "softmax;slice_sort, pair state;GPS;softmax, drop path;softmax, scores and messages",
    ]
    program.main(words)
    samples = [set((runs / "rows" / f"{rows}.csv").read_text().splitlines()) for rows in program.STEPS]
    assert samples[0] < samples[1] < samples[2]
    assert [len(sample) for sample in samples] == [21, 41, 61]
    assert not samples[2] & {*(runs / "rows" / "test.csv").read_text().splitlines()[1:]}
    monkeypatch.setattr(program, "train", None)  # nothing is trained again
    for file in runs.glob("*.json"):
        file.unlink()
    program.main(words)
    result = json.loads((out / "row_scaling.json").read_text())
    assert [(entry["label"], entry["rows"], entry["seeds"]) for entry in result["entries"]] == [
        ("softmax", 20, 1),
        ("softmax", 60, 1),
        ("slice_sort, pair state", 20, 1),
        ("slice_sort, pair state", 60, 1),
        ("softmax, scores and messages", 20, 1),
        ("softmax, scores and messages", 60, 1),
        ("softmax, drop path", 20, 1),
        ("softmax, drop path", 60, 1),
        ("GPS", 20, 1),
        ("GPS", 60, 1),
    ]
    assert all(run["test_mae"] > 0 for run in result["runs"])


def test_samples_of_qm9_are_nested_and_its_test_rows_are_their_own(program, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "QM9_STEPS", {20: 4, 40: 4})
    with gzip.open(program.SOURCE / "raw" / "data.csv.gz", "rt", newline="") as file:
        rows = [(row["smiles"], row["homolumogap"]) for row in csv.DictReader(file)][:80]
    for name, chosen in (("train", rows[:60]), ("valid", rows[60:])):
        lines = ["gap_ev,id,smiles", *(f"{gap},{row},{smiles}" for row, (smiles, gap) in enumerate(chosen))]
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    runs = tmp_path / "runs"
    words = ["--runs", str(runs), "--out", str(tmp_path), "--qm9", str(tmp_path), "--entries", "softmax"]
    program.main([*words, "--dims", "16", "--rows", "40"])
    names = ("20", "40", "valid", "test")
    small, large, valid, test = (
        {tuple(row.split(",")) for row in (runs / "rows" / f"{name}.csv").read_text().splitlines()[1:]}
        for name in names
    )
    assert small < large
    assert (len(small), len(large), len(valid)) == (20, 40, 16)
    assert test == {*rows[60:]}
    assert not large & (valid | test)
    result = json.loads((tmp_path / "row_scaling_qm9.json").read_text())
    assert "QM9" in result["question"]
    assert [(run["rows"], run["steps"], run["test_mae"] > 0) for run in result["runs"]] == [(40, 4, True)]
    with pytest.raises(SystemExit):
        program.main([*words, "--rows", "30"])


def test_rate_and_steps_are_chosen_by_the_validation_error(program):
    run = {"label": "softmax", "dim": 64, "rows": 20, "steps": 4, "rate": "1e-3", "test_mae": 0.1}
    runs = [
        {**run, "seed": 0, "valid_mae": 0.4},
        {**run, "seed": 1, "valid_mae": 0.2},
        {**run, "seed": 0, "rate": "3e-3", "valid_mae": 0.35},
        {**run, "seed": 0, "steps": 8, "valid_mae": 0.32},
        {**run, "seed": 0, "rows": 40, "valid_mae": 0.9},
    ]
    assert program.choose_settings(runs) == [*runs[:2], runs[4]]
    assert program.choose_rates(runs) == [*runs[:2], runs[3], runs[4]]


def test_chemprop_has_whole_epochs_of_about_the_same_steps(program, tmp_path, monkeypatch):
    given = []

    def run_chemprop(python, files, target, options, folder):
        given.append((python, options))
        folder.mkdir()
        return {**options, "best_epoch": 3, **dict.fromkeys(("chemprop", "valid_mae", "test_mae"), 0.5)} | {
            "parameters": 100,
            "seconds": 1.0,
        }

    monkeypatch.setattr(program, "run_chemprop", run_chemprop)
    monkeypatch.setattr(program, "BATCH", 16)
    words = ["--entries", "chemprop", "--rows", "40", "--longer", "3", "--chemprop-python", "other"]
    program.main([*words, "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "results")])
    assert given == [("other", {"epochs": 4, "rate": "2e-3", "seed": 0, "width": 300})]
    (run,) = json.loads((tmp_path / "results" / "row_scaling.json").read_text())["runs"]
    assert (run["dim"], run["steps"], run["best_step"]) == (300, 12, 9)


def test_unknown_entries_and_missing_runs_are_errors(program, tmp_path, capsys):
    with pytest.raises(SystemExit):
        program.main(["--entries", "sofmax"])
    assert "unknown entry 'sofmax'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no finished run"):
        program.main(["--collect", "--runs", str(tmp_path), "--out", str(tmp_path)])


def test_the_line_equals_the_normal_equations():
    law = load_program("penalty_law").PenaltyLaw
    rows, values = [1e3, 1e3, 1e4, 1e5, 1e5], [0.3, 0.25, 0.2, 0.12, 0.1]
    fitted = law(rows, values)
    design, y = np.stack([np.ones(5), np.log(rows)], 1), np.log1p(values)
    inverse = np.linalg.inv(design.T @ design)
    line = inverse @ design.T @ y
    variance = ((y - design @ line) ** 2).sum() / 3
    assert fitted.slope == pytest.approx(line[1])
    for place in (1.0, 2e3, 3e6):
        at = np.array([1.0, np.log(place)])
        width = stats.t.ppf(0.975, 3) * np.sqrt(variance * at @ inverse @ at)
        middle, low, high = fitted.interval(place)
        assert middle == pytest.approx(np.expm1(at @ line))
        assert low == pytest.approx(np.expm1(at @ line - width))
        assert high == pytest.approx(np.expm1(at @ line + width))
    for points in ([1e3, 1e4], [1e3] * 3):
        with pytest.raises(ValueError, match="three points"):
            law(points, [0.1] * len(points))


@pytest.mark.parametrize("dims", [(64,), (64, 128)])
def test_the_figure_has_the_entries_of_a_result(dims):
    program = load_program("row_scaling_figure")
    runs = [
        {
            "label": label,
            "rows": rows,
            "dim": dim,
            "seed": 0,
            "rate": "3e-3",
            "steps": 4,
            "valid_mae": 0.1,
            "test_mae": error + 100 / rows,
        }
        for dim in dims
        for label, error in (("softmax", 0.1), ("slice_sort", 0.12))
        for rows in (1_000, 3_000, 10_000)
    ]
    entries = [
        {
            **run,
            "chosen": True,
            "parameters": 1000 * len(run["label"]),
            "test_mae": {"mean": run["test_mae"], "sd": None},
        }
        for run in runs
    ]
    assert program.draw({"runs": runs, "entries": entries}, "png").startswith(b"\x89PNG")


def test_penalties_compare_equal_seeds_and_steps():
    errors = {("softmax", 10): 1.0, ("softmax", 20): 2.0, ("softmax", 40): 4.0}
    errors |= {("slice_sort", 10): 1.5, ("slice_sort", 20): 3.0, ("slice_sort", 40): 6.0}
    runs = [
        {"label": label, "rows": rows, "dim": 64, "steps": 4, "seed": 0, "test_mae": error}
        for (label, rows), error in errors.items()
    ]
    runs.append({**runs[-1], "seed": 1})  # softmax has no such seed
    runs.append({**runs[-1], "seed": 0, "steps": 16})  # nor these steps
    runs += [{**run, "steps": 2, "test_mae": 9.0} for run in runs[:6]]  # both have more steps
    (fitted,) = load_program("penalty_law").fit_penalties(runs)
    assert (fitted["label"], fitted["reference"]) == ("slice_sort", "softmax")
    assert fitted["points"] == [{"rows": rows, "penalty": 0.5} for rows in (10, 20, 40)]
    assert fitted["slope"] == pytest.approx(0, abs=1e-9)
    assert fitted["extrapolated"] == pytest.approx(dict.fromkeys(("penalty", "low", "high"), 0.5))
