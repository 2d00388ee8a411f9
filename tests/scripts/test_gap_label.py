"""What a label is, against tblite itself; and the processes that make them."""

import csv
import gzip
from pathlib import Path

import gap_label
import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import rdMolTransforms

ROOT = Path(__file__).resolve().parents[2]
HARTREE, DEBYE = 27.211386245988, 2.541746473


def embedded(smiles: str) -> Chem.Mol:
    mol, reason = gap_label.embed(smiles)
    assert mol is not None, reason
    return mol


@pytest.mark.parametrize(
    "smiles", ["CC(=O)O", "N#Cc1ccccc1", "C[NH3+]", "CC(=O)[O-]", "CS(C)=O", "[2H]C([2H])([2H])O"]
)
def test_labels_are_those_of_tblite(smiles):
    from tblite.interface import Calculator

    label = gap_label.label(smiles)
    mol = embedded(smiles)
    numbers = np.array([atom.GetAtomicNum() for atom in mol.GetAtoms()])
    positions = mol.GetConformer().GetPositions() / 0.529177210903
    charge = Chem.GetFormalCharge(mol)
    calculator = Calculator("GFN2-xTB", numbers, positions, charge=float(charge))
    calculator.set("verbosity", 0)
    result = calculator.singlepoint()
    orbitals, occupied = result.get("orbital-energies") * HARTREE, result.get("orbital-occupations") > 1
    assert label["homo_ev"] == pytest.approx(orbitals[occupied].max(), abs=1e-6)
    assert label["lumo_ev"] == pytest.approx(orbitals[~occupied].min(), abs=1e-6)
    assert label["gap_ev"] == pytest.approx(label["lumo_ev"] - label["homo_ev"], abs=2e-6)
    assert label["energy_ev"] == pytest.approx(result.get("energy") * HARTREE, abs=1e-6)
    assert label["charges"] == pytest.approx(result.get("charges"), abs=1e-4)
    assert sum(label["charges"]) == pytest.approx(charge, abs=1e-3)
    if not charge:
        length = np.linalg.norm(result.get("dipole")) * DEBYE
        assert label["dipole_debye"] == pytest.approx(length, abs=1e-5)


def test_dipole_of_an_ion_does_not_depend_on_where_it_is():
    mol = embedded("C[NH3+]")
    here, _ = gap_label.quantum_labels(mol)
    shift = np.eye(4)
    shift[:3, 3] = 3.0, -2.0, 5.0
    rdMolTransforms.TransformConformer(mol.GetConformer(), shift)
    there, _ = gap_label.quantum_labels(mol)
    assert there["dipole_debye"] == pytest.approx(here["dipole_debye"], abs=1e-4)
    assert 0.5 < here["dipole_debye"] < 5  # the positive end is away from the center of mass


def test_charges_begin_with_those_of_the_atoms_of_the_smiles():
    charges = gap_label.label("CC(=O)O")["charges"]
    carbonyl, hydroxyl = charges[2], charges[3]
    assert len(charges) == 8
    assert charges[1] > 0.3 > charges[0]
    assert carbonyl < -0.3
    assert hydroxyl < -0.3
    assert min(charges[4:]) > 0


def test_embedded_data_have_the_same_gaps():
    with gzip.open(ROOT / "data" / "gap_xtb" / "raw" / "data.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))[::1500]
    for row in rows:
        assert gap_label.label(row["smiles"])["gap_ev"] == pytest.approx(float(row["homolumogap"]), abs=1e-6)


def test_gap_of_known_molecules_is_ordered():
    """Longer conjugation, smaller gap; a saturated molecule has the largest."""
    ethane, ethene, butadiene, hexatriene = (
        gap_label.label(smiles)["gap_ev"] for smiles in ("CC", "C=C", "C=CC=C", "C=CC=CC=C")
    )
    assert ethane > ethene > butadiene > hexatriene > 0


def test_reasons_without_a_label():
    assert gap_label.label("C[Hg]C") == {"smiles": "C[Hg]C", "reason": "mmff_parameters_missing"}
    # An entry of the NCI list as it stands there.
    assert gap_label.label("[NH2][Cr]([NH2])([NH2])([NH2])([NH2])[NH2]")["reason"] == "embedding_failed"


def test_dead_worker_is_replaced(monkeypatch):
    class Dying:
        """A worker whose process dies on the first molecule it gets."""

        started = 0

        def __init__(self):
            type(self).started += 1
            self.worker = real_worker()

        def __getattr__(self, name):
            return getattr(self.worker, name)

        def give(self, smiles):
            self.worker.give(smiles)
            if smiles == "CC":
                self.worker.process.kill()

    real_worker = gap_label.Worker
    monkeypatch.setattr(gap_label, "Worker", Dying)
    records = {r["smiles"]: r for r in gap_label.label_all(["CC", "CO"], jobs=1, seconds=60)}
    assert records["CC"] == {"smiles": "CC", "reason": "process_died"}
    assert records["CO"]["gap_ev"] > 0
    assert Dying.started == 2
