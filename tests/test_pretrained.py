import csv
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from molslice import load_model
from molslice.config import load_config
from molslice.data import build_dataset
from molslice.folders.run import read_run
from molslice.inference.evaluate import evaluate
from molslice.pretrained import find_pretrained, pretrained_names
from molslice.types import MolsliceError

DATA = Path(__file__).resolve().parents[1] / "data" / "gap_xtb" / "raw" / "data.csv.gz"
MOST_BYTES = 12_000_000


def test_the_model_of_the_embedded_data_ships():
    assert "gap-xtb" in pretrained_names()


@pytest.mark.parametrize("name", pretrained_names())
def test_a_shipped_model_is_small_complete_and_described(name):
    folder = find_pretrained(name)
    files = {"model.safetensors", "config.yaml", "README.md"}
    if folder.name == "gap-xtb":  # what intervals and the domain are computed from
        files |= {"calibration.json", "calibration.safetensors", "domain.json", "domain.safetensors"}
    assert {path.name for path in folder.iterdir()} == files
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST_BYTES
    card = (folder / "README.md").read_text().lower()
    for word in ("data", "mae", "baseline", "do not use"):
        assert word in card
    model = load_model(name)
    assert load_config(folder / "config.yaml") == model.config
    for option in ("root", "path"):
        assert not Path(str(model.config.data.options.get(option, ""))).is_absolute()


def test_its_predictions_are_gaps():
    model = load_model("gap-xtb")
    assert model.columns == ("homolumogap_eV",)
    with gzip.open(DATA, "rt") as file:
        rows = list(csv.DictReader(file))[::50]
    values = model.predict([row["smiles"] for row in rows])
    gaps = np.array([float(row["homolumogap"]) for row in rows])
    assert np.abs(values - gaps).mean() < 0.4 * np.abs(gaps - np.median(gaps)).mean()


def test_the_card_states_the_errors_and_baselines_that_are_measured():
    card = " ".join((find_pretrained("gap-xtb") / "README.md").read_text().split())
    dataset = build_dataset("pcqm4m", {"root": str(DATA.parents[1])})
    model = load_model("gap-xtb")
    stated = re.search(r"choice of the weights: (\S+) eV \(validation (\S+) eV", card).groups()
    for split, number in zip(("test", "valid"), stated, strict=True):
        measured = evaluate(model, dataset, split, progress=False)
        assert f"{measured['targets'][0]['mae']:.3f}" == number
        assert f"{measured['parameters']:,} parameters" in card
    assert float(stated[0]) <= 0.16
    results = json.loads((DATA.parents[3] / "benchmarks/results/baselines_gap_xtb.json").read_text())
    for baseline in results["baselines"].values():
        assert f"{baseline['test']['mae_mean']:.3f} eV" in card


def test_the_card_of_the_encoder_states_what_is_measured():
    card = (find_pretrained("encoder-small") / "README.md").read_text()
    run = read_run(find_pretrained("encoder-small"))
    assert f"{sum(part.numel() for part in run.model.parameters()):,} parameters" in card
    assert f"after {run.metadata['step']:,} steps" in card
    dataset = build_dataset("pcqm4m", {"root": str(DATA.parents[1])})
    model = load_model("encoder-small")
    rows = dataset.labeled_rows("test")
    found = model.predict_dataset(dataset, rows).values[:, model.target_names.index("gap")]
    error = np.abs(found - dataset.targets[rows, 0]).mean()
    assert f"gap in the test split of `data/gap_xtb` {error:.3f} eV" in card
    assert load_model("encoder-small").embed(["CCO"]).shape == (1, 384)


def test_a_name_that_does_not_ship():
    with pytest.raises(MolsliceError, match="no model 'gap-xbt' ships with molslice"):
        find_pretrained("gap-xbt")
