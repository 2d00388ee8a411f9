"""Suspicious values, contradicting duplicates and matched pairs of small fits with known truth."""

import csv
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from molslice.cli import main
from molslice.fitting.fit import fit
from molslice.folders.fitted import TABLE_ROWS
from molslice.inference.load import load_model
from molslice.report import charts, suspects_files
from molslice.report.suspects import examine
from molslice.types import MolsliceError
from molslice.uncertainty.tails import least_probability, usual_error
from tests.inference.models import embedded_smiles

SAVED = Path(__file__).parents[1] / "saved_models"
ROWS = 120
WRONG = (17, 58, 93)  # rows with a planted value, from 0

pytestmark = pytest.mark.usefixtures("few_trees")


def heavy(smiles):
    """Return the number of letters of a SMILES, which is easy to learn."""
    return sum(letter.isalpha() for letter in smiles)


def table_of(values, smiles, file):
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["compound", "smiles", "y"])
        writer.writerows(
            (f"c{row}", text, y) for row, (text, y) in enumerate(zip(smiles, values, strict=True))
        )
    return file


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """A table without wrong values, and its model."""
    folder, smiles = tmp_path_factory.mktemp("right"), embedded_smiles(ROWS)
    values = np.array([heavy(text) for text in smiles]) + np.random.default_rng(0).normal(0, 1, ROWS)
    table = table_of(values, smiles, folder / "table.csv")
    fit(table, "y", folder / "model", members=3, encoder=None, refit=False, split="all", quiet=True)
    return table, folder / "model"


@pytest.fixture(scope="module")
def planted(right, tmp_path_factory):
    """The same table with three wrong values, a molecule measured twice alike and one in contradiction."""
    folder = tmp_path_factory.mktemp("planted")
    with right[0].open(newline="") as stream:
        rows = [*csv.DictReader(stream)]
    smiles, values = [row["smiles"] for row in rows], [float(row["y"]) for row in rows]
    for row in WRONG:
        values[row] += 30.0
    smiles += [smiles[3], smiles[5]]
    values += [values[3] + 0.3, values[5] - 30.0]
    table = table_of(values, smiles, folder / "table.csv")
    fit(table, "y", folder / "model", members=3, encoder=None, refit=False, split="all", quiet=True)
    return table, folder / "model"


def test_planted_values_are_found_and_right_ones_are_not(right, planted):
    few = examine(load_model(right[1])).suspects
    assert len(few) <= 0.025 * ROWS  # one in a hundred is usual
    examined = examine(load_model(planted[1]))
    assert examined.knows_table
    assert examined.values == ROWS + 2
    found = {one.place.row - 1 for one in examined.suspects}
    assert {*WRONG, 5, ROWS + 1} <= found
    assert not {3, ROWS} & found
    assert len(found) <= 5 + 0.025 * ROWS
    of_row = {one.place.row - 1: one for one in examined.suspects}
    for row in WRONG:
        one = of_row[row]
        assert (one.place.file, one.place.line) == ("table.csv", row + 2)
        assert "outside the 99% interval" in one.reasons
        assert one.lower < float(one.predicted) < one.upper < float(one.measured)
        assert one.excess > 1
    (contradiction,) = [text for text in of_row[ROWS + 1].reasons if "contradicts" in text]
    assert contradiction.endswith("in row 6 (c5)")
    rows = [one.place.row - 1 for one in examined.suspects]
    assert rows.index(ROWS + 1) < rows.index(5)  # the value that is farther from the prediction
    excess = [one.excess for one in examined.suspects if one.place.row - 1 in WRONG]
    assert excess == sorted(excess, reverse=True)
    judged = examined.judged["y"]
    assert (len(judged.truth), judged.is_suspicious.sum()) == (ROWS + 2, len(found))
    values = [float(row["y"]) for row in read(planted[0])]
    for molecule in (3, 5):
        rows = judged.molecules == judged.molecules[np.flatnonzero(judged.truth == values[molecule])[0]]
        assert sorted(judged.truth[rows]) == sorted([values[molecule], values[ROWS + (molecule == 5)]])
        assert len({*judged.predicted[rows]}) == 1


def test_tiny_values_beside_limits_are_compared_with_their_own_predictions(tmp_path):
    smiles, found = embedded_smiles(60), []
    for number, unit in enumerate((1.0, 1e-10)):
        values = [repr(unit * (heavy(text) + (30 if row == 50 else 0))) for row, text in enumerate(smiles)]
        values[5:45:4] = [f"<{unit * 1000}"] * 10
        table, folder = table_of(values, smiles, tmp_path / f"{number}.csv"), tmp_path / str(number)
        options = {"members": 3, "encoder": None, "split": "all", "scale": "linear", "quiet": True}
        fit(table, "y", folder, **options)
        found.append({one.place.row: round(one.excess, 2) for one in examine(load_model(folder)).suspects})
    assert 51 in found[0]
    assert found[1] == pytest.approx(found[0], rel=0.05)


def test_targets_may_be_called_as_other_columns_of_the_rows(tmp_path):
    names, values = ("row", "line", "file", "split"), (1.5, 2.5, 3.5, 4.5)
    table, smiles = tmp_path / "table.csv", embedded_smiles(40)
    lines = [",".join([text, *(repr(heavy(text) + value) for value in values)]) for text in smiles]
    lines.append(",".join([smiles[2], *("99.0",) * 4]))
    table.write_text("\n".join([",".join(["smiles", *names]), *lines]) + "\n")
    options = {"members": 3, "encoder": None, "quality": "fast", "split": "all", "quiet": True}
    fit(table, names, tmp_path / "model", **options)
    suspects = [one for one in examine(load_model(tmp_path / "model")).suspects if one.place.row == 41]
    assert {one.target: one.measured for one in suspects} == dict.fromkeys(names, "99")


def test_changes_of_matched_pairs(planted):
    examined = examine(load_model(planted[1]))
    with planted[0].open(newline="") as stream:
        values = [float(row["y"]) for row in csv.DictReader(stream)]
    assert examined.pairs
    sizes = [abs(pair.measured_change) for pair in examined.pairs]
    assert sizes == sorted(sizes, reverse=True)
    judged = examined.judged["y"]
    means = np.bincount(judged.molecules, judged.truth) / np.bincount(judged.molecules)
    spread = np.std(means)
    for pair in examined.pairs:
        places = [pair.first.row - 1, pair.second.row - 1]
        if not {3, 5} & {*places}:  # means of two values
            assert pair.measured_change == pytest.approx(values[places[1]] - values[places[0]])
        assert pair.is_cliff == (abs(pair.measured_change) > spread)
        assert pair.is_suspicious == bool({*places} & {one.place.row - 1 for one in examined.suspects})


def test_the_page_writes_exchanges_without_numbers_of_bonds(planted):
    examined = examine(load_model(planted[1]))
    pair = replace(examined.pairs[0], before="Cl[*:1]", after="[H][*:1]", is_cliff=True)
    page = suspects_files.suspects_page(replace(examined, pairs=(pair,) * 3), load_model(planted[1]))
    assert page.count("Cl* → H*") == 4  # three cliffs, and their mean change
    assert "[*:1]" not in page


def read(file):
    with file.open(newline="") as stream:
        return [*csv.DictReader(stream)]


def test_the_command(planted, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["suspects", str(planted[1])]
    assert main([*words, "--table", str(planted[0])]) == 0
    captured = capsys.readouterr()
    assert "outside the 99% interval" in captured.out
    assert f"of {ROWS + 2} measured values are suspicious" in captured.err
    rows = read(tmp_path / "model_suspects" / "suspects.csv")
    assert {f"c{row}" for row in WRONG} <= {row["compound"] for row in rows}
    assert all(row["name"] == row["compound"] for row in rows)
    assert all(row["table_smiles"] == row["smiles"] for row in rows)
    pairs = read(tmp_path / "model_suspects" / "pairs.csv")
    assert pairs[0]["cliff"] in ("true", "false")
    assert all("[*:1]" in pair["before"] for pair in pairs)
    page = (tmp_path / "model_suspects" / "suspects.html").read_text()
    assert page.count("<figure") >= len(rows)
    assert "c17, row 18 (line 19) of table.csv" in page
    assert "<script" not in page
    before = (tmp_path / "model_suspects" / "suspects.csv").read_text()
    assert (
        main([*words, "--table", str(planted[0]), "--json", "--quiet"]) == 0
    )  # a second run replaces the first
    result = json.loads(capsys.readouterr().out)
    assert len(result["suspects"]) == len(rows)
    assert (tmp_path / "model_suspects" / "suspects.csv").read_text() == before


def test_wrong_models_and_tables_are_refused(right, planted, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "table.csv"
    other.write_text(right[0].read_text())
    (tmp_path / "taken").write_text("")
    for words, message in (
        (["gap-xtb"], "suspicious values need a model of molslice fit; gap-xtb is a network"),
        (["logbb"], "has no rows.csv, the rows of the fit; models that ship do not have it"),
        ([str(planted[1]), "--table", str(other)], "is not the table of"),
        ([str(planted[1]), "--out", "taken"], "taken is a file; choose another folder"),
        ([str(SAVED / "fit"), "--table", str(other)], "fit it again for --table"),
    ):
        assert main(["suspects", *words]) == 1
        assert message in capsys.readouterr().err
    assert [*tmp_path.glob("*_suspects")] == []


def test_a_damaged_folder_is_refused(planted, tmp_path):
    shutil.copytree(planted[1], tmp_path / "model")
    (tmp_path / "model" / TABLE_ROWS).write_text("smiles,row,file,table_row,line,y\nCCO,500,a.csv,1,2,1.0\n")
    with pytest.raises(MolsliceError, match=r"cannot read .*table_rows.csv: row 500 of 120"):
        examine(load_model(tmp_path / "model"))


@pytest.mark.parametrize("name", ["fit", "fit_log", "fit_pairs", "fit_scale"])
def test_older_folders_are_examined_by_their_rows(name):
    examined = examine(load_model(SAVED / name))
    assert not examined.knows_table
    assert examined.values == 22
    assert {one.place.file for one in examined.suspects} <= {"rows.csv"}
    assert (name == "fit_pairs") <= (examined.pairs == ())


def test_the_chart_of_a_learned_logarithm_has_logarithmic_axes_also_without_pairs(monkeypatch):
    axes, model = [], load_model(SAVED / "fit_log")
    monkeypatch.setattr(
        suspects_files, "draw_suspects", lambda *points, logarithmic: axes.append(logarithmic) or ""
    )
    suspects_files.suspects_page(replace(examine(model), pairs=()), model)
    assert axes == [True]


@pytest.mark.parametrize("logarithmic", [False, True])
def test_the_chart_has_a_dot_for_each_measurement_and_joins_a_molecule(logarithmic, monkeypatch):
    figures = []
    monkeypatch.setattr(
        charts, "to_picture", lambda figure, _: figures.append(figure.axes[0]) or b"<svg></svg>"
    )
    truth, predicted = np.array([5.0, 1.0, 3.0, 2.0, -1.0]), np.array([4.0, 1.5, 4.0, 2.0, 1.0])
    marks, molecules = np.array([True, False, False, False, False]), np.array([0, 1, 0, 2, 2])
    charts.draw_suspects(truth, predicted, marks, molecules, "y", logarithmic=logarithmic)
    dots = [line.get_xdata().tolist() for line in figures[0].lines if line.get_marker() == "."]
    assert dots == [truth[1 : 4 if logarithmic else 5].tolist(), [5.0]]
    lines = [line.get_xydata().tolist() for line in figures[0].lines if line.get_linewidth() == 0.5]
    assert lines[0] == [[3.0, 4.0], [5.0, 4.0]]
    assert len(lines) == (1 if logarithmic else 2)


def test_classes(tmp_path):
    smiles = embedded_smiles(100)
    median = np.median([heavy(text) for text in smiles])
    labels = ["large" if heavy(text) > median else "small" for text in smiles]
    sizes = np.abs(np.array([heavy(text) for text in smiles]) - median)
    wrong = int(sizes.argmax())
    labels[wrong] = "small" if labels[wrong] == "large" else "large"
    table = table_of([*labels, "large", "small"], [*smiles, "CCCCCCCCS", "CCCCCCCCS"], tmp_path / "table.csv")
    fit(table, "y", tmp_path / "model", members=3, encoder=None, refit=False, split="all", quiet=True)
    examined = examine(load_model(tmp_path / "model"))
    of_row = {one.place.row - 1: one for one in examined.suspects}
    assert of_row[100].reasons == ("contradicts small in row 102 (c101)",)
    assert of_row[101].reasons == ("contradicts large in row 101 (c100)",)
    assert math.isnan(of_row[100].probability)
    assert wrong in of_row
    assert of_row[wrong].probability < 0.5
    assert of_row[wrong].measured == labels[wrong] != of_row[wrong].predicted
    assert len(of_row) <= 5


def test_kept_duplicates_contradict_each_other(right, tmp_path):
    with right[0].open(newline="") as stream:
        rows = [*csv.DictReader(stream)]
    smiles, values = [row["smiles"] for row in rows], [float(row["y"]) for row in rows]
    table = table_of([*values, values[5] - 30], [*smiles, smiles[5]], tmp_path / "table.csv")
    options = {"members": 3, "encoder": None, "refit": False, "split": "all", "quiet": True}
    fit(table, "y", tmp_path / "model", duplicates="keep", **options)
    reasons = {one.place.row - 1: one.reasons for one in examine(load_model(tmp_path / "model")).suspects}
    assert any("contradicts" in text for text in reasons[5])
    assert any("in row 6" in text for text in reasons[ROWS])


def test_every_conflict_that_the_fit_names_is_suspicious_also_in_a_wide_interval(tmp_path, capsys):
    smiles = embedded_smiles(60)
    values = np.random.default_rng(0).normal(0, 1, 60)  # cannot be learned, so intervals are wide
    values[7] = 0.1
    table = table_of(
        [*values, 0.9, values[9] + 0.02], [*smiles, smiles[7], smiles[9]], tmp_path / "table.csv"
    )
    command = ["fit", str(table), "--target", "y", "--members", "3", "--no-encoder", "--quality", "fast"]
    assert main([*command, "--out", str(tmp_path / "model")]) == 0
    said = capsys.readouterr().err
    assert "c7: 0.1, 0.9 (rows 8, 61)" in said
    assert "differences like these, but smaller: 1 molecule\n" in said
    assert "(rows 10, 62)" not in said
    examined = examine(load_model(tmp_path / "model"))
    assert examined.values == 62
    reasons = {one.place.row: one.reasons for one in examined.suspects}
    assert reasons[8] == ("contradicts 0.9 in row 61 (c60)",)
    assert reasons[61] == ("contradicts 0.1 in row 8 (c7)",)
    assert not {10, 62} & {*reasons}


def test_usual_errors_of_known_distributions():
    generator = np.random.default_rng(0)
    normal, laplace = np.abs(generator.normal(size=100_000)), generator.exponential(size=100_000)
    assert usual_error(normal, 0.99) == pytest.approx(2.576, rel=0.1)
    assert usual_error(laplace, 0.99) == pytest.approx(-math.log(0.01), rel=0.05)
    with_wrong = normal.copy()
    with_wrong[:5000] += 50
    assert usual_error(with_wrong, 0.99) < 1.5 * 2.576
    assert np.quantile(with_wrong, 0.99) > 40  # hidden by each other
    assert usual_error(np.zeros(5), 0.99) == 0.0


def test_unusual_classes_have_a_hundredth_of_the_probability():
    chance = np.random.default_rng(0).uniform(size=10_000) ** 4
    probabilities = np.stack([chance, 1 - chance], axis=1)
    least = least_probability(probabilities, 0.99)
    assert probabilities[probabilities < least].sum() == pytest.approx(100, rel=0.01)
