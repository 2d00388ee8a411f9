"""Rows of a result as CSV, SD file and workbook."""

import sys
import tempfile

import openpyxl
import pytest

from molslice.files.tables import open_table
from molslice.inference.tables import result_formats
from molslice.inference.tables.result_formats import write_rows
from molslice.types import MolsliceError

HEADER = "id,smiles,x,note\n"


@pytest.fixture
def write(tmp_path):
    """Return a function that writes rows of a table, and returns the file."""

    def write(text, ending, rows=None, columns=None):
        (tmp_path / "a.csv").write_text(text)
        write_rows(tmp_path / "a.csv", tmp_path / f"out{ending}", "smiles", rows, columns)
        return tmp_path / f"out{ending}"

    return write


def test_csv_has_the_cells_of_the_rows_in_their_order(write):
    text = HEADER + '1,CCO,1.50,"a, ""b"""\n2,C,nan,\n'
    assert write(text, ".csv").read_text() == text
    assert write(text, ".csv", [2, 1, 2]).read_text().splitlines()[1:] == [
        "2,C,nan,",
        '1,CCO,1.50,"a, ""b"""',
        "2,C,nan,",
    ]
    assert write(text, ".csv", []).read_text() == HEADER


def test_further_columns_are_at_the_end_under_names_of_their_own(write):
    text = HEADER + "1,CCO,1,\n2,C,2,\n"
    written = write(text, ".csv", [2, 1], {"x": ["0.5", "=1"], "more": ["", "b"]}).read_text()
    assert written == "id,smiles,x,note,x_predicted,more\n2,C,2,,0.5,\n1,CCO,1,,=1,b\n"
    with pytest.raises(MolsliceError, match="the columns x have another number of cells"):
        write(text, ".csv", [2, 1], {"x": ["0.5"]})


def test_an_sd_file_reads_back_whatever_its_cells_are(write):
    text = HEADER + '1,C/C=C/C,1.5,"two\n\nlines"\n2,C(,nan,"$$$$\n> <x>"\n3,[Na+].[Cl-],0,"$$$$"\n'
    with open_table(write(text, ".sdf")) as table:
        (chunk,) = table.chunks(10, [])
    assert table.names == ["structure", "name", "id", "smiles", "x", "note"]
    assert [row[1:] for row in chunk.cells] == [
        ["1", "1", "C/C=C/C", "1.5", "two lines"],
        ["2", "2", "C(", "", " $$$$ > <x>"],
        ["3", "3", "[Na+].[Cl-]", "0", " $$$$"],
    ]
    assert not chunk.errors


def test_an_sd_file_has_both_columns_of_one_name(write):
    with open_table(write("smiles,a,a\nC,1,2\n", ".sdf")) as table:
        (chunk,) = table.chunks(10, [])
    assert table.names == ["structure", "name", "smiles", "a", "a_2"]
    assert [row[2:] for row in chunk.cells] == [["C", "1", "2"]]


def test_a_workbook_has_numbers_and_no_formulas(write):
    cells = ["=1+1", "@x", "007", "-4", "1e-3", "nan", "12345678901234567", "1.25", "TRUE", "#N/A", "+5"]
    cells += ["1E5", "2e7", "1e999", "1234567890.123456789"]
    text = "smiles,note\n" + "".join(f'C,"{cell}"\n' for cell in cells) + 'C,"a\x0bb"\n'
    sheet = openpyxl.load_workbook(write(text, ".xlsx")).active
    column = [row[1] for row in sheet.iter_rows(min_row=2)]
    wanted = ["=1+1", "@x", "007", -4, 0.001, None, "12345678901234567", 1.25, "TRUE", "#N/A", "+5"]
    wanted += [*cells[-4:], "a b"]
    assert [cell.value for cell in column] == wanted
    kinds = ["n" if not isinstance(value, str) else "s" for value in wanted]
    assert [cell.data_type for cell in column] == kinds


def test_what_cannot_be_written_is_refused_and_leaves_no_file(write, tmp_path, monkeypatch):
    text = HEADER + "1,CCO,1,\n" * 3
    with pytest.raises(MolsliceError, match="row 4 is not available"):
        write(text, ".sdf", [1, 4])
    monkeypatch.setattr(result_formats, "MOST_ROWS", 2)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for ending in (".sdf", ".xlsx"):
        with pytest.raises(MolsliceError, match="more than 2 rows; write CSV"):
            write(text, ending)
    (tmp_path / "temporary").rmdir()
    columns = {f"c{number}": ["1"] * 3 for number in range(16_384)}
    with pytest.raises(MolsliceError, match="more than 16,384 columns; write CSV"):
        write(text, ".xlsx", columns=columns)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MolsliceError, match="pip install"):
        write(text, ".xlsx")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
