import random

import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors

from molslice.chem import check_choices
from molslice.chem.fragments import choose_fragment
from molslice.chem.smiles import ChemError
from molslice.data.molecules.fragments import choose_fragments
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles


def respelled(smiles, seed):
    return Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(smiles), 1, seed)[0]


def reference(parts):
    """Compare the parts one by one, each by RDKit's own functions."""
    best = None
    for part in parts:
        mol = Chem.MolFromSmiles(part)
        key = mol.GetNumHeavyAtoms(), round(Descriptors.MolWt(mol), 6)
        text = Chem.MolToSmiles(mol)
        if best is None or key > best[0] or (key == best[0] and text < best[1]):
            best = key, text
    return best[1]


def test_the_largest_is_that_of_a_slow_comparison_whatever_the_order_and_spelling():
    draw = random.Random(0)
    small = ["[Na+]", "[Cl-]", "O", "CC(=O)[O-]", "CCO", "COC", "CCN", "Cl", "Br", "[H]O[H]"]
    pool = [*embedded_smiles(30), *small * 3]
    for _ in range(150):
        parts = draw.choices(pool, k=draw.randint(2, 5))
        expected = reference(parts)
        assert choose_fragment(".".join(parts), "largest") == expected
        draw.shuffle(parts)
        again = ".".join(respelled(part, draw.randint(1, 9)) for part in parts)
        assert choose_fragment(again, "largest") == expected


@pytest.mark.parametrize(
    ("mixture", "largest"),
    [
        ("CC(=O)[O-].[Na+]", "CC(=O)[O-]"),  # the charge stays
        ("C[NH3+].[Cl-]", "C[NH3+]"),
        ("CCO.CCN", "CCO"),  # equally many heavy atoms: the heavier one
        ("CCO.COC", "CCO"),  # equally heavy: the first canonical SMILES
        ("CC(C)O.OCCC", "CC(C)O"),
        ("[2H]C.C", "C"),  # one compound twice
        ("[H][H].[He]", "[He]"),  # hydrogen is not a heavy atom
        ("N[C@@H](C)C(=O)O.Cl", "C[C@H](N)C(=O)O"),
        ("F/C=C/F.O", "F/C=C/F"),
        ("[CH3:1][OH:2].[Na+:3]", "CO"),
        ("[Fe+2].[cH-]1cccc1.[cH-]1cccc1", "c1cc[cH-]c1"),
        ("CC.O |$a;b;c$|", "CC"),
        ("C" * 200 + "." + "N" * 100, "C" * 200),  # each is small enough
    ],
)
def test_the_largest_of_a_mixture(mixture, largest):
    assert choose_fragment(mixture, "largest") == largest


@pytest.mark.parametrize("text", ["CCO", "C1.C1", "", "bad.", "C(.O", ".", "C.C" * 2000, "[Na+].[Xx]", " C "])
def test_other_texts_stay_as_they_are(text):
    for choice in ("keep", "largest", "refuse"):
        assert choose_fragment(text, choice) is text


def test_a_mixture_is_kept_or_refused():
    assert choose_fragment("CC.O", "keep") == "CC.O"
    with pytest.raises(ChemError, match="^mixture of 3 molecules$"):
        choose_fragment("CC.O.O", "refuse")


def test_an_unknown_choice_is_refused():
    check_choices(fragment="refuse", wildcards="keep")
    with pytest.raises(MolsliceError, match="unknown fragment 'larges'.*largest"):
        check_choices(fragment="larges")
    with pytest.raises(MolsliceError, match="unknown wildcards 'kep'; did you mean 'keep'"):
        check_choices(wildcards="kep")


def test_an_inchi_of_two_molecules_is_a_mixture():
    dimer, ethanol = "InChI=1S/2C2H4O2/c2*1-2(3)4/h2*1H3,(H,3,4)", "InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3"
    assert choose_fragment(dimer, "largest") == "CC(=O)O"
    assert choose_fragment(ethanol, "largest") == ethanol
    with pytest.raises(ChemError, match="mixture of 2 molecules"):
        choose_fragment(dimer, "refuse")
    assert choose_fragments([dimer, ethanol], "largest")[:2] == (["CC(=O)O", ethanol], 1)
