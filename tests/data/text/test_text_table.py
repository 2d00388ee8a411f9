"""Tests of tables of texts: one class, several labels in a cell, several label columns."""

import json

import numpy as np
import pytest

from molslice.data.text.text_table import TextTable
from molslice.types import MolsliceError

NOTES = ["fever and cough", "chest pain", "fracture of the arm", "cough again", "no findings"] * 4
CODES = ["780.6;786.2", "786.5", "812.0;V58", "786.2; 786.2", ""] * 4


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


def csv_file(path, **columns):
    rows = zip(*columns.values(), strict=True)
    quoted = (",".join(f'"{cell}"' for cell in row) for row in rows)
    path.write_text("\n".join([",".join(columns), *quoted]) + "\n")
    return path


def test_one_class_of_several(tmp_path):
    kinds = ["lung", "heart", "bone", " lung ", ""] * 4
    data = TextTable(
        path=csv_file(tmp_path / "a.csv", TEXT=NOTES, kind=kinds),
        text_column="TEXT",
        label_columns="kind",
        valid_fraction=0.2,
    )
    assert (data.kind, data.target_names, data.class_names) == (
        "multiclass",
        ("kind",),
        ("bone", "heart", "lung"),
    )
    np.testing.assert_array_equal(data.labels[:5, 0], [2, 1, 0, 2, np.nan])
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 14, "valid": 4, "test": 2}
    assert 4 not in np.concatenate([data.labeled_rows(split) for split in ("train", "valid")])


def test_a_label_of_json_lines_that_is_nan_is_missing(tmp_path):
    labels = [1, 0, float("nan"), None]
    rows = [{"text": f"{NOTES[place]} {place}", "label": labels[place % 4]} for place in range(20)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = TextTable(path=path, text_column="text", label_columns="label")
    assert data.class_names == ("0", "1")
    np.testing.assert_array_equal(data.labels[:4, 0], [1, 0, np.nan, np.nan])


def test_several_labels_in_a_cell(tmp_path):
    """The format of MIMIC-III: TEXT, ICD9_CODE with semicolons."""
    path = csv_file(tmp_path / "a.csv", HADM_ID=range(20), TEXT=NOTES, ICD9_CODE=CODES)
    options = {"text_column": "TEXT", "label_columns": "ICD9_CODE", "separator": ";"}
    data = TextTable(path=path, **options)
    assert (data.kind, data.class_names) == ("classification", ())
    assert data.target_names == ("780.6", "786.2", "786.5", "812.0", "V58")
    assert data.spec.num_outputs == 5
    assert data.labels[:5].tolist() == [
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 1],
        [0, 1, 0, 0, 0],
        [0] * 5,
    ]
    few = TextTable(path=path, **options, max_labels=2)
    assert few.target_names == ("780.6", "786.2")  # 786.2 eight times, then the first of four with four
    assert few.labels[2].tolist() == [0, 0]
    batch = few.collate(few.labeled_rows("test"))
    assert batch.targets.shape == (2, 2)


def test_lists_are_labels_too(tmp_path):
    rows = [{"text": text, "label": code.split(";")} for text, code in zip(NOTES, CODES, strict=True)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = TextTable(path=tmp_path / "a.jsonl", separator=";")
    assert data.target_names == ("780.6", "786.2", "786.5", "812.0", "V58")
    with pytest.raises(MolsliceError, match=r"row 1 \(line 1\), column 'label'"):
        TextTable(path=tmp_path / "a.jsonl")


def test_several_columns_of_yes_and_no(tmp_path):
    toxic, rude = ["1", "0", "", "true", "0"] * 4, ["0", "1"] * 10
    path = csv_file(tmp_path / "a.csv", text=NOTES, toxic=toxic, rude=rude)
    options = {"label_columns": ["toxic", "rude"]}
    data = TextTable(path=path, **options)
    assert (data.kind, data.target_names) == ("classification", ("toxic", "rude"))
    np.testing.assert_array_equal(data.labels[:4], [[1, 0], [0, 1], [np.nan, 0], [1, 1]])
    told = TextTable.describe({"path": path, **options})
    assert told is not None
    assert (told.num_outputs, told.vocabulary_size) == (2, data.spec.vocabulary_size)
    assert TextTable.describe({"path": path}) is None
    bad = csv_file(tmp_path / "b.csv", text=NOTES, toxic=["2"] + toxic[1:], rude=rude)
    with pytest.raises(
        MolsliceError, match=r"b\.csv, row 1 \(line 2\), column 'toxic': '2' is neither 0 nor 1"
    ):
        TextTable(path=bad, **options)


def test_files_of_their_own(tmp_path):
    paths = [
        csv_file(tmp_path / f"{name}.csv", text=NOTES[:n], label=(["a", "b"] * 10)[:n])
        for name, n in (("x", 20), ("y", 4), ("z", 6))
    ]
    data = TextTable(path=paths[0], valid_path=paths[1], test_path=paths[2])
    assert {name: (rows[0], rows[-1]) for name, rows in data.splits.items()} == {
        "train": (0, 19),
        "valid": (20, 23),
        "test": (24, 29),
    }
    fold = TextTable(path=paths[0], test_path=paths[2], folds=2, fold=1, fold_over="train")
    assert fold.splits["official_test"].tolist() == list(range(20, 26))


def test_mistakes_are_named(tmp_path):
    path = csv_file(tmp_path / "a.csv", text=NOTES, label=CODES)
    empty = csv_file(tmp_path / "b.csv", text=NOTES, label=[""] * 20)
    for options, message in [
        ({"text_column": "texts"}, "no column 'texts'; did you mean 'text'"),
        ({"label_columns": []}, "at least one column"),
        ({"label_columns": ["label", "text"]}, "must differ"),
        ({"label_columns": ["a", "b"], "separator": ";"}, "'?;'? and 2 columns"),
        ({"separator": ""}, "got ''"),
        ({"max_labels": 3}, "max_labels must be a positive integer"),
        ({"separator": ";", "max_labels": 0}, "max_labels must be a positive integer"),
        ({"path": empty, "separator": ";"}, "no label in any row"),
        ({"path": empty}, "no label has 1 rows or more"),
    ]:
        with pytest.raises(MolsliceError, match=message):
            TextTable(**{"path": path, **options})
