"""Related targets of other tables: what they are worth, what they must not tell, and what is refused."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from molslice.cli import main
from molslice.estimators import MolsliceRegressor
from molslice.files.urls import Url
from molslice.fitting.data import FitOptions
from molslice.fitting.fit import fit
from molslice.fitting.related import RelatedTarget, fit_related, read_related
from molslice.fitting.table import read_fit_data
from molslice.folders.fitted import FIT, HELD_OUT, ROWS
from molslice.inference.load import load_model
from molslice.types import MolsliceError
from tests.fitting.test_fit import write_table
from tests.inference.models import embedded_smiles

pytestmark = pytest.mark.usefixtures("few_trees")

OPTIONS = {"quality": "fast", "encoder": None, "members": 3, "quiet": True}
LACTIC, MIRRORED = "C[C@H](O)C(=O)O", "C[C@@H](O)C(=O)O"


def law(smiles):
    """A number that few rows tell little about."""
    return 2.0 * smiles.count("N") - 1.5 * smiles.count("O") + 0.7 * smiles.count("=") + 0.1 * len(smiles)


@pytest.fixture(scope="module")
def molecules():
    return list(dict.fromkeys(embedded_smiles(120)))


@pytest.fixture(scope="module")
def table(molecules, tmp_path_factory):
    """30 molecules with half of the law, of which the last 10 are held out."""
    rows = [
        [text, 0.5 * law(text) + 1.0, "test" if row >= 20 else "train"]
        for row, text in enumerate(molecules[:30])
    ]
    return write_table(tmp_path_factory.mktemp("table") / "own.csv", ["smiles", "y", "part"], rows)


def write_related(folder, molecules, change=lambda smiles: 0.0, name="related.csv"):
    rows = [[text, law(text) + change(text)] for text in molecules]
    return write_table(folder / name, ["smiles", "z"], rows)


def held_out_rows(folder):
    with (folder / ROWS).open(newline="") as stream:
        return [row for row in csv.DictReader(stream) if row["split"] == "test"]


def test_a_related_table_lowers_the_error(table, molecules, tmp_path):
    related = write_related(tmp_path, molecules[10:])
    alone = fit(table, "y", tmp_path / "alone", split="part", **OPTIONS)
    about = fit(table, "y", tmp_path / "both", split="part", related=[f"{related}:z"], **OPTIONS)
    without, errors = alone["results"][0], about["results"][0]
    assert errors["test"]["molslice fit"] < 0.8 * without["test"]["molslice fit"]
    assert errors["cross_validated"] < 0.8 * without["cross_validated"]
    assert errors["cross_validated_without_related"] == pytest.approx(without["cross_validated"])
    (entry,) = about["related"]
    assert (entry["source"], entry["target"], entry["kind"]) == ("related.csv", "z", "regression")
    assert (entry["rows"], entry["shared_compounds"]) == (len(molecules) - 20, 10)
    assert any("10 compounds in both tables" in text for text in about["findings"])
    assert not any(str(tmp_path) in text for text in about["findings"])
    assert "related" not in alone


def test_a_saved_model_predicts_as_the_fit(table, molecules, tmp_path):
    related = write_related(tmp_path, molecules[30:])
    fit(table, "y", tmp_path / "model", split="part", related=[(related, "z")], **OPTIONS)
    rows = held_out_rows(tmp_path / "model")
    predicted = load_model(tmp_path / "model").predict([row["smiles"] for row in rows])
    np.testing.assert_allclose(predicted, [float(row["y_predicted"]) for row in rows], rtol=1e-5)


def test_held_out_compounds_are_left_out_of_related_tables(table, molecules, tmp_path):
    """Their related values change neither the model nor its error, nor do the values of their salts."""
    held_out = set(molecules[20:30])
    forms = [f"{text}.Cl" for text in molecules[20:30]]
    for name, change in (
        ("one", lambda _: 0.0),
        ("two", lambda text: 7.0 * (text.split(".")[0] in held_out)),
    ):
        related = write_related(tmp_path, [*molecules, *forms], change, f"{name}.csv")
        fit(table, "y", tmp_path / name, split="part", related=[f"{related}:z"], **OPTIONS)
    one, two = (load_model(tmp_path / name).predict(molecules) for name in ("one", "two"))
    np.testing.assert_array_equal(one, two)
    assert (tmp_path / "one" / ROWS).read_text() == (tmp_path / "two" / ROWS).read_text()


def test_a_refit_learns_the_related_values_of_all_rows(table, molecules, tmp_path):
    """The error on held-out rows is still of a model without them."""
    held_out = set(molecules[20:30])
    for name, change in (("one", lambda _: 0.0), ("two", lambda text: 7.0 * (text in held_out))):
        related = write_related(tmp_path, molecules, change, f"{name}.csv")
        about = fit(table, "y", tmp_path / name, split="part", refit=True, related=f"{related}:z", **OPTIONS)
        assert about["related"][0]["rows"] == len(molecules)
    one, two = (load_model(tmp_path / name).predict(molecules) for name in ("one", "two"))
    assert not np.allclose(one, two)
    assert (tmp_path / "one" / HELD_OUT).read_text() == (tmp_path / "two" / HELD_OUT).read_text()


def read(table, related, options):
    """Return the rows, the related target, and its fit."""
    rows = read_fit_data(table, ["y"], options, workers=0)
    target = RelatedTarget(related, "z")
    other = read_related(target, options, lambda _: None, workers=0, progress=lambda *_: None)
    return rows, other, fit_related(other, rows, rows.features(lambda _: None), options)


@pytest.mark.parametrize("form", [LACTIC, MIRRORED, "[Na+].C[C@H](O)C(=O)[O-]", "[13CH3]C(O)C(=O)O"])
def test_a_feature_is_out_of_fold(molecules, tmp_path, form):
    """The related value of a molecule, or of another form of its compound, does not change its feature."""
    rows = [[text, law(text), "train"] for text in [*molecules[:29], LACTIC]]
    table = write_table(tmp_path / "own.csv", ["smiles", "y", "part"], rows)
    raw = []
    for value in (0.0, 50.0):
        related = write_related(tmp_path, [*molecules[20:], form], lambda text, v=value: v * (text == form))
        options = FitOptions(members=3, split="part", outliers="keep")
        own, _, fitted = read(table, related, options)
        predicted = fitted.column * fitted.model.scale + fitted.model.offset
        raw.append(dict(zip(own.smiles, predicted, strict=True)))
    assert raw[0][LACTIC] == pytest.approx(raw[1][LACTIC], rel=1e-9)
    assert raw[0][molecules[0]] != pytest.approx(raw[1][molecules[0]], rel=1e-3)


def test_scaffolds_that_are_held_out_are_left_out_of_related_tables(molecules, tmp_path):
    ends = ("C1CCOC1", "C1CCSC1", "C1CCNC1", "c1ccccc1", "C1CCCC1", "c1ccncc1")
    rings = ["C" * length + end for length in range(1, 7) for end in ends]
    table = write_table(tmp_path / "own.csv", ["smiles", "y"], [[text, law(text)] for text in rings])
    others = [f"F{text}" for text in rings] + molecules[:60]  # other compounds of the same scaffolds
    related = write_related(tmp_path, others)
    rows, other, fitted = read(table, related, FitOptions(members=2, split="scaffold"))
    scaffolds = {rows.molecules.scaffolds[row] for row in np.flatnonzero(rows.test)}
    assert scaffolds
    left = sum(scaffold not in scaffolds for scaffold in other.data.molecules.scaffolds)
    assert fitted.record["rows"] == left < len(other.data.smiles)


def test_related_classes_and_limits(table, molecules, tmp_path):
    rows = [
        [
            text,
            "active" if law(text) > 1.5 else "inactive",
            f">{law(text):.2f}" if row % 9 == 0 else law(text),
        ]
        for row, text in enumerate(molecules[30:])
    ]
    related = write_table(tmp_path / "related.csv", ["smiles", "class", "value"], rows)
    given = [f"{related}:class", f"{related}:value"]
    about = fit(table, "y", tmp_path / "model", split="part", related=given, **OPTIONS)
    assert [one["kind"] for one in about["related"]] == ["classification", "regression"]
    assert about["related"][0]["metric"] == "roc_auc"
    assert about["related"][0]["cross_validated"] > 0.7
    assert any("limit" in text for text in about["findings"])
    assert np.isfinite(load_model(tmp_path / "model").predict(["CCO", "CCN"])).all()


def test_conditions_stay_beside_related_targets(molecules, tmp_path):
    rows = [[text, law(text) + 3.0 * hot, hot] for text in molecules[:30] for hot in (0, 1)]
    table = write_table(tmp_path / "own.csv", ["smiles", "y", "hot"], rows)
    related = write_related(tmp_path, molecules[30:])
    fit(table, "y", tmp_path / "model", conditions="hot", related=f"{related}:z", **OPTIONS)
    cold, hot = (load_model(tmp_path / "model").predict(["CCO"], conditions={"hot": one}) for one in (0, 1))
    assert 2.0 < float(hot[0] - cold[0]) < 4.0


def test_the_estimators_take_related_targets(molecules, tmp_path):
    related = write_related(tmp_path, molecules[30:])
    options = {name: value for name, value in OPTIONS.items() if name != "quiet"}
    model = MolsliceRegressor(related=[f"{related}:z"], random_state=0, **options)
    model.fit(molecules[:30], [law(text) for text in molecules[:30]])
    assert model.about_["related"][0]["rows"] == len(molecules) - 30
    assert np.isfinite(model.predict(["CCO"])).all()


def test_the_command_line(table, molecules, tmp_path, capsys):
    related = write_related(tmp_path, molecules[30:])
    arguments = ["fit", str(table), "--target", "y", "--split", "part", "--quality", "fast", "--no-encoder"]
    arguments += ["--members", "3", "--with", f"{related}:z", "--out", str(tmp_path / "model")]
    assert main(arguments) == 0
    told = capsys.readouterr().err
    assert "related z of related.csv: 90 rows, 0 compounds in both tables; cross-validated MAE" in told
    assert "without the related targets" in told
    assert main(["predict", str(tmp_path / "model"), "--smiles", "CCO"]) == 0
    assert main(["report", str(tmp_path / "model"), "--out", str(tmp_path / "report.html")]) == 0
    assert "related z of related.csv" in (tmp_path / "report.html").read_text()
    wrong = [*arguments[:-4], "--with", "related.csv", "--out", str(tmp_path / "other")]
    assert main(wrong) == 2
    assert "a related target is FILE:COLUMN, got 'related.csv'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "file", "column"),
    [
        ("other.csv:logP", Path("other.csv"), "logP"),
        (r"C:\data\other.csv:logP", Path(r"C:\data\other.csv"), "logP"),
        ("https://host/other.csv:logP", Url("https://host/other.csv"), "logP"),
    ],
)
def test_the_file_may_have_colons(text, file, column):
    assert RelatedTarget.parse(text) == (file, column)


@pytest.mark.parametrize(
    "text", ["other.csv", ":logP", "other.csv:", "https://host/other.csv", r"C:\other.csv"]
)
def test_a_text_without_a_file_or_a_column_is_refused(text):
    with pytest.raises(MolsliceError, match="a related target is FILE:COLUMN"):
        RelatedTarget.parse(text)


def refusal(table, folder, related, **options):
    with pytest.raises(MolsliceError) as caught:
        fit(table, "y", folder, related=related, **{"split": "part", **OPTIONS, **options})
    assert not folder.exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_refused(table, molecules, tmp_path):
    related, folder = write_related(tmp_path, molecules), tmp_path / "model"
    assert "is given twice" in refusal(table, folder, [f"{related}:z", (related, "z")])
    assert "cannot be related to itself" in refusal(table, folder, [(table, "y")])
    link = tmp_path / "link.csv"
    link.symlink_to(related)
    assert "given twice" in refusal(table, folder, [f"{related}:z", f"{link}: z "])
    shutil.copy(table, tmp_path / "own.csv")
    pattern = f"{tmp_path}/own*.csv:y"
    assert "cannot be related to itself" in refusal(tmp_path / "own.csv", folder, pattern)
    for wrong in (None, 5, [(1, "z")], [(related, " ")], [("related.csv",)]):
        assert "FILE:COLUMN" in refusal(table, folder, wrong)
    assert "got 3" in refusal(table, folder, [3])
    assert "missing.csv" in refusal(table, folder, "missing.csv:z")
    assert "related.csv" in (message := refusal(table, folder, [(related, "x")]))
    assert "'x'" in message
    pairs = {"smiles_column": ["smiles", "part"], "split": "random"}
    assert "single molecules" in refusal(table, folder, [(related, "z")], **pairs)
    words = [[text, ("low", "middle", "high")[row % 3]] for row, text in enumerate(molecules)]
    several = write_table(tmp_path / "several.csv", ["smiles", "z"], words)
    assert "3 classes; a related target is a number or has two classes" in refusal(
        table, folder, [(several, "z")]
    )


def test_too_few_rows_beside_the_held_out_compounds_are_refused(table, molecules, tmp_path):
    related = write_related(tmp_path, molecules[20:45])
    message = refusal(table, tmp_path / "model", [(related, "z")])
    assert "related.csv, column 'z': 15 training rows" in message
    assert "10 rows with a held-out compound" in message


@pytest.mark.parametrize(("name", "value"), [("scale", 0.0), ("offset", None), ("scale", "1")])
def test_a_damaged_folder_is_refused(table, molecules, tmp_path, name, value):
    folder = tmp_path / "model"
    fit(table, "y", folder, split="part", related=[(write_related(tmp_path, molecules), "z")], **OPTIONS)
    about = json.loads((folder / FIT).read_text())
    about["related"][0][name] = value
    (folder / FIT).write_text(json.dumps(about))
    with pytest.raises(MolsliceError, match="related target"):
        load_model(folder)


@pytest.mark.parametrize("related", ["missing.csv:z", "related.csv:x"])
def test_a_wrong_related_table_is_refused_before_the_rows_are_read(
    related, table, molecules, tmp_path, monkeypatch
):
    write_related(tmp_path, molecules)
    monkeypatch.setattr("molslice.fitting.fit.read_fit_data", lambda *_, **__: pytest.fail("read"))
    refusal(table, tmp_path / "model", f"{tmp_path}/{related}")


def test_a_report_repeats_the_related_tables(table, molecules, tmp_path):
    related = write_related(tmp_path, molecules[30:])
    fit(table, "y", tmp_path / "model", split="part", related=f"{related}:z", **OPTIONS)
    assert main(["report", str(tmp_path / "model"), "--out", str(tmp_path / "page.html")]) == 0
    assert "--with related.csv:z" in (tmp_path / "page.html").read_text()


def test_tuned_settings_are_not_compared_with_a_fit_without_related_tables(table, molecules, tmp_path):
    related = write_related(tmp_path, molecules[30:])
    about = fit(table, "y", tmp_path / "model", split="part", related=f"{related}:z", tune=1e-9, **OPTIONS)
    assert "cross_validated_without_related" not in about["results"][0]
