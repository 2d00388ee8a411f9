"""Limits such as `>10` in the targets of a fit."""

import csv
import json
import math
import re

import numpy as np
import pytest

from molslice.cli import main
from molslice.fitting.card import result_rows
from molslice.fitting.data import FitOptions
from molslice.fitting.fit import fit
from molslice.fitting.table import read_fit_data
from molslice.folders.fitted import CARD, FIT, ROWS
from molslice.inference.load import load_model
from molslice.inference.tables.table import predict_table
from molslice.report.measure import read_limit
from molslice.tasks.metrics import format_metric
from molslice.types import MolsliceError
from molslice.uncertainty.rounding import rounded_error
from tests.fitting.test_fit import read_rows, write_table
from tests.inference.models import embedded_smiles

ROWS_OF_TABLE = 110
THRESHOLD = 40.0

pytestmark = pytest.mark.usefixtures("few_trees", "few_epochs")


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(ROWS_OF_TABLE)


def sizes(smiles):
    return np.array([len(text) + 3.0 * text.count("N") for text in smiles])


@pytest.fixture(scope="module")
def table(smiles, tmp_path_factory):
    """A target of which large values are only known to be above a threshold."""
    values = sizes(smiles)
    cells = [f">{THRESHOLD:g}" if value > THRESHOLD else value for value in values]
    rows = list(zip(smiles, values, cells, strict=True))
    return write_table(tmp_path_factory.mktemp("table") / "limits.csv", ["smiles", "whole", "cell"], rows)


@pytest.fixture(scope="module")
def relations(smiles, tmp_path_factory):
    """The same with a column of relations."""
    values = sizes(smiles)
    rows = [
        [text, value, min(value, THRESHOLD), "'>'" if value > THRESHOLD else "'='"]
        for text, value in zip(smiles, values, strict=True)
    ]
    header = ["smiles", "whole", "cut", "Standard Relation"]
    return write_table(tmp_path_factory.mktemp("table") / "relations.csv", header, rows)


def read(table, *columns, **options):
    return read_fit_data(table, columns, FitOptions(**options), workers=0)


def fitted(table, target, folder, **options):
    return fit(
        table, target, folder, **{"members": 3, "encoder": None, "refit": False, "quiet": True, **options}
    )


@pytest.fixture(scope="module")
def model(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "model"
    return folder, fitted(table, "cell", folder)


def test_limits_of_cells_and_of_a_column_are_the_same(table, relations, smiles):
    data = read(table, "cell")
    many = int((sizes(smiles) > THRESHOLD).sum())
    assert (
        f"cell: {many} of 110 values are limits ({many} lower and 0 upper), learned as limits"
        in data.findings
    )
    assert data.limited.sum() == many
    np.testing.assert_array_equal(
        data.bounds[:, data.limited[:, 0], 0], [[THRESHOLD] * many, [np.inf] * many]
    )
    exact = ~data.limited[:, 0]
    np.testing.assert_array_equal(data.bounds[:, exact, 0], np.stack([data.targets[exact, 0]] * 2))
    other = read(relations, "cut")
    np.testing.assert_array_equal(other.targets, data.targets)
    np.testing.assert_array_equal(other.bounds, data.bounds)
    assert any("from column 'Standard Relation' (detected)), learned as limits" in f for f in other.findings)
    assert not other.notices
    named = read(relations, "cut", relations=("Standard Relation",))
    np.testing.assert_array_equal(named.bounds, data.bounds)
    assert not any("(detected)), learned" in text for text in named.findings)


def test_limits_can_be_dropped_or_learned_as_exact_values(table, relations, smiles):
    values = sizes(smiles)
    known = values[values <= THRESHOLD]
    for file, column in ((table, "cell"), (relations, "cut")):
        dropped = read(file, column, limits="drop")
        assert dropped.bounds is None
        assert sorted(dropped.targets[:, 0]) == sorted(known)
        assert any("are limits" in text and text.endswith("left out") for text in dropped.losses)
        exact = read(file, column, limits="exact")
        assert exact.bounds is None
        assert sorted(exact.targets[:, 0]) == sorted(np.minimum(values, THRESHOLD))
    assert "all values of cut are learned as exact" in exact.notices[0]


@pytest.mark.parametrize(
    ("cell", "bounds"),
    [
        (">10", (10, np.inf)),
        (" >= 10 ", (10, np.inf)),
        ("≥10", (10, np.inf)),
        (">>10", (10, np.inf)),
        ("<0.1", (-np.inf, 0.1)),
        ("<=-3e1", (-np.inf, -30)),
        ("~5", (5, 5)),
        ("=5", (5, 5)),
        ("5", (5, 5)),
    ],
)
def test_relations_in_cells(smiles, tmp_path, cell, bounds):
    cells = [cell, *[i % 7 for i in range(1, 40)]]
    file = write_table(tmp_path / "a.csv", ["smiles", "y"], zip(smiles[:40], cells, strict=True))
    data = read(file, "y", outliers="keep")
    row = data.smiles.index(smiles[0])
    given = data.targets[row] if data.bounds is None else data.bounds[:, row, 0]
    np.testing.assert_array_equal(
        given, np.broadcast_to(bounds, given.shape) if data.bounds is not None else bounds[:1]
    )


@pytest.mark.parametrize("relation", [True, False])
def test_limits_far_outside_the_values_are_named(smiles, tmp_path, relation):
    cells = [f"{place * 0.1 - 2:.2f}" for place in range(40)]
    cells[3] = cells[8] = ">9999"
    rows = zip(smiles, cells, strict=False)
    header = ["smiles", "y"]
    if relation:
        rows = [[text, cell.removeprefix(">"), ">" if cell[0] == ">" else "="] for text, cell in rows]
        header.append("relation")
    file = write_table(tmp_path / "a.csv", header, rows)
    for outliers in ("refuse", "keep"):
        (notice,) = [text for text in read(file, "y", outliers=outliers).notices if "9999" in text]
        assert notice.startswith("y: limits of 9999 in 2 rows (row 4 ")
        assert "far outside the other values, -2 to 1.9; " in notice
        assert notice.endswith("--limits drop leaves them out")
    assert not read(file, "y", limits="drop").notices
    with pytest.raises(MolsliceError, match="If 9999 stands for a missing value"):
        read(file, "y", limits="exact")


def test_a_limit_at_the_end_of_the_values_is_no_outlier(smiles, tmp_path):
    """Most limits of assays are the largest or the smallest concentration that was tried."""
    values = 10.0 ** np.random.default_rng(0).normal(1.5, 0.8, 80)
    for cell in (">10000", "<0.05"):
        cells = [*(f"{value:.3g}" for value in values), *[cell] * 20]
        file = write_table(tmp_path / "a.csv", ["smiles", "y"], zip(smiles, cells, strict=False))
        assert not read(file, "y").notices


def test_a_decimal_comma_and_a_missing_value_beside_limits(smiles, tmp_path):
    cells = [">1,5", "<NA", "", "<NA>", "-999", *["2,5", "3,5"] * 18]
    lines = [f"{text};{cell}" for text, cell in zip(smiles, cells, strict=False)]
    (tmp_path / "a.csv").write_text("\n".join(["smiles;y", *lines]) + "\n")
    from molslice.files.tables import NumberFormat

    data = read(tmp_path / "a.csv", "y", written=NumberFormat(",", (-999,)))
    assert data.limited.sum() == 1
    assert data.bounds[0][data.limited].tolist() == [1.5]
    assert len(data.targets) == 37


@pytest.mark.parametrize(
    ("cells", "relation", "message"),
    [
        ([">"] * 3, None, r"row 1 \(line 2\), column 'y': '>' is not a number"),
        ([">ten"], None, r"column 'y': 'ten' is not a number"),
        (["><5"], None, r"column 'y': '<5' is not a number"),
        ([">5"], ["<"], r"row 1 \(line 2\): '>5' in column 'y' contradicts '<' in column 'q'"),
        (["5"], ["about"], r"row 1 \(line 2\), column 'q': 'about' is not a relation; choices: =, <, >"),
    ],
)
def test_what_is_no_limit_is_refused(smiles, tmp_path, cells, relation, message):
    rows = [[text, i, "="] for i, text in enumerate(smiles[:30])]
    for row, cell in enumerate(cells):
        rows[row][1] = cell
    for row, cell in enumerate(relation or []):
        rows[row][2] = cell
    file = write_table(tmp_path / "a.csv", ["smiles", "y", "q"], rows)
    with pytest.raises(MolsliceError, match=message):
        read(file, "y", relations=("q",) if relation else None)


def test_columns_of_relations_that_cannot_be_used(relations, tmp_path):
    for name, message in (
        ("nothing", "nothing"),
        ("cut", "the column 'cut' cannot be both a relation and a target"),
        ("smiles", "the column 'smiles' cannot be both"),
    ):
        with pytest.raises(MolsliceError, match=message):
            fitted(relations, "cut", tmp_path / "model", relation=name)
    with pytest.raises(MolsliceError, match=r"relation must be one column, or one for each target \(1\)"):
        fitted(relations, "cut", tmp_path / "model", relation=["Standard Relation", "whole"])
    with pytest.raises(MolsliceError, match="unknown limits 'some'; choices: learn, drop, exact"):
        fitted(relations, "cut", tmp_path / "model", limits="some")


def test_a_column_of_relations_belongs_to_one_target_unless_it_is_named(relations):
    both = read(relations, "cut", "whole")
    assert both.bounds is None
    assert "column 'Standard Relation' has relations, which are not used" in both.notices[0]
    first = read(relations, "cut", "whole", relations=("Standard Relation", None))
    assert first.limited.sum(0).tolist() == [read(relations, "cut").limited.sum(), 0]


def test_classes_have_no_limits(smiles, tmp_path):
    rows = [[text, i % 2, "><"[i % 2]] for i, text in enumerate(smiles)]
    file = write_table(tmp_path / "a.csv", ["smiles", "y", "q"], rows)
    data = read(file, "y")  # the relations are of another column
    assert data.types[0].kind == "classification"
    assert "column 'q' has relations, which are not used" in data.notices[0]
    with pytest.raises(MolsliceError, match="classes, which have no limits; give --kind regression"):
        read(file, "y", relations=("q",))
    rows[0][1] = ">1"
    file = write_table(tmp_path / "b.csv", ["smiles", "y"], [row[:2] for row in rows])
    with pytest.raises(MolsliceError, match="classes, which have no limits"):
        read(file, "y")
    with pytest.raises(MolsliceError, match="'>1' is not a number"):
        read(file, "y", kinds=("classification",))
    assert read(file, "y", kinds=("regression",)).limited.sum() == 1


def test_rows_of_one_molecule(smiles, tmp_path):
    rows = [[text, i % 9] for i, text in enumerate(smiles[:40])]
    rows += [[smiles[0], ">100"], [smiles[0], 2]]  # exact values win
    rows[1][1], more = ">3", [[smiles[1], ">5"], [smiles[1], "<8"]]  # the tightest limits
    rows[2][1], wrong = ">7", [[smiles[2], "<6"]]  # contradictory
    rows[3][1], equal = ">=4", [[smiles[3], "<=4"]]  # one value is left
    rows[4][1], single = "<1", [[smiles[4], "<9"]]
    file = write_table(tmp_path / "a.csv", ["smiles", "y"], [*rows, *more, *wrong, *equal, *single])
    data = read(file, "y")
    assert data.bounds is not None
    bounds = {text: tuple(data.bounds[:, row, 0]) for row, text in enumerate(data.smiles)}
    assert bounds[smiles[0]] == (1.0, 1.0)
    assert bounds[smiles[1]] == (5.0, 8.0)
    assert smiles[2] not in bounds
    assert bounds[smiles[3]] == (4.0, 4.0)
    assert bounds[smiles[4]] == (-np.inf, 1.0)
    assert "1 molecule has exact values and limits; the exact values are learned" in data.findings
    assert f"{smiles[0]}: 0, >100, 2 (rows 1, 41, 42)" in data.findings
    assert f"the first: {smiles[2]}, y" in next(text for text in data.losses if "contradict" in text)
    kept = read(file, "y", duplicates="keep")
    assert len(kept.smiles) == len(rows) + 5
    assert kept.limited.sum() == 10


@pytest.mark.parametrize("duplicates", ["average", "keep"])
def test_a_limit_that_no_exact_value_meets_is_named(smiles, tmp_path, duplicates):
    rows = [[text, 5 + i % 9] for i, text in enumerate(smiles[:40])]
    rows += [[smiles[0], ">1"], [smiles[1], "<8"]]  # 5 and 6 meet them
    rows += [[smiles[2], "<-9"], [smiles[3], ">9"], [smiles[3], 8.5], [smiles[4], 9.01], [smiles[4], ">9.01"]]
    file = write_table(tmp_path / "a.csv", ["smiles", "y"], rows)
    data = read(file, "y", duplicates=duplicates)
    named = [text for text in data.findings if text.startswith(tuple(smiles[:5]))]
    assert named == [f"{smiles[2]}: 7, <-9 (rows 3, 43)", f"{smiles[3]}: 8, >9, 8.5 (rows 4, 44, 45)"]
    assert any(
        "5 molecules have several rows, 3 of them with different values" in text
        for text in (*data.findings, *data.losses)
    )


def test_too_few_exact_values_are_refused(smiles, tmp_path):
    rows = [[text, i if i < 15 else ">3"] for i, text in enumerate(smiles)]
    file = write_table(tmp_path / "a.csv", ["smiles", "y"], rows)
    with pytest.raises(
        MolsliceError, match="15 training rows with a value and 95 with a limit; a fit needs at "
    ):
        read(file, "y", split="all")


def test_logarithms_of_limits(smiles, tmp_path):
    logs = np.linspace(-2.0, 3.0, len(smiles))
    cells = [f"<{float(10.0**log)!r}" if i % 4 == 0 else repr(float(10.0**log)) for i, log in enumerate(logs)]
    cells[1], cells[2] = ">0", ">100"
    file = write_table(tmp_path / "a.csv", ["smiles", "y"], zip(smiles, cells, strict=True))
    data = read(file, "y", split="all")
    assert data.logarithmic == (True,)
    labels = data.labels(0)
    places = {text: row for row, text in enumerate(data.smiles)}
    assert labels.bounds[:, places[smiles[0]]].tolist() == [-np.inf, -2.0]
    assert labels.bounds[:, places[smiles[1]]].tolist() == [-np.inf, np.inf]
    assert labels.bounds[:, places[smiles[2]]].tolist() == [2.0, np.inf]
    assert np.isnan(labels.values[places[smiles[0]]])
    cells[3] = "<0"
    file = write_table(tmp_path / "b.csv", ["smiles", "y"], zip(smiles, cells, strict=True))
    assert read(file, "y", split="all").logarithmic == (False,)
    with pytest.raises(
        MolsliceError, match=f"the value 0 of {smiles[3].replace('(', '.').replace(')', '.')}"[:20]
    ):
        read(file, "y", split="all", scale="log")


def test_predictions_go_beyond_the_limits(table, smiles, tmp_path, model):
    values = sizes(smiles)
    high = [text for text, value in zip(smiles, values, strict=True) if value > THRESHOLD + 5]
    truth = values[[smiles.index(text) for text in high]]
    fitted(table, "cell", tmp_path / "exact", limits="exact")
    errors = [
        np.abs(load_model(folder).predict(high) - truth).mean() for folder in (model[0], tmp_path / "exact")
    ]
    assert errors[0] < 0.8 * errors[1]


def test_the_record_counts_limits_and_a_met_one_has_no_error(model, smiles):
    folder, about = model
    rows = {name: [row for row in read_rows(folder) if row["split"] == name] for name in ("train", "test")}
    (result,) = about["results"]
    for name, counts in (("train", "train_limits"), ("test", "test_limits")):
        limits = [row for row in rows[name] if row["cell_limit"]]
        assert result[counts] == len(limits) > 0
        assert all(row["cell"] == "" and row["cell_limit"] == ">40.0" for row in limits)
    errors = {
        name: [
            max(0.0, THRESHOLD - float(row["cell_predicted"]))
            if row["cell_limit"]
            else abs(float(row["cell"]) - float(row["cell_predicted"]))
            for row in rows[name]
        ]
        for name in rows
    }
    assert result["cross_validated"] == pytest.approx(np.mean(errors["train"]))
    assert result["test"]["molslice fit"] == pytest.approx(np.mean(errors["test"]))
    assert result["test_rows"] == len(rows["test"])
    limits = result["test_limits"]
    sentence = (
        f"cell: {limits} of {len(rows['test'])} held-out values are limits; one that is met has no error"
    )
    assert sentence in (folder / CARD).read_text()
    assert result_rows(about)


def test_intervals_come_from_exact_values_and_violated_limits(model):
    folder, _ = model
    predictor = load_model(folder)
    (held_out,) = predictor.find_calibration().targets
    train = [row for row in read_rows(folder) if row["split"] == "train"]
    kept = [row for row in train if not row["cell_limit"] or float(row["cell_predicted"]) < THRESHOLD]
    assert len(held_out.truth) == len(kept) < len(train)
    assert predictor.predict_with_errors(["CCO"], interval=0.9).upper is not None


def test_evaluate_measures_exact_values(model, capsys):
    folder, about = model
    assert main(["evaluate", str(folder), "--json", "--quiet"]) == 0
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert target["count"] == about["results"][0]["test_rows"] - about["results"][0]["test_limits"]


@pytest.mark.parametrize("refit", [False, True])
def test_the_report_counts_limits_as_the_fit_does(model, table, tmp_path, capsys, refit):
    folder, about = (
        (tmp_path / "model", fitted(table, "cell", tmp_path / "model", refit=True)) if refit else model
    )
    page, (result,) = tmp_path / "report.html", about["results"]
    capsys.readouterr()
    assert main(["report", str(folder), "--out", str(page), "--json", "--quiet"]) == 0
    verdict, text = json.loads(capsys.readouterr().out)["verdict"][0], page.read_text()
    rows = f"{result['train_rows']} cross-validated molecules ({result['train_limits']} limits)"
    error = rounded_error(result["cross_validated"], result["standard_errors"]["cross_validated"])
    assert verdict.startswith(f"cell: error {error} on {rows}, ")
    assert " of exact values), " in verdict
    rows = f"{result['train_rows']} ({result['train_limits']} limits)"
    errors = f"<td>cross-validated</td><td>{rows}</td><td>{format_metric(result['cross_validated'])}</td>"
    assert errors in re.sub(r"<td [^>]*>", "<td>", text)
    assert text.count("a limit that is met has no error") >= 2
    for caption in ("predictions against measurements", "Worst predictions of cell, ", "Measured values"):
        start = text.index(caption)
        assert "exact values only" in text[start : start + 80]


def test_limits_of_both_sides_are_read_from_the_rows():
    assert read_limit(">20.0 <60.0") == (20.0, 60.0)
    assert read_limit("<-2.5") == (-math.inf, -2.5)
    assert np.isnan(read_limit("")).all()


@pytest.mark.parametrize("column", ["cell", "cut"])
def test_predict_measures_limits_as_the_fit_does(model, table, relations, tmp_path, column, capsys):
    folder, _ = model
    file = table
    if column == "cut":  # the relations are in a column
        with relations.open() as stream:
            rows = [[row["smiles"], row["cut"], row["Standard Relation"]] for row in csv.DictReader(stream)]
        file = write_table(tmp_path / "cut.csv", ["smiles", "cell", "relation"], rows)
    report = predict_table(load_model(folder), file, tmp_path / "out.csv", metrics=True)
    (metric,) = report.metrics
    with (tmp_path / "out.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    with table.open() as stream:
        cells = [row["cell"] for row in csv.DictReader(stream)]
    predicted = [float(row["cell_predicted"]) for row in rows]
    errors = [
        max(0.0, THRESHOLD - value) if cell.startswith(">") else abs(float(cell) - value)
        for cell, value in zip(cells, predicted, strict=True)
    ]
    assert metric["limits"] == sum(cell.startswith(">") for cell in cells)
    assert metric["value"] == pytest.approx(np.mean(errors), rel=1e-5)


def test_networks_learn_the_expected_values_of_limits(table, tmp_path, monkeypatch):
    from molslice.fitting import fold_networks, networks

    given = []
    fine_tune = networks.fine_tune

    def keep(training, smiles, *arguments, **options):
        given.append((list(smiles), training.targets))
        return fine_tune(training, smiles, *arguments, **options)

    monkeypatch.setattr(networks, "fine_tune", keep)
    monkeypatch.setattr(fold_networks, "MIN_WEIGHT", 0.0)  # of networks that are trained for one epoch
    about = fit(table, "cell", tmp_path / "model", members=2, quality="best", refit=False, quiet=True)
    ((_, targets),) = given
    assert targets.shape == (2, len(given[0][0]), 1)
    assert (targets[0] != targets[1]).any()
    known = ~np.isnan(targets)
    assert (targets[known] > THRESHOLD).any()
    assert "fine_tuned" in about["results"][0]["weights"]


def test_the_command_line(relations, tmp_path, capsys):
    words = [
        "fit",
        str(relations),
        "--target",
        "cut",
        "--out",
        str(tmp_path / "model"),
        "--no-encoder",
        "--members",
        "2",
    ]
    assert main([*words, "--relation", "Standard Relation", "--limits", "drop"]) == 0
    assert "are limits" in capsys.readouterr().err
    options = json.loads((tmp_path / "model" / FIT).read_text())["options"]
    assert options["limits"] == "drop"
    assert options["relations"] == ["Standard Relation"]
    with (tmp_path / "model" / ROWS).open() as stream:
        assert "cut_limit" not in stream.readline()


def test_an_empty_name_of_a_relation_means_no_column(relations, tmp_path):
    about = fitted(relations, "cut", tmp_path / "model", relation="", members=2, quality="fast")
    assert not any("limits" in text for text in about["findings"])
    assert any("which are not used" in text for text in about["notices"])
