"""Tests of the store: round trip, damaged files, atomic writing."""

import errno
import importlib.metadata
import json
import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest

import molslice
from molslice.chem import FEATURIZER_VERSION
from molslice.data.molecules.store import MoleculeStore
from molslice.files.atomic import UnwritableError
from molslice.files.npy import ArrayFile
from molslice.types import MolsliceError
from tests.data.molecules.builders import SMILES, memory_store, molecules

NAMES = {"target_names": ["gap", "dipole"], "target_units": ["eV", "D"]}
TARGETS = np.array([[row, np.nan if row % 2 else -row] for row in range(len(SMILES))], np.float32)


def parts(**names):
    """Return the molecules in two parts; the second has the failed row."""
    found = molecules()
    return [
        MoleculeStore.in_memory(found[rows], TARGETS[rows], **names) for rows in (slice(3), slice(3, None))
    ]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "deep" / "store"
    MoleculeStore.write(path, parts(), source="test", versions={"rdkit": "1"}, **NAMES)
    return path


def check_contents(store):
    assert len(store) == len(SMILES)
    assert store.errors == {3: "not valid SMILES: unknown symbol 'X' at position 1"}
    assert store.target_names == ("gap", "dipole")
    assert store.target_units == ("eV", "D")
    np.testing.assert_array_equal(store.targets, TARGETS)
    for row, molecule in enumerate(molecules()):
        found = store.arrays(row)
        if isinstance(molecule, str):
            assert found.atoms.shape == (0, 9)
            assert found.bonds.shape == (0, 5)
            assert store.num_atoms[row] == 0
        else:
            np.testing.assert_array_equal(found.atoms, molecule.atoms)
            np.testing.assert_array_equal(found.bonds, molecule.bonds)
            assert store.num_atoms[row] == len(molecule.atoms)


def test_what_is_written_is_read(path):
    store = MoleculeStore.open(path)
    check_contents(store)
    assert store.header["versions"] == {"rdkit": "1"}
    assert store.header["rows"] == len(SMILES)
    assert isinstance(store.atoms.base, np.memmap) or store.atoms.base is not None
    assert [entry.name for entry in path.parent.iterdir()] == ["store"]


def test_in_memory_equals_written():
    check_contents(MoleculeStore.in_memory(molecules(), TARGETS, **NAMES))
    check_contents(MoleculeStore.join(parts(**NAMES)))


def test_without_targets_and_without_rows(tmp_path):
    assert MoleculeStore.in_memory(molecules()).targets.shape == (len(SMILES), 0)
    assert len(MoleculeStore.in_memory([])) == 0
    empty = MoleculeStore.write(tmp_path / "empty", [], **NAMES)
    assert len(MoleculeStore.open(empty.path)) == 0
    bad = MoleculeStore.write(
        tmp_path / "bad", [MoleculeStore.in_memory(["no", "no"], np.full((2, 2), np.nan))], **NAMES
    )
    assert len(MoleculeStore.open(bad.path)) == 2
    assert np.isnan(bad.targets).all()


def test_a_worker_gets_the_folder_not_the_contents(path):
    store = MoleculeStore.open(path)
    text = pickle.dumps(store)
    assert len(text) < 1000
    check_contents(pickle.loads(text))
    check_contents(pickle.loads(pickle.dumps(MoleculeStore.in_memory(molecules(), TARGETS, **NAMES))))


def test_no_such_row():
    store = memory_store()
    for row in (-1, len(SMILES)):
        with pytest.raises(MolsliceError, match=f"row {row} is out of range"):
            store.arrays(row)


def test_targets_must_fit():
    with pytest.raises(MolsliceError, match=r"\[10, 1\], got \[3, 1\]"):
        MoleculeStore.in_memory(molecules(), np.zeros((3, 1)), target_names=["a"])
    with pytest.raises(MolsliceError, match=r"\[10, T\], got \[10\]"):
        MoleculeStore.in_memory(molecules(), np.zeros(10))


@pytest.mark.parametrize("name", ["atoms", "bonds", "atom_offsets", "bond_offsets", "targets"])
def test_a_flipped_byte_shows(path, name):
    file = path / f"{name}.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(MolsliceError, match=rf"{name}.npy does not match its checksum"):
        MoleculeStore.open(path)


@pytest.mark.parametrize("keep", [0, 5, 128, -1])
def test_a_truncated_array_shows(path, keep):
    file = path / "atoms.npy"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(MolsliceError, match=r"atoms.npy"):
        MoleculeStore.open(path, verify=False)


def test_a_missing_array_shows(path):
    (path / "bonds.npy").unlink()
    with pytest.raises(MolsliceError, match=r"bonds.npy"):
        MoleculeStore.open(path)


def test_an_array_of_another_type_shows(path):
    np.save(path / "targets.npy", TARGETS.astype(np.float64))
    with pytest.raises(MolsliceError, match=r"<f8"):
        MoleculeStore.open(path, verify=False)


@pytest.mark.parametrize("things", ["atom", "bond"])
@pytest.mark.parametrize("change", ["end", "fall", "start"])
def test_offsets_that_do_not_fit_show(path, things, change):
    offsets = np.load(path / f"{things}_offsets.npy")
    place = {"end": -1, "fall": 1, "start": 0}[change]
    offsets[place] = offsets[-1] + 1 if change == "end" else offsets[2] + 1
    np.save(path / f"{things}_offsets.npy", offsets)
    with pytest.raises(MolsliceError, match=f"{things}_offsets.npy (decreases|goes from)"):
        MoleculeStore.open(path, verify=False)


@pytest.mark.parametrize(("name", "dtype"), [("atoms", "|u1"), ("bonds", "|u1"), ("descriptors", "<f4")])
def test_an_array_without_dimensions_shows(path, name, dtype):
    header = json.loads((path / "header.json").read_text())
    header["arrays"][name] = {**header["arrays"]["atoms"], "dtype": dtype, "shape": []}
    (path / "header.json").write_text(json.dumps(header))
    np.save(path / f"{name}.npy", np.zeros((), dtype))
    with pytest.raises(MolsliceError, match=rf"{name}.npy has (1$|the shape \[\], but header.json)"):
        MoleculeStore.open(path, verify=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"schema_version": 2},
            "header.json was written by a newer molslice: it has schema version 2, and this molslice reads "
            "versions up to 1",
        ),
        ({"schema_version": 0}, "header.json: invalid schema_version: 0"),
        ({"schema_version": "1"}, "header.json: invalid schema_version: '1'"),
        ({"schema_version": None}, "header.json: invalid schema_version: None"),
        ({"errors": None}, "lacks errors"),
        ({"target_names": ["one"]}, "header.json has 2 units for 1 targets"),
        ({"target_names": 5}, "header.json: invalid target_names: 5"),
        ({"arrays": {"atoms": []}}, "header.json: invalid arrays"),
        ({"arrays": []}, "header.json: invalid arrays"),
        ({"errors": {"x": "y"}}, "header.json: invalid errors"),
        ({"rows": True}, "header.json: invalid rows: True"),
    ],
)
def test_another_header_shows(path, change, message):
    header = json.loads((path / "header.json").read_text()) | change
    header = {key: value for key, value in header.items() if value is not None}
    (path / "header.json").write_text(json.dumps(header))
    with pytest.raises(MolsliceError, match=message):
        MoleculeStore.open(path)


@pytest.mark.parametrize(("old", "new"), [("eV", "eW"), ("test", "tets"), ("not valid", "now valid")])
def test_a_change_in_the_text_of_a_header_shows(path, old, new):
    file = path / "header.json"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(MolsliceError, match=r"header.json does not match its checksum"):
        MoleculeStore.open(path)
    MoleculeStore.open(path, verify=False)


def test_a_header_without_checksum_is_read(path):
    """As the first stores were written."""
    header = json.loads((path / "header.json").read_text())
    del header["header_sha256"]
    (path / "header.json").write_text(json.dumps(header))
    check_contents(MoleculeStore.open(path))


def test_a_header_has_the_versions_of_the_libraries(tmp_path):
    versions = MoleculeStore.write(tmp_path / "store", parts(), **NAMES).header["versions"]
    assert versions == {
        "molslice": molslice.__version__,
        "featurizer": str(FEATURIZER_VERSION),
        "numpy": np.__version__,
        "rdkit": importlib.metadata.version("rdkit"),
    }


@pytest.mark.parametrize("content", [None, "", "{", "[]"])
def test_a_folder_without_a_store_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "header.json").write_text(content)
    with pytest.raises(MolsliceError, match="header.json"):
        MoleculeStore.open(tmp_path)


def test_existing_files_are_not_overwritten(path):
    with pytest.raises(UnwritableError, match="store: it exists; choose another folder"):
        MoleculeStore.write(path, [])
    check_contents(MoleculeStore.open(path))


def test_of_two_writers_the_first_stays(tmp_path):
    path = tmp_path / "store"

    def late():
        MoleculeStore.write(path, parts(), **NAMES)
        yield MoleculeStore.in_memory(["no"], np.full((1, 2), np.nan))

    MoleculeStore.write(path, late(), **NAMES)
    check_contents(MoleculeStore.open(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("after", [0, 1, 3, 8])
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, after):
    write, calls = ArrayFile.append, []

    def full(self, values):
        calls.append(values)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, values)

    monkeypatch.setattr(ArrayFile, "append", full)
    with pytest.raises(OSError, match="No space left") as caught:
        MoleculeStore.write(tmp_path / "store", [*parts(), *parts()], **NAMES)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_disk_that_is_really_full(tmp_path, monkeypatch):
    opened = type(tmp_path).open

    def on_full_device(self, mode="r", *args, **options):
        return opened(type(self)("/dev/full") if self.suffix == ".npy" else self, mode, *args, **options)

    monkeypatch.setattr(type(tmp_path), "open", on_full_device)
    with pytest.raises(OSError, match="No space left"):
        MoleculeStore.write(tmp_path / "store", parts(), **NAMES)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interruption_leaves_nothing(tmp_path, error):
    def interrupted():
        yield parts()[0]
        raise error

    with pytest.raises(error):
        MoleculeStore.write(tmp_path / "store", interrupted(), **NAMES)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_leaves_nothing_under_the_name(tmp_path):
    program = (
        "import time, tests.data.molecules.test_store as t\n"
        "from molslice.data.molecules.store import MoleculeStore\n"
        "def slow():\n"
        "    yield t.parts()[0]\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
        f"MoleculeStore.write({str(tmp_path / 'store')!r}, slow(), **t.NAMES)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".store.")

    MoleculeStore.write(tmp_path / "store", parts(), **NAMES)  # the rest does not hinder the next
    assert not left.exists()
    check_contents(MoleculeStore.open(tmp_path / "store"))
