from molslice.chem.featurize import molecule_arrays
from molslice.chem.naming import ATOM_FEATURES, BOND_FEATURES, atom_names, bond_names


def named(smiles):
    molecule = molecule_arrays(smiles, atom_order="input")
    atoms = [dict(zip(ATOM_FEATURES, names, strict=True)) for names in atom_names(molecule)]
    return atoms, [dict(zip(BOND_FEATURES, names, strict=True)) for names in bond_names(molecule)]


def test_codes_have_names():
    atoms, bonds = named("C[C@](F)(Cl)/C=C/c1cc[nH]c1")
    assert [atom["element"] for atom in atoms[:4]] == ["C", "C", "F", "Cl"]
    assert atoms[1]["chirality"].startswith("tetrahedral_c")
    assert (atoms[0]["chirality"], atoms[0]["hydrogens"], atoms[0]["hybridization"]) == ("", "3", "sp3")
    assert (atoms[9]["element"], atoms[9]["aromatic"], atoms[9]["ring"]) == ("N", "yes", "yes")
    assert [bond["type"] for bond in bonds[:5]] == ["single", "single", "single", "single", "double"]
    assert (bonds[4]["stereo"], bonds[4]["conjugated"], bonds[3]["conjugated"]) == ("E", "yes", "")
    assert (bonds[5]["begin"], bonds[5]["end"]) == ("5", "6")


def test_the_last_code_is_any_other_value():
    assert named("[Fe+7]")[0][0]["charge"] == "other"
    assert [named(text)[0][0]["charge"] for text in ("[Fe+3]", "[Cl-]", "C")] == ["+3", "-1", "0"]
    assert named("*")[0][0]["element"] == "*"
    assert named("C[Fe@SP1](O)(Cl)F")[0][1]["chirality"] == "other"
    assert named("N->[Pt]")[1][0]["type"] == "other"
