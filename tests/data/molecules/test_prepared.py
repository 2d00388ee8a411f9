"""Tests of training from a prepared store."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from molslice.chem import FEATURIZER_VERSION
from molslice.chem.featurize import molecule_arrays
from molslice.cli import main
from molslice.data import build_dataset
from molslice.data.molecules import prepared
from molslice.data.molecules.prepare import Featurizing
from molslice.data.molecules.prepare_files import prepare_files
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_files import read_header, write_header
from molslice.inference.load import load_network
from molslice.types import MolsliceError
from tests.data.molecules.corpora import make_corpus
from tests.inference.models import embedded_smiles

ROWS = 60
TINY = {
    "model": {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2, "dropout": 0.0},
    "training": {"max_steps": 2, "batch_size": 16, "token_budget": 1024},
    "trainer": {"accelerator": "cpu", "num_threads": 1},
}
WITHOUT_RDKIT = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "rdkit":
            raise ModuleNotFoundError("rdkit is not installed")
sys.meta_path.insert(0, Refusing())
from molslice.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    rows = [f"{text},{len(text) / 10},{row % 2}" for row, text in enumerate(embedded_smiles(ROWS))]
    rows[3] = "XX,1,1"
    (folder / "molecules.csv").write_text("smiles,gap,toxic\n" + "\n".join(rows) + "\n")
    return folder


def store(folder, *targets, **options):
    out = folder / "-".join(["store", *targets, *options, *map(str, options.values())])
    prepare_files(
        [folder / "molecules.csv"], out, targets=targets, how=Featurizing(**options), progress=False
    )
    return out


def test_rows_and_splits_are_those_of_the_table(folder):
    path = store(folder, "gap", "toxic")
    dataset = build_dataset("prepared", {"path": str(path), "units": ["eV", ""]})
    table = build_dataset(
        "csv",
        {
            "path": str(folder / "molecules.csv"),
            "target_columns": ["gap", "toxic"],
            "units": ["eV", ""],
            "cache_dir": str(folder / "cache"),
        },
    )
    assert (dataset.target_names, dataset.target_units) == (table.target_names, table.target_units)
    assert dataset.splits.keys() == {"train", "valid", "test"}
    for name, rows in table.splits.items():
        np.testing.assert_array_equal(dataset.splits[name], rows)
    batch, expected = dataset.collate([0, 5, 9]), table.collate([0, 5, 9])
    assert batch.atoms.equal(expected.atoms)
    assert batch.targets.equal(expected.targets)
    assert dataset.errors == {3: "not valid SMILES: unknown symbol 'X' at position 1"}
    other = {"kind": "random", "fractions": [0.5, 0.25, 0.25], "seed": 3}
    assert len(build_dataset("prepared", {"path": str(path), "split": other}).splits["train"]) == 30


def test_training_from_a_store_and_prediction(folder, capsys):
    path = store(folder, "gap", atom_order="input")
    config = folder / "config.yaml"
    config.write_text(json.dumps({"data": {"name": "prepared", "path": str(path), "units": "eV"}, **TINY}))
    run = folder / "run"
    assert main(["train", "--config", str(config), "--out", str(run), "--quiet", "--json"]) == 0
    summary = json.loads((run / "summary.json").read_text())
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json", "--quiet"]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert evaluated["targets"][0]["mae"] == pytest.approx(summary["test"]["mae"]["gap"], abs=1e-5)

    network = load_network(run)
    assert network.atom_order == "input"  # the model has learned from atoms in this order
    rows = np.array([7])
    of_store = network.predict_molecules(MoleculeStore.open(path), rows=rows).values[:, 0]
    path.rename(folder / "moved")  # prediction does not need the store
    smiles = [embedded_smiles(ROWS)[7]]
    np.testing.assert_allclose(load_network(run).predict(smiles), of_store, rtol=1e-5)


def test_training_without_rdkit(folder):
    path = store(folder, "gap")
    config = folder / "plain.yaml"
    config.write_text(json.dumps({"data": {"name": "prepared", "path": str(path)}, **TINY}))
    words = ["train", "--config", config, "--out", folder / "plain", "--quiet"]
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", WITHOUT_RDKIT, *map(str, words)]
    result = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root)
    assert result.returncode == 0, result.stderr
    assert (folder / "plain" / "model.safetensors").exists()


def test_descriptors_reach_the_model(folder):
    dataset = build_dataset("prepared", {"path": str(store(folder, "gap", descriptors=True))})
    assert dataset.spec.num_descriptors == dataset.store.descriptors.shape[1] > 0
    assert "descriptors_version" in dataset.metadata


def test_classes(folder):
    path = str(store(folder, "gap", "toxic"))
    with pytest.raises(MolsliceError, match=r"row \d+, target 'gap': \d.* is neither 0 nor 1"):
        build_dataset("prepared", {"path": path, "kind": "classification"})
    dataset = build_dataset("prepared", {"path": str(store(folder, "toxic")), "kind": "classification"})
    assert dataset.kind == "classification"
    assert build_dataset("prepared", {"path": str(store(folder, "toxic"))}).kind == "classification"
    mixed = build_dataset("prepared", {"path": path})
    assert mixed.kind == "regression"
    assert mixed.notices[0].startswith("toxic: has only 0 and 1, but is learned as numbers, like the others")
    given = build_dataset("prepared", {"path": path, "kind": "regression"})
    assert given.notices == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"split": "scaffold"},
            "split 'scaffold' needs the input of the store, which it does not keep; choi",
        ),
        ({"split": {"kind": "column", "column": "gap"}}, "split 'column' needs the input"),
        ({"split": "randum"}, "invalid split 'randum'"),
        ({"kind": "ranking"}, "kind must be regression or classification, got 'ranking'"),
        ({"units": ["eV", "V"]}, r"units must be one unit, or one for each target \(1\)"),
        ({"path": "nowhere"}, r"no such file: nowhere \(data.path\). `molslice prepare FILE --out STORE"),
    ],
)
def test_invalid_options(folder, options, message):
    path = str(store(folder, "gap"))
    with pytest.raises(MolsliceError, match=message):
        build_dataset("prepared", {"path": path, **options})


def test_several_stores(folder):
    first, second = store(folder, "gap"), store(folder, "gap", max_atoms=20)
    options = {"path": [str(first), str(second)], "valid_path": str(second), "test_path": [str(first)]}
    dataset = build_dataset("prepared", options)
    assert {name: (rows[0], rows[-1]) for name, rows in dataset.splits.items()} == {
        "train": (0, 119),
        "valid": (120, 179),
        "test": (180, 239),
    }
    assert dataset.source == f"{first} and 3 other stores"
    assert dataset.where(0) == f"{first}, row 1"
    assert dataset.where(119) == f"{second}, row 60"
    assert dataset.where(239) == f"{first}, row 60"
    assert dataset.collate([1, 181]).atoms[0].equal(dataset.collate([1, 181]).atoms[1])
    dataset = build_dataset("prepared", {"path": str(first), "test_path": str(second)})
    assert [len(rows) for rows in dataset.splits.values()] == [53, 7, 60]
    with pytest.raises(MolsliceError, match="split cannot be used with valid_path"):
        build_dataset("prepared", {**options, "split": "random"})
    with pytest.raises(MolsliceError, match="differ in target names"):
        build_dataset("prepared", {**options, "valid_path": str(store(folder, "toxic"))})
    with pytest.raises(MolsliceError, match="store-gap is given twice"):
        build_dataset("prepared", {"path": [str(first), str(first)]})
    with pytest.raises(MolsliceError, match="differ in treatment of mixtures: largest and keep"):
        build_dataset("prepared", {**options, "valid_path": str(store(folder, "gap", fragment="largest"))})
    with pytest.raises(MolsliceError, match=r"path must be a store or a list of stores, got \[\]"):
        build_dataset("prepared", {"path": []})


def test_a_store_in_two_splits_is_named(folder, caplog):
    path = store(folder, "gap")
    build_dataset("prepared", {"path": str(path), "test_path": str(path)})
    assert f"{path} is in the splits train and test" in caplog.text


def test_other_stores(folder, tmp_path, monkeypatch):
    with pytest.raises(MolsliceError, match="has no targets; prepare it with --target COLUMN"):
        build_dataset("prepared", {"path": str(store(folder))})
    make_corpus(tmp_path / "corpus")
    with pytest.raises(MolsliceError, match="is the store of a corpus; use data.name: corpus"):
        build_dataset("prepared", {"path": str(tmp_path / "corpus" / "store")})
    monkeypatch.setattr(prepared, "FEATURIZER_VERSION", 99)
    with pytest.raises(MolsliceError, match="has version 3 of the featurizer, and this molslice has 99"):
        build_dataset("prepared", {"path": str(store(folder, "gap"))})


def old_store(path, smiles, order="canonical"):
    """Write a store as version 2 of the featurizer did, which kept the hydrogens that RDKit keeps."""
    molecules = [molecule_arrays(text, atom_order="input") for text in smiles]
    values = np.arange(len(smiles), dtype=np.float32)[:, None]
    MoleculeStore.write(
        path,
        [MoleculeStore.in_memory(molecules, values)],
        target_names=["gap"],
        about={"prepared": {"atom_order": order}},
    )
    header = read_header(path)
    header["versions"]["featurizer"] = "2"
    write_header(path, header)
    return str(path)


PLAIN = ["CCO", "[H][H]", "[H+].[Cl-]", "c1ccccc1", "[H-][Fe]", "CCN", "*C", "CCC", "CCF", "CCCl", "CCBr"]


@pytest.mark.parametrize("smiles", ["[2H]OC", "[H]/N=C(/C)CC", "[HH]", "CC.[2H]C"])
def test_a_store_of_version_2_is_read_unless_a_hydrogen_is_an_atom(tmp_path, smiles):
    dataset = build_dataset("prepared", {"path": old_store(tmp_path / "plain", PLAIN)})
    assert len(dataset.store) == len(PLAIN)
    assert dataset.metadata["featurizer_version"] == FEATURIZER_VERSION
    with pytest.raises(MolsliceError, match="row 12: a hydrogen is an atom, .*; prepare it again"):
        build_dataset("prepared", {"path": old_store(tmp_path / "odd", [*PLAIN, smiles])})
    as_written = old_store(tmp_path / "input", [*PLAIN, smiles], "input")
    assert len(build_dataset("prepared", {"path": as_written}).store) == len(PLAIN) + 1


def test_stores_of_versions_2_and_3_are_read_as_one(tmp_path):
    for name, version in (("a", "2"), ("b", "3")):
        old_store(tmp_path / name, PLAIN)
        header = read_header(tmp_path / name)
        header["versions"]["featurizer"] = version
        write_header(tmp_path / name, header)
    assert len(build_dataset("prepared", {"path": str(tmp_path)}).store) == 2 * len(PLAIN)


def test_values_far_outside_are_refused_until_the_user_decides(folder, tmp_path):
    lines = (folder / "molecules.csv").read_text().splitlines()
    for row in (7, 9, 30):
        lines[row] = f"{lines[row].partition(',')[0]},-999,1"
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    how = {"targets": ["gap"], "how": Featurizing(), "progress": False}
    made = prepare_files([tmp_path / "a.csv"], tmp_path / "store", **how)
    said = "gap: -999 in 3 rows (row 7, row 9, row 30): far outside the other values"
    assert len(made.notices) == 1
    assert made.notices[0].startswith(said)
    again = prepare_files([tmp_path / "a.csv"], tmp_path / "store", **how)
    assert again.notices == made.notices
    with pytest.raises(
        MolsliceError, match="--missing-value=-999 to .molslice prepare.; .*--data.outliers keep"
    ):
        build_dataset("prepared", {"path": str(tmp_path / "store")})
    kept = build_dataset("prepared", {"path": str(tmp_path / "store"), "outliers": "keep"})
    assert np.nanmin(kept.targets) == -999
    assert kept.notices[0].startswith(said)
    clean = prepare_files([tmp_path / "a.csv"], tmp_path / "clean", missing_values=["-999"], **how)
    assert clean.notices == []
    targets = build_dataset("prepared", {"path": str(tmp_path / "clean")}).targets[:, 0]
    assert np.flatnonzero(np.isnan(targets)).tolist() == [6, 8, 29]
    with pytest.raises(MolsliceError, match="different content .missing was null"):
        prepare_files([tmp_path / "a.csv"], tmp_path / "store", missing_values=["-999"], **how)
