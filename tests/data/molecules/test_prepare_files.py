"""Tests of preparing files: interruptions, equality, memory, report, errors."""

import errno
import gzip
import json
import multiprocessing
import os
import random
import shutil
import signal
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from molslice.chem.naming import element_symbol
from molslice.data.molecules import prepare, prepare_files
from molslice.data.molecules.input_rows import InputRows
from molslice.data.molecules.prepare import Featurizing
from molslice.data.molecules.prepare_files import partial_folder
from molslice.data.molecules.refusals import kind_of_reason
from molslice.data.molecules.report import Tally, TargetStatistics
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_writer import StoreWriter
from molslice.data.molecules.tables import MoleculeTable
from molslice.files.npy import ArrayFile
from molslice.types import MolsliceError
from tests.data.molecules.builders import SMILES, memory_store
from tests.data.molecules.test_tables import json_lines, parquet, sdf, separated
from tests.inference.models import embedded_smiles

ROWS = 60


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(prepare, "CHUNK_ROWS", 7)
    monkeypatch.setattr(prepare_files, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # slow, and only a loss of power needs it


@pytest.fixture
def table(tmp_path):
    """Write a table with unreadable rows and missing targets."""
    smiles = embedded_smiles(ROWS)
    smiles[11], smiles[40] = "XX", "C" * 300
    rows = [f"{text},{'' if row % 5 == 0 else row / 4}" for row, text in enumerate(smiles)]
    rows[23] = "CC"
    path = tmp_path / "molecules.csv"
    path.write_text("smiles,gap\n" + "\n".join(rows) + "\n")
    return path


def prepared(path, out, *, workers=0, targets=("gap",), how=None, **options):
    how = how or Featurizing(workers=workers)
    paths = path if isinstance(path, list) else [path]
    return prepare_files.prepare_files(paths, out, targets=targets, how=how, progress=False, **options)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_rows_are_those_of_the_table(table, tmp_path):
    found = prepared(table, tmp_path / "store")
    store = MoleculeStore.open(tmp_path / "store")
    assert len(store) == ROWS
    assert store.errors == {
        11: "not valid SMILES: unknown symbol 'X' at position 1",
        23: "1 cell, the header has 2",
        40: "300 atoms, more than max_atoms=256",
    }
    wanted = np.array([np.nan if row % 5 == 0 or row == 23 else row / 4 for row in range(ROWS)], np.float32)
    np.testing.assert_array_equal(store.targets[:, 0], wanted)
    expected = memory_store(embedded_smiles(ROWS))
    for row in (0, 10, 12, 41, 59):
        np.testing.assert_array_equal(store.arrays(row).atoms, expected.arrays(row).atoms)
        np.testing.assert_array_equal(store.arrays(row).bonds, expected.arrays(row).bonds)
    assert found.continued == 0
    assert found.findings[1] == "SMILES: column 'smiles' (detected)"
    assert not partial_folder(tmp_path / "store").exists()


def test_the_report(table, tmp_path):
    found = prepared(table, tmp_path / "store")
    store = MoleculeStore.open(tmp_path / "store")
    report = found.report
    assert report == store.header["about"]["report"]
    sizes = np.sort(store.num_atoms[store.num_atoms > 0])
    assert (report["rows"], report["molecules"], report["failed"]) == (60, 57, 3)
    assert (report["atoms"], report["bonds"]) == (len(store.atoms), len(store.bonds))
    values = store.targets[store.num_atoms > 0, 0].astype(np.float64)
    known = values[np.isfinite(values)]
    assert report["targets"]["gap"] == {
        "values": len(known),
        "mean": pytest.approx(known.mean(), rel=1e-12),
        "std": pytest.approx(known.std(), rel=1e-12),
        "min": known.min(),
        "max": known.max(),
    }
    assert list(report["elements"].values()) == sorted(report["elements"].values(), reverse=True)
    assert sum(report["elements"].values()) == len(store.atoms)
    assert report["elements"]["C"] == int((store.atoms[:, 0] == 5).sum())
    assert report["sizes"] == {str(size): int((sizes == size).sum()) for size in np.unique(sizes)}
    quantiles = report["atoms_per_molecule"]
    assert (quantiles["min"], quantiles["median"], quantiles["max"]) == (sizes[0], sizes[28], sizes[-1])
    assert report["refusals"] == [
        {
            "reason": "not valid SMILES: unknown symbol … at position …",
            "count": 1,
            "examples": [
                {
                    "where": f"{table}, row 12 (line 13)",
                    "smiles": "XX",
                    "reason": "not valid SMILES: unknown symbol 'X' at position 1",
                }
            ],
        },
        {
            "reason": "… cells, the header has …",
            "count": 1,
            "examples": [
                {"where": f"{table}, row 24 (line 25)", "smiles": "", "reason": "1 cell, the header has 2"}
            ],
        },
        {
            "reason": "… atoms, more than max_atoms=…",
            "count": 1,
            "examples": [
                {
                    "where": f"{table}, row 41 (line 42)",
                    "smiles": "C" * 100 + "…",
                    "reason": "300 atoms, more than max_atoms=256",
                }
            ],
        },
    ]


def test_elements_and_reasons():
    assert [element_symbol(code) for code in (0, 5, 117, 118)] == ["H", "C", "Og", "*"]
    assert kind_of_reason("Can't kekulize mol.  Unkekulized atoms: 1 2 33") == (
        kind_of_reason("Can't kekulize mol.  Unkekulized atoms: 0")
    )
    assert kind_of_reason("text after the SMILES: 'a1'; give the SMILES alone") == "text after the SMILES: …"
    tally = Tally()
    for number in range(200):
        part = prepare.featurize_chunk(["C", "X"], np.empty((2, 0), np.float32), prepare.Featurizing())
        part.errors[1] = "reason " + "x" * number
        tally.add(part, ["C", "X"], str)
    assert len(tally.refusals.kinds) == 51
    assert sum(one["count"] for one in tally.refusals.kinds.values()) == 200
    assert tally.report()["molecules"] == 200


def test_workers_do_not_change_a_byte(table, tmp_path):
    prepared(table, tmp_path / "one")
    prepared(table, tmp_path / "two", workers=2)
    prepared(table, tmp_path / "three", workers=3)
    assert content(tmp_path / "one") == content(tmp_path / "two") == content(tmp_path / "three")


@pytest.mark.parametrize("descriptors", [False, True])
def test_a_target_that_float32_rounds_too_much_is_refused(tmp_path, descriptors):
    path = tmp_path / "molecules.csv"
    path.write_text("smiles,energy\n" + "".join(f"CCO,{1e6 + row / 100:.2f}\n" for row in range(20)))
    with pytest.raises(
        MolsliceError, match=r"spread of 0\.0577, and 32-bit floating point rounds it by up to 0"
    ):
        prepared(path, tmp_path / "store", targets=["energy"], how=Featurizing(descriptors=descriptors))
    assert os.listdir(tmp_path) == ["molecules.csv"]
    # the same rounding is small beside the spread of all rows
    path.write_text(path.read_text() + "CCO,-1e6\n")
    prepared(path, tmp_path / "store", targets=["energy"], how=Featurizing(descriptors=descriptors))


def test_statistics_without_values():
    statistics = TargetStatistics(["a", "b"])
    statistics.add(np.array([[np.nan, 1.0], [np.nan, 3.0]]))
    statistics.add(np.array([[np.nan, np.nan]]))
    again = TargetStatistics(["a", "b"], json.loads(json.dumps(statistics.state)))
    again.add(np.array([[np.nan, 8.0]]))
    again.check_rounding("a test")
    assert again.report() == {
        "a": {"values": 0},
        "b": {"values": 3, "mean": 4.0, "std": pytest.approx((26 / 3) ** 0.5), "min": 1.0, "max": 8.0},
    }


POINTS = {
    "before a part is written": (StoreWriter, "append", "before"),
    "after a part is written": (StoreWriter, "append", "after"),
    "within a part": (ArrayFile, "append", "after"),
    "before the rows are synced": (StoreWriter, "save", "before"),
    "before the progress is written": (StoreWriter, "save", "after"),
    "before the header is written": (StoreWriter, "finish", "before"),
    "before the folder is renamed": (prepare_files, "move_folder", "before"),
    "after the folder is renamed": (prepare_files, "move_folder", "after"),
}


def killed(path, out, place, name, when, number, workers):
    """Run a preparation in a process that ends with `kill -9` at call `number` of a function."""
    genuine, calls = getattr(place, name), []

    def watched(*args, **options):
        calls.append(1)
        if when == "before" and len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        result = genuine(*args, **options)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(place, name, watched)
    prepared(path, out, workers=workers)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_continues_to_the_same_bytes(table, tmp_path, point):
    place, name, when = POINTS[point]
    prepared(table, tmp_path / "whole")
    once = name in ("finish", "move_folder")
    drawn = random.Random(point)
    fork = multiprocessing.get_context("fork")
    out = tmp_path / "store"
    for attempt in range(1 if once else 3):
        number = 1 if once else drawn.randint(1, 40 if place is ArrayFile else 4)
        process = fork.Process(target=killed, args=(table, out, place, name, when, number, 2 * (attempt % 2)))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert out.exists() == (point == "after the folder is renamed")
    found = prepared(table, out, workers=2)
    assert content(out) == content(tmp_path / "whole")
    assert found.report == MoleculeStore.open(out).header["about"]["report"]
    assert sorted(os.listdir(tmp_path)) == ["molecules.csv", "store", "whole"]


def stop_after(monkeypatch, parts, error):
    """Raise an error when the next part after `parts` is written."""
    genuine, calls = StoreWriter.append, []

    def watched(self, part):
        calls.append(1)
        if len(calls) > parts:
            raise error
        genuine(self, part)

    monkeypatch.setattr(StoreWriter, "append", watched)


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_says_how_to_continue(table, tmp_path, monkeypatch, workers):
    with monkeypatch.context() as patch:
        stop_after(patch, 3, KeyboardInterrupt())
        with pytest.raises(
            KeyboardInterrupt, match=r"^interrupted; 21 finished rows are kept, and the same c"
        ):
            prepared(table, tmp_path / "store", workers=workers)
        stop_after(patch, 0, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt, match="^interrupted; 21 finished"):
            prepared(table, tmp_path / "store")
    assert prepared(table, tmp_path / "store").continued == 21
    prepared(table, tmp_path / "whole")
    assert content(tmp_path / "store") == content(tmp_path / "whole")


@pytest.mark.parametrize("number", range(20, 27))  # a part takes five calls
def test_an_interruption_within_a_part(table, tmp_path, monkeypatch, number):
    genuine, calls = ArrayFile.append, []

    def stopped(self, values):
        calls.append(1)
        genuine(self, values)
        if len(calls) == number:
            raise KeyboardInterrupt

    prepared(table, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(ArrayFile, "append", stopped)
        patch.setattr(prepare_files, "SAVE_SECONDS", 60.0)
        with pytest.raises(KeyboardInterrupt):
            prepared(table, tmp_path / "store")
    prepared(table, tmp_path / "store")
    assert content(tmp_path / "store") == content(tmp_path / "whole")


def test_an_interruption_without_finished_rows_leaves_nothing(table, tmp_path, monkeypatch):
    stop_after(monkeypatch, 0, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt, match="^interrupted$"):
        prepared(table, tmp_path / "store")
    assert os.listdir(tmp_path) == ["molecules.csv"]


def test_a_full_disk_keeps_what_fits(table, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 2, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        with pytest.raises(
            MolsliceError,
            match=f"cannot write {tmp_path}/store: No space left on device; 14 finished rows are kept",
        ):
            prepared(table, tmp_path / "store")
    assert prepared(table, tmp_path / "store").continued == 14


def test_a_corrected_table_continues(table, tmp_path):
    good = table.read_text()
    table.write_text(good.replace(",12.25\n", ",high\n"))
    with pytest.raises(
        MolsliceError,
        match=r"row 50 \(line 51\), column 'gap': 'high' is not a number .*; 49 finished rows are k",
    ):
        prepared(table, tmp_path / "store")
    table.write_text(good)
    assert prepared(table, tmp_path / "store").continued == 49
    prepared(table, tmp_path / "whole")
    assert content(tmp_path / "store") == content(tmp_path / "whole")


def test_other_rows_or_options_do_not_continue(table, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 3, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            prepared(table, tmp_path / "store")
    kept = content(tmp_path / "store.partial" / "store")
    with pytest.raises(
        MolsliceError, match=r"another preparation \(atom_order was \"canonical\"\); delete it"
    ):
        prepared(table, tmp_path / "store", how=Featurizing(atom_order="input"))
    with pytest.raises(MolsliceError, match=r"another preparation \(targets was \[\"gap\"\]\)"):
        prepared(table, tmp_path / "store", targets=())
    versions = {**prepare_files.current_versions(), "rdkit": "1999.1"}
    with monkeypatch.context() as patch:
        patch.setattr(prepare_files, "current_versions", lambda: versions)
        with pytest.raises(MolsliceError, match=r"\(rdkit was \"2"):
            prepared(table, tmp_path / "store")
    text = table.read_text()
    table.write_text(text.replace(",0.25\n", ",0.5\n"))
    with pytest.raises(
        MolsliceError, match=f"the first 21 rows of {table} have changed since .*store.partial"
    ):
        prepared(table, tmp_path / "store")
    table.write_text("\n".join(text.splitlines()[:5]))
    with pytest.raises(MolsliceError, match="the first 21 rows"):
        prepared(table, tmp_path / "store")
    table.write_text(text)
    progress = tmp_path / "store.partial" / "progress.json"
    shown = progress.read_text()
    progress.write_text(shown[:100])
    with pytest.raises(MolsliceError, match=r"progress\.json"):
        prepared(table, tmp_path / "store")
    progress.write_text(shown)
    assert content(tmp_path / "store.partial" / "store").keys() == kept.keys()
    assert prepared(table, tmp_path / "store").continued == 21


def test_a_second_run_over_a_complete_store(table, tmp_path):
    first = prepared(table, tmp_path / "store")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").iterdir()}
    again = prepared(table, tmp_path / "store", workers=2)
    assert (again.report, again.continued, again.rows_per_second) == (first.report, ROWS, 0)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "store").iterdir()}
    with pytest.raises(MolsliceError, match=r"store exists and has different content \(max_atoms was 256\)"):
        prepared(table, tmp_path / "store", how=Featurizing(max_atoms=9))
    table.write_text(table.read_text() + "C,1\n")
    with pytest.raises(MolsliceError, match=r"the rows of .*molecules\.csv have changed\); delete it, or"):
        prepared(table, tmp_path / "store")
    assert sorted(os.listdir(tmp_path)) == ["molecules.csv", "store"]


def test_what_is_there_is_not_replaced(table, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("mine")
    for name in ("file", "folder", "molecules.csv"):
        with pytest.raises(MolsliceError, match=f"{name} exists and is not a store of molecules; delete it"):
            prepared(table, tmp_path / name)
    MoleculeStore.write(tmp_path / "other", [])
    with pytest.raises(MolsliceError, match="other exists and is another kind of store"):
        prepared(table, tmp_path / "other")
    (tmp_path / "empty").mkdir()
    prepared(table, tmp_path / "empty")
    assert len(MoleculeStore.open(tmp_path / "empty")) == ROWS
    assert not list(tmp_path.glob("*.partial"))


def test_two_processes_do_not_share_a_store(table, tmp_path, monkeypatch):
    genuine = StoreWriter.append

    def nested(self, part):
        monkeypatch.setattr(StoreWriter, "append", genuine)
        with pytest.raises(MolsliceError, match=r"store\.partial is in use by process"):
            prepared(table, tmp_path / "store")
        genuine(self, part)

    monkeypatch.setattr(StoreWriter, "append", nested)
    assert prepared(table, tmp_path / "store").report["rows"] == ROWS


def test_few_chunks_are_in_flight(table, tmp_path, monkeypatch):
    drawn, most, written = [], [], []
    chunks, append = MoleculeTable.chunks, StoreWriter.append

    def counted(self, *args):
        for chunk in chunks(self, *args):
            drawn.append(1)
            yield chunk

    def watched(self, part):
        written.append(1)
        most.append(len(drawn) - len(written))
        append(self, part)

    monkeypatch.setattr(MoleculeTable, "chunks", counted)
    monkeypatch.setattr(StoreWriter, "append", watched)
    prepared(table, tmp_path / "two", workers=2)
    assert len(written) == len(drawn) == 9
    assert max(most) <= 4
    most.clear(), written.clear(), drawn.clear()
    prepared(table, tmp_path / "none")
    assert max(most) <= 1


def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "CHUNK_ROWS", 50)
    monkeypatch.setattr(prepare_files, "SAVE_SECONDS", 60.0)  # syncing takes most of the time
    part = prepare.featurize_chunk(["CCO"] * 50, np.empty((50, 0), np.float32), prepare.Featurizing())
    monkeypatch.setattr(prepare_files, "featurize_chunk", lambda *arguments: part)

    def peak(rows):
        path = tmp_path / f"{rows}.smi"
        path.write_text("CCO\n" * rows)
        tracemalloc.start()
        try:
            prepared(path, tmp_path / f"store{rows}", targets=())
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(500)  # imports and caches
    few = peak(1_000)
    assert peak(20_000) < few + 20_000  # a byte for each row would be as much


FORMATS = {
    "a.csv": separated(","),
    "a.csv.gz": gzip.compress(separated(","), mtime=0),
    "a.csv.zst": pyarrow.compress(separated(","), "zstd", asbytes=True),
    "a.tsv": separated("\t", "utf-16"),
    "a.jsonl": json_lines(),
    "a.parquet": parquet(),
    "a.sdf": sdf(),
    "a.sdf.gz": gzip.compress(sdf(v3000=True), mtime=0),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_arrays(tmp_path, name):
    (tmp_path / "expected.csv").write_bytes(FORMATS["a.csv"])
    (tmp_path / name).write_bytes(FORMATS[name])
    prepared(tmp_path / "expected.csv", tmp_path / "expected", targets=["value"])
    prepared(tmp_path / name, tmp_path / "store", targets=["value"], workers=2 * (name == "a.sdf"))
    found, expected = content(tmp_path / "store"), content(tmp_path / "expected")
    del found["header.json"], expected["header.json"]
    assert found == expected


def test_a_damaged_structure_keeps_its_row(tmp_path):
    records = sdf().decode().split("$$$$\n")
    records[1] = records[1].replace(" C ", " Qq", 1)
    records[2] = records[2].replace("M  END", "M  ND")
    (tmp_path / "a.sdf").write_text("$$$$\n".join(records))
    report = prepared(tmp_path / "a.sdf", tmp_path / "store", targets=["value"]).report
    assert MoleculeStore.open(tmp_path / "store").errors.keys() == {1, 2}
    assert [one["examples"][0]["smiles"] for one in report["refusals"]] == ["", ""]


def test_smiles_files_patterns_and_several_files(tmp_path):
    for name, part in (("b.smi", SMILES[5:]), ("a.smi", SMILES[:5])):
        (tmp_path / name).write_text("\n".join(part) + "\n")
    report = prepared(str(tmp_path / "?.smi"), tmp_path / "store", targets=()).report
    store, expected = MoleculeStore.open(tmp_path / "store"), memory_store()
    np.testing.assert_array_equal(store.atoms, expected.atoms)
    np.testing.assert_array_equal(store.atom_offsets, expected.atom_offsets)
    assert report["refusals"][0]["examples"][0]["where"] == f"{tmp_path / 'a.smi'}, row 4 (line 4)"
    assert store.header["source"] == f"{tmp_path / 'a.smi'} and 1 other file"


def test_urls(table, tmp_path):
    import fsspec

    with fsspec.open("memory://prepare/molecules.csv", "wb") as file:
        file.write(table.read_bytes())
    report = prepared("memory://prepare/*.csv", tmp_path / "store").report
    assert report["refusals"][0]["examples"][0]["where"] == "memory://prepare/molecules.csv, row 12 (line 13)"
    assert report["rows"] == ROWS
    with pytest.raises(MolsliceError, match="memory://store is a URL; the folder of a store is local"):
        prepared(table, "memory://store")


def test_options(tmp_path):
    (tmp_path / "a.csv").write_text("id;x\nC1;OCC\nC2;CCCC\n")
    how = Featurizing(max_atoms=3, atom_order="input", descriptors=True)
    prepared(tmp_path / "a.csv", tmp_path / "store", targets=(), how=how, smiles_column="x", delimiter=";")
    store = MoleculeStore.open(tmp_path / "store")
    assert store.arrays(0).atoms[:, 0].tolist() == [7, 5, 5]
    assert store.errors == {1: "4 atoms, more than max_atoms=3"}
    assert store.descriptors.shape[0] == 2
    assert np.isfinite(store.descriptors[0]).any()
    assert np.isnan(store.descriptors[1]).all()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (None, {}, "no such file: .*molecules.csv"),
        ("", {}, "molecules.csv is empty"),
        ("smiles,gap\n", {}, "molecules.csv has no rows"),
        ("smiles,gap\nC,1\n", {"smiles_column": "mol"}, "has no column 'mol'; choices: gap, smiles"),
        ("smiles,gap\nC,1\n", {"targets": ["gapp"]}, "has no column 'gapp'; did you mean 'gap'"),
        ("smiles,gap\nC,1\n", {"targets": ["gap", "gap"]}, "the target 'gap' is given twice"),
        (
            "smiles,gap\nC,1\n",
            {"targets": ["smiles"]},
            "the column 'smiles' cannot be both the SMILES and a target",
        ),
        ("smiles,gap\nC,low\n", {}, r"molecules.csv, row 1 \(line 2\), column .*'low' is not a number .l"),
        ("smiles,gap\nC,1e40\n", {}, "'1e40' is too large for 32-bit floating point"),
        (
            "smiles,gap\nX,1\n?,2\n",
            {},
            r"cannot read any of the 2 SMILES of .*; the first, .*, row 1 \(line 2\): 'X': not valid SMILES:",
        ),
        (gzip.compress(b"smiles,gap\n" + b"C,1\n" * 9, mtime=0)[:-9], {}, "cannot read .*molecules.csv"),
        ("smiles,gap\nC,1\n", {"how": Featurizing(max_atoms=300)}, "max_atoms must be between 1 and 256"),
        ("smiles,gap\nC,1\n", {"how": Featurizing(workers=-1)}, "workers must be 0 to"),
    ],
)
def test_bad_input_leaves_nothing(tmp_path, text, options, message):
    path = tmp_path / "molecules.csv"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(MolsliceError, match=message):
        prepared(path, tmp_path / "store", **options)
    assert set(os.listdir(tmp_path)) <= {"molecules.csv"}


def test_folders(table, tmp_path):
    with pytest.raises(MolsliceError, match=f"cannot read {tmp_path}: Is a directory"):
        prepared(tmp_path, tmp_path / "store")
    with pytest.raises(MolsliceError, match="cannot write /proc/nowhere/store: No such file or directory"):
        prepared(table, Path("/proc/nowhere/store"))
    with pytest.raises(MolsliceError, match=f"cannot write {table}/store: Not a directory"):
        prepared(table, table / "store")
    assert os.listdir(tmp_path) == ["molecules.csv"]


def test_a_read_only_folder(table, tmp_path, monkeypatch):
    genuine = Path.mkdir

    def refuse(self, *args, **options):
        if self.name.endswith(".partial"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        genuine(self, *args, **options)

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(MolsliceError, match=f"cannot write {tmp_path}/store: Permission denied"):
        prepared(table, tmp_path / "store")


def test_the_checksum_covers_every_cell(tmp_path):
    digests = set()
    path = tmp_path / "a.csv"
    for text in ("C,1\nN,2", "C,1\nN,3", "C,1\nO,2", "N,2\nC,1", "C,1\nN", "C,1\nN,", "C,1,1\nN,2", "C,1"):
        path.write_text(f"smiles,gap\n{text}\n")
        with prepare_files.open_molecules([path]) as table:
            rows = InputRows(table, ["gap"])
            list(rows)
            digests.add(rows.digest)
    assert len(digests) == 8


def test_a_damaged_partial_folder_is_refused(table, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 3, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            prepared(table, tmp_path / "store")
    path = tmp_path / "store.partial" / "store" / "atoms.npy"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(MolsliceError, match=r"atoms\.npy does not contain the \d+ rows that were saved"):
        prepared(table, tmp_path / "store")
    shutil.rmtree(tmp_path / "store.partial")
    assert json.loads((prepared(table, tmp_path / "store").path / "header.json").read_text())["rows"] == ROWS


def test_a_flipped_bit_of_the_partial_folder_never_makes_another_store(table, tmp_path, monkeypatch):
    expected = content(prepared(table, tmp_path / "whole").path)
    with monkeypatch.context() as patch:
        stop_after(patch, 7, KeyboardInterrupt())  # after both unreadable rows
        with pytest.raises(KeyboardInterrupt):
            prepared(table, tmp_path / "store")
    saved = shutil.copytree(tmp_path / "store.partial", tmp_path / "saved")
    files = {path.relative_to(saved).as_posix(): path for path in sorted(saved.rglob("*")) if path.is_file()}
    assert {"progress.json", "store/errors.partial", "store/targets.npy"} <= {*files}
    draw = random.Random(0)
    for name, file in files.items():
        whole = file.read_bytes()
        for place in draw.sample(range(len(whole)), min(len(whole), 25)):
            shutil.rmtree(tmp_path / "store.partial", ignore_errors=True)
            shutil.rmtree(tmp_path / "store", ignore_errors=True)
            shutil.copytree(saved, tmp_path / "store.partial")
            damaged = bytearray(whole)
            damaged[place] ^= 1 << draw.randrange(8)
            (tmp_path / "store.partial" / name).write_bytes(damaged)
            try:
                found = content(prepared(table, tmp_path / "store").path)
            except MolsliceError as error:
                assert "store.partial" in str(error)  # noqa: PT017
            else:
                assert found == expected, f"{name}, byte {place}"
