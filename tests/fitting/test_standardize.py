"""A fit to standardized molecules, which its model standardizes too."""

import csv
import json

import numpy as np
import pytest

from molslice.cli import main
from molslice.estimators import MolsliceRegressor
from molslice.fitting.data import FitOptions
from molslice.fitting.fit import fit
from molslice.fitting.table import read_fit_data
from molslice.folders.fitted import CARD, FIT, ROWS
from molslice.inference.load import load_model
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles

KETO, ENOL, CATION = "O=c1cccc[nH]1", "Oc1ccccn1", "O=c1cccc[nH]1.[H+]"
SALT, ACID = "CCCCC(=O)O[Na]", "CCCCC(=O)O"
PROTONATED, AMINE = "CCC[NH2+]CCC", "CCCNCCC"

pytestmark = pytest.mark.usefixtures("few_trees")


def write(file, smiles):
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([["smiles", "y"], *([text, len(text)] for text in smiles)])
    return file


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models of the same table with each standard form."""
    place = tmp_path_factory.mktemp("fit")
    file = write(place / "a.csv", [*embedded_smiles(60), ENOL, PROTONATED, SALT])
    options = {"split": "all", "members": 2, "fragment": "largest", "encoder": None, "quiet": True}
    for choice in ("no", "neutral", "tautomer"):
        fit(file, "y", place / choice, standardize=choice, **options)
    return place


def test_predictions_are_of_the_standard_form(folders):
    plain, neutral, tautomer = (load_model(folders / name) for name in ("no", "neutral", "tautomer"))
    pairs = {"tautomers": (KETO, ENOL), "charges": (PROTONATED, AMINE), "salts": (SALT, ACID)}
    equal = {}
    for model in (plain, neutral, tautomer):
        same = {name for name, pair in pairs.items() if np.ptp(model.predict(list(pair))) == 0}
        equal[model.standardize] = same
    assert equal == {"no": set(), "neutral": {"charges", "salts"}, "tautomer": set(pairs)}
    rows = tautomer.predict_with_errors([ENOL, "C(", SALT])
    assert [reason is None for reason in rows.errors] == [True, False, True]
    assert rows.replaced == 1
    np.testing.assert_array_equal(tautomer.predict([ENOL, SALT], workers=1), rows.values[[0, 2], 0])


def test_forms_of_a_molecule_merge(tmp_path):
    file = write(tmp_path / "a.csv", [*embedded_smiles(40), KETO, ENOL])
    sizes = {}
    for choice in ("no", "neutral", "tautomer"):
        data = read_fit_data(file, ("y",), FitOptions(standardize=choice), workers=0)
        sizes[choice] = len(data.smiles)
    assert sizes == {"no": 42, "neutral": 42, "tautomer": 41}


def test_it_says_how_many_molecules_changed(folders, tmp_path):
    about = json.loads((folders / "neutral" / FIT).read_text())
    (finding,) = [text for text in about["findings"] if text.startswith("standardize: ")]
    assert finding == "standardize: neutral, 3 rows with another form of the molecule"  # and a sulfoxide
    assert f"- {finding}" in (folders / "neutral" / CARD).read_text()
    assert about["replaced"] == 1
    page = tmp_path / "page.html"
    assert main(["report", str(folders / "neutral"), "--out", str(page), "--quiet"]) == 0
    assert finding in page.read_text()
    assert "--fragment largest --wildcards refuse --standardize neutral" in page.read_text()
    many = write(tmp_path / "a.csv", [*embedded_smiles(30), "CC(=O)N" * 30 + "C"])
    data = read_fit_data(many, ("y",), FitOptions(standardize="tautomer"), workers=1)
    assert any("; 1 row only in part, because of too many tautomers" in text for text in data.findings)


def test_the_folder_says_which_form_molecules_get(folders):
    forms = {}
    for name in ("no", "neutral", "tautomer"):
        forms[name] = json.loads((folders / name / FIT).read_text()).get("standardize")
    assert forms == {"no": None, "neutral": "neutral", "tautomer": "tautomer"}


def test_an_invalid_form_in_a_folder_is_refused(folders, tmp_path):
    copy = tmp_path / "model"
    copy.mkdir()
    for path in (folders / "neutral").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    about = json.loads((copy / FIT).read_text())
    (copy / FIT).write_text(json.dumps(about | {"standardize": "acidic"}))
    with pytest.raises(MolsliceError, match="invalid standardize in .*fit.json: 'acidic'"):
        load_model(copy)


def test_measured_forms_are_training_molecules(folders, tmp_path, capsys):
    file = write(tmp_path / "a.csv", [KETO, AMINE, "CCCCCCCCF"])
    command = ["predict", str(folders / "tautomer"), "--input", str(file), "--metrics", "--domain"]
    assert main([*command, "--output", str(tmp_path / "out.csv")]) == 0
    assert "at least 2 of 3 measured rows" in capsys.readouterr().err
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["smiles"] for row in rows] == [KETO, AMINE, "CCCCCCCCF"]
    command = ["evaluate", str(folders / "tautomer"), "--split", "all", "--data.path", str(file)]
    assert main([*command, "--data.target-columns", "y"]) == 0
    assert "at least 2 of 3 measured rows" in capsys.readouterr().err


def test_rows_keep_their_spelling_and_their_predictions(folders):
    with (folders / "tautomer" / ROWS).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["smiles"] for row in rows[-3:]] == [ENOL, PROTONATED, SALT]


def test_a_finished_part_of_another_form_is_not_continued(folders):
    from molslice.inference.tables.table import prediction_identity

    plain, neutral = (prediction_identity(load_model(folders / name)) for name in ("no", "neutral"))
    assert "standardize" not in plain
    assert neutral["standardize"] == "neutral"


@pytest.mark.parametrize("choice", ["neutral", "tautomer"])
def test_the_command_line_and_the_estimator_take_it(choice, folders, tmp_path, capsys):
    file = folders / "a.csv"
    command = ["fit", str(file), "--target", "y", "--split", "all", "--members", "2", "--fragment", "largest"]
    command += ["--standardize", choice, "--no-encoder", "--out", str(tmp_path / "model"), "--quiet"]
    assert main(command) == 0
    expected = load_model(folders / choice).predict([KETO, PROTONATED])
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict([KETO, PROTONATED]), expected)
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    options = {"encoder": None, "members": 2, "fragment": "largest", "random_state": 0}
    model = MolsliceRegressor(standardize=choice, **options)
    model.fit([row["smiles"] for row in rows], [float(row["y"]) for row in rows])
    np.testing.assert_allclose(model.predict([KETO, PROTONATED]), expected, rtol=1e-6)


def test_an_unknown_form_is_refused(folders, tmp_path, capsys):
    file = folders / "a.csv"
    with pytest.raises(MolsliceError, match="unknown standardize 'acidic'; choices: no, neutral, tautomer"):
        fit(file, "y", tmp_path / "model", standardize="acidic", encoder=None, quiet=True)
    command = ["fit", str(file), "--target", "y", "--out", str(tmp_path / "model"), "--standardize", "acidic"]
    assert main(command) == 2
    assert "invalid choice: 'acidic'" in capsys.readouterr().err


def test_tautomers_are_one_molecule_in_the_domain(folders):
    domain = load_model(folders / "tautomer").find_domain()
    assert domain.contains([KETO, ENOL, SALT], "largest", "tautomer").tolist() == [True, True, True]
    assert domain.contains([KETO, ENOL], "largest").tolist() == [True, False]
