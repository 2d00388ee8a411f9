"""Descriptors and Morgan counts: RDKit's own values, one molecule one result."""

import os
import subprocess
import sys

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator

from molslice.chem.canonical import canonical_molecule
from molslice.chem.descriptors import (
    MORGAN_BITS,
    descriptor_names,
    descriptors,
    finite_descriptors,
    morgan_counts,
)
from molslice.chem.featurize import ATOM_ORDERS
from molslice.data.molecules.describe import describe_molecules
from molslice.data.molecules.prepare import Featurizing, read_smiles
from tests.chem.test_spellings import RING_STEREO
from tests.real_data import embedded_smiles, odd_smiles

SMILES = [*embedded_smiles()[::500], *RING_STEREO, "C[N+](C)(C)CC([O-])=O", "*CC*", "[Na+].[Cl-]", "[H][H]"]


def test_names_are_fixed_and_rdkits():
    names = descriptor_names()
    assert len(names) == len(set(names)) == 215
    assert names[:3] == ("MaxAbsEStateIndex", "MaxEStateIndex", "MinAbsEStateIndex")
    known = {name for name, _ in Descriptors._descList}
    assert known - set(names) == {"Ipc", "AvgIpc"}
    assert set(names) <= known


@pytest.mark.parametrize("smiles", SMILES[::3])
def test_values_are_rdkits_whichever_was_computed_before(smiles):
    mol = canonical_molecule(smiles).mol
    found = dict(zip(descriptor_names(), descriptors(mol), strict=True))
    for name, value in found.items():
        alone = getattr(Descriptors, name)(Chem.Mol(mol))
        assert value == alone or (np.isnan(value) and not np.isfinite(alone)), name


def test_a_value_that_is_not_finite_is_missing(monkeypatch):
    values = {"low": -np.inf, "high": np.inf, "none": np.nan, "one": 1.0, "text": "odd"}
    functions = {name: lambda mol, value=value: value for name, value in values.items()}
    monkeypatch.setattr("molslice.chem.descriptors._FUNCTIONS", functions)
    monkeypatch.setattr("molslice.chem.descriptors.descriptors", descriptors)  # not the remembered ones
    np.testing.assert_array_equal(descriptors(Chem.MolFromSmiles("C")), [np.nan, np.nan, np.nan, 1.0, np.nan])
    row = finite_descriptors("C")
    np.testing.assert_array_equal(row, np.float32([np.nan, np.nan, np.nan, 1.0, np.nan]))


def test_one_molecule_has_one_row_however_it_is_written():
    spellings = [Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(text), 3, randomSeed=4) for text in SMILES]
    first = describe_molecules(SMILES)
    assert first.errors == [None] * len(SMILES)
    for number in range(3):
        again = describe_molecules([row[number] for row in spellings])
        np.testing.assert_array_equal(again.descriptors, first.descriptors)
        np.testing.assert_array_equal(again.counts, first.counts)


@pytest.mark.exhaustive
def test_odd_molecules_have_one_row():
    rows = odd_smiles("rdkit_pubchem_hard_set.smi.gz", 5) + odd_smiles("rdkit_zinc_natural_50k.smi.gz", 200)
    rows = [text for text, error in zip(rows, describe_molecules(rows).errors, strict=True) if error is None]
    spelled = [Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(text), 1, randomSeed=5)[0] for text in rows]
    first, again = describe_molecules(rows), describe_molecules(spelled)
    np.testing.assert_array_equal(again.descriptors, first.descriptors)
    np.testing.assert_array_equal(again.counts, first.counts)


def test_another_process_computes_the_same():
    program = (
        "import sys; from molslice.data.molecules.describe import describe_molecules; "
        "sys.stdout.buffer.write(describe_molecules(sys.argv[1:]).descriptors.tobytes())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", program, *SMILES[:12]]
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    found = np.frombuffer(done.stdout).reshape(12, -1)
    np.testing.assert_array_equal(found, describe_molecules(SMILES[:12]).descriptors)


def test_what_cannot_be_computed_is_missing():
    values = dict(zip(descriptor_names(), descriptors(canonical_molecule("C[Sn](C)(C)C").mol), strict=True))
    assert np.isnan(values["MaxPartialCharge"])
    assert np.isnan(values["BCUT2D_MWHI"])  # RDKit raises an error
    assert values["MolWt"] == pytest.approx(178.85, abs=0.01)
    assert not np.isinf(describe_molecules(SMILES).descriptors).any()


@pytest.mark.parametrize("atom_order", ATOM_ORDERS)
def test_a_store_has_the_descriptors_of_the_canonical_molecules(atom_order):
    smiles = [*SMILES, "[CH3:7][CH2:3][OH:1]", "[OH:1][C@@:2]([H:3])([CH3:4])[NH2:5]", "C[Sn](C)(C)C", "C("]
    store = read_smiles(smiles, Featurizing(atom_order=atom_order, descriptors=True))
    assert store.descriptors.dtype == np.float32
    assert np.isnan(store.descriptors[-1]).all()
    for text, values in zip(smiles[:-1], store.descriptors, strict=False):
        of_canonical = descriptors(canonical_molecule(text).mol)
        np.testing.assert_array_equal(values, of_canonical.astype(np.float32))


def test_the_largest_descriptors_are_finite_in_single_precision(monkeypatch):
    given = np.array([1e300, -1e300, np.nan, 2.5])
    monkeypatch.setattr("molslice.chem.descriptors.descriptors", lambda _: given)
    largest = np.finfo(np.float32).max
    np.testing.assert_array_equal(finite_descriptors("CC"), [largest, -largest, np.nan, 2.5])


def test_the_molecule_stays_as_it_was():
    mol = Chem.MolFromSmiles("OC(=O)c1ccccc1Cl")
    before = mol.GetPropsAsDict(True, True)
    descriptors(mol)
    assert mol.GetPropsAsDict(True, True).keys() == before.keys()
    assert not hasattr(mol, "_eStateIndices")


def test_counts_are_rdkits():
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    for smiles in SMILES[::5]:
        mol = canonical_molecule(smiles).mol
        expected = np.zeros(MORGAN_BITS, np.uint8)
        for place, count in generator.GetCountFingerprint(mol).GetNonzeroElements().items():
            expected[place] = count
        np.testing.assert_array_equal(morgan_counts(mol), expected)


def test_a_count_beyond_a_byte_is_the_largest_byte():
    ring = "C1" + "C" * 254 + "C1"
    assert morgan_counts(Chem.MolFromSmiles(ring)).max() == 255
