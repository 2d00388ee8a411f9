"""What every format holds of the predictions: numbers, texts and reasons in their rows."""

import csv
import gzip
import io
import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from molslice.inference.predictions import TableRows
from molslice.inference.tables.sinks import open_sink
from molslice.types import MolsliceError

NAMES, NUMBERS, TEXTS = ["smiles", "n"], ["y", "y_lower"], ["in_domain", "domain_reason"]
ROWS = [
    (["CCO", "1"], [0.1, -2.5], None, ["true", ""]),
    (["oops", ""], [np.nan, np.nan], "not read", ["", ""]),
    (["C", "3"], [1e-9, np.inf], None, ["false", "too, large"]),
]


def write(path, rows=ROWS, schema=None):
    with open_sink(path, NAMES, NUMBERS, TEXTS, "error", schema) as sink:
        for part in (rows[:2], rows[2:]):
            cells, values, errors, texts = (list(column) for column in zip(*part, strict=True))
            sink(cells, TableRows(np.array(values, np.float32), errors, texts))


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_csv_has_numbers_texts_and_reasons(tmp_path, name):
    write(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
    assert list(csv.reader(io.StringIO(text))) == [
        [*NAMES, *NUMBERS, *TEXTS, "error"],
        ["CCO", "1", "0.1", "-2.5", "true", "", ""],
        ["oops", "", "nan", "nan", "", "", "not read"],
        ["C", "3", "1e-09", "inf", "false", "too, large", ""],
    ]


def test_parquet_has_numbers_texts_and_reasons(tmp_path):
    schema = pyarrow.schema([("smiles", pyarrow.string()), ("n", pyarrow.int64())])
    write(tmp_path / "a.parquet", schema=schema)
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.schema.field("n").type == pyarrow.int64()
    found = table.to_pydict()
    assert np.isnan(found["y"][1])
    assert np.isnan(found["y_lower"][1])
    del found["y"][1], found["y_lower"][1]
    assert found == {
        "smiles": ["CCO", "oops", "C"],
        "n": [1, None, 3],
        "y": [np.float32(0.1), np.float32(1e-9)],
        "y_lower": [-2.5, np.inf],
        "in_domain": ["true", None, "false"],
        "domain_reason": [None, None, "too, large"],
        "error": [None, "not read", None],
    }


def test_json_lines_have_numbers_texts_and_reasons(tmp_path):
    write(tmp_path / "a.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [list(line.values()) for line in lines] == [
        ["CCO", "1", 0.1, -2.5, True, None, None],
        ["oops", "", None, None, None, None, "not read"],
        ["C", "3", 1e-9, None, False, "too, large", None],
    ]
    assert list(lines[0]) == [*NAMES, *NUMBERS, *TEXTS, "error"]


def test_numpy_has_the_numbers(tmp_path):
    write(tmp_path / "a.npy")
    expected = np.array([values for _, values, _, _ in ROWS], np.float32)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), expected)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_a_name_that_occurs_twice_is_refused_where_names_are_keys(tmp_path, name):
    with (
        pytest.raises(MolsliceError, match=r"several columns named 'n', which this format does not allow"),
        open_sink(tmp_path / name, ["n", "n"], NUMBERS, [], "error"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
