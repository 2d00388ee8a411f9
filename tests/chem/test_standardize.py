"""Standard forms of molecules: charges, groups, metals, mixtures and tautomers, in bounded time."""

import pytest
from rdkit import Chem
from rdkit.Chem.MolStandardize import rdMolStandardize

from molslice.chem import STANDARDS
from molslice.chem import standardize as module
from molslice.chem.smiles import ChemError
from molslice.chem.standardize import Standardized, standardize
from tests.inference.models import embedded_smiles

CHOICES = STANDARDS[1:]
CHAIN = "CC(=O)N" * 30 + "C"


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("C[NH2+]C", "CNC"),
        ("CC(=O)[O-]", "CC(=O)O"),
        ("[O-]C(=O)CC[NH3+]", "NCCC(=O)O"),
        ("CC(=O)[O-].[Na+]", "CC(=O)[O-].[Na+]"),  # neutral as a whole
        ("CC(=O)O[Na]", "CC(=O)[O-].[Na+]"),
        ("CC(=O)[O-].C[NH3+]", "CC(=O)O.CN"),
        ("C[N+](C)(C)CC(=O)O", "C[N+](C)(C)CC(=O)O"),
        ("C[N+](=O)[O-]", "C[N+](=O)[O-]"),
        ("CN(=O)=O", "C[N+](=O)[O-]"),
        ("CS(C)=O", "C[S+](C)[O-]"),
        ("[13CH3][C@H]([2H])N", "CCN"),
        ("[CH3:1][OH:2]", "CO"),
        ("Oc1ccccn1", "Oc1ccccn1"),
        ("*C", "*C"),
        ("CC~C", "CC~C"),
        ("[H][H]", "[H][H]"),
    ],
)
def test_neutral_forms(smiles, expected):
    assert standardize(smiles, "neutral").smiles == expected


@pytest.mark.parametrize(
    "forms",
    [
        ("Oc1ccccn1", "O=c1cccc[nH]1"),
        ("CC(O)=CC(C)=O", "CC(=O)CC(C)=O"),
        ("Cc1ccc2[nH]cnc2c1", "Cc1ccc2nc[nH]c2c1"),
        ("CC(O)=N", "CC(N)=O", "CC(O)=[NH2+]"),
        ("Cc1c[nH]cn1", "Cc1cnc[nH]1", "Cc1c[nH]c[nH+]1"),
    ],
)
def test_tautomers_have_one_form(forms):
    assert len({standardize(text, "tautomer").smiles for text in forms}) == 1
    assert len({standardize(text, "neutral").smiles for text in forms}) > 1


def test_stereo_centers_are_kept():
    assert standardize("C[C@H](N)C(=O)O", "tautomer").smiles == "C[C@H](N)C(=O)O"
    assert standardize("C[C@@H]([NH3+])C(=O)[O-]", "tautomer").smiles == "C[C@@H](N)C(=O)O"


def test_a_bond_to_a_metal_is_broken_before_a_mixture_is_replaced():
    assert standardize("CC(=O)O[Na]", "neutral", "largest") == Standardized(
        "CC(=O)O", replaced=True, changed=True
    )
    assert standardize("CCN.Cl", "neutral", "largest") == Standardized("CCN", replaced=True)
    assert standardize("CC[NH3+].[Cl-]", "neutral", "largest").smiles == "CCN"
    for smiles in ("CC(=O)O[Na]", "CCN.Cl"):
        with pytest.raises(ChemError, match="mixture of 2 molecules"):
            standardize(smiles, "neutral", "refuse")


@pytest.mark.parametrize("smiles", ["C(", "", "CCO ethanol", None, 3, float("nan")])
def test_a_smiles_that_cannot_be_read_stays(smiles):
    assert standardize(smiles, "tautomer") == Standardized(smiles)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_standard_form_is_its_own_and_has_any_spelling(choice):
    charged = ["C[NH2+]CC(=O)[O-]", "O=C([O-])c1cc[nH+]cc1", "CC(=O)O[Na]"]
    for smiles in [*embedded_smiles(60), *charged]:
        form = standardize(smiles, choice)
        assert standardize(form.smiles, choice) == Standardized(form.smiles)
        mol = Chem.MolFromSmiles(smiles)
        for seed in range(3):
            (spelling,) = Chem.MolToRandomSmilesVect(mol, 1, randomSeed=seed + 1)
            assert standardize(spelling, choice) == form


def test_changes_are_of_the_molecule_and_not_of_its_spelling():
    assert not standardize("OCC", "tautomer").changed
    assert not standardize("[2H]C", "neutral").changed
    assert standardize("Oc1ccccn1", "tautomer").changed


def test_a_molecule_with_too_many_tautomers_keeps_its_neutral_form():
    given = CHAIN + "[NH3+]"
    form = standardize(given, "tautomer")
    assert form.kept
    assert form.smiles == standardize(given, "neutral").smiles
    assert "+" not in form.smiles


def test_tautomers_are_not_searched_beyond_the_limits():
    enumerator = module._tools().enumerator
    assert enumerator.GetMaxTautomers() == 200
    assert enumerator.GetMaxTransforms() == 500
    result = enumerator.Enumerate(Chem.MolFromSmiles(CHAIN))
    assert result.status == rdMolStandardize.TautomerEnumeratorStatus.MaxTautomersReached
    assert len(result) <= 200


@pytest.mark.parametrize("step", ["Cleanup", "uncharge", "Enumerate"])
def test_a_step_that_fails_leaves_the_form_before(step, monkeypatch):
    def fail(*_):
        raise RuntimeError("Pre-condition Violation\n\tdetails")

    tools = module._tools()
    if step == "Cleanup":
        monkeypatch.setattr(rdMolStandardize, "Cleanup", fail)
    else:

        class Failing:
            uncharge = Enumerate = staticmethod(fail)

        changed = tools._replace(**{"uncharger" if step == "uncharge" else "enumerator": Failing()})
        monkeypatch.setattr(module, "_tools", lambda: changed)
    expected = {"Cleanup": "O=c1cc[nH]cc1", "uncharge": "Oc1cc[nH+]cc1", "Enumerate": "Oc1ccncc1"}[step]
    form = standardize("Oc1cc[nH+]cc1", "tautomer")
    assert (form.smiles, form.kept) == (expected, True)
