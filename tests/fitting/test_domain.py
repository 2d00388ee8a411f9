"""The domain of a fit: similarities across folds, errors of rows, and the rule in its files."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from molslice.chem.neighbors import describe
from molslice.fitting import domain as module
from molslice.fitting.domain import _errors, _similarities, describe_domain
from molslice.fitting.fit import fit
from molslice.inference.load import load_model
from molslice.tasks.target_types import TargetType
from tests.chem.test_neighbors import slow_similarity
from tests.inference.models import embedded_smiles

pytestmark = pytest.mark.usefixtures("few_trees")


def test_a_row_is_compared_with_the_rows_of_other_folds():
    counts = np.stack([describe(text).counts for text in embedded_smiles(9)])
    folds = np.array([[0, 1, 2, 0, 1, 2, 0, -1, 1], [0, 0, 0, 1, 1, 1, 2, -1, 2]])
    rows = np.array([6, 0, 4])
    expected = [
        np.mean(
            [
                max(
                    slow_similarity(counts[row], counts[k])
                    for k in range(9)
                    if fold[k] not in (-1, fold[row])
                )
                for fold in folds
            ]
        )
        for row in rows
    ]
    np.testing.assert_allclose(_similarities(counts, rows, folds), expected)


def test_errors_are_relative_to_their_target_and_covered_by_their_expected_error():
    """Two targets of ten rows: a number, and a class that three rows have."""
    errors = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 45])
    number = SimpleNamespace(rows=np.arange(10), unseen=np.zeros(10), expected=np.array([1.0] * 9 + [10.0]))
    classes = SimpleNamespace(rows=np.array([2, 3, 4]), unseen=np.array([0.9, 0.2, 0.5]), expected=None)
    targets = np.full((10, 2), np.nan)
    targets[:, 0], targets[2:5, 1] = errors, [1.0, 0.0, 1.0]
    data = SimpleNamespace(
        smiles=["C"] * 10,
        types=[TargetType("regression"), TargetType("classification")],
        logarithmic=(False, False),
        informative=lambda predicted, rows, index: targets[rows, index],
    )
    relative, covered = _errors(data, [number, classes])
    expected = errors / 9.0
    expected[2:5] = (expected[2:5] + np.array([0.1, 0.2, 0.5]) / (0.8 / 3)) / 2
    np.testing.assert_allclose(relative, expected)
    np.testing.assert_array_equal(covered, [1.0] * 10)  # the largest score of ten is the bound
    number.expected[8] = 0.1
    assert _errors(data, [number, classes])[1].tolist() == [1.0] * 10
    number.unseen, number.rows = np.zeros(8), np.arange(8)
    number.expected = np.ones(8)
    assert np.isnan(_errors(data, [number, classes])[1]).all()  # an interval needs nine rows


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("domain")
    draw, table = np.random.default_rng(0), folder / "table.csv"
    lines = [f"{text},{len(text) + draw.normal():.3f}" for text in embedded_smiles(100)]
    table.write_text("\n".join(["smiles,size", *lines]) + "\n")
    fit(table, "size", folder / "model", encoder=None, quality="fast", workers=0, quiet=True)
    return folder / "model"


def test_the_rule_is_in_the_files_of_the_fit(fitted):
    about = json.loads((fitted / "fit.json").read_text())["domain"]
    rule = load_model(fitted).find_domain().rule
    assert rule.to_mapping() == about
    assert sum(group.rows for group in rule.groups) == 100
    mean = np.average([group.error for group in rule.groups], weights=[group.rows for group in rule.groups])
    covered = np.average(
        [group.coverage for group in rule.groups], weights=[group.rows for group in rule.groups]
    )
    assert mean == pytest.approx(1.0)
    assert covered == pytest.approx(0.91)  # the 91st of 100 scores is the bound
    card = (fitted / "card.md").read_text()
    assert f"like the training molecules from a similarity of {rule.like:.2f} to the nearest one" in card
    assert f"| {rule.groups[0].low:.2f} to {rule.groups[0].high:.2f} | 15 |" in card


def test_an_older_folder_has_the_usual_similarities(fitted, tmp_path):
    header = json.loads((fitted / "domain.json").read_text())
    header.pop("rule")
    for name in ("domain.json", "domain.safetensors"):
        (tmp_path / name).write_bytes((fitted / name).read_bytes())
    (tmp_path / "domain.json").write_text(json.dumps(header))
    rule = module.TrainingDomain.read(tmp_path).rule
    assert (rule.edge, rule.like) == (round(header["threshold"], 2), max(round(header["threshold"], 2), 0.4))


def test_a_sample_of_many_rows_is_compared(fitted, monkeypatch):
    smiles = embedded_smiles(100)
    molecules = SimpleNamespace(canonical=smiles, counts=np.stack([describe(text).counts for text in smiles]))
    fits = SimpleNamespace(rows=np.arange(100), unseen=np.zeros(100), expected=None)
    data = SimpleNamespace(
        smiles=smiles,
        molecules=molecules,
        targets=np.ones((100, 1)),
        types=[TargetType("regression")],
        conditions=(),
        logarithmic=(False,),
        informative=lambda predicted, rows, index: np.ones(len(rows)),
    )
    monkeypatch.setattr(module, "MOST_COMPARED", 70)
    folds = np.arange(100)[None] % 5
    assert sum(one.rows for one in describe_domain(data, np.arange(100), [fits], folds).rule.groups) == 70
