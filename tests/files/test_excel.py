"""Excel workbooks as tables. Each test runs on openpyxl and on a stand-in."""

import io
import sys
import types
import zipfile
from datetime import date, datetime, time

import pytest

from molslice.files.tables import open_table, read_columns
from molslice.fitting.data import FitOptions
from molslice.fitting.table import read_fit_data
from molslice.types import MolsliceError

ENGINES = ["stand-in", "openpyxl"]


class Sheet:
    """A sheet as openpyxl gives it in the mode for reading."""

    def __init__(self, title, rows, state="visible"):
        self.title, self.sheet_state, self._rows = title, state, rows

    def reset_dimensions(self):
        pass

    def iter_rows(self, *, values_only):
        assert values_only
        yield from map(tuple, self._rows)


@pytest.fixture(params=ENGINES)
def write(request, tmp_path, monkeypatch):
    """Return a function that writes a workbook of sheets (title, rows, state)."""
    if request.param == "openpyxl":
        import openpyxl

        def write_real(*sheets, name="t.xlsx"):
            workbook = openpyxl.Workbook()
            workbook.remove(workbook.active)
            for title, rows, *state in sheets:
                sheet = workbook.create_sheet(title)
                sheet.sheet_state = state[0] if state else "visible"
                for row in rows:
                    sheet.append(row)
            workbook.save(tmp_path / name)
            return tmp_path / name

        return write_real

    def write_stand_in(*sheets, name="t.xlsx"):
        with zipfile.ZipFile(tmp_path / name, "w") as file:
            file.writestr("xl/workbook.xml", "<workbook/>")

        def load_workbook(content, *, read_only, data_only, keep_links):
            assert (read_only, data_only, keep_links) == (True, True, False)
            assert content.read() == (tmp_path / name).read_bytes()
            return types.SimpleNamespace(worksheets=[Sheet(*sheet) for sheet in sheets], close=lambda: None)

        monkeypatch.setitem(sys.modules, "openpyxl", types.SimpleNamespace(load_workbook=load_workbook))
        return tmp_path / name

    return write_stand_in


def rows_of(path):
    with open_table(path) as table:
        chunks = [*table.chunks(2, table.names)]
        return table.names, [cells for chunk in chunks for cells in chunk.cells], chunks


def test_cells_become_text(write):
    values = [12, 0.125, 3.0, True, False, datetime(2021, 3, 4), datetime(2021, 3, 4, 10, 30)]
    more = [date(2020, 1, 2), time(10, 30), "#N/A", "#DIV/0!", " CCO ", None]
    names = [f"c{place}" for place in range(len(values + more))]
    header, (cells,), _ = rows_of(write(("Data", [names, [*values, *more]])))
    assert header == names
    assert cells[:2] == ["12", "0.125"]
    assert cells[2] in ("3.0", "3")  # Excel has one kind of numbers
    assert cells[3:5] == ["true", "false"]
    assert cells[5:7] == ["2021-03-04", "2021-03-04 10:30:00"]
    assert cells[7:] == ["2020-01-02", "10:30:00", "", "#DIV/0!", " CCO ", ""]


def test_rows_have_the_numbers_of_excel(write):
    rows = [[], [None, None], ["smiles", "y", None], [None] * 3, ["CCO", 1], ["CC"], [], ["C", 3, None]]
    names, cells, chunks = rows_of(write(("Data", rows)))
    assert names == ["smiles", "y"]
    assert cells == [["CCO", "1"], ["CC", ""], ["C", "3"]]
    assert [chunk.where(place).rpartition(", ")[2] for chunk in chunks for place in range(len(chunk))] == [
        "row 5",
        "row 6",
        "row 8",
    ]


def test_a_row_with_more_cells_than_the_header_is_unreadable(write):
    _, cells, chunks = rows_of(write(("Data", [["smiles"], ["CCO", 5], ["CC"]])))
    assert cells == [["CCO"], ["CC"]]
    assert chunks[0].errors == {0: "2 cells, the header has 1"}


def test_the_first_visible_sheet_is_read_and_the_others_are_named(write):
    path = write(("Old", [["n"], [1]], "hidden"), ("Data", [["n"], [2]]), ("Notes", [["text"], ["x"]]))
    with open_table(path) as table:
        assert table.format == "Excel, sheet 'Data'; not read: 'Old', 'Notes'"
        assert [chunk["n"] for chunk in table.chunks(5, ["n"])] == [["2"]]
    with open_table(write(("Data", [["n"], [2]]))) as table:
        assert table.format == "Excel, sheet 'Data'"


@pytest.mark.parametrize("name", ["T.XLSX", "t.xlsm"])
def test_other_endings(write, name):
    assert rows_of(write(("Data", [["n"], [1]]), name=name))[1] == [["1"]]


def test_an_empty_sheet_and_a_table_without_rows(write):
    with pytest.raises(MolsliceError, match=r"t.xlsx, sheet 'Data' is empty"):
        rows_of(write(("Data", [[None], []])))
    with pytest.raises(MolsliceError, match=r"t.xlsx has no rows"):
        list(read_columns(write(("Data", [["smiles"], [None]])), ["smiles"]))


def test_a_missing_column_is_named(write):
    with pytest.raises(MolsliceError, match=r"t.xlsx has no column 'smiles'; did you mean 'smile'"):
        list(read_columns(write(("Data", [["smile"], ["C"]])), ["smiles"]))


def test_many_rows_are_read_in_order(write):
    rows = [["n"], *([number] for number in range(5_000))]
    assert [cells for (cells,) in rows_of(write(("Data", rows)))[1]] == [
        str(number) for number in range(5_000)
    ]


def test_damage_in_a_sheet_is_an_error_of_the_file(write, monkeypatch):
    path = write(("Data", [["n"], [1]]))
    if isinstance(sys.modules["openpyxl"], types.SimpleNamespace):

        def broken(self, *, values_only):
            yield ("n",)
            yield (1,)
            raise KeyError("shared strings")

        monkeypatch.setattr(Sheet, "iter_rows", broken)
        with pytest.raises(
            MolsliceError, match=r"cannot read .*t.xlsx as an Excel workbook: KeyError\('shared"
        ):
            rows_of(path)
        return
    packed = io.BytesIO(path.read_bytes())
    with zipfile.ZipFile(packed) as source, zipfile.ZipFile(path, "w") as target:
        for part in source.namelist():
            content = source.read(part)
            target.writestr(part, content[:-40] if "sheet1" in part else content)
    with pytest.raises(MolsliceError, match=r"cannot read .*t.xlsx as an Excel workbook: "):
        rows_of(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "as an Excel workbook: it is no workbook"),
        (b"smiles,y\nC,1\n", "as an Excel workbook: it is no workbook"),
        (b"PK\3\4" + bytes(30), "as an Excel workbook: it is no workbook"),
        (b"\xd0\xcf\x11\xe0" + bytes(30), "it has a password, or is a workbook of Excel 2003 or older"),
    ],
)
def test_other_files_with_the_ending(write, content, words):
    path = write(("Data", [["n"], [1]]))
    path.write_bytes(content)
    with pytest.raises(MolsliceError, match=f"cannot read .*t.xlsx.*{words}") as caught:
        rows_of(path)
    assert "\n" not in str(caught.value)


def test_a_workbook_that_unpacks_to_too_much_is_refused(write, monkeypatch):
    path = write(("Data", [["n"], [1]]))
    monkeypatch.setattr("molslice.files.tables.excel.LARGEST", 5)
    with pytest.raises(MolsliceError, match=r"t.xlsx: it has more than 5 bytes when unpacked"):
        rows_of(path)


def test_without_openpyxl_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)  # its import fails
    (tmp_path / "t.xlsx").write_bytes(b"PK\3\4")
    with pytest.raises(
        MolsliceError, match=r"t.xlsx: Excel workbooks need openpyxl: pip install 'molslice\[excel\]'"
    ):
        rows_of(tmp_path / "t.xlsx")


def test_a_formula_has_its_stored_value(tmp_path):
    """openpyxl writes formulas without values, so that Excel's file is imitated."""
    import openpyxl

    workbook = openpyxl.Workbook()
    workbook.active.append(["n", "m"])
    workbook.active.append(["=1+1", "=2+2"])
    workbook.save(tmp_path / "a.xlsx")
    with zipfile.ZipFile(tmp_path / "a.xlsx") as source, zipfile.ZipFile(tmp_path / "b.xlsx", "w") as target:
        for part in source.namelist():
            content = source.read(part)
            if part.endswith("sheet1.xml"):
                content = content.replace(b"<f>1+1</f><v></v>", b"<f>1+1</f><v>2</v>")
                content = content.replace(b"<f>1+1</f><v />", b"<f>1+1</f><v>2</v>")
            target.writestr(part, content)
    assert rows_of(tmp_path / "b.xlsx")[1] == [["2", ""]]


def test_a_fit_reads_a_workbook(write):
    """Its findings name the sheets, its messages the rows of Excel, and dates divide the rows."""
    rows = [["C" * length, length, datetime(2000 + length // 4, 3, 4)] for length in range(1, 41)]
    path = write(("Data", [["smiles", "y", "date"], *rows[:20], [], *rows[20:]]), ("Notes", [["x"]]))
    options = FitOptions(split="time", by="date")
    data = read_fit_data(path, ("y",), options, workers=0)
    assert data.findings[0] == f"{path}: Excel, sheet 'Data'; not read: 'Notes'"
    assert data.targets[:, 0].tolist() == list(range(1, 41))
    assert data.test.sum() == 5
    assert any("on or after 2009-03-04 (column 'date')" in text for text in data.findings)
    rows[30][1] = "100 or so"
    path = write(("Data", [["smiles", "y", "date"], *rows[:20], [], *rows[20:]]))
    with pytest.raises(MolsliceError, match=r"t.xlsx, row 33, column 'y': '100 or so' is not a number"):
        read_fit_data(path, ("y",), options, workers=0)
