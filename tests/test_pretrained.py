import csv
import gzip
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from molslice import fit, load_model
from molslice.cli import main
from molslice.config import load_config
from molslice.data import build_dataset
from molslice.folders.run import read_run
from molslice.inference.evaluate import evaluate
from molslice.pretrained import find_pretrained, pretrained_names, shipped_models
from molslice.tasks.metrics import METRIC_LABELS
from molslice.types import MolsliceError
from molslice.uncertainty.rounding import rounded_error

DATA = Path(__file__).resolve().parents[1] / "data" / "gap_xtb" / "raw" / "data.csv.gz"
MOST_BYTES = 15_000_000
FITS = [name for name in pretrained_names() if (find_pretrained(name) / "fit.json").is_file()]


def test_the_model_of_the_embedded_data_ships():
    assert "gap-xtb" in pretrained_names()


@pytest.mark.parametrize("name", pretrained_names())
def test_a_shipped_model_is_small_complete_and_described(name):
    folder = find_pretrained(name)
    about = next(model for model in shipped_models() if model.name == name)
    is_fit = (folder / "fit.json").is_file()
    files = {"README.md", "about.json"}
    files |= {"fit.json", "learners.safetensors"} if is_fit else {"model.safetensors", "config.yaml"}
    if about.targets:  # what intervals and the domain are computed from
        files |= {"calibration.json", "calibration.safetensors", "domain.json", "domain.safetensors"}
    assert {path.name for path in folder.iterdir()} == files
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST_BYTES
    card = (folder / "README.md").read_text()
    for word in ("data", "baseline", "do not use"):
        assert word in card.lower()
    model = load_model(name)
    for target in about.targets:
        assert METRIC_LABELS[target.metric] in card
        assert 0.8 < target.coverage <= 1.0
        assert target.standard_error > 0.0
    if is_fit:
        return
    assert load_config(folder / "config.yaml") == model.config
    for option in ("root", "path"):
        assert not Path(str(model.config.data.options.get(option, ""))).is_absolute()


@pytest.mark.parametrize("name", FITS)
def test_a_shipped_fit_states_its_errors_and_predicts_with_the_shipped_encoder(name):
    model, (about,) = load_model(name), [model for model in shipped_models() if model.name == name]
    card = (find_pretrained(name) / "README.md").read_text()
    assert about.license in card
    assert about.source in card
    assert [target.name for target in about.targets] == list(model.target_names)
    for target in about.targets:
        error = rounded_error(target.error, target.standard_error)
        assert f"| {target.name} | {target.train_rows:,} | {target.test_rows:,} | {error} |" in card
        assert f"{target.coverage:.0%} |" in card
    predicted = model.predict_with_errors(["CCO", "c1ccccc1O"], interval=0.9, domain=True)
    assert predicted.errors == [None, None]
    rule = model.find_domain().rule
    assert sum(group.rows for group in rule.groups) == min(2_000, about.targets[0].train_rows)
    assert model.model.about["domain"] == rule.to_mapping()
    weights = load_model("encoder-small").model.state_dict()
    for key, tensor in model.encoder.model.state_dict().items():
        torch.testing.assert_close(tensor, weights[key].half().float(), rtol=0, atol=0)


def test_a_fit_has_the_predictions_of_its_copy_of_the_shipped_encoder(tmp_path):
    file = tmp_path / "table.csv"
    smiles = ["C" * length + end for length in range(1, 13) for end in ("", "O", "N")]
    file.write_text("smiles,y\n" + "".join(f"{one},{len(one)}\n" for one in smiles))
    fit(file, "y", tmp_path / "model", quality="fast", members=2, split="all", quiet=True)
    expected = load_model(tmp_path / "model").predict(smiles)
    shutil.rmtree(tmp_path / "model" / "encoder")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(smiles), expected)
    record = json.loads((tmp_path / "model" / "fit.json").read_text())
    record["encoder_sha256"] = "0" * 64
    (tmp_path / "model" / "fit.json").write_text(json.dumps(record))
    with pytest.raises(MolsliceError, match="has no encoder/"):
        load_model(tmp_path / "model")


def test_the_verb_lists_the_models(capsys):
    assert main(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [model["name"] for model in listed] == pretrained_names()
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for model in listed:
        (line, *_) = [line for line in lines if line.startswith(f"{model['name']} ")]
        assert model["license"] in line
        for target in model["targets"]:
            assert any(f"{target['train_rows']:,}" in line and target["name"] in line for line in lines)


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


def test_a_shipped_model_is_named_where_a_folder_may_be_meant(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    summary = "ratio of the concentrations in brain and blood"
    said = f"molslice: logbb: the model that ships with molslice ({summary})\n"
    words = ["predict", "logbb", "--smiles", "CCO"]
    assert main([*words, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["model"] == "logbb"
    assert printed.err == said
    assert main([*words, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["export", "gap-xtb", "--out", "gap.pt2"]) == 0
    assert capsys.readouterr().err.startswith(
        "molslice: gap-xtb: the model that ships with molslice (HOMO-LUMO gap by GFN2-xTB)\n"
    )
    shutil.copytree(Path(__file__).parent / "saved_models" / "fit", "logbb")
    assert main(words) == 0
    assert capsys.readouterr().err == ""


def test_the_upper_end_of_the_assay_is_stated():
    model, (about,) = load_model("solubility"), [one for one in shipped_models() if one.name == "solubility"]
    values = 10 ** model.find_domain().values[:, 0].astype(np.float64)
    largest, share = values.max(), np.mean((values >= 19.95) & (values <= 100.0))
    guide = Path(__file__).resolve().parents[1] / "docs" / "guides" / "shipped-models.md"
    stated = f"no measured value is above {largest:.0f} ug/mL, and {share:.0%} are from 20 to 100 ug/mL"
    for text in (guide.read_text(), (find_pretrained("solubility") / "README.md").read_text()):
        assert stated in " ".join(text.split())
    assert about.summary.endswith("up to the end of the assay at about 100 ug/mL")
    assert f"{model.predict(['CC(=O)Nc1ccc(O)cc1'])[0]:.2f}" in guide.read_text()


def test_a_name_that_does_not_ship():
    with pytest.raises(MolsliceError, match="no model 'gap-xbt' ships with molslice"):
        find_pretrained("gap-xbt")
