"""Tests of columns of tables in four formats."""

import csv
import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from molslice.files.records import Records, read_records
from molslice.types import MolsliceError

RECORDS = [{"text": 'one, "two"\nthree', "label": "a"}, {"text": "four\tfive", "label": "b"}]


def quoted(cell):
    return '"' + cell.replace('"', '""') + '"'


def write(path, records=RECORDS):
    """Write records in the format of the file suffix."""
    names = list(records[0])
    if ".parquet" in path.name:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
        return path
    if ".jsonl" in path.name:
        text = "\n".join(json.dumps(record) for record in records) + "\n\n"
    else:
        delimiter = "\t" if ".tsv" in path.name else ","
        rows = [names, *([record[name] for name in names] for record in records)]
        text = "".join(delimiter.join(map(quoted, row)) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize(
    "name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.csv.gz", "a.tsv.gz", "a.jsonl.gz"]
)
def test_every_format_gives_the_same_columns(tmp_path, name):
    found = read_records(write(tmp_path / name), ("label", "text"))
    assert found.columns == {"label": ["a", "b"], "text": [record["text"] for record in RECORDS]}


def test_a_document_may_be_long(tmp_path):
    long = "word " * 60_000
    found = read_records(write(tmp_path / "a.csv", [{"text": long}]), ("text",))
    assert found.columns["text"] == [long]
    assert csv.field_size_limit() < len(long)  # that of the process is as it was


def test_values_of_json_and_parquet_stay_what_they_are(tmp_path):
    records = [{"text": "x", "label": [1, 2]}, {"text": None, "label": []}]
    for name in ("a.jsonl", "a.parquet"):
        found = read_records(write(tmp_path / name, records), ("text", "label"))
        assert found.columns == {"text": ["x", None], "label": [[1, 2], []]}


def test_what_is_wrong_with_a_file_is_named(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "x"}\n{"text": \n')
    (tmp_path / "same.jsonl").write_text('{"text": "x", "text": "y"}\n')
    (tmp_path / "list.jsonl").write_text("[1]\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    latin = pyarrow.array([b"caf\xe9"]).view(pyarrow.utf8())
    pyarrow.parquet.write_table(pyarrow.table({"text": latin}), tmp_path / "latin.parquet")
    write(tmp_path / "good.parquet")
    write(tmp_path / "good.jsonl")
    twice = pyarrow.table([pyarrow.array(["x"]), pyarrow.array(["y"])], names=["text", "text"])
    pyarrow.parquet.write_table(twice, tmp_path / "twice.parquet")
    for name, columns, message in [
        ("bad.jsonl", ("text",), "bad.jsonl, line 2 is not JSON"),
        ("same.jsonl", ("text",), "same.jsonl, line 1 is not JSON: the name 'text' occurs twice"),
        ("list.jsonl", ("text",), r"line 1 is not an object: '\[1\]'"),
        ("empty.jsonl", ("text",), "has no rows"),
        ("good.jsonl", ("texts",), "line 1 has no 'texts'; did you mean 'text'"),
        ("good.parquet", ("labels",), "no column 'labels'; did you mean 'label'"),
        ("torn.parquet", ("text",), "cannot read .*torn.parquet as Parquet"),
        ("latin.parquet", ("text",), "cannot read .*latin.parquet as Parquet: 'utf-8' codec"),
        ("twice.parquet", ("text",), "twice.parquet has 2 columns named 'text'"),
        ("none.parquet", ("text",), "no such file"),
        ("none.csv", ("text",), "no such file"),
        ("table.xlsx", ("text",), r"\.csv, \.tsv, \.jsonl"),
    ]:
        with pytest.raises(MolsliceError, match=message):
            read_records(tmp_path / name, columns)


def test_cells_as_text(tmp_path):
    found = Records(tmp_path, {"c": [None, "x", 3, 0.5]})
    assert found.texts("c") == ["", "x", "3", "0.5"]
    with pytest.raises(MolsliceError, match=r"row 2, column 'c': \"\['x'\]\" is not a text or number"):
        Records(tmp_path, {"c": ["x", ["x"]]}).texts("c")


def test_places_name_the_line_where_there_is_one(tmp_path):
    (tmp_path / "a.jsonl").write_text('\n{"text": "x"}\n\n{"text": "y"}\n')
    (tmp_path / "a.tsv").write_text('text\tn\n"x\ny"\t1\nz\n')
    for name, line in (("a.jsonl", 4), ("a.tsv", 4)):
        found = read_records(tmp_path / name, ("text",))
        assert found.where(1) == f"{tmp_path / name}, row 2 (line {line})"
    assert read_records(write(tmp_path / "a.parquet"), ("text",)).where(1) == f"{tmp_path}/a.parquet, row 2"
    (ragged,) = read_records(tmp_path / "a.tsv", ("text",)).columns["text"][1:]
    assert ragged.reason == "1 cell, the header has 2"
