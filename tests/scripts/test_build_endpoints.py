import csv
import importlib.util
import json
from pathlib import Path

import pytest

from molslice import load_model

ROOT = Path(__file__).resolve().parents[2]
RECIPES = """
[lipids]
summary = "length of a chain"
table = "chains.csv"
smiles = "structure"
data = "Chains (nobody 2026)"
source = "https://example.org/chains"
license = "CC0-1.0"
use = "Chains of carbon only."
[lipids.targets]
n = { name = "length", unit = "atoms", text = "number of carbon atoms" }
"""


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("build_endpoints", ROOT / "scripts" / "build_endpoints.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_model_is_measured_on_held_out_molecules_and_described(script, tmp_path):
    rings = ["C1CC1", "C1CCC1", "C1CCCC1", "c1ccccc1", "C1CCNCC1", "c1ccncc1"]
    rows = [("C" * length + ring, length) for length in range(1, 11) for ring in rings]
    with (tmp_path / "chains.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("structure", "n", "other"), *((*row, 0) for row in rows)])
    (tmp_path / "recipes.toml").write_text(RECIPES)
    arguments = ["--data", tmp_path, "--recipes", tmp_path / "recipes.toml", "--out", tmp_path / "models"]
    assert script.main([*map(str, arguments), "--only", "lipids"]) == 0
    folder = tmp_path / "models" / "lipids"
    assert not any(
        (folder / name).exists()
        for name in ("rows.csv", "table_rows.csv", "held_out.csv", "card.md", "encoder")
    )
    about = json.loads((folder / "about.json").read_text())
    (target,) = about["targets"]
    assert (target["name"], target["unit"], target["train_rows"]) == ("length", "atoms", len(rows))
    assert 0 < target["test_rows"] < len(rows) / 2
    assert 0.0 <= target["coverage"] <= 1.0
    card = (folder / "README.md").read_text()
    assert "license: CC0-1.0" in card
    assert "| length | 60 |" in card
    assert load_model(folder).predict(["CCCCCC1CC1"]) == pytest.approx([5], abs=1.5)


def test_an_unknown_model_is_refused(script, capsys, tmp_path):
    with pytest.raises(SystemExit):
        script.main(["--data", str(tmp_path), "--only", "logpp"])
    assert "unknown models: logpp; choices: logbb, solubility" in capsys.readouterr().err
