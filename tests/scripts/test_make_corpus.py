"""The program that makes a corpus: what becomes a row, and the same bytes whatever happens on the way."""

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from rdkit import Chem

from molslice.chem.canonical import canonical_molecule, canonical_order
from molslice.chem.connectivity import connectivity
from molslice.chem.descriptors import descriptor_names, descriptors
from molslice.chem.featurize import molecule_arrays
from molslice.data import build_dataset
from molslice.data.molecules.store import MoleculeStore
from molslice.tasks import TargetInfo
from tests.real_data import embedded_smiles

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
DATA = SCRIPTS.parent / "data"
MOLECULES = embedded_smiles()[::260][:50]
DRIVER = """
import sys, time
sys.path.insert(0, {scripts!r})
import corpus_keys, make_corpus
corpus_keys.SHARD_LINES = make_corpus.SHARD_LINES = 10
slow, write_shard, write_part = {slow}, make_corpus.write_shard, make_corpus.write_part
def slowly(function):
    def call(*arguments):
        time.sleep(slow)
        return function(*arguments)
    return call
make_corpus.write_shard, make_corpus.write_part = slowly(write_shard), slowly(write_part)
sys.exit(make_corpus.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def modules():
    """The modules of the program, with shards of ten lines."""
    sys.path.insert(0, str(SCRIPTS))
    import corpus_keys  # pyright: ignore[reportMissingImports]
    import corpus_labels  # pyright: ignore[reportMissingImports]
    import corpus_store  # pyright: ignore[reportMissingImports]
    import make_corpus  # pyright: ignore[reportMissingImports]

    lines = corpus_keys.SHARD_LINES
    corpus_keys.SHARD_LINES = make_corpus.SHARD_LINES = 10
    yield {module.__name__: module for module in (corpus_keys, corpus_labels, corpus_store, make_corpus)}
    corpus_keys.SHARD_LINES = lines
    sys.path.remove(str(SCRIPTS))


@pytest.fixture
def make(modules, tmp_path):
    """Make a corpus in this process; returns its store and its report, or the exit code."""

    def run(*options, out="out", work="work", fails=False):
        places = ["--out", str(tmp_path / out), "--work", str(tmp_path / work), "--quiet"]
        code = modules["make_corpus"].main([*map(str, options), *places])
        if fails:
            assert not (tmp_path / out).exists()
            return code
        assert code == 0
        report = json.loads((tmp_path / out / "report.json").read_text())
        return MoleculeStore.open(tmp_path / out / "store"), report

    return run


def write_lines(path, lines):
    """A file of lines, compressed if its name says so."""
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    return path


@pytest.fixture
def files(tmp_path):
    """Two files of 30 and 32 lines with molecules in both, and in other spellings."""
    again = [
        Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(text), 1, randomSeed=1)[0] for text in MOLECULES[:12]
    ]
    return [
        write_lines(tmp_path / "a.smi.gz", MOLECULES[:30]),
        write_lines(tmp_path / "b.smi", [*(f"{text} name of it" for text in MOLECULES[30:]), *again]),
    ]


def contents(store):
    return {file.name: file.read_bytes() for file in sorted(Path(store).iterdir())}


def canonical(smiles):
    return canonical_molecule(smiles).smiles


def test_a_row_is_a_molecule_with_its_arrays_and_descriptors(make, files):
    store, report = make(*files)
    assert len(store) == len({canonical(text) for text in MOLECULES}) == report["rows"] == 50
    assert report["lines"]["a.smi.gz"]["duplicate"] == 0
    assert report["lines"]["b.smi"]["duplicate"] == 12
    assert report["atoms"] == len(store.atoms)
    names, scaling = list(descriptor_names()), store.header["about"]["scaling"]
    places = [names.index(name) for name in store.target_names]
    assert 100 < len(places) < 215
    for row, smiles in enumerate(MOLECULES):
        arrays = molecule_arrays(smiles)
        np.testing.assert_array_equal(store.arrays(row).atoms, arrays.atoms)
        np.testing.assert_array_equal(store.arrays(row).bonds, arrays.bonds)
        values = descriptors(canonical_molecule(smiles).mol)[places]
        expected = values.astype(np.float32).clip(scaling["low"], scaling["high"])
        np.testing.assert_allclose(store.targets[row], expected, rtol=1e-6)
    assert store.atom_targets is None
    assert store.groups is not None
    assert len(np.unique(store.groups)) == len({connectivity(Chem.MolFromSmiles(text)) for text in MOLECULES})


def test_lines_that_are_not_rows_are_counted(make, tmp_path, capsys):
    lines = ["CCO", "", "OCC again", "C(", "\u0421CO", "C" * 65, "[H][H]", "C" * 64, "CCN"]
    store, report = make(write_lines(tmp_path / "odd.smi", lines))
    assert report["lines"]["odd.smi"] == {
        "lines": 9,
        "blank line": 1,
        "cannot be parsed": 2,
        "more than 64 heavy atoms": 1,
        "no heavy atom": 1,
        "canonical SMILES cannot be parsed": 0,
        "duplicate": 1,
    }
    assert store.num_atoms.tolist() == [3, 64, 3]
    assert "2 of 9 lines of odd.smi cannot be parsed" in capsys.readouterr().err


def test_molecules_of_a_table_are_left_out_in_every_form(make, tmp_path):
    kept = ["CCCCO", "c1ccccc1", "CCN.CCCCCCC(=O)O"]
    lines = [*kept, "CC(=O)CC(C)=O", "C[C@H](N)C(=O)O", "CC[NH3+].[Cl-]", "N#CC1CCCC1"]
    first = tmp_path / "first.csv"
    first.write_text("id,SMILES\n1,CC(O)=CC(C)=O\n2,C[C@@H]([NH3+])C([O-])=O\n3,XXX\n4,[Na+].CC=O\n")
    second = write_lines(tmp_path / "second.csv.gz", ["Drug,y", "CCN,1", "CC(N)C(O)=O,2", "CCN,3"])
    store, report = make(write_lines(tmp_path / "a.smi", [*lines]), "--exclude", first, second)
    assert len(store) == len(kept) + 1
    assert report["excluded"] == {
        "first.csv": {"rows": 4, "unreadable": 1, "skeletons": 3, "molecules left out": 2},
        "second.csv.gz": {"rows": 3, "unreadable": 0, "skeletons": 2, "molecules left out": 1},
    }
    assert "molecules with a skeleton of first.csv: 2" in (tmp_path / "out" / "CARD.md").read_text()


def test_held_out_molecules_of_a_data_set_are_left_out(make, tmp_path):
    lines = ["CCCCO", "c1ccccc1", "CC(=O)CC(C)=O", "C[C@H](N)C(=O)O"]
    root = tmp_path / "measured"
    (root / "raw").mkdir(parents=True)
    table = "idx,smiles,homolumogap\n0,CCCCO,1\n1,C1CCCCC1,1\n2,CC(O)=CC(C)=O,1\n"
    (root / "raw" / "data.csv.gz").write_bytes(gzip.compress(table.encode()))
    splits = {"train": np.array([0]), "valid": np.array([2]), "test": np.array([1])}
    torch.save(splits, root / "split_dict.pt")
    source = write_lines(tmp_path / "a.smi", lines)
    store, report = make(source, "--exclude", root)
    assert store.num_atoms.tolist() == [5, 6]
    assert report["excluded"]["measured"] == {
        "rows": 2,
        "unreadable": 0,
        "skeletons": 2,
        "molecules left out": 2,
    }
    torch.save({**splits, "valid": np.array([0]), "train": np.array([2])}, root / "split_dict.pt")
    assert len(make(source, "--exclude", root, out="again")[0]) == 2
    (root / "split_dict.pt").unlink()
    assert make(source, "--exclude", root, out="none", fails=True) == 1


def test_a_smaller_corpus_is_part_of_a_larger_one(make, files):
    every, _ = make(*files, out="all")
    molecules = {}
    for rows in (10, 25):
        store, report = make(*files, "--rows", rows, out=f"rows{rows}")
        assert len(store) == report["rows"] == rows
        molecules[rows] = {store.arrays(row).atoms.tobytes() for row in range(rows)}
        assert report["this run"]["computed"] == {"molecules": 0}  # the pieces of the first run are used
    assert molecules[10] < molecules[25] < {every.arrays(row).atoms.tobytes() for row in range(len(every))}
    alone, report = make(*files, "--rows", 25, out="alone", work="other")
    assert contents(alone.path) == contents(store.path)
    assert report["this run"]["computed"]["molecules"] == 25


def test_processes_give_the_bytes_of_one(make, files):
    one, _ = make(*files)
    two, _ = make(*files, "--jobs", 2, out="two", work="work2")
    assert contents(two.path) == contents(one.path)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["keys", "parts"])
def test_a_killed_run_continues_with_the_same_bytes(make, files, tmp_path, stage):
    expected, _ = make(*files, work="reference", out="expected")
    arguments = [
        *map(str, files),
        "--out",
        str(tmp_path / "out"),
        "--work",
        str(tmp_path / "work"),
        "--quiet",
    ]
    pieces = 1

    def start(slow):
        program = DRIVER.format(scripts=str(SCRIPTS), slow=slow)
        return subprocess.Popen([sys.executable, "-c", program, *arguments], stderr=subprocess.PIPE)

    killed = start(0.7)
    while killed.poll() is None and len(list((tmp_path / "work" / stage).glob("*.npz"))) < pieces:
        time.sleep(0.02)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    done = len(list((tmp_path / "work" / stage).glob("*.npz")))
    assert pieces <= done < 7
    assert not (tmp_path / "out").exists()
    again = start(0)
    _, errors = again.communicate()
    assert again.returncode == 0, errors
    assert contents(tmp_path / "out" / "store") == contents(expected.path)
    leftover = [path for path in (tmp_path / "work").rglob("*") if path.name.startswith(".")]
    assert [path.name for path in leftover] == []


def test_other_input_is_refused(make, files, capsys):
    make(*files)
    assert make(*files[::-1], out="other", fails=True) == 1
    assert "was made with other inputs; choose another --work" in capsys.readouterr().err
    write_lines(files[1], MOLECULES[:3])
    assert make(*files, out="other", fails=True) == 1
    assert "was made with other inputs; choose another --work" in capsys.readouterr().err


def test_a_table_without_smiles_is_refused(make, files, tmp_path, capsys):
    table = tmp_path / "table.csv"
    table.write_text("a/b,c\nCCO,1\n")
    assert make(*files, "--exclude", table, fails=True) == 1
    error = capsys.readouterr().err
    assert f"{table}: cannot find the column of SMILES" in error
    assert "its columns are a/b, c" in error
    _, report = make(*files, "--exclude", table, "--smiles-column", "a/b")
    assert report["excluded"]["table.csv"]["skeletons"] == 1


@pytest.mark.parametrize("name", ["FILE", "table"])
def test_a_missing_file_is_named(make, files, tmp_path, capsys, name):
    missing = tmp_path / "missing.csv"
    options = [missing] if name == "FILE" else [*files, "--exclude", missing]
    assert make(*options, fails=True) == 1
    assert f"no such file: {missing}" in capsys.readouterr().err


def test_a_corpus_without_molecules_is_refused(make, tmp_path, capsys):
    assert make(write_lines(tmp_path / "a.smi", ["XXX"]), fails=True) == 1
    assert "no molecule is left" in capsys.readouterr().err


def test_an_existing_folder_stays(modules, files, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(SystemExit) as caught:
        modules["make_corpus"].main(
            [str(files[0]), "--out", str(tmp_path / "out"), "--work", str(tmp_path / "w")]
        )
    assert caught.value.code == 2


def test_lines_are_read_as_far_as_needed(modules, monkeypatch):
    read = []

    def lines(path):
        for number in range(10**9):
            read.append(number)
            yield b"CC"

    monkeypatch.setattr(modules["corpus_keys"], "read_byte_lines", lines)
    shards = modules["corpus_keys"].shards_of_file(Path("endless.smi"))
    assert len(next(shards)) == 10
    assert len(next(shards)) == 10
    assert len(read) == 20


def invariant(mol, atom):
    """A number of an atom that does not depend on the order of the atoms."""
    ring = [n.GetAtomicNum() + 0.1 * n.GetTotalNumHs() for n in atom.GetNeighbors()]
    return round(0.01 * atom.GetAtomicNum() + 0.001 * sum(ring) + 0.0001 * atom.GetTotalNumHs(), 6)


def record(smiles, **labels):
    """A record as the labels program writes it: the atoms of the SMILES first, then their hydrogens."""
    mol = Chem.MolFromSmiles(smiles)
    charges = [invariant(mol, atom) for atom in mol.GetAtoms()]
    hydrogens = sum(atom.GetTotalNumHs() for atom in mol.GetAtoms())
    values = {"gap_ev": 3.0, "homo_ev": -9.0, "lumo_ev": -6.0, "dipole_debye": 1.5, "energy_ev": -100.0}
    return json.dumps({"smiles": smiles, **values, **labels, "charges": [*charges, *[0.05] * hydrogens]})


def tenth(modules, smiles):
    return modules["corpus_keys"].key_of(connectivity(Chem.MolFromSmiles(smiles))) % 10


def test_labels_belong_to_their_molecules_and_atoms(modules, make, files, tmp_path):
    train = [text for text in MOLECULES if tenth(modules, text) < 8]
    test = [text for text in MOLECULES if tenth(modules, text) >= 8]
    assert len(train) > 30
    assert test
    spelled = [
        Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(text), 1, randomSeed=3)[0] for text in train[:20]
    ]
    log = tmp_path / "labels.jsonl"
    records = [
        record(text, gap_ev=1.0 + row, homo_ev=-9.0 - row, lumo_ev=-6.0 - row, dipole_debye=1.5 * row)
        for row, text in enumerate(spelled)
    ]
    failed = json.dumps({"smiles": train[20], "reason": "scf_failed"})
    log.write_text(
        "\n".join(['{"settings": {}}', *records, failed, record(test[0]), record("CCCCF")]) + '\n{"smi'
    )
    store, report = make(*files, "--labels", log, "--rows", 1)
    assert report["labels"] == {
        "labeled": 21 if tenth(modules, "CCCCF") < 8 else 20,
        "without label": 1,
        "held out by gap_xtb": 1 if tenth(modules, "CCCCF") < 8 else 2,
        "cannot be parsed": 0,
        "molecules": report["labels"]["labeled"],
    }
    assert report["with quantum labels"] == report["with charges"] == 20
    assert 20 <= report["rows"] <= 21  # all molecules with labels, and the one that is asked for
    assert store.target_names[-5:] == ("gap", "homo", "lumo", "dipole", "energy_per_atom")
    assert store.target_units[-5:] == ("eV", "eV", "eV", "D", "eV")
    rows = {store.arrays(row).atoms.tobytes(): row for row in range(len(store))}
    limits = store.header["about"]["charge_scaling"]
    for number, text in enumerate(train[:20]):
        row = rows[molecule_arrays(text).atoms.tobytes()]
        mol = canonical_molecule(text).mol
        expected = [invariant(mol, atom) for atom in mol.GetAtoms()]
        part = slice(store.atom_offsets[row], store.atom_offsets[row + 1])
        assert store.atom_targets is not None
        found = store.atom_targets[part, 0]
        np.testing.assert_allclose(found, np.clip(expected, limits["low"], limits["high"]), atol=1e-6)
        gap, energy = store.targets[row, [-5, -1]]
        assert gap == pytest.approx(1.0 + number, abs=0.02)
        assert energy == pytest.approx(-100 / Chem.AddHs(mol).GetNumAtoms(), rel=0.02)
    others = [
        row
        for row in range(len(store))
        if row not in {rows[molecule_arrays(t).atoms.tobytes()] for t in train[:20]}
    ]
    assert np.isnan(store.targets[others][:, -5:]).all()


def test_the_labels_of_the_embedded_data_are_read(modules, make, tmp_path, capsys):
    """The first rows of data/gap_xtb_100k, with their gaps, and charges in the order of the store."""
    count, whole = 30, DATA / "gap_xtb_100k"
    with gzip.open(whole / "raw" / "data.csv.gz", "rt") as file:
        lines = [next(file) for _ in range(count + 1)]
    rows = list(csv.DictReader(lines))
    with np.load(whole / "charges.npz") as arrays:
        offsets = arrays["atom_offsets"][: count + 1]
        charges = arrays["charges"][: offsets[-1]]
    folder = tmp_path / "labeled"
    (folder / "raw").mkdir(parents=True)
    (folder / "raw" / "data.csv.gz").write_bytes(gzip.compress("".join(lines).encode()))
    np.savez(folder / "charges.npz", charges=charges, atom_offsets=offsets)
    source = write_lines(tmp_path / "a.smi", [row["smiles"] for row in rows])
    store, report = make(source, "--labels", folder)
    train = [place for place, row in enumerate(rows) if tenth(modules, row["smiles"]) < 8]
    assert report["with quantum labels"] == report["with charges"] == len(train) > 20
    limits = store.header["about"]["charge_scaling"]
    for place in train:
        gap, energy = store.targets[place, [-5, -1]]
        assert gap == pytest.approx(float(rows[place]["homolumogap"]), abs=0.1)
        assert energy == pytest.approx(float(rows[place]["energy_per_atom_ev"]), abs=2)
        part = slice(store.atom_offsets[place], store.atom_offsets[place + 1])
        own = charges[offsets[place] : offsets[place + 1]] / 1000
        expected = np.clip(own[canonical_order(rows[place]["smiles"])], limits["low"], limits["high"])
        np.testing.assert_allclose(store.atom_targets[part, 0], expected, atol=1e-6)
    assert report["labels from"]["files"].keys() == {"charges.npz", "data.csv.gz"}
    more = np.append(offsets, offsets[-1])
    shifted = offsets.copy()
    shifted[1:-1] += 1
    for number, (arrays, reason) in enumerate(
        (
            ({"charges": charges, "atom_offsets": offsets[:-1]}, "has 29 rows, fewer than raw/data.csv.gz"),
            ({"charges": charges, "atom_offsets": more}, "has 31 rows, but raw/data.csv.gz has 30"),
            ({"charges": charges, "atom_offsets": shifted}, "atoms, but"),
            ({"charges": charges}, "cannot read"),
            (None, "cannot read"),
        )
    ):
        (folder / "charges.npz").unlink()
        if arrays is not None:
            np.savez(folder / "charges.npz", **arrays)
        assert make(source, "--labels", folder, out=f"out{number}", work="other", fails=True) == 1
        assert reason in capsys.readouterr().err


def test_labels_that_do_not_vary_are_left_out(make, files, tmp_path, modules):
    train = [text for text in MOLECULES if tenth(modules, text) < 8]
    log = tmp_path / "labels.jsonl"
    log.write_text("{}\n" + record(train[0]) + "\n")
    store, report = make(*files, "--labels", log)
    assert report["with quantum labels"] == 1
    assert report["targets"]["quantum"] == 0
    assert_trainable(store)
    records = [record(text, gap_ev=1.0 + row) for row, text in enumerate(train[:9])]
    records = [text.replace('"homo_ev": -9.0, ', "") for text in records]
    log.write_text("{}\n" + "\n".join(records) + "\n")
    store, report = make(*files, "--labels", log, out="again")
    assert store.target_names[-2:] == ("gap", "energy_per_atom")
    assert store.target_units[-2:] == ("eV", "eV")
    assert report["targets"] | {"descriptors": 0} == {"descriptors": 0, "quantum": 2, "charges": 1}
    gaps = store.targets[:, -2]
    assert np.sort(gaps[~np.isnan(gaps)]) == pytest.approx(np.arange(1, 10), abs=0.01)
    assert_trainable(store)


def assert_trainable(store):
    about = store.header["about"]
    assert len(store.target_names) == len(about["scaling"]["std"])
    assert min(about["scaling"]["std"]) > 0
    dataset = build_dataset("corpus", {"path": str(store.path.parent), "valid_fraction": 0.2})
    assert dataset.stated_targets is not None
    TargetInfo.from_mapping(dataset.stated_targets)


def test_one_molecule_has_nothing_to_learn(make, tmp_path, capsys):
    assert make(write_lines(tmp_path / "one.smi", ["CCO"]), fails=True) == 1
    assert "no descriptor and no label varies over the 1 molecules" in capsys.readouterr().err


def test_a_log_may_grow(make, files, tmp_path, modules):
    train = [text for text in MOLECULES if tenth(modules, text) < 8]
    log = tmp_path / "labels.jsonl"
    log.write_text("{}\n" + "".join(record(text) + "\n" for text in train[:3]))
    _, report = make(*files, "--labels", log)
    assert report["with quantum labels"] == 3
    log.write_text(log.read_text() + "".join(record(text) + "\n" for text in train[3:9]))
    _, report = make(*files, "--labels", log, out="again")
    assert report["with quantum labels"] == 9
    assert report["this run"]["computed"] == {"labels": 9, "molecules": 0}


def test_a_broken_log_is_refused(make, files, tmp_path, capsys):
    log = tmp_path / "labels.jsonl"
    log.write_text("{}\n" + record("CCO") + "\n[1]\n")
    assert make(*files, "--labels", log, fails=True) == 1
    assert f"{log}, line 3 is not a record with a SMILES" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "value"), [("homo_ev", None), ("charges", ["x"]), ("gap_ev", "x")])
def test_a_label_that_is_not_a_number_is_refused_with_its_line(
    modules, make, files, tmp_path, capsys, name, value
):
    log = tmp_path / "labels.jsonl"
    smiles = next(text for text in MOLECULES if tenth(modules, text) < 8)
    wrong = json.dumps({**json.loads(record(smiles)), name: value})
    log.write_text("{}\n" + record("CCC") + "\n" + wrong + "\n")
    assert make(*files, "--labels", log, fails=True) == 1
    assert f"{log}, line 3 has a label that is not a number" in capsys.readouterr().err


def test_targets_are_limited_by_quantiles_and_deviations(modules):
    scaling = modules["corpus_store"].Scaling
    rng = np.random.default_rng(0)
    normal = rng.normal(2.0, 3.0, 20_000)
    normal[0] = 1e6
    rare = (np.arange(20_000) % 1_000 == 0).astype(float)
    rarest = np.zeros(20_000)
    rarest[:5] = 1.0
    missing = np.where(np.arange(20_000) % 2, np.nan, normal)
    found = scaling.measure(np.stack([normal, rare, rarest, np.full(20_000, np.nan), missing], 1))
    assert found.std[[2, 3]].tolist() == [0.0, 0.0]
    assert found.mean[0] == pytest.approx(2.0, abs=0.1)
    assert found.std[0] == pytest.approx(3.0, abs=0.1)
    assert found.high[0] == np.quantile(normal, 0.9995)
    assert found.high[1] == pytest.approx(found.mean[1] + 6 * found.std[1])
    assert found.high[1] < 0.2
    assert found.mean[4] == pytest.approx(2.0, abs=0.1)
    limited = found.limit(np.array([[1e9, 1.0, 0.0, np.nan, np.nan]]))
    assert limited[0, 0] == np.float32(found.high[0])
    assert np.isnan(limited[0, 4])
    assert limited.dtype == np.float32
