"""Tests of reading tables from any bytes; rows are never lost."""

import bz2
import csv
import gzip
import io
import lzma
import pickle
import threading

import pyarrow
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from molslice.files.tables import Unreadable, delimited, open_table, read_columns
from molslice.types import MolsliceError
from tests.fuzzing import fuzz_for_a_minute

PLAIN = "smiles,n\nCCO,1\nCC,2\nC,3\n"
ROWS = [["CCO", "1"], ["CC", "2"], ["C", "3"]]
PACKED = gzip.compress(PLAIN.encode(), mtime=0)  # the same bytes at all times


def zstd(content):
    return pyarrow.compress(content, "zstd", asbytes=True)


def read(path, content, columns=("smiles",), size=2):
    """Return the cells of all rows of a file with this content, and the errors of each chunk."""
    path.write_bytes(content)
    chunks = list(read_columns(path, columns, chunk_rows=size))
    reasons = [chunk.errors.get(place) for chunk in chunks for place in range(len(chunk))]
    return [cells for chunk in chunks for cells in chunk.cells], reasons, chunks


@pytest.mark.parametrize(
    "content",
    [
        PLAIN.encode(),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\r").encode(),
        b"\x50\x2a\x4d\x18\3\0\0\0abc" + zstd(PLAIN.encode()),  # a frame of Zstandard that is skipped
        PLAIN.replace("\n", "\r\r\n").encode(),
        PLAIN.encode("utf-8-sig"),
        PLAIN.encode("utf-16"),
        b"\xfe\xff" + PLAIN.encode("utf-16-be"),
        PLAIN.encode("utf-32"),
        PLAIN.encode("utf-16-le"),
        PLAIN.encode("utf-16-be"),
        PLAIN.replace(",", ";").encode(),
        PLAIN.replace(",", "\t").encode("utf-16"),
        PLAIN.replace(",", "|").encode(),
        f"\n \n{PLAIN}\n   \n\n".replace("C,3", "\nC,3").encode(),
        PLAIN.removesuffix("\n").encode(),
        PACKED,
        gzip.compress(PLAIN[:15].encode(), mtime=0) + gzip.compress(PLAIN[15:].encode(), mtime=0),
        PACKED + bytes(512),  # padding, as tapes have it
        zstd(PLAIN.encode()),
        zstd(PLAIN[:15].encode()) + zstd(PLAIN[15:].encode()),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv"])
def test_one_table_in_many_forms(tmp_path, content, name):
    rows, reasons, _ = read(tmp_path / name, content)
    assert rows == ROWS
    assert reasons == [None] * 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t.csv is empty"),
        (b"\n \r\n", "t.csv is empty"),
        (b"PK\3\4\x14\0\6\0", "t.csv is a ZIP archive or an Excel workbook; name a workbook .xlsx, or save"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "t.csv is an Excel workbook; save it as .xlsx, or the sheet as CSV"),
        (b"smiles,n\n\n", "has no rows"),
        (b"smile,n\nC,1\n", "no column 'smiles'; did you mean 'smile'"),
        (b"smiles,n, smiles\nC,1,2\n", None),
        (b" smiles,n,smiles \nC,1,2\n", "2 columns named 'smiles'"),
        (b"smiles,n\nC,1\nC,\xb5M\n", "t.csv, line 3: byte 0xb5 is not UTF-8; save the table as UTF-8"),
        (b"smi\0les,n\nC,1\n", "line 1: cannot read the column names: contains a NUL character"),
        (PLAIN.encode("utf-16")[:-1], r"after line 3: not UTF-16, as its beginning says"),
        (b'smiles,n\nC,1\n\n"C,2\nC,3\n', "line 4: a quote is never closed"),
        (b'"smiles"x,n\n', "line 1: cannot read the column names"),
        (bz2.compress(PLAIN.encode()), "t.csv is compressed with bzip2; decompress it, or use gzip"),
        (lzma.compress(PLAIN.encode()), "t.csv is compressed with xz"),
        (gzip.compress(PACKED, mtime=0), "t.csv is compressed with gzip twice"),
        (PACKED[:-4], "after line 4: damaged gzip: Compressed file ended before"),
        (PACKED[:9], "cannot read .*t.csv, line 1: damaged gzip"),
        (PACKED + b"rubbish", "after line 4: damaged gzip: Not a gzipped file"),
        (PACKED[:-8] + bytes(4) + PACKED[-4:], "after line 4: damaged gzip: CRC check failed"),
        (zstd(PLAIN.encode())[:-4], "cannot read .*t.csv, .*: damaged Zstandard: Truncated"),
        (PACKED[:12] + b"\xff\xff\xff" + PACKED[15:], "cannot read .*t.csv, line 1: damaged gzip: Error -3"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, content, message):
    if message is None:
        assert read(tmp_path / "t.csv", content)[0] == [["C", "1", "2"]]
        return
    with pytest.raises(MolsliceError, match=message) as caught:
        read(tmp_path / "t.csv", content, size=100)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "t.csv") in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for path, message in ((tmp_path / "none", "no such file: .*none"), (tmp_path, "cannot read .*directory")):
        with pytest.raises(MolsliceError, match=message), open_table(path):
            pass


def test_rows_that_cannot_be_read_are_rows(tmp_path):
    content = 'n,smiles\n1\n2,C,3\n4,"C\nO"\n5,"C"x"\n6,C\0\n7,CC\n'
    rows, reasons, chunks = read(tmp_path / "t.csv", content.encode(), size=4)
    assert rows == [["1", ""], ["2", "C"], ["4", "C\nO"], ["5", 'Cx"'], ["6", "C\0"], ["7", "CC"]]
    assert reasons == [
        "1 cell, the header has 2",
        "3 cells, the header has 2",
        None,
        "',' expected after '\"'",
        "contains a NUL character",
        None,
    ]
    places = [
        chunk.where(i).removeprefix(f"{tmp_path}/t.csv, ") for chunk in chunks for i in range(len(chunk))
    ]
    lines = [2, 3, 4, 6, 7, 8]
    assert places == [f"row {row} (line {line})" for row, line in enumerate(lines, start=1)]
    cells = [text for chunk in chunks for text in chunk["smiles"]]
    assert cells == ["", "", "C\nO", "", "", "CC"]
    assert [text.reason for text in cells if isinstance(text, Unreadable)] == [r for r in reasons if r]
    assert pickle.loads(pickle.dumps(cells[0])).reason == reasons[0]


def test_a_stray_quote_takes_no_other_row_with_it(tmp_path):
    content = 'smiles,n\nC,"1\nCC,2\n\nCCC,3\nCN,"4",\nCO,"5"\n"CCO\nx",6\nCF,"7"x\n'
    rows, reasons, chunks = read(tmp_path / "t.csv", content.encode(), size=3)
    assert [row[0] for row in rows] == ["C", "CC", "CCC", "CN", "CO", "CCO\nx", "CF"]
    assert [place for place, reason in enumerate(reasons) if reason] == [0, 3, 6]
    assert [line for chunk in chunks for line in chunk.lines] == [2, 3, 5, 6, 7, 8, 10]


@pytest.mark.parametrize("cell", ['"1\nCC,2",b', '"1\nCC,2"\0', '"1\nCC,2"x'])
def test_a_stray_quote_takes_no_row_with_it_whatever_follows(tmp_path, cell):
    rows, reasons, chunks = read(tmp_path / "t.csv", f"smiles,n\nC,{cell}\nCCC,3\n".encode(), size=9)
    assert [row[0] for row in rows] == ["C", "CC", "CCC"]
    assert reasons[0] == "a quote is opened and not closed on this line"
    assert reasons[2] is None
    assert chunks[0].lines == [2, 3, 4]


def test_a_row_of_several_lines_that_has_too_many_cells_refuses_no_other(tmp_path):
    content = 'smiles,note,n\nCCN,ok,1\nCCO,"see the notes\n",1,2\nCCC,ok,1\n'
    rows, reasons, chunks = read(tmp_path / "t.csv", content.encode(), size=9)
    assert [row[0] for row in rows] == ["CCN", "CCO", rows[2][0], "CCC"]
    assert [place for place, reason in enumerate(reasons) if reason] == [1, 2]
    assert chunks[0].lines == [2, 3, 4, 5]


@pytest.mark.parametrize("cell", ["see\0the notes\n", "see the notes\n\0", "\n\0\n", "\0\r\n\r\n"])
def test_a_row_of_several_lines_with_a_nul_is_one_row(tmp_path, cell):
    content = f'smiles,note,n\nCCN,ok,1\nCCO,"{cell}",1\nCCC,ok,1\n'
    rows, reasons, chunks = read(tmp_path / "t.csv", content.encode(), size=9)
    assert rows == [["CCN", "ok", "1"], ["CCO", cell, "1"], ["CCC", "ok", "1"]]
    assert reasons == [None, "contains a NUL character", None]
    assert chunks[0].lines[:2] == [2, 3]


def test_quotes_that_do_not_match_are_not_read_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.files.tables.delimited.LONGEST", 2000)
    content = "smiles,b\n" + 'a",b,"c\n' * 200 + 'x,"y"z\n'
    with pytest.raises(
        MolsliceError, match=r"t\.csv, line \d+: too many quotes from this line on do not match"
    ):
        read(tmp_path / "t.csv", content.encode(), size=9)


@pytest.mark.parametrize("first", ["sep=;", "SEP=;", '"sep=;"'])
def test_a_line_that_names_the_delimiter_is_skipped(tmp_path, first):
    content = f"{first}\r\nsmiles;n, in mol\r\nC;1,5\r\n"
    rows, reasons, chunks = read(tmp_path / "t.csv", content.encode("utf-8-sig"), size=9)
    assert (rows, reasons) == ([["C", "1,5"]], [None])
    assert chunks[0].lines == [3]


def test_a_chunk_is_full_also_after_a_look_at_the_first_rows(tmp_path):
    (tmp_path / "t.csv").write_text(PLAIN)
    for seen in (0, 1, 2, 3):
        with open_table(tmp_path / "t.csv") as table:
            assert len(table.peek(seen)) == seen
            chunks = list(table.chunks(2, ["smiles"]))
        assert [chunk["smiles"] for chunk in chunks] == [["CCO", "CC"], ["C"]]


def test_blank_lines_of_one_column_are_rows_but_at_the_end(tmp_path):
    rows, reasons, chunks = read(tmp_path / "t.csv", b'smiles\nC\n\n""\nCC\n\n\n', size=9)
    assert rows == [["C"], [""], [""], ["CC"]]
    assert reasons == [None] * 4
    assert chunks[0].lines == [2, 3, 4, 5]


def test_names_are_kept_as_they_are(tmp_path):
    (tmp_path / "t.csv").write_text("a,a,, smiles \n1,2,3,C\n")
    with open_table(tmp_path / "t.csv") as table:
        assert table.names == ["a", "a", "", " smiles "]
        assert table.find("smiles") == table.find(" smiles ") == 3
        assert table.find("") == 2


def test_the_limit_of_the_csv_module_stays(tmp_path):
    before = csv.field_size_limit()
    rows, _, _ = read(tmp_path / "t.csv", b"smiles,n\n" + b"C" * 200_000 + b",1\n")
    assert len(rows[0][0]) == 200_000
    assert csv.field_size_limit() == before
    chunks = read_columns(tmp_path / "t.csv", ["smiles"])
    next(chunks)
    assert csv.field_size_limit() == before  # between two chunks as well
    other = threading.Thread(target=lambda: list(read_columns(tmp_path / "t.csv", ["smiles"])))
    other.start()
    other.join(timeout=60)
    assert not other.is_alive()


@pytest.mark.parametrize("content", ["C" * 300 + ",1\n", '"' + "C\n" * 150 + '",1\n'])
def test_a_row_has_a_limit(tmp_path, monkeypatch, content):
    monkeypatch.setattr(delimited, "LONGEST", 200)
    with pytest.raises(MolsliceError, match="line 3: a row of more than 200 characters"):
        read(tmp_path / "t.csv", f"smiles,n\nC,1\n{content}C,2\n".encode())


def check_one_line(message):
    assert len(message.splitlines()) == 1


def check_any_bytes(path, content):
    """Check that any bytes give the rows of the csv module, as wide as the header, or a one-line error."""
    path.write_bytes(content)
    try:
        with open_table(path) as table:
            names = table.names
            chunks = list(table.chunks(3, []))
            detected = table.format
    except MolsliceError as error:
        check_one_line(str(error))
        return
    rows = [cells for chunk in chunks for cells in chunk.cells]
    assert all(len(cells) == len(names) for cells in rows)
    assert [line for chunk in chunks for line in chunk.lines] == sorted({x for c in chunks for x in c.lines})
    if any(chunk.errors for chunk in chunks) or not detected.endswith("delimiter comma"):
        return
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return  # compressed, or in another encoding
    expected = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert without_blank([names, *rows]) == without_blank(expected)


def without_blank(rows):
    return [row for row in rows if "".join(row).strip()]


def any_bytes():
    """Return a strategy of bytes that resemble tables, and of others."""
    pieces = st.sampled_from(
        [
            "smiles",
            "C",
            ",",
            "\n",
            "\r",
            "\r\n",
            '"',
            '""',
            "\t",
            " ",
            "\0",
            "é",
            "\ufeff",
            "\x85",
            "\u2028",
            ",,",
        ]
    )
    texts = st.lists(pieces, max_size=40).map("".join)
    encoded = st.builds(str.encode, texts, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]))
    cut = st.builds(
        lambda data, drop: data[: len(data) - drop],
        encoded.map(lambda data: gzip.compress(data, mtime=0)),
        st.integers(0, 12),
    )
    return st.one_of(
        encoded, encoded, st.binary(max_size=60), cut, st.binary(max_size=30).map(b"\x1f\x8b".__add__)
    )


FUZZ = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=300, **FUZZ)
@given(content=any_bytes())
@example(content=b"a,b\n\x85,1\r\n")
def test_any_bytes(tmp_path, content):
    check_any_bytes(tmp_path / "t.csv", content)


@pytest.mark.exhaustive
def test_any_bytes_for_a_minute(tmp_path):
    fuzz_for_a_minute(
        any_bytes(), lambda content: check_any_bytes(tmp_path / "t.csv", content), settings(**FUZZ)
    )
