"""The program that compares the uncertainties of networks, and its table."""

import csv
import gzip

import numpy as np
import pytest
import torch

from molslice.ops.gaussian import gaussian_losses
from tests.inference.models import embedded_smiles
from tests.programs import load_program

LEVELS = [0.5, 0.8, 0.9, 0.95]


@pytest.fixture
def program(monkeypatch, tmp_path):
    found = load_program("network_uncertainty")
    generator = np.random.default_rng(0)
    with gzip.open(tmp_path / "small.csv.gz", "wt", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", "size"])
        writer.writerows([text, len(text) + generator.normal(0, 3)] for text in embedded_smiles(200))
    monkeypatch.setattr(found, "SETS", {"Small": ("small.csv.gz", "size", "bits", None)})
    monkeypatch.setattr(found, "MODEL", {**found.MODEL, "num_layers": 1, "dim": 8, "ffn_dim": 8})
    monkeypatch.setattr(found, "MEMBERS", 2)
    monkeypatch.setattr(found, "EPOCHS", {"Small": 1})
    return found


def test_every_method_is_trained_and_measured_on_the_same_rows(program, tmp_path, monkeypatch):
    betas, losses = [], program.weighted_losses

    def noted(beta, *args):
        betas.append(beta)
        return losses(beta, *args)

    monkeypatch.setattr(program, "weighted_losses", noted)
    division = program.Division(tmp_path, tmp_path / "models", "Small", 1, 1)
    assert [len(division.read(word)[0]) for word in ("train", "val", "test")] == [160, 20, 20]
    program.train_networks(division)
    assert len(list(program.measure_networks(division))) == 5
    program.train_members(division)
    found = list(program.measure_networks(division))
    assert len({row["method"] for row in found}) == len(found) == 6
    for row in found:
        assert (row["count"], row["calibration_rows"]) == (20, 20)
        assert [entry["level"] for entry in row["levels"]] == LEVELS
    ranks = {row["method"]: row["rank_correlation"] for row in found}
    assert [method for method, rank in ranks.items() if rank is None] == ["equal widths"]
    errors = {row["method"]: row["mae"] for row in found}
    assert errors["dropout passes"] == errors["equal widths"]
    assert errors["mean-variance, beta-NLL"] != errors["mean-variance"] != errors["equal widths"]
    assert betas == sorted(betas)
    assert set(betas) == {0.0, 0.5}


def test_the_weight_of_a_loss_has_no_gradient(program):
    mean, log_variance = torch.tensor([0.3, -1.0]), torch.tensor([0.8, -0.5], requires_grad=True)
    losses = program.weighted_losses(0.5, mean, log_variance, torch.zeros(2))
    plain = gaussian_losses(mean, log_variance, torch.zeros(2))
    weights = log_variance.detach().exp().sqrt()
    torch.testing.assert_close(losses, weights * plain)
    (found,) = torch.autograd.grad(losses.sum(), log_variance)
    (wanted,) = torch.autograd.grad((weights * plain).sum(), log_variance)
    torch.testing.assert_close(found, wanted)


def test_given_intervals_are_scored(program):
    truth, generator = np.zeros(400), np.random.default_rng(0)
    centers = generator.normal(size=400)
    by_level = [
        {"level": level, "lower": (centers - level).tolist(), "upper": (centers + level).tolist()}
        for level in program.ALL_LEVELS
    ]
    found = program.score_intervals(truth, by_level)
    for entry in found["levels"]:
        assert entry["coverage"] == (np.abs(centers) <= entry["level"]).mean()
        assert entry["width"] == pytest.approx(2 * entry["level"])
    assert 0 < found["miscalibration_area"] < 0.5


def test_the_table_pools_the_rows_of_all_seeds(monkeypatch):
    tables = load_program("uncertainty_tables")

    def run(seed, coverage, rank):
        levels = [{"level": level, "count": 100, "coverage": coverage, "width": 2.0} for level in LEVELS]
        return {
            **{"set": "ESOL", "method": "dropout passes", "seed": seed, "mae": 0.5, "levels": levels},
            **{"miscalibration_area": 0.02, "rank_correlation": rank},
        }

    monkeypatch.setattr(tables, "load", lambda _: {"results": [run(0, 0.8, 0.2), run(1, 1.0, 0.4)]})
    (line,) = tables.network_table().splitlines()[2:]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:3] == ["ESOL, dropout passes", "2", "0.500"]
    assert cells[5] == "90.0 ± 2.1"
    assert cells[-2:] == ["0.020", "0.30"]
