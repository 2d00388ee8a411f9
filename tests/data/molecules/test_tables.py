"""Tests of reading molecules from files of any format."""

import gzip
import io
import json
import os
import pickle
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from rdkit import Chem
from rdkit.Chem import AllChem

from molslice.data.molecules import tables
from molslice.data.molecules.csv import Csv
from molslice.data.molecules.input_files import find_files
from molslice.data.molecules.tables import FileChunks, open_molecules
from molslice.types import MolsliceError

ROWS = [("CCO", "ethanol", 1.5), ("c1ccccc1", "benzene", 2.0), ("C[C@H](N)C(=O)O", "alanine", -1.0)]
NAMES = ["smiles", "name", "value"]


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def separated(delimiter, encoding="utf-8"):
    lines = [delimiter.join(NAMES), *(delimiter.join(map(str, row)) for row in ROWS)]
    return ("\n".join(lines) + "\n").encode(encoding)


def json_lines():
    return "".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in ROWS).encode()


def parquet():
    columns = dict(zip(NAMES, map(list, zip(*ROWS, strict=True)), strict=True))
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue()


def sdf(v3000=False, embedded=False):
    sink = io.StringIO()
    with Chem.SDWriter(sink) as writer:
        writer.SetForceV3000(v3000)
        for smiles, name, value in ROWS:
            mol = Chem.MolFromSmiles(smiles)
            if embedded:
                mol = Chem.AddHs(mol)
                AllChem.EmbedMolecule(mol, randomSeed=1)
                Chem.RemoveStereochemistry(mol)  # only the geometry has it
            mol.SetProp("_Name", name)
            mol.SetProp("value", str(value))
            writer.write(mol)
    return sink.getvalue().encode()


def read(*paths, size=2, **options):
    """Return the SMILES, the names, the values and the places of all rows."""
    with open_molecules(paths, **options) as table:
        wanted = [table.smiles_column, "name", "value"]
        return [
            (*row, chunk.where(place))
            for chunk in table.chunks(size, wanted)
            for place, row in enumerate(zip(*(chunk[name] for name in wanted), strict=True))
        ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", separated(",")),
        ("a.csv.gz", gzip.compress(separated(","), mtime=0)),
        ("a.csv.zst", pyarrow.compress(separated(","), "zstd", asbytes=True)),
        ("a.txt", separated(";")),
        ("a.tsv", separated("\t", "utf-16")),
        ("a.csv", separated("|", "utf-16-le")),
        ("a.jsonl", json_lines()),
        ("a.ndjson.gz", gzip.compress(json_lines(), mtime=0)),
        ("a.jsonl", json_lines().decode().encode("utf-16")),
        ("a.jsonl", json_lines().replace(b"\n", b"\r")),
        ("a.parquet", parquet()),
        ("a.sdf", sdf()),
        ("a.sdf.gz", gzip.compress(sdf(v3000=True), mtime=0)),
        ("a.sdf", sdf().replace(b"\n", b"\r\n")),
        ("a.sdf", sdf().replace(b"\n", b"\r")),
        ("a.sdf", sdf().decode().encode("utf-16")),
        ("a.sd", sdf(embedded=True)),
    ],
)
def test_every_format_is_the_same_table(tmp_path, name, content):
    found = read(written(tmp_path / name, content))
    assert [Chem.CanonSmiles(row[0]) for row in found] == [Chem.CanonSmiles(row[0]) for row in ROWS]
    assert [row[1] for row in found] == [row[1] for row in ROWS]
    assert [float(row[2]) for row in found] == [row[2] for row in ROWS]
    assert [row[3].partition(" (")[0] for row in found] == [f"{tmp_path / name}, row {i}" for i in (1, 2, 3)]


@pytest.mark.parametrize(
    ("content", "names", "cells"),
    [
        ("CCO\nC\n", ["smiles"], [["CCO"], ["C"]]),
        ("CCO ethanol\nC\tmethane gas\n", ["smiles", "name"], [["CCO", "ethanol"], ["C", "methane gas"]]),
        ("SMILES ID\nCCO 7\n", ["SMILES", "ID"], [["CCO", "7"]]),
        ("CCO\r\n\r\nC\r\n\r\n", ["smiles"], [["CCO"], [""], ["C"]]),
        ("CC |^1:0| radical\nC methane\n", ["smiles", "name"], [["CC |^1:0|", "radical"], ["C", "methane"]]),
        ("\ufeffCCO a,b\n", ["smiles", "name"], [["CCO", "a,b"]]),
        ("CCO a\rC b\rCC", ["smiles", "name"], [["CCO", "a"], ["C", "b"], ["CC", ""]]),
        ("CCO a\n\tCO\n  C b\n", ["smiles", "name"], [["CCO", "a"], ["", "CO"], ["C", "b"]]),
        ("SMILES\nCCO\n\tCO\n", ["SMILES"], [["CCO"], [""]]),
    ],
)
def test_a_file_of_smiles(tmp_path, content, names, cells):
    with open_molecules([written(tmp_path / "a.smi", content)]) as table:
        assert table.names == names
        assert [row for chunk in table.chunks(9, []) for row in chunk.cells] == cells


def test_what_cannot_be_read_keeps_its_row(tmp_path):
    lines = json_lines().decode().splitlines()
    lines[1:1] = ["[1]", "{", '{"smiles": null, "value": 3}']
    with open_molecules([written(tmp_path / "a.jsonl", "\n".join(lines))]) as table:
        (chunk,) = table.chunks(9, ["smiles"])
    assert chunk["smiles"] == ["CCO", "", "", "", "c1ccccc1", "C[C@H](N)C(=O)O"]
    assert list(chunk.errors) == [1, 2]
    assert chunk.errors[1] == "not a JSON object"
    assert chunk.errors[2].startswith("not JSON")

    records = sdf().decode().split("$$$$\n")
    records[1] = records[1].replace("M  END", "M  ND")
    records[2] = records[2].replace(" C ", " Qq", 1)
    with open_molecules([written(tmp_path / "a.sdf", "$$$$\n".join(records))]) as table:
        (chunk,) = table.chunks(9, ["smiles"])
    assert chunk["smiles"] == ["CCO", "", ""]
    assert chunk.errors[1] == "a record without the line 'M  END'"
    assert len(chunk.errors) == 2
    assert [row[table.names.index("value")] for row in chunk.cells] == ["1.5", "2.0", "-1.0"]


def test_properties_that_only_some_records_have_are_columns(tmp_path):
    first, second, *_ = sdf().decode().split("$$$$\n")
    second = second.replace(">  <value>", ">  <other>  (2) \na line\nanother line\n\n>  <value>")
    with open_molecules([written(tmp_path / "a.sdf", f"{first}$$$$\n{second}")]) as table:
        assert table.names == ["smiles", "name", "value", "other"]
        (chunk,) = table.chunks(9, ["other"])
    assert chunk["other"] == ["", "a line\nanother line"]


def test_properties_replace_neither_the_structure_nor_the_name(tmp_path):
    first, *_ = sdf().decode().split("$$$$\n")
    first = first.replace("ethanol", "> x <foo>", 1)
    more = "".join(
        f">  <{name}>\n{name} 2\n\n" for name in ("structure", "name", "smiles", "smiles_of_structure")
    )
    with open_molecules([written(tmp_path / "a.sdf", first + more)]) as table:
        (chunk,) = table.chunks(9, [table.smiles_column, "name"])
        assert not chunk.errors
        assert dict(zip(table.names, chunk.cells[0], strict=True)) == {
            "smiles_of_structure_of_structure": "CCO",
            "name": "> x <foo>",
            "value": "1.5",
            "structure_property": "structure 2",
            "name_property": "name 2",
            "smiles": "smiles 2",
            "smiles_of_structure": "smiles_of_structure 2",
        }


def test_no_property_of_an_sd_file_is_lost(tmp_path):
    first, *_ = sdf().decode().split("$$$$\n")
    for names in (("structure", "structure_property"), ("name_property", "name")):
        more = "".join(f">  <{name}>\n{name} 2\n\n" for name in names)
        with open_molecules([written(tmp_path / "a.sdf", first + more)]) as table:
            (chunk,) = table.chunks(9, [])
            assert len(set(table.names)) == 5
        assert chunk.cells[0][-2:] == [f"{name} 2" for name in names]


def test_bytes_of_parquet_are_text_value_by_value(tmp_path):
    values = [b"CCO", b"C\xffO", None, "\u00e9".encode()]
    kinds = [pyarrow.binary(), pyarrow.large_binary(), pyarrow.dictionary(pyarrow.int32(), pyarrow.binary())]
    for kind in kinds:
        columns = {"smiles": ["C"] * 4, "b": pyarrow.array(values, kind)}
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
        with open_molecules([tmp_path / "a.parquet"]) as table:
            (chunk,) = table.chunks(9, ["b"])
        assert chunk["b"] == ["CCO", "0x43ff4f", "", "\u00e9"]
    fixed = pyarrow.table({"smiles": pyarrow.array([b"CCO", b"CCN"], pyarrow.binary(3))})
    pyarrow.parquet.write_table(fixed, tmp_path / "a.parquet")
    with open_molecules([tmp_path / "a.parquet"]) as table:
        (chunk,) = table.chunks(9, ["smiles"])
    assert chunk["smiles"] == ["CCO", "CCN"]


def test_a_pipe_is_the_first_of_several_files(tmp_path):
    one = written(tmp_path / "1.csv", separated(","))
    os.mkfifo(tmp_path / "pipe")
    for second in (Path("-"), tmp_path / "pipe"):
        with pytest.raises(MolsliceError, match="must be the first input, because it can be read only once"):
            read(one, second)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("molecule,structure_text\naspirin,CCO\nwater,O=C\n", "structure_text"),
        ("mol,other\nCCO,CCN\nC(,CCN\n", "mol"),
        ("structure,x\naspirin,1\nwater,2\n", "structure"),  # the only candidate, whose rows are refused
        ("mol,smiles\nCCO,aspirin\n", "smiles"),
        ("Structure,smi\nCCO,x\n", "smi"),
    ],
)
def test_a_vague_name_is_that_of_smiles_if_its_cells_are(tmp_path, text, column):
    with open_molecules([written(tmp_path / "a.csv", text)]) as table:
        assert table.smiles_column == column


@pytest.mark.parametrize("ending", [".jsonl", ".sdf", ".parquet"])
def test_a_pipe_of_a_format_that_is_read_twice_is_refused(tmp_path, ending):
    os.mkfifo(tmp_path / f"pipe{ending}")
    with pytest.raises(MolsliceError, match="can be read only once, and a file .* is read twice"):
        read(tmp_path / f"pipe{ending}")


def test_several_files_are_one_table(tmp_path):
    written(tmp_path / "1.csv", separated(","))
    written(tmp_path / "2.csv", "value;smiles;name\n4;CN;amine\n")
    written(tmp_path / "3.jsonl", json_lines())
    found = read(tmp_path / "*.csv", tmp_path / "3.jsonl")
    assert [row[0] for row in found] == [*(row[0] for row in ROWS), "CN", *(row[0] for row in ROWS)]
    assert found[3] == ("CN", "amine", "4", f"{tmp_path / '2.csv'}, row 1 (line 2)")
    with open_molecules([tmp_path / "*.csv"]) as table:
        assert table.size == sum(path.stat().st_size for path in tmp_path.glob("*.csv"))
        cells = [row for chunk in table.chunks(9, []) for row in chunk.cells]
        assert cells[-1] == ["CN", "amine", "4"]  # in the order of the first file
        assert table.position == table.size


def test_files_that_do_not_fit_together(tmp_path):
    one = written(tmp_path / "1.csv", separated(","))
    two = written(tmp_path / "2.csv", "smiles,name,price\nC,methane,1\n")
    with pytest.raises(MolsliceError, match=r"2.csv has other columns than .*1.csv: 'price', 'value'"):
        read(one, two)
    with pytest.raises(MolsliceError, match="is given twice$"):
        read(one, one)
    (tmp_path / "link.csv").symlink_to(one)
    with pytest.raises(MolsliceError, match=r"link.csv is given twice, also as .*1.csv"):
        read(one, tmp_path / "link.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    for odd in (tmp_path / "loop.csv", tmp_path / ("x" * 300 + ".csv")):
        for paths in ([odd], [one, odd]):
            with pytest.raises(
                MolsliceError, match=r"cannot read .*\.csv: (Too many levels|File name too long)"
            ):
                read(*paths)
    with pytest.raises(MolsliceError, match="no file matches .*x"):
        find_files([tmp_path / "x*.csv"])
    odd = written(tmp_path / "[1].csv", separated(","))
    assert find_files([odd]) == [odd]  # a file of that name, not a pattern


@pytest.mark.parametrize("name", ["a.jsonl", "a.smi", "a.sdf", "a.parquet", "a.csv"])
def test_empty_and_damaged_files(tmp_path, name):
    for content in (b"", b"\n\n", gzip.compress(separated(",") * 99)[:-9], b"\xff\xd8\xff" + bytes(40)):
        reason = None
        try:
            with open_molecules([written(tmp_path / name, content)]) as table:
                chunks = list(table.chunks(9, []))
        except MolsliceError as error:
            reason = str(error)
        if reason is None and not content.strip():
            assert name in ("a.jsonl", "a.smi", "a.sdf")
            assert chunks == []
        elif reason is None:  # every row has a reason
            assert content.startswith(b"\xff")
            assert all(set(chunk.errors) == set(range(len(chunk))) for chunk in chunks)
        else:
            assert name in reason
            assert "\n" not in reason


def test_standard_input(tmp_path, monkeypatch):
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(separated(";")))

    monkeypatch.setattr("sys.stdin", Stdin)
    assert [row[0] for row in read(Path("-"))] == [row[0] for row in ROWS]


def test_training_reads_all_formats(tmp_path):
    many = [(smiles, name, value + i) for i in range(10) for smiles, name, value in ROWS]
    text = "".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in many)
    for name in ("1.jsonl", "2.jsonl"):
        written(tmp_path / name, text)
    data = Csv(path=str(tmp_path / "*.jsonl"), target_columns="value", cache_dir=tmp_path / "cache")
    assert len(data) == 60
    assert data.smiles_column == "smiles"
    assert data.smiles()[:3] == [row[0] for row in ROWS]
    assert data.where(31) == f"{tmp_path / '2.jsonl'}, row 2 (line 2)"
    again = Csv(
        path=[str(tmp_path / "1.jsonl"), str(tmp_path / "2.jsonl")],
        target_columns="value",
        cache_dir=tmp_path / "cache",
    )
    assert again.store.path == data.store.path


def test_the_files_of_a_table_are_read_elsewhere_in_the_same_chunks(tmp_path, monkeypatch):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text(" smiles,id\n" + "".join(f"{'C' * row},{row}\n" for row in range(1, 9)))
    second.write_text("id, smiles\n" + "".join(f"{row},{'N' * row}\n" for row in range(1, 6)))

    def map_here(items, work, *, split, **options):
        split = pickle.loads(pickle.dumps(split))
        return (work(divided) for item in items for divided in split(item))

    def mapped(reached=None):
        parts = table.map_on_cluster(lambda item: (item[0], None, item[1]), 3, ["smiles"], reached=reached)
        return [(*dump(chunk), position) for chunk, _, position in parts]

    monkeypatch.setattr(tables, "ray_map", map_here)
    with open_molecules([first, second], smiles_column="smiles") as table:
        chunks = [(chunk, table.position) for chunk in table.chunks(3, ["smiles"])]
        expected = [(*dump(chunk), position) for chunk, position in chunks]
        assert mapped() == expected
        assert mapped(chunks[1][0]) == expected[2:]
        assert mapped(chunks[4][0]) == []
    split = FileChunks(table.names, first, {"smiles": 0}, 3, None)
    with pytest.raises(MolsliceError, match="cannot continue after row 4 of .*: its chunk ends at row 6"):
        list(split((first, 4)))


def dump(chunk):
    return chunk.path, chunk.first, chunk["smiles"], chunk.cells, chunk.lines, chunk.errors


@pytest.mark.parametrize(
    "blank", ["\u00a0", "\u202f", "\u2007", "\u200b", "\u2060", "\ufeff", " \u00a0\u200b "]
)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_invisible_blanks_at_the_ends_have_no_meaning(tmp_path, blank, name):
    """A spreadsheet or a web page adds them to cells and names."""
    columns = {"smiles": ["CCO", "CC"], "name": ["a b", "\u03b2-x"], "value": ["1.5", "-2"]}
    odd = {
        f"{blank}{key}{blank}": [f"{blank}{cell}{blank}" for cell in cells] for key, cells in columns.items()
    }
    path = tmp_path / name
    if name == "a.parquet":
        pyarrow.parquet.write_table(pyarrow.table(odd), path)
    elif name == "a.jsonl":
        rows = [dict(zip(odd, row, strict=True)) for row in zip(*odd.values(), strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        delimiter = "," if name == "a.csv" else "\t"
        lines = [delimiter.join(odd), *(delimiter.join(row) for row in zip(*odd.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with open_molecules([path]) as table:
        assert table.smiles_column.strip(blank) == "smiles"  # by its name
        (chunk,) = table.chunks(9, ["smiles", "name", "value"])
    assert {key: chunk[key] for key in columns} == columns
    assert "\u03b2-x" in chunk.cells[1][1]
    assert chunk.cells[1][1] != "\u03b2-x"  # the output of a prediction repeats the cells as they are


def test_a_name_that_occurs_twice_in_one_record_is_refused_with_its_line(tmp_path):
    lines = json_lines().decode().splitlines()
    lines[1] = '{"smiles": "CC", "value": 1, "value": 9}'
    lines[2] = '{"smiles": "CC", "value": {"x": 1, "x": 2}}'
    with open_molecules([written(tmp_path / "a.jsonl", "\n".join(lines))]) as table:
        (chunk,) = table.chunks(9, ["value"])
    assert chunk["value"] == ["1.5", "", ""]
    assert chunk.errors == {
        1: "not JSON: the name 'value' occurs twice in an object",
        2: "not JSON: the name 'x' occurs twice in an object",
    }
    with (
        pytest.raises(MolsliceError, match="no line with a JSON object; line 1: .*'value' occurs twice"),
        open_molecules([written(tmp_path / "a.jsonl", lines[1])]),
    ):
        pass
    records = sdf().decode().split("$$$$\n")
    records[1] += ">  <value>\n9\n\n"
    with open_molecules([written(tmp_path / "a.sdf", "$$$$\n".join(records))]) as table:
        (chunk,) = table.chunks(9, ["value"])
    assert chunk["value"] == ["1.5", "", "-1.0"]
    assert chunk.errors == {1: "the property 'value' occurs twice"}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("first", ["smiles", "Drug"])
def test_a_file_without_rows_adds_nothing(tmp_path, place, first):
    contents = [f"{first},name,value\nCCO,a,1\n", f"value,name,{first}\n2,b,CC\n"]
    contents.insert(place, f"name,value,{first}\n")
    for number, content in enumerate(contents):
        written(tmp_path / f"{number}.csv", content)
    found = read(tmp_path / "*.csv")
    assert [row[:3] for row in found] == [("CCO", "a", "1"), ("CC", "b", "2")]
    with open_molecules([tmp_path / "*.csv"]) as table:
        assert table.names == contents[0].splitlines()[0].split(",")
        list(table.chunks(9, []))
        assert table.position == table.size


def test_files_without_any_row_have_none(tmp_path):
    for number in (0, 1):
        written(tmp_path / f"{number}.csv", "smiles,name,value\n")
    assert read(tmp_path / "*.csv") == []
    with pytest.raises(MolsliceError, match=r"0.csv and 1 other file has no rows"):
        Csv(path=str(tmp_path / "*.csv"), target_columns="value")


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "content"), [("a.jsonl", json_lines), ("a.smi", lambda: b"CCO ethanol\n"), ("a.sdf", sdf)]
)
def test_an_empty_file_of_a_format_without_names_adds_nothing(tmp_path, place, name, content):
    (tmp_path / "whole").mkdir()
    whole = written(tmp_path / "whole" / name, content())
    files = [whole, written(tmp_path / f"other{whole.suffix}", content())]
    files.insert(place, written(tmp_path / f"empty{whole.suffix}", "\n" * (place == 1)))
    with open_molecules([whole]) as table:
        names, column = table.names, table.smiles_column
        cells = [row for chunk in table.chunks(2, []) for row in chunk.cells]
    with open_molecules(files) as table:
        assert (table.names, table.smiles_column) == (names, column)
        assert [row for chunk in table.chunks(2, []) for row in chunk.cells] == 2 * cells
        split = FileChunks(table.names, table.paths[0], {column: table.find(column)}, 2, None)
    assert list(split((files[place], 0))) == []


@pytest.mark.parametrize("column", [None, "structure"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.smi", "a.sdf"])
def test_only_empty_files_have_the_column_of_smiles(tmp_path, name, column):
    (tmp_path / "more").mkdir()
    files = [written(tmp_path / name, ""), written(tmp_path / "more" / name, "\n")]
    with open_molecules(files, smiles_column=column) as table:
        assert table.names == [table.smiles_column] == [column or "smiles"]
        assert list(table.chunks(2, [table.smiles_column])) == []


def test_without_rows_any_column_may_be_that_of_smiles(tmp_path):
    with open_molecules([written(tmp_path / "a.csv", "compound,value\n")]) as table:
        assert table.smiles_column == "compound"
    with (
        pytest.raises(MolsliceError, match="the first line contains the SMILES 'CCO' instead of"),
        open_molecules([written(tmp_path / "a.csv", "CCO,1\n")]),
    ):
        pass


def test_types_of_parquet_are_those_of_the_files_with_rows(tmp_path):
    for name, rows, kind in (("a", 0, "string"), ("b", 2, "int64"), ("c", 0, "float64"), ("d", 1, "int64")):
        columns = {"smiles": ["CCO"] * rows, "n": pyarrow.array(range(rows), "int64").cast(kind)}
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / f"{name}.parquet")
    with open_molecules([tmp_path / "*.parquet"]) as table:
        assert table.schema.field("n").type == pyarrow.int64()
    with open_molecules([tmp_path / "c.parquet"]) as table:
        assert table.schema.field("n").type == pyarrow.float64()


def test_blank_lines_before_the_first_smiles(tmp_path):
    with open_molecules([written(tmp_path / "a.smi", "\n" * 25 + "CCO\n")]) as table:
        (chunk,) = table.chunks(99, ["smiles"])
    assert chunk["smiles"] == [""] * 25 + ["CCO"]
