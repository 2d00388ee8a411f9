"""Tests of `molslice data`."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from rdkit import Chem

from molslice.cli import main
from molslice.data.molecules.csv import Csv
from molslice.data.molecules.store import MoleculeStore
from tests.data.molecules.builders import SMILES, molecules
from tests.programs import run_in_shell

ODD = ["C[Fe@SP1](O)(Cl)F", "[Fe+7]", "[13CH3]O", "*C"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    targets = np.arange(len(SMILES), dtype=np.float32)[:, None] / 3
    targets[2] = np.nan
    folder = tmp_path_factory.mktemp("data") / "store"
    part = MoleculeStore.in_memory(molecules(), targets)
    MoleculeStore.write(folder, [part], target_names=["gap"], target_units=["eV"])
    return folder


@pytest.fixture
def data(capsys):
    """Run `molslice data` and return exit code, standard output and standard error."""

    def run(*words):
        capsys.readouterr()
        code = main(["data", *map(str, words)])
        return code, *capsys.readouterr()

    return run


def test_verify_says_what_a_sound_store_contains(data, path):
    code, out, err = data("verify", path)
    assert (code, err) == (0, "")
    assert out.startswith(f"{path} is sound\nrows            10\nmolecules       9\natoms           45\n")
    assert "versions        molslice 0.1.0, featurizer" in out
    code, out, _ = data("verify", path, "--json")
    assert code == 0
    assert json.loads(out)["targets"] == ["gap"]


def test_verify_names_each_damaged_file(data, path, tmp_path):
    copy = shutil.copytree(path, tmp_path / "copy")
    for name in ("atoms", "bonds"):
        content = bytearray((copy / f"{name}.npy").read_bytes())
        content[-1] ^= 1
        (copy / f"{name}.npy").write_bytes(content)
    code, out, err = data("verify", copy)
    assert (code, out) == (1, "")
    assert err == "".join(
        f"molslice: error: {copy}/{name}.npy does not match its checksum in header.json\n"
        for name in ("atoms", "bonds")
    )
    code, out, _ = data("verify", copy, "--json")
    assert (code, len(json.loads(out)["problems"])) == (1, 2)


def test_show_prints_a_molecule(data, path):
    code, out, err = data("show", path, "--row", 4)
    assert (code, err) == (0, "")
    assert out.startswith(f"row 4 of {path}\nSMILES: C[C@H](N)C(=O)O\ngap: 1.33333 eV\n\natom  element")
    assert "\n   1  C        tetrahedral_ccw       4" in out
    assert "\n   3      3    4  double" in out
    found = json.loads(data("show", path, "--row", 4, "--json")[1])
    assert found["smiles"] == "C[C@H](N)C(=O)O"
    assert found["targets"] == [{"name": "gap", "unit": "eV", "value": pytest.approx(4 / 3)}]
    assert (found["error"], found["lost"]) == (None, None)
    assert [atom["element"] for atom in found["atoms"]] == list("CCNCOO")
    assert "\ngap: missing eV\n" in data("show", path, "--row", 2)[1]


def test_show_says_why_a_row_has_no_molecule(data, path, tmp_path):
    code, out, _ = data("show", path, "--row", 3)
    reason = "not valid SMILES: unknown symbol 'X' at position 1"
    assert (code, out) == (0, f"row 3 of {path}\nno molecule: {reason}\ngap: 1 eV\n")
    code, out, err = data("show", path, "--row", 3, "--out", tmp_path / "a.svg")
    assert (code, out) == (1, "")
    assert err == f"molslice: error: cannot draw row 3: it has no molecule: {reason}\n"
    code, _, err = data("show", path, "--row", 10)
    assert (code, "row 10 is out of range: the store has 10 rows" in err) == (1, True)


def test_show_draws(data, path, tmp_path):
    assert data("show", path, "--row", 6, "--out", tmp_path / "a.svg")[0] == 0
    text = (tmp_path / "a.svg").read_text()
    assert "</svg>" in text
    assert "atom-10" in text
    assert data("show", path, "--row", 6, "--out", tmp_path / "a.png")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = data("show", path, "--row", 6, "--out", tmp_path / "a.gif")
    assert (code, "a drawing ends in .svg or .png, got '.gif'" in err) == (1, True)


def test_a_molecule_that_rdkit_refuses_is_shown(data, tmp_path):
    molecule = replace(molecules(["CC"])[0], bonds=np.array([[0, 1, 1, 0, 0]], np.uint8))
    MoleculeStore.write(tmp_path / "store", [MoleculeStore.in_memory([molecule])])
    code, out, _ = data("show", tmp_path / "store", "--row", 0, "--out", tmp_path / "a.svg")
    assert code == 0
    assert "not reproduced: RDKit cannot read it: Explicit valence" in out
    assert "</svg>" in (tmp_path / "a.svg").read_text()
    code, _, err = data("csv", tmp_path / "store", "--out", tmp_path / "a.csv")
    assert code == 0
    assert "1 of 1 SMILES do not give the arrays of their row again; the first, row 0: RDKit cannot" in err


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".jsonl"])
def test_a_table_gives_the_same_store_again(data, path, tmp_path, ending, workers):
    code, out, err = data("csv", path, "--out", tmp_path / f"a{ending}", "--workers", workers)
    assert (code, out) == (0, "")
    assert err.endswith(
        "10 rows written to " + str(tmp_path / f"a{ending}") + ", 1 of them without a molecule\n"
    )
    again = Csv(path=tmp_path / f"a{ending}", target_columns="gap", cache_dir=tmp_path).store
    store = MoleculeStore.open(path)
    for name in ("atoms", "bonds", "atom_offsets", "bond_offsets", "targets"):
        np.testing.assert_array_equal(getattr(again, name), getattr(store, name))


def test_what_a_smiles_does_not_reproduce_is_in_its_row(data, tmp_path):
    MoleculeStore.write(tmp_path / "store", [MoleculeStore.in_memory(molecules(ODD))])
    code, _, err = data("csv", tmp_path / "store", "--out", tmp_path / "a.csv")
    assert code == 0
    assert (
        "2 of 4 SMILES do not give the arrays of their row again; the first, row 0: the arrays do not" in err
    )
    rows = [line.split(",") for line in (tmp_path / "a.csv").read_text().splitlines()]
    assert rows[0] == ["smiles", "error"]
    assert [row[1] for row in rows[1:]] == [
        "the arrays do not determine the chirality of atom 1",
        "the arrays do not determine the charge of atom 0",
        "",
        "",
    ]
    assert [row[0] for row in rows[3:]] == ["CO", "*C"]
    assert Chem.MolFromSmiles(rows[1][0]) is not None


def test_targets_keep_their_names(data, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("smiles,error\nCCO,1.5\nbad,2\n")
    assert main(["prepare", str(table), "--out", str(tmp_path / "store"), "--target", "error"]) == 0
    assert data("csv", tmp_path / "store", "--out", tmp_path / "out.csv")[0] == 0
    header, first, _ = (tmp_path / "out.csv").read_text().splitlines()
    assert (header, first) == ("smiles,error,error_of_molecule", "CCO,1.5,")


def test_a_closed_pipe_ends_a_table_quietly(path, tmp_path):
    done = run_in_shell(f"data csv {path} --out - --quiet | true", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_shards_are_written_as_one_table(data, path, tmp_path):
    for name in ("a", "b"):
        MoleculeStore.write(tmp_path / "shards" / name, [MoleculeStore.in_memory(molecules())])
    assert data("csv", tmp_path / "shards", "--out", "-", "--quiet")[1].count("CCO,\n") == 2


def test_no_file_is_written_into_a_store(data, tmp_path, monkeypatch):
    for name in ("a", "b"):
        MoleculeStore.write(tmp_path / "shards" / name, [MoleculeStore.in_memory(molecules())])
    shards = tmp_path / "shards"
    (tmp_path / "link").symlink_to(shards)
    (tmp_path / "config.yaml").touch()  # of another command
    for store in (shards, shards / "a"):
        for folder in (store, shards / "b", tmp_path / "link" / "a"):
            for words in (
                ("csv", store, "--out", folder / "x.csv"),
                ("show", store, "--row", 0, "--out", folder / "x.svg"),
            ):
                code, out, err = data(*words)
                assert (code, out) == (1, "")
                assert f"{folder} is the folder of a store; choose another folder" in err
        assert data("verify", store)[0] == 0
        assert data("csv", store, "--out", tmp_path / "x.csv")[0] == 0
    monkeypatch.chdir(shards / "a")
    assert data("csv", ".", "--out", "-", "--quiet")[0] == 0


def test_bad_input_is_one_line(data, path, tmp_path):
    for words, message in (
        (("verify", tmp_path), "is not a store of molecules"),
        (("show", tmp_path, "--row", "0"), "is not a store of molecules"),
        (("csv", path, "--out", tmp_path / "a.npy"), "must end in .csv"),
        (("csv", path, "--out", tmp_path / "no" / "a.csv"), "does not exist"),
    ):
        code, out, err = data(*words)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert message in err
    for words in ((), ("show", path), ("csv", path), ("frob", path)):
        assert data(*words)[0] == 2
