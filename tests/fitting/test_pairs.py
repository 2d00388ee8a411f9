"""Pairs of molecules: what is learned, swapped molecules, compounds in folds, and every way to predict."""

import csv
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from molslice.cli import main
from molslice.fitting.data import FitOptions
from molslice.fitting.fit import fit
from molslice.fitting.folds import assign_folds
from molslice.fitting.table import read_fit_data
from molslice.folders.fitted import FIT, ROWS, read_fitted
from molslice.inference.load import load_model
from molslice.inference.tables.table import predict_table
from molslice.types import MolsliceError
from tests.fitting.test_fit import write_table
from tests.inference.models import embedded_smiles

pytestmark = pytest.mark.usefixtures("few_trees")

SOLVENTS = ["O", "CCO", "CCCCCC", "c1ccccc1", "CC(C)=O"]
COLUMNS = ["solute", "solvent", "temperature", "logS"]
PAIR = ("solute", "solvent")


def rows_of(law):
    draw = np.random.default_rng(0)
    rows = []
    for solute in embedded_smiles(50):
        for solvent in draw.choice(SOLVENTS, 3, replace=False).tolist():
            temperature = round(draw.uniform(280.0, 320.0), 1)
            rows.append([solute, solvent, temperature, law(solute, solvent)])
    return rows


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The solubility grows with the polarity of the solvent, and falls with the size of the solute."""
    polarity = dict(zip(SOLVENTS, (2.0, 1.0, -1.0, -0.5, 0.3), strict=True))
    rows = rows_of(lambda solute, solvent: polarity[solvent] - 0.05 * len(solute))
    return write_table(tmp_path_factory.mktemp("table") / "measured.csv", COLUMNS, rows)


@pytest.fixture(scope="module")
def swapped_table(tmp_path_factory):
    """A law without order, in rows of which half have the solvent first."""
    rows = rows_of(lambda solute, solvent: 0.05 * len(solute) * len(solvent))
    rows = [[*row[1::-1], *row[2:]] if number % 2 else row for number, row in enumerate(rows)]
    return write_table(tmp_path_factory.mktemp("table") / "pairs.csv", COLUMNS, rows)


def fitted(table, folder, **options):
    options = {"members": 3, "encoder": None, "refit": False, "quiet": True, **options}
    options = {"smiles_column": PAIR, **options}
    return fit(table, "logS", folder, **options)


@pytest.fixture(scope="module")
def model(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "model"
    return folder, fitted(table, folder)


def _lines(table):
    with table.open(newline="") as file:
        return [*csv.reader(file)][1:]


def read(table, **options):
    given = {"smiles_column": "solute", "partner_column": "solvent", **options}
    return read_fit_data(table, ["logS"], FitOptions(**given), workers=0)


def test_the_second_molecule_is_learned(table, model, tmp_path):
    alone = fitted(table, tmp_path / "alone", smiles_column="solute", duplicates="keep")
    errors = [about["results"][0]["cross_validated"] for about in (alone, model[1])]
    assert errors[1] < 0.5 * errors[0]
    predictor, solutes = load_model(model[0]), embedded_smiles(10)
    water, hexane = (predictor.predict(solutes, conditions={"solvent": text}) for text in ("O", "CCCCCC"))
    assert (water > hexane + 1.0).all()
    new = predictor.predict(solutes, conditions={"solvent": "CCCCCCC"})  # is like hexane
    assert np.abs(new - hexane).mean() < np.abs(new - water).mean()


def test_the_folder_and_its_rows(model, table):
    folder, about = model
    assert about["partner"] == "solvent"
    assert read_fitted(folder).partner == "solvent"
    assert any("second molecule: column 'solvent'" in text for text in about["findings"])
    assert not (folder / "domain.json").exists()
    with (folder / ROWS).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "test"]
    predicted = load_model(folder).predict(
        [row["smiles"] for row in rows], conditions={"solvent": [row["solvent"] for row in rows]}
    )
    np.testing.assert_allclose(predicted, [float(row["logS_predicted"]) for row in rows], rtol=1e-5)


@pytest.mark.parametrize("encoder", [None, "encoder-small"])
def test_swapped_molecules_have_exactly_the_same_prediction(swapped_table, tmp_path, encoder):
    about = fitted(swapped_table, tmp_path / "model", symmetric=True, encoder=encoder, quality="best")
    assert about["options"]["symmetric"] is True
    assert ("no fine-tuned networks: they take one molecule, not pairs" in about["findings"]) == bool(encoder)
    assert not about["left_out"]
    predictor, solutes = load_model(tmp_path / "model"), embedded_smiles(20)
    for solvent in ("O", "CCCl"):
        forward = predictor.predict_with_errors(solutes, conditions={"solvent": solvent}, interval=0.9)
        backward = predictor.predict_with_errors(
            [solvent] * 20, conditions={"solvent": solutes}, interval=0.9
        )
        np.testing.assert_array_equal(forward.values, backward.values)
        np.testing.assert_array_equal(forward.upper, backward.upper)
    assert len(np.unique(forward.values)) > 10
    with swapped_table.open(newline="") as file:
        rows = [*csv.reader(file)][1:]
    swapped = write_table(tmp_path / "swapped.csv", COLUMNS, [[*row[1::-1], *row[2:]] for row in rows])
    first, second = (
        predict_table(predictor, one, tmp_path / "out.csv", metrics=True).metrics[0]
        for one in (swapped_table, swapped)
    )
    assert first == second
    assert first["standard_error"] > 0


def test_without_symmetry_the_order_matters(model):
    predictor = load_model(model[0])
    solutes = embedded_smiles(10)
    forward = predictor.predict(solutes, conditions={"solvent": "CCO"})
    assert (forward != predictor.predict(["CCO"] * 10, conditions={"solvent": solutes})).all()


def test_all_rows_of_a_first_molecule_are_together(table, swapped_table):
    for data in (read(table), read(swapped_table, symmetric=True), read(table, split="scaffold")):
        parents = np.array(data.molecules.parents)
        assert data.test.any()
        assert not set(parents[data.test]) & set(parents[~data.test])
        for folds in assign_folds(data, 3, 0):
            by_parent = {}
            for parent, fold in zip(parents, folds, strict=True):
                by_parent.setdefault(parent, set()).add(int(fold))
            assert all(len(held) == 1 for held in by_parent.values())


def test_of_a_symmetric_pair_the_molecule_with_fewer_partners_is_held_out(swapped_table):
    data = read(swapped_table, symmetric=True)
    assert set(data.molecules.partners.canonical) <= set(SOLVENTS)
    assert not set(data.molecules.canonical) & set(SOLVENTS)
    assert not any("both molecules of" in finding for finding in data.findings)


def test_held_out_pairs_of_two_known_molecules_are_counted(tmp_path):
    molecules = embedded_smiles(12)
    rows = [[a, b, 300.0, float(len(a + b))] for i, a in enumerate(molecules) for b in molecules[:i]]
    data = read(write_table(tmp_path / "mixtures.csv", COLUMNS, rows), symmetric=True)
    pairs = list(zip(data.molecules.parents, data.molecules.partners.parents, strict=True))
    trained = {name for pair, test in zip(pairs, data.test, strict=True) if not test for name in pair}
    known = [set(pair) <= trained for pair, test in zip(pairs, data.test, strict=True) if test]
    assert sum(known)
    assert any(
        f"both molecules of {sum(known)} of {len(known)} held-out pairs are in training rows" in finding
        for finding in data.findings
    )


def test_duplicates_are_equal_pairs(tmp_path):
    rows = rows_of(lambda solute, solvent: float(len(solute)))
    first = rows[0]
    again, swapped = [*first[:3], first[3] + 1.0], [first[1], first[0], first[2], first[3] + 1.0]
    for added, symmetric, count in ((again, False, 0), (swapped, True, 0), (swapped, False, 1)):
        data = read(write_table(tmp_path / "rows.csv", COLUMNS, [*rows, added]), symmetric=symmetric)
        assert len(data.smiles) == len(rows) + count
        assert ("1 molecule has several rows with one second molecule" in " ".join(data.losses)) == (
            not count
        )
        if not count:
            assert data.targets[0, 0] == pytest.approx(first[3] + 0.5)


def test_pairs_take_conditions_too(table, tmp_path):
    fitted(table, tmp_path / "model", conditions="temperature")
    predictor = load_model(tmp_path / "model")
    assert predictor.condition_names == ["temperature", "solvent"]
    assert np.isfinite(predictor.predict("CCC", conditions={"temperature": 300, "solvent": "O"})).all()
    with pytest.raises(MolsliceError, match="takes the conditions temperature, solvent, got solvent"):
        predictor.predict("CCC", conditions={"solvent": "O"})


def test_a_table_is_predicted_by_its_columns(model, table, tmp_path, capsys):
    lines = [["C" * size, "O", size] for size in range(2, 6)]
    lines[1][1], lines[2][1] = "", "not a SMILES"
    source = write_table(tmp_path / "new.csv", ["solute", "solvent", "number"], lines)
    assert (
        main(["predict", str(model[0]), "--input", str(source), "--output", str(tmp_path / "out.csv")]) == 0
    )
    written = pd.read_csv(tmp_path / "out.csv")
    expected = load_model(model[0]).predict(["CC", "CCCCC"], conditions={"solvent": "O"})
    np.testing.assert_allclose(written["logS"][[0, 3]], expected, rtol=1e-6)
    assert written["error"][1] == "no SMILES in solvent"
    assert written["error"][2].startswith("second molecule: ")
    np.testing.assert_array_equal(
        load_model(model[0]).predict(pd.read_csv(source)), written["logS"].astype(np.float32)
    )
    source = write_table(tmp_path / "bare.csv", ["solute"], [["CCO"]])
    assert main(["predict", str(model[0]), "--input", str(source), "--output", str(tmp_path / "b.csv")]) == 1
    assert "has no column 'solvent'" in capsys.readouterr().err


def test_the_command_line(table, model, tmp_path, capsys):
    words = ["fit", str(table), "--target", "logS", "--no-encoder", "--members", "3", "--quiet", "--no-refit"]
    pair = ["--smiles-column", "solute", "--smiles-column", "solvent"]
    assert main([*words, *pair, "--out", str(tmp_path / "model")]) == 0
    capsys.readouterr()
    assert main(["predict", str(model[0]), "--smiles", "CCC", "--condition", "solvent=O", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    expected = load_model(tmp_path / "model").predict("CCC", conditions={"solvent": "O"})[0]
    assert shown["predictions"][0]["logS"] == pytest.approx(expected)
    assert main(["predict", str(model[0]), "--smiles", "CCC"]) == 1
    assert "takes the conditions solvent, got no values" in capsys.readouterr().err
    assert main(["predict", str(model[0]), "--smiles", "CCC", "--condition", "solvent=O", "--domain"]) == 1
    assert "predicts pairs of molecules, which have no domain" in capsys.readouterr().err


def test_evaluate_and_report(model, tmp_path, capsys):
    folder, about = model
    assert main(["evaluate", str(folder), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["targets"][0]["mae"]
    assert measured == pytest.approx(about["results"][0]["test"]["molslice fit"], rel=1e-5)
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html"), "--quiet"]) == 0
    assert "--smiles-column solute --smiles-column solvent" in (tmp_path / "page.html").read_text()


def test_another_table_is_measured_by_the_columns_of_the_fit(model, table, tmp_path, capsys):
    words = ["evaluate", str(model[0]), "--split", "all", "--json", "--quiet", "--data.path"]
    report = predict_table(load_model(model[0]), table, tmp_path / "out.csv", metrics=True, progress=False)
    renamed, lines = tmp_path / "renamed.csv", table.read_text()
    for column in ("solute", "smiles"):  # or the one that is found
        renamed.write_text(lines.replace("solute", column, 1))
        capsys.readouterr()
        assert main([*words, str(renamed)]) == 0
        [target] = json.loads(capsys.readouterr().out)["targets"]
        assert target["mae"] == pytest.approx(report.metrics[0]["value"], rel=1e-5)
        page = tmp_path / f"{column}.html"
        assert main(["report", str(model[0]), "--quiet", "--out", str(page), *words[-1:], str(renamed)]) == 0
    rows = [row[1:] for row in _lines(table) if row[1] != "O"]  # one letter tells no column of SMILES
    write_table(renamed, COLUMNS[1:], rows)  # the solvent is no solute
    assert main([*words, str(renamed)]) == 1
    assert "renamed.csv has no column 'solute'; " in capsys.readouterr().err


def test_predictions_of_a_table_say_how_many_pairs_were_learned(model, tmp_path, capsys):
    folder, _ = model
    with (folder / ROWS).open(newline="") as stream:
        pairs = [(row["smiles"], row["solvent"]) for row in csv.DictReader(stream) if row["split"] == "train"]
    learned = next(pair for pair in pairs if pair[1] == "CCO")
    new = next(name for name in SOLVENTS if (learned[0], name) not in pairs)
    rows = [[*learned, 1.0], [learned[0], "OCC", 2.0], [learned[0], new, 1.0]]
    file = write_table(tmp_path / "new.csv", ["solute", "solvent", "logS"], rows)
    words = ["predict", str(folder), "--input", str(file), "--output", str(tmp_path / "out.csv"), "--metrics"]
    capsys.readouterr()
    assert main([*words, "--json", "--quiet"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["trained"], report["measured"]) == (2, 3)
    assert main(words) == 0
    assert "at least 2 of 3 measured rows are of training molecules; " in capsys.readouterr().err


def test_mixtures_of_both_molecules_are_treated(table, tmp_path):
    rows = [[f"{row[0]}.Cl", f"{row[1]}.[He]", *row[2:]] for row in _lines(table)]
    about = fitted(write_table(tmp_path / "rows.csv", COLUMNS, rows), tmp_path / "model", fragment="largest")
    assert about["replaced"] >= len(rows)
    predictor = load_model(tmp_path / "model")
    salt = predictor.predict("CCCCN.Cl", conditions={"solvent": "CCO.Cl"})
    np.testing.assert_array_equal(salt, predictor.predict("CCCCN", conditions={"solvent": "CCO"}))


def test_rows_without_a_second_molecule_are_left_out_in_every_chunk(table, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.data.molecules.describe.CHUNK_ROWS", 4)
    rows = [[*row[:1], "", *row[2:]] if number < 8 else row for number, row in enumerate(_lines(table))]
    data = read(write_table(tmp_path / "rows.csv", COLUMNS, rows))
    assert "8 rows of 150 left out: 8 no SMILES in solvent" in data.losses
    assert data.partners == [row[1] for row in rows[8:]]
    expected = read(write_table(tmp_path / "fewer.csv", COLUMNS, rows[8:]))
    np.testing.assert_array_equal(data.molecules.partners.counts, expected.molecules.partners.counts)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"smiles_column": ("solute", "solven")}, "has no column 'solven'; did you mean 'solvent'"),
        ({"smiles_column": ("solute", "solute")}, "the smiles_column 'solute' is given twice"),
        ({"smiles_column": ("solute", "logS")}, "cannot be both the second molecule and a target"),
        ({"conditions": "solvent"}, "cannot be both a condition and the second molecule"),
        ({"smiles_column": ("solute", "solvent", "logS")}, "or two for pairs of molecules, got 3"),
        ({"smiles_column": "solute", "symmetric": True}, "symmetric needs two columns of SMILES"),
        ({"smiles_column": ("solute", "temperature")}, "none of the 150 SMILES .* second molecule: "),
    ],
)
def test_wrong_columns_are_refused(table, tmp_path, options, reason):
    with pytest.raises(MolsliceError, match=reason):
        fitted(table, tmp_path / "model", **options)


@pytest.mark.parametrize(
    "change", [lambda record: record.pop("partner"), lambda record: record["options"].pop("symmetric")]
)
def test_a_damaged_folder_is_refused(model, tmp_path, change):
    folder = tmp_path / "model"
    shutil.copytree(model[0], folder)
    record = json.loads((folder / FIT).read_text())
    change(record)
    (folder / FIT).write_text(json.dumps(record))
    with pytest.raises(MolsliceError, match="invalid second molecule"):
        load_model(folder)
