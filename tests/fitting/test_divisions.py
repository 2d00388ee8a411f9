"""Splits by time and by cluster, groups that are never divided, and numbers in a column of splits."""

import csv
import json

import numpy as np
import pytest

from molslice.cli import main
from molslice.fitting.card import write_card
from molslice.fitting.data import FitOptions
from molslice.fitting.fit import fit
from molslice.fitting.folds import assign_folds
from molslice.fitting.groups import connect
from molslice.fitting.table import read_fit_data
from molslice.folders.fitted import CARD, ROWS
from molslice.inference.load import load_model
from molslice.tasks.standard_errors import MeasuredMetric
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles

CHAINS = ["C" * length for length in range(1, 41)]
YEARS = [2000 + place // 4 for place in range(40)]  # ten years with four molecules each

pytestmark = pytest.mark.usefixtures("few_trees")


def write(file, header, rows):
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    return file


def read(tmp_path, header, rows, target="y", **options):
    file = write(tmp_path / "a.csv", header, rows)
    return read_fit_data(file, (target,), FitOptions(**options), workers=0)


def dated(tmp_path, rows, **options):
    """Read rows of SMILES and date."""
    rows = [[text, place, date] for place, (text, date) in enumerate(rows)]
    options = {"split": "time", "by": "date", **options}
    return read(tmp_path, ["smiles", "y", "date"], rows, **options)


def grouped(tmp_path, rows, **options):
    """Read rows of SMILES and group."""
    rows = [[text, place, group] for place, (text, group) in enumerate(rows)]
    return read(tmp_path, ["smiles", "y", "lab"], rows, groups="lab", **options)


def held_out(data):
    return {data.smiles[row] for row in np.flatnonzero(data.test)}


def folds_of(data, members=5):
    folds = assign_folds(data, members, 0)
    return folds, dict(zip(data.smiles, folds[0].tolist(), strict=True))


# by time


def test_the_latest_tenth_is_held_out(tmp_path):
    data = dated(tmp_path, zip(CHAINS, YEARS, strict=True))
    assert held_out(data) == set(CHAINS[36:])
    assert (
        "time: 4 of 40 compounds, first measured on or after 2009 (column 'date'), are held out"
        in data.findings
    )


def test_rows_of_one_date_are_not_divided(tmp_path):
    """Of one row and of seven, the latter is closer to a tenth of 60."""
    dates = ["2019-05-01"] * 53 + ["2020-02-01"] * 6 + ["2020-03-01"]
    data = dated(tmp_path, zip(embedded_smiles(60), dates, strict=True))
    assert data.test.sum() == 7
    assert any("on or after 2020-02-01" in text for text in data.findings)


def test_dates_of_every_form_are_ordered_by_time(tmp_path):
    dates = [f"{28 - place % 28:02d}.{1 + place % 12:02d}.{2000 + place % 20}" for place in range(40)]
    data = dated(tmp_path, zip(CHAINS, dates, strict=True))
    latest = sorted(range(40), key=lambda place: dates[place].split(".")[::-1])[36:]
    assert held_out(data) == {CHAINS[place] for place in latest}


def test_a_compound_is_dated_by_its_first_measurement(tmp_path):
    """Its later rows, and the later rows of its salts and stereoisomers, stay training rows."""
    forms = ["C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", "CC(N)C(=O)O.Cl"]
    rows = [
        *zip(CHAINS, YEARS, strict=True),
        *zip(forms, (2001, 2009, 2010), strict=True),
        *zip(CHAINS[:2], (2012, ""), strict=True),
    ]
    data = dated(tmp_path, rows)
    assert held_out(data) == set(CHAINS[36:])
    assert any(text.startswith("time: 3 rows of this date or later in training") for text in data.findings)
    kept = dated(tmp_path, rows, duplicates="keep")
    assert held_out(kept) == set(CHAINS[36:])
    assert kept.test.sum() == 4


def test_rows_without_a_date_are_earliest(tmp_path):
    data = dated(tmp_path, zip(CHAINS, ["NA", "", *YEARS[2:]], strict=True))
    assert held_out(data) == set(CHAINS[36:])
    assert any(text.startswith("time: 2 rows without a date, dated by") for text in data.findings)
    _, folds = folds_of(data)
    assert folds["C"] == folds["CC"] == 0


def test_folds_are_consecutive_periods(tmp_path):
    rows = [*zip(CHAINS, YEARS, strict=True)]
    data = dated(tmp_path, rows)
    folds, by_smiles = folds_of(data)
    assert folds.shape == (1, 40)
    periods = [by_smiles[text] for text in CHAINS]
    assert periods == sorted(periods[:36]) + [-1] * 4
    assert set(np.bincount(periods[:36])) == {7, 8}
    assert "folds: consecutive periods" in data.findings
    again = dated(tmp_path, rows[::-1])
    assert held_out(again) == held_out(data)
    data.sort()
    again.sort()
    assert folds_of(again)[1] == folds_of(data)[1]


def test_periods_without_a_class_are_not_folds(tmp_path):
    rows = [[text, int(place < 6), 2000 + place] for place, text in enumerate(embedded_smiles(60))]
    data = read(tmp_path, ["smiles", "y", "date"], rows, split="time", by="date")
    folds, _ = folds_of(data, 2)
    assert any(
        text.startswith("folds: drawn at random: of consecutive periods, a member of the model would be")
        for text in data.findings
    )
    for fold in range(2):
        assert set(data.targets[(folds[0] >= 0) & (folds[0] != fold), 0]) == {0.0, 1.0}
    assert any("all 6 held-out rows are of class 0" in text for text in data.findings)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": None}, "the split time needs the column of the dates: --by COLUMN"),
        ({"split": "random"}, "--by .* is for the split time, but the split is 'random'"),
        ({"by": "dates"}, "has no column 'dates'; did you mean 'date'"),
        ({"by": "y"}, "the column 'y' cannot be both the dates and a target"),
        ({"by": "smiles"}, "the column 'smiles' cannot be both the dates and the SMILES"),
    ],
)
def test_columns_of_dates_that_are_refused(options, words, tmp_path):
    with pytest.raises(MolsliceError, match=words):
        dated(tmp_path, zip(CHAINS, YEARS, strict=True), **options)


@pytest.mark.parametrize(
    ("dates", "words"),
    [
        ([2020] * 40, "'date': all compounds have the same first date, so none can be held out"),
        ([""] * 40, "the column 'date' has no dates"),
        ([2019] * 15 + [2020] * 25, "25 of 40 compounds have the latest first date, 2020"),
        ([*YEARS[:-1], "soon"], r"a.csv, row 40 \(line 41\), column 'date': 'soon' is not a date"),
        (["4/3/2020"] * 40, "row 1 .*'4/3/2020' may have the day or the month first"),
    ],
)
def test_dates_that_are_refused(dates, words, tmp_path):
    with pytest.raises(MolsliceError, match=words):
        dated(tmp_path, zip(CHAINS, dates, strict=True))


def test_a_table_whose_dated_rows_have_no_molecule(tmp_path):
    rows = [*zip(CHAINS, [""] * 40, strict=True), ("C(", 2020)]
    with pytest.raises(MolsliceError, match="no row has a date, so none can be held out"):
        dated(tmp_path, rows)


# groups


def test_components_of_labels():
    compounds = np.array([0, 0, 1, 2, 3, 4])
    words = np.array([0, 1, 1, 2, -1, -1])
    assert connect(compounds, words).tolist() == [0, 0, 0, 1, 2, 3]
    scaffolds = np.array([0, 0, 0, 1, 1, -1])
    assert connect(compounds, words, scaffolds).tolist() == [0, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("split", ["random", "scaffold", "cluster", "all"])
def test_groups_are_never_divided(split, tmp_path):
    smiles = embedded_smiles(120)
    labs = [f"lab {place % 24}" for place in range(120)]
    data = grouped(tmp_path, zip(smiles, labs, strict=True), split=split)
    _, folds = folds_of(data)
    places = {}
    for text, lab in zip(smiles, labs, strict=True):
        places.setdefault(lab, set()).add(folds[text])
    assert len(places) == 24
    assert max(map(len, places.values())) == 1
    assert (split == "all") == (not data.test.any())
    assert any(text.startswith("groups: column 'lab', 24 in 120 rows") for text in data.findings)


def test_the_order_of_the_rows_does_not_change_the_division(tmp_path):
    rows = [*zip(embedded_smiles(120), [f"lab {place % 30}" for place in range(120)], strict=True)]
    first, second = (grouped(tmp_path, order) for order in (rows, rows[::-1]))
    assert held_out(first) == held_out(second)
    assert 6 <= len(held_out(first)) <= 12
    for data in (first, second):
        data.sort()
    assert folds_of(first)[1] == folds_of(second)[1]
    assert held_out(grouped(tmp_path, rows, seed=1)) != held_out(first)


def test_a_compound_joins_its_groups(tmp_path):
    """Also if its rows become one row."""
    rows = [(text, f"lab {place // 2}") for place, text in enumerate(CHAINS)]
    data = grouped(tmp_path, [*rows, (CHAINS[0], "lab 1"), ("C[C@H](N)O", "lab 0"), ("C[C@@H](N)O", "lab 2")])
    places = [data.smiles.index(text) for text in (*CHAINS[:6], "C[C@H](N)O", "C[C@@H](N)O")]
    assert len(set(data.groups[places].tolist())) == 1
    assert len(set(data.groups.tolist())) == 20 - 2
    assert (
        "groups: column 'lab', 20 in 43 rows; 2 compounds in several groups, which are joined"
        in data.findings
    )


def test_empty_cells_are_groups_of_their_own(tmp_path):
    labs = [*(["one"] * 10), *(["", "NA", " "] * 10)]
    data = grouped(tmp_path, zip(CHAINS, labs, strict=True))
    assert len(set(data.groups.tolist())) == 31
    assert any("; 30 rows without a group, each a group of its own" in text for text in data.findings)


def test_a_group_is_dated_by_its_first_measurement(tmp_path):
    rows = [[text, i, year, i % 20] for i, (text, year) in enumerate(zip(CHAINS, YEARS, strict=True))]
    data = read(tmp_path, ["smiles", "y", "date", "lab"], rows, split="time", by="date", groups="lab")
    late = [place for place in range(40) if place % 20 >= 16]
    assert held_out(data) == {CHAINS[place] for place in late}
    assert any(
        "16 rows of this date or later in training, because the group was first" in text
        for text in data.findings
    )


def test_few_large_groups_are_held_out_whole(tmp_path):
    labs = ["a"] * 18 + ["b"] * 14 + ["c"] * 8
    data = grouped(tmp_path, zip(CHAINS, labs, strict=True))
    assert held_out(data) == set(CHAINS[32:])
    with pytest.raises(MolsliceError, match="2 groups of training rows cannot be divided into 5 folds"):
        folds_of(data)
    assert set(folds_of(data, 2)[0][0]) == {-1, 0, 1}
    assert any(text.startswith("one group has 18 of 32 training rows") for text in data.findings)


@pytest.mark.parametrize(
    ("labs", "words"),
    [
        (["a"] * 40, "all 40 rows are in one group, which is not divided"),
        ([""] * 40, "column 'lab': all cells are empty, so there are no groups"),
    ],
)
def test_groups_that_are_refused(labs, words, tmp_path):
    with pytest.raises(MolsliceError, match=words):
        grouped(tmp_path, zip(CHAINS, labs, strict=True))


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("labs", "has no column 'labs'; did you mean 'lab'"),
        ("y", "the column 'y' cannot be both the groups and a target"),
        ("smiles", "the column 'smiles' cannot be both the groups and the SMILES"),
        (3, "groups must be text, got 3"),
    ],
)
def test_columns_of_groups_that_are_refused(groups, words, tmp_path):
    file = write(tmp_path / "a.csv", ["smiles", "y", "lab"], [[text, 1, "a"] for text in CHAINS])
    with pytest.raises(MolsliceError, match=words):
        fit(file, "y", tmp_path / "model", groups=groups, encoder=None, quiet=True)


def test_groups_on_both_sides_of_a_column_are_named(tmp_path):
    rows = [[text, place, place % 10, "test" if place > 35 else "train"] for place, text in enumerate(CHAINS)]
    data = read(tmp_path, ["smiles", "y", "lab", "part"], rows, split="part", groups="lab")
    assert held_out(data) == set(CHAINS[36:])
    assert "groups: 4 have training and held-out rows in the column 'part'" in data.findings
    _, folds = folds_of(data)
    assert all(len({folds[CHAINS[place]] for place in range(lab, 36, 10)}) == 1 for lab in range(10))


# clusters


def test_clusters_are_never_divided(tmp_path):
    series = [f"c1ccc2nc({'C' * length})ccc2c1" for length in range(2, 12)]
    salts = [f"{text}.Cl" for text in series[:3]]
    smiles = [*embedded_smiles(110), *series, *salts]
    data = read(
        tmp_path, ["smiles", "y"], [[text, place] for place, text in enumerate(smiles)], split="cluster"
    )
    _, folds = folds_of(data)
    assert len({folds[text] for text in [*series, *salts]}) == 1
    assert 6 <= data.test.sum() <= 12
    groups = dict(zip(data.smiles, data.groups.tolist(), strict=True))
    assert len(set(groups.values())) > 60
    for text, group in groups.items():
        assert {folds[other] for other in smiles if groups[other] == group} == {folds[text]}
    (finding,) = [text for text in data.findings if text.startswith("clusters: ")]
    assert "of 120 compounds with a similarity of at least 0.4 to their center" in finding


def test_one_cluster_is_refused(tmp_path):
    rows = [["c1ccccc1" + "C" * length, length] for length in range(8, 60)]
    with pytest.raises(MolsliceError, match="all 52 rows are in one cluster, which is not divided"):
        read(tmp_path, ["smiles", "y"], rows, split="cluster")


# numbers in a column of splits


@pytest.mark.parametrize(
    ("words", "finding"),
    [
        (["0", "1", "2"], "column 'part': 0 is train, 1 is valid, 2 is test"),
        (["0.0", "2.0"], "column 'part': 0.0 is train, 2.0 is test"),
        (["TRAIN", "Validation", "Test"], None),
    ],
)
def test_numbers_and_words_of_splits(words, finding, tmp_path):
    rows = [
        [text, place, words[-1 if place > 34 else place % (len(words) - 1)]]
        for place, text in enumerate(CHAINS)
    ]
    data = read(tmp_path, ["smiles", "y", "part"], rows, split="part")
    assert held_out(data) == set(CHAINS[35:])
    assert [text for text in data.findings if text.startswith("column 'part'")] == (
        [finding] if finding else []
    )


@pytest.mark.parametrize(
    "words", [["0", "1"], ["1", "2"], ["0", "1", "2", "3"], ["0", "2", "train"], ["0", "2", ""]]
)
def test_other_numbers_are_no_splits(words, tmp_path):
    rows = [[text, place, words[place % len(words)]] for place, text in enumerate(CHAINS)]
    with pytest.raises(MolsliceError, match="column 'part': '.*' is not one of train, valid, test"):
        read(tmp_path, ["smiles", "y", "part"], rows, split="part")


# whole fits


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    smiles = embedded_smiles(90)
    rows = [
        [text, len(text), f"{1 + i % 28}.{1 + i // 28}.2020", f"p{i // 3}"] for i, text in enumerate(smiles)
    ]
    file = write(folder / "a.csv", ["smiles", "size", "date", "project"], rows)
    options = {"split": "time", "by": "date", "groups": "project", "members": 3, "refit": False}
    return file, folder / "model", fit(file, "size", folder / "model", encoder=None, quiet=True, **options)


def test_the_folder_names_the_columns(fitted):
    _, folder, about = fitted
    assert about["options"]["split"] == "time"
    assert (about["options"]["by"], about["options"]["groups"]) == ("date", "project")
    assert "Split: time by date; groups: project; folds: 3, divided once" in (folder / CARD).read_text()
    assert write_card(about) == (folder / CARD).read_text()
    assert about["rows"] == {"train": 81, "test": 9}


def test_other_folders_do_not_name_them(fitted, tmp_path):
    about = fit(fitted[0], "size", tmp_path / "model", members=2, encoder=None, quiet=True)
    assert not {"by", "groups"} & set(about["options"])


def test_a_model_predicts_without_the_columns(fitted, capsys):
    _, folder, about = fitted
    with (folder / ROWS).open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["split"] == "test"]
    predicted = load_model(folder).predict([row["smiles"] for row in rows])
    np.testing.assert_allclose(predicted, [float(row["size_predicted"]) for row in rows], rtol=1e-6)
    assert main(["evaluate", str(folder), "--json", "--quiet"]) == 0
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert target["mae"] == pytest.approx(about["results"][0]["test"]["molslice fit"], rel=1e-5)


def test_standard_errors_are_over_groups(fitted):
    file, folder, about = fitted
    with file.open(newline="") as stream:
        projects = {row["smiles"]: row["project"] for row in csv.DictReader(stream)}
    with (folder / ROWS).open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["split"] == "train"]
    truth, predicted = (np.array([float(row[name]) for row in rows]) for name in ("size", "size_predicted"))
    groups = np.unique([projects[row["smiles"]] for row in rows], return_inverse=True)[1]
    expected, other = (
        np.sqrt(1 + 3 / 2) * MeasuredMetric.of("regression", predicted, truth, numbers).standard_error
        for numbers in (groups, np.arange(len(rows)))
    )
    stated = about["results"][0]["standard_errors"]["cross_validated"]
    assert stated == pytest.approx(expected)
    assert stated != pytest.approx(other, rel=0.01)


def test_the_report_repeats_the_fit(fitted, tmp_path):
    _, folder, _ = fitted
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "--out", str(page), "--quiet"]) == 0
    assert "--split time --by date --groups project" in page.read_text()


def test_the_command_line_takes_the_columns(fitted, tmp_path, capsys):
    file, _, about = fitted
    words = ["--split", "time", "--by", "date", "--groups", "project", "--members", "3", "--no-encoder"]
    command = ["fit", str(file), "--target", "size", "--out", str(tmp_path / "model"), *words]
    assert main([*command, "--no-refit", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["results"] == about["results"]
