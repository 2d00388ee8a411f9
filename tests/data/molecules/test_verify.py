"""Tests of the verification of stores: any damage is found and its file is named."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_files import write_header
from molslice.data.molecules.verify import verify_store
from molslice.files.npy import ArrayFile
from molslice.types import MolsliceError
from tests.data.molecules.builders import SMILES
from tests.data.molecules.test_joined import CUTS, write

FILES = [
    *("header.json", "atoms.npy", "bonds.npy", "atom_offsets.npy", "bond_offsets.npy", "targets.npy"),
    *("atom_targets.npy", "groups.npy", "descriptors.npy"),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sound") / "store", 0, len(SMILES)).path


@pytest.fixture
def path(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "store")


@pytest.fixture
def shards(tmp_path):
    for number, cut in enumerate(CUTS):
        write(tmp_path / "shards" / f"{number}", *cut)
    return tmp_path / "shards"


def test_a_sound_store(sound):
    report = verify_store(sound)
    assert report.problems == []
    assert (report.rows, report.molecules, report.stores) == (len(SMILES), len(SMILES) - 1, 1)
    store = MoleculeStore.open(sound)
    assert (report.atoms, report.bonds) == (len(store.atoms), len(store.bonds))
    assert report.bytes == sum(file.stat().st_size for file in sound.iterdir())
    assert report.targets == ["gap", "dipole"]
    assert (report.schema_version, report.versions) == (1, store.header["versions"])


def test_all_bytes_count_as_progress(sound):
    sizes = []
    verify_store(sound, sizes.append)
    assert sum(sizes) == sum(np.load(file).nbytes for file in sound.glob("*.npy"))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FILES), st.data())
def test_any_changed_byte_is_found(sound, tmp_path_factory, name, data):
    content = bytearray((sound / name).read_bytes())
    place = data.draw(st.integers(0, len(content) - 1), "place")
    content[place] ^= data.draw(st.integers(1, 255), "bits")
    path = tmp_path_factory.mktemp("damaged")
    for file in sound.iterdir():
        (path / file.name).write_bytes(bytes(content) if file.name == name else file.read_bytes())
    problems = verify_store(path).problems
    assert problems
    assert all(str(path / name) in problem for problem in problems)
    with pytest.raises(MolsliceError, match=path.name):
        MoleculeStore.open(path)


def test_another_spelling_of_a_type_is_found(path):
    """On this machine `=i8` is the same type as `<i8`, but it is not what was written."""
    file = path / "atom_offsets.npy"
    file.write_bytes(file.read_bytes().replace(b"'<i8'", b"'=i8'", 1))
    assert [str(file) in problem for problem in verify_store(path).problems] == [True]
    with pytest.raises(MolsliceError, match="has the type =i8"):
        MoleculeStore.open(path)


def test_a_changed_letter_in_the_name_of_the_checksum_is_found(path):
    header = path / "header.json"
    header.write_text(header.read_text().replace('"header_sha256"', '"header_sha257"', 1))
    with pytest.raises(MolsliceError, match="unknown key 'header_sha257'"):
        MoleculeStore.open(path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0, 9, 100, -1])
def test_a_truncated_file_is_found(path, name, keep):
    file = path / name
    file.write_bytes(file.read_bytes()[:keep])
    (problem,) = verify_store(path).problems
    assert str(file) in problem
    file.write_bytes(b"")
    assert str(file) in verify_store(path).problems[0]


def test_added_bytes_are_found(path):
    with (path / "targets.npy").open("ab") as file:
        file.write(b"\0\0")
    (problem,) = verify_store(path).problems
    assert problem.endswith(f"targets.npy has {(path / 'targets.npy').stat().st_size:,} bytes instead of 208")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_found(path, name):
    (path / name).unlink()
    (problem,) = verify_store(path).problems
    assert name in problem


def test_an_extra_file_is_found(path):
    (path / "atoms.npy.bak").write_text("")
    (path / "more").mkdir()
    assert verify_store(path).problems == [
        f"{path / 'atoms.npy.bak'} is not named in header.json",
        f"{path / 'more'} is not named in header.json",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 11}, "targets.npy has the shape [10, 2], but header.json implies [11, 2]"),
        ({"atoms": 1}, "header.json says 1 atoms, but atoms.npy has 45"),
        ({"bonds": "many"}, "header.json says 'many' bonds, but bonds.npy has"),
        ({"target_names": ["gap"]}, "targets.npy has the shape [10, 2], but header.json implies [10, 1]"),
        ({"target_names": ["gap", 5]}, "header.json has a value in target_names that is not text"),
        ({"target_units": ["eV"]}, "header.json has 1 units for 2 targets"),
        (
            {"atom_target_names": []},
            "atom_targets.npy has the shape [45, 1], but header.json implies [45, 0]",
        ),
        ({"errors": {}}, "header.json has no reason why row 3 has no molecule"),
        ({"errors": {"3": "a", "4": "b"}}, "header.json has a reason for row 4, although it has atoms"),
        ({"errors": {"3": "a", "10": "b"}}, "header.json has a reason for row 10, which does not exist"),
        ({"extra": 1}, "header.json has the unknown key 'extra'"),
    ],
)
def test_a_header_that_lies_is_found(path, change, message):
    header = json.loads((path / "header.json").read_text())
    write_header(path, header | change)
    problems = verify_store(path).problems
    assert any(message in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("shape", [45, 8], "atoms.npy has the shape [45, 9], but header.json says [45, 8]"),
        ("shape", None, "atoms.npy has the shape [45, 9], but header.json says None"),
        ("sha256", "0" * 64, "atoms.npy does not match its checksum in header.json"),
    ],
)
def test_a_header_that_lies_about_an_array_is_found(path, key, value, message):
    header = json.loads((path / "header.json").read_text())
    header["arrays"]["atoms"][key] = value
    write_header(path, header)
    assert verify_store(path).problems == [f"{path}/{message}"]


def test_a_later_version_is_found(path):
    header = json.loads((path / "header.json").read_text())
    (path / "header.json").write_text(json.dumps(header | {"schema_version": 2}))
    (problem,) = verify_store(path).problems
    assert "header.json was written by a newer molslice" in problem


def replace_array(path, name, change):
    """Change an array, with a header that fits it."""
    values = np.load(path / f"{name}.npy")
    changed = change(values)
    values = values if changed is None else changed
    file = ArrayFile(path / f"{name}.npy", values.dtype.str, values.shape[1] if values.ndim > 1 else None)
    file.append(values)
    header = json.loads((path / "header.json").read_text())
    header["arrays"][name] = file.finish()
    write_header(path, header)


def assign(*index_and_value):
    *index, value = index_and_value

    def change(values):
        values[tuple(index)] = value

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("atoms", assign(4, 0, 119), "atoms.npy has an impossible code at row 1, atom 1, column 0: 119"),
        ("atoms", assign(44, 8, 2), "atoms.npy has an impossible code at row 9, atom 5, column 8: 2"),
        ("bonds", assign(0, 2, 5), "bonds.npy has an impossible code at row 0, bond 0, column 2: 5"),
        ("bonds", assign(2, 4, 2), "bonds.npy has an impossible code at row 1, bond 0, column 4: 2"),
        (
            "bonds",
            assign(1, 1, 3),
            "bonds.npy has an impossible bond: bond 1 of row 0 joins atoms 1 and 3 of 3",
        ),
        (
            "bonds",
            assign(3, 0, 2),
            "bonds.npy has an impossible bond: bond 1 of row 1 joins atoms 2 and 2 of 9",
        ),
        ("atom_offsets", assign(0, 1), "atom_offsets.npy goes from 1 to 45 instead of 0 to 45"),
        ("bond_offsets", assign(-1, 7), "bond_offsets.npy goes from 0 to 7 instead of 0 to"),
        ("atom_offsets", assign(2, 2), "atom_offsets.npy decreases at row 1"),
        ("targets", lambda values: values.astype("<f8"), "targets.npy has the type <f8 instead of <f4"),
        ("groups", lambda values: values[:-1], "groups.npy has the shape [9], but header.json implies [10]"),
        ("descriptors", lambda values: values[:, 0], "descriptors.npy has the shape [10], but header.json"),
    ],
)
def test_impossible_values_are_found(path, name, change, message):
    replace_array(path, name, change)
    (problem,) = verify_store(path).problems
    assert f"{path}/{message}" in problem


def test_a_molecule_with_too_many_atoms_is_found(tmp_path):
    write(tmp_path / "store", 0, len(SMILES))
    path = tmp_path / "store"
    replace_array(path, "atoms", lambda values: np.tile(values, (10, 1)))
    replace_array(path, "atom_targets", lambda values: np.tile(values, (10, 1)))
    replace_array(path, "atom_offsets", assign(-1, 450))
    header = json.loads((path / "header.json").read_text())
    write_header(path, header | {"atoms": 450})
    (problem,) = verify_store(path).problems
    assert problem.endswith("atom_offsets.npy gives row 9 411 atoms, more than 256")


def test_shards(shards):
    report = verify_store(shards)
    assert report.problems == []
    assert (report.rows, report.molecules, report.stores) == (len(SMILES), len(SMILES) - 1, 4)
    content = bytearray((shards / "3" / "bonds.npy").read_bytes())
    content[-1] ^= 4
    (shards / "3" / "bonds.npy").write_bytes(content)
    (shards / "readme.txt").write_text("")
    (shards / "1" / "targets.npy").unlink()
    assert verify_store(shards).problems == [
        f"{shards / '1' / 'targets.npy'} is missing",
        f"{shards / '3' / 'bonds.npy'} does not match its checksum in header.json",
        f"{shards / 'readme.txt'} is not part of the store",
    ]


def test_shards_that_differ_are_found(shards):
    write(shards / "7", 0, 2, target_units=["eV", ""])
    (problem,) = verify_store(shards).problems
    assert (
        f"{shards / '7'} and {shards / '0'} cannot be read as one store: they differ in target units"
        in problem
    )


def test_an_unfinished_shard_is_found(shards):
    (shards / "4.partial").mkdir()
    (problem,) = verify_store(shards).problems
    assert "4.partial is being written" in problem


def test_a_folder_without_a_store(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        (problem,) = verify_store(path).problems
        assert f"{path} is not a store of molecules" in problem
