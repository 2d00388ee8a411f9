"""Descriptors that are computed together are RDKit's, to the last digit."""

import math

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import QED, Fragments

from molslice.chem import descriptors as module
from molslice.chem.canonical import canonical_molecule
from molslice.chem.descriptor_groups import Graph, grouped_descriptors
from molslice.chem.descriptors import _FUNCTIONS, _agreement, _computed
from molslice.chem.patterns import PatternCounter
from molslice.chem.smiles import quiet_rdkit
from tests.real_data import embedded_smiles, odd_smiles

ODD = [
    "C",
    "O",
    "[Na+]",
    "[He]",
    "[H][H]",
    "*CC*",
    "CC",
    "C#C",
    "O=C=O",
    "C1CC1",
    "CC1CC1C",
    "C1CCC1F",
    "C12CC1C2",
    "C1C2CC3CC1CC(C2)C3",
    "C[N+](C)(C)CC([O-])=O",
    "[Na+].[Cl-]",
    "CCC1(C2=CCCCC2)C(=O)NC(=S)NC1=O.[Na+]",  # no BCUT2D, but partial charges
    "C[Sn](C)(C)C",  # no partial charges
    "c1ccccc1[B-](F)(F)F.[K+]",
    "[AlH4-].[Li+]",
    "[13CH3]C([2H])O",
    "C[S@](=O)c1ccsc1",
    "CC/C=C/[C@H](N)C#N",
    "CC(C)c1c(Cc2ccccc2)n(CCCc2ccc(F)cc2)c(=O)n(O)c1=O",  # hydroxyl groups of all kinds
    "CC(=O)O.OO.OS(=O)(=O)O.NO.OCC.Oc1ccccc1.O=NO.OC(=N)C.OB(O)c1ccccc1",
    "O=C1c2ccccc2-c2nc3[nH]c(=O)[nH]c(=O)c3c(-c3ccc(F)cc3)c21",  # rings that qed counts
    "N->[Pt](Cl)Cl",
    "[O-][n+]1ccccc1",
    "OP(O)(=O)OP(=O)(O)O",
    "CN1CCCC1c1cccnc1",
    "c1ccc2c(c1)ccc1ccccc12",
    "FC(F)(F)c1ccc(cc1)N=Nc1ccccc1",
    "C[Si](C)(C)/C/1=C/C=C\\C(=C/C#CC2=C1C(=O)C3=CC=CC=C32)\\O",  # an aromatic triple bond
    "CC~O",  # a bond without an order
    "CC(=[OH+])C",
    "CS(=[OH+])C.CN=[OH+]",
    "C" * 120,
]


def check(smiles):
    """Compare all descriptors of a molecule with RDKit's functions, and count what was grouped."""
    mol = canonical_molecule(smiles).mol
    with quiet_rdkit():
        grouped, alone = grouped_descriptors(Chem.Mol(mol)), Chem.Mol(mol)
        for name, function in _FUNCTIONS.items():
            if name in grouped:
                expected = _computed(function, alone)
                assert grouped[name] == expected or not math.isfinite(expected + grouped[name]), (
                    smiles,
                    name,
                )
                assert math.isfinite(expected) == math.isfinite(grouped[name]), (smiles, name)
    return len(grouped)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("smiles", ODD)
def test_grouped_descriptors_of_odd_molecules_are_rdkits(smiles):
    check(smiles)


def test_grouped_descriptors_of_usual_molecules_are_rdkits_and_all():
    assert {check(smiles) for smiles in embedded_smiles()[::600]} == {len(_FUNCTIONS)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["rdkit_pubchem_hard_set.smi.gz", "rdkit_zinc_natural_50k.smi.gz"])
def test_grouped_descriptors_of_many_molecules_are_rdkits(name):
    for smiles in odd_smiles(name, 50):
        try:
            canonical_molecule(smiles)
        except ValueError:
            continue
        check(smiles)


def test_descriptors_that_another_version_computes_otherwise_are_left_to_rdkit(monkeypatch):
    mol = Chem.MolFromSmiles("CCO")
    before = module.descriptors(mol)
    monkeypatch.setattr(module, "grouped_descriptors", lambda mol: {**grouped_descriptors(mol), "MolWt": 1.0})
    _agreement.cache_clear()
    try:
        assert not _agreement()["MolWt"]
        assert sum(_agreement().values()) == len(_FUNCTIONS) - 1
        np.testing.assert_array_equal(module.descriptors(mol), before)
    finally:
        _agreement.cache_clear()


QUERIES = {
    **{Chem.MolToSmarts(query): query for query in [*QED.StructuralAlerts, *QED.Acceptors]},
    **{name: function.__defaults__[1] for name, function in Fragments.fns},
}


@pytest.fixture(scope="module")
def counter():
    return PatternCounter(QUERIES.values())


@pytest.mark.parametrize("smiles", [*embedded_smiles()[::1200], *ODD])
def test_patterns_are_counted_as_they_match(counter, smiles):
    mol = canonical_molecule(smiles).mol
    if any(atom.GetAtomicNum() <= 1 for atom in mol.GetAtoms()):
        pytest.skip("patterns are counted in molecules without hydrogens as atoms")
    graph = Graph.of(mol)
    smallest = min(map(len, mol.GetRingInfo().AtomRings()), default=math.inf)
    counts = counter.counts(graph.kinds, graph.bonds, smallest)
    for (name, query), count in zip(QUERIES.items(), counts, strict=True):
        assert count in (-1, len(mol.GetSubstructMatches(query))), name


def test_few_patterns_have_to_be_matched(counter):
    graph = Graph.of(canonical_molecule("CC(=O)Nc1ccc(O)cc1").mol)
    counts = dict(zip(QUERIES, counter.counts(graph.kinds, graph.bonds, 6), strict=True))
    assert counts["fr_C_O"] == counts["fr_NH1"] == 1
    assert counts["fr_furan"] == counts["fr_epoxide"] == counts["fr_phos_acid"] == 0
    assert sum(count < 0 for count in counts.values()) < len(counts) / 5
