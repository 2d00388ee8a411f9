import json

import numpy as np
import pytest

from molslice.data import build_dataset
from molslice.inference.domain import DOMAIN, TrainingDomain
from molslice.inference.held_out import choose_rule, write_calibration
from molslice.inference.load import load_model
from molslice.uncertainty.calibration import Calibration, HeldOut
from molslice.uncertainty.similarity_rule import EDGE, LIKE, OUTSIDE, SimilarityRule
from tests.inference.models import checkpoint_folder, embedded_smiles

ALCOHOLS = [f"{'C' * length}O" for length in range(1, 41)]
FAR = [f"Fc1ccc(cc1)S(=O)(=O)N{'C' * length}Br" for length in range(1, 41)]


def held_out(kind, errors):
    """Return held-out rows without the rows that have no value."""
    zero = np.where(np.isfinite(errors), 0.0, np.nan)
    return HeldOut.of_rows("a", kind, zero, np.abs(errors), np.zeros(len(errors), np.int64))


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_molecules_with_much_larger_validation_errors_are_outside(kind):
    domain = TrainingDomain.of_smiles(ALCOHOLS)
    smiles = [*ALCOHOLS, *FAR]
    errors = np.where(np.arange(80) < 40, 0.01, 0.4)
    errors[[3, 50]] = np.nan  # rows without a value
    truth = np.where(np.isfinite(errors), 0.0, np.nan)[:, None]
    calibration = Calibration(kind, 1, "valid rows", (held_out(kind, errors),))
    rule = choose_rule(domain, calibration, smiles, truth, np.arange(80), "keep")
    nearest = [one.nearest_similarity for one in domain.compare(FAR, [None] * 40) if one is not None]
    places = [rule.place(similarity) for similarity in nearest]
    assert set(places[:30]) == {OUTSIDE, EDGE}  # long chains are in one group with the alcohols
    assert rule.place(1.0) == LIKE
    assert sum(group.rows for group in rule.groups) == 78
    assert (rule.groups[0].coverage is None) == (kind == "classification")
    assert rule.groups[0].error > 1.5 > rule.groups[-1].error


def test_predictions_that_do_not_fit_the_rows_are_left_out():
    domain = TrainingDomain.of_smiles(ALCOHOLS)
    errors = np.where(np.arange(80) < 40, 0.01, 1.0)
    calibration = Calibration("regression", 1, "valid rows", (held_out("regression", errors),))
    rule = choose_rule(domain, calibration, [*ALCOHOLS, *FAR], np.ones((80, 1)), np.arange(80), "keep")
    assert rule == SimilarityRule.usual(domain.threshold)


def test_a_run_has_a_rule_by_its_validation_rows(tmp_path):
    folder = checkpoint_folder(tmp_path / "run")
    parts = ["train", "valid", "valid"]
    rows = "".join(
        f"{text},{len(text) / 10},{parts[row % 3]}\n" for row, text in enumerate(embedded_smiles(120))
    )
    (tmp_path / "table.csv").write_text("smiles,gap,part\n" + rows)
    dataset = build_dataset(
        "csv",
        {
            "path": str(tmp_path / "table.csv"),
            "target_columns": ("gap",),
            "split": {"kind": "column", "column": "part"},
        },
    )
    write_calibration(folder, dataset)
    domain = load_model(folder).find_domain()
    assert sum(group.rows for group in domain.rule.groups) == 80
    assert json.loads((folder / DOMAIN).read_text())["rule"] == domain.rule.to_mapping()
    assert all(group.coverage is not None for group in domain.rule.groups)
