"""The program that measures what a temperature is worth in `molslice fit`."""

import json
from pathlib import Path

import pytest

from tests.programs import load_program
from tests.real_data import embedded_smiles

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.usefixtures("few_trees")


def test_both_models_are_measured_on_the_same_new_molecules(tmp_path):
    rows = "".join(f"{smiles},{len(smiles) / 10}\n" for smiles in embedded_smiles()[3::50][:60])
    (tmp_path / "lengths.csv").write_text(f"smiles,length\n{rows}")
    program = load_program("fit_conditions")
    program.main([f"{tmp_path / 'lengths.csv'}:length", "--molecules", "50", "--out", str(tmp_path)])
    without, measured = json.loads((tmp_path / "fit_conditions.json").read_text())["rows"]
    assert (without["conditions"], measured["conditions"]) == ([], ["temperature"])
    assert measured["mae_of_differences"] < 0.5 * without["mae_of_differences"]


def test_the_guide_has_the_measured_numbers():
    rows = json.loads((ROOT / "benchmarks/results/fit_conditions.json").read_text())["rows"]
    guide = (ROOT / "docs/guides/conditions.md").read_text()
    for name in ("mae", "mae_of_differences"):
        for row in rows:
            assert f"{row[name]:.3f}" in guide
