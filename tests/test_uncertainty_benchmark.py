"""The program that measures intervals, and its tables."""

import csv

import numpy as np
import pytest

from molslice.inference.load import load_model
from tests.inference.models import embedded_smiles
from tests.programs import load_program


@pytest.fixture
def program(few_trees, monkeypatch, tmp_path):
    found = load_program("uncertainty")
    generator, file = np.random.default_rng(0), tmp_path / "small.csv"
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", "size"])
        writer.writerows([text, len(text) + generator.normal(0, 3)] for text in embedded_smiles(120))
    monkeypatch.setattr("molslice.fitting.learner_fits.BASELINES", {})
    monkeypatch.setattr(found, "SETS", {"Small": ("small.csv", "size", "bits", None)})
    return found


def test_a_model_is_fitted_and_measured_on_its_held_out_rows(program, tmp_path):
    program.fit_set(tmp_path, tmp_path / "models", "Small", "random", 1)
    folder = program.model_folder(tmp_path / "models", "Small", "random", 1)
    about = load_model(folder).model.about
    assert about["options"]["split"] == "random"
    assert about["options"]["seed"] == 1
    found = program.measure_fit(folder)
    assert (found["count"], found["calibration_rows"]) == (12, 108)
    assert [entry["level"] for entry in found["levels"]] == [0.5, 0.8, 0.9, 0.95]


def run(name, seed, count, coverage):
    levels = [
        {"level": level, "count": count, "coverage": coverage, "standard_error": 0.0, "width": 2.0}
        for level in (0.5, 0.8, 0.9, 0.95)
    ]
    group = {"by": "scaffold", "group": "new scaffold", "count": 10, "coverage": coverage}
    return {
        **({"set": name, "division": "random", "seed": seed} if seed is not None else {"set": name}),
        "count": count,
        "error": 0.5,
        "levels": levels,
        "groups": [group],
        "miscalibration_area": 0.02,
        "rank_correlation": {"spread": 0.4, "width": 0.3},
    }


def test_the_tables_pool_the_rows_of_all_seeds(monkeypatch):
    tables = load_program("uncertainty_tables")
    result = {
        "fits": [run("ESOL", 0, 100, 0.8), run("ESOL", 1, 300, 1.0)],
        "gap_xtb": [run("gap_xtb", None, 50, 0.9)],
    }
    monkeypatch.setattr(tables, "load", lambda name: result)
    first = tables.coverage_table().splitlines()[2]
    assert "| `fit`, ESOL, random | 2 | 400 | 0.5 | 95.0 ± 2.5 |" in first
    assert "`gap-xtb`, `data/gap_xtb` |  | 50 |" in tables.coverage_table()
    ranking = tables.ranking_table().splitlines()[2]
    assert "| 0.020 | 0.40 | 0.30 | - | 90.0 ± 6.7 (20) | - |" in ranking


def class_run(seed, counts, coverages):
    levels = [
        {
            "level": level,
            "count": sum(counts),
            **{f"coverage_class_{label}": share for label, share in enumerate(coverages)},
            "set_size": 1.25,
            "empty_sets": 0.1,
            "double_sets": 0.35,
        }
        for level in (0.5, 0.8, 0.9, 0.95)
    ]
    scores = {"predicted": 0.2, "calibrated": 0.1}
    return {
        **{"set": "BBBP", "division": "random", "seed": seed, "count": sum(counts), "class_counts": counts},
        **{"levels": levels, "calibration_error": scores, "brier_score": scores},
    }


def test_the_classes_have_their_own_rows(monkeypatch):
    tables = load_program("uncertainty_tables")
    runs = [class_run(0, [10, 90], [0.8, 1.0]), class_run(1, [30, 70], [1.0, 1.0])]
    monkeypatch.setattr(tables, "load", lambda name: {"fits": runs, "gap_xtb": []})
    lines = tables.class_sets_table().splitlines()
    assert len(lines) == 2 + 3
    assert "| 2 | 90% | 95.0 ± 4.7 (40) | 100.0 ± 2.4 (160) | 1.25 | 10% | 35% |" in lines[3]
    assert "| 2 | 0.200 | 0.100 | 0.200 | 0.100 |" in tables.probabilities_table().splitlines()[2]
    assert len(tables.coverage_table().splitlines()) == 2  # no rows of numbers


def test_chemprop_is_compared_on_the_same_seeds(monkeypatch):
    tables = load_program("uncertainty_tables")
    ours = [run("ESOL", 0, 100, 0.8), run("ESOL", 1, 100, 1.0)]
    theirs = [{**run("esol", 1, 100, 0.9), "method": "zscaling"}]
    results = {"uncertainty": {"fits": ours}, "chemprop_uncertainty": {"runs": theirs}}
    monkeypatch.setattr(tables, "load", results.__getitem__)
    own, other = tables.chemprop_table().splitlines()[2:]
    assert "| ESOL, random | `molslice fit` | 1 | 0.5 | 100.0 ± 5.0 |" in own
    assert "| ESOL, random | chemprop, zscaling | 1 | 0.5 | 90.0 ± 5.0 |" in other


def test_the_validation_rows_of_chemprop_are_training_rows(tmp_path):
    program = load_program("chemprop_uncertainty")
    smiles = (
        ["c1ccccc1" + "C" * k for k in range(9)] + ["C1CCCC1" + "C" * k for k in range(9)] + ["CCO", "CN"]
    )
    lines = [f"{text},{'test' if k % 4 == 0 else 'train'},0,{k}.5,1" for k, text in enumerate(smiles)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(["smiles,split,fold,y,y_predicted", *lines]))
    for by_scaffold in (False, True):
        rows = program.divide(file, by_scaffold, seed=0)
        assert [(text, value) for text, _, value in rows] == [(t, k + 0.5) for k, t in enumerate(smiles)]
        parts = [part for _, part, _ in rows]
        assert [part == "test" for part in parts] == [k % 4 == 0 for k in range(20)]
        assert parts.count("val") == 1  # a ninth of 15
    assert parts.index("val") >= 18  # only a molecule without rings is alone with its scaffold
