"""The skeleton of a molecule: its elements and which atoms are bonded, without hydrogens.

Bond orders, charges, isotopes and stereochemistry are dropped. Tautomers, protonation states, isotopologues
and stereoisomers of one molecule therefore have the same skeleton.
"""

from rdkit import Chem


def connectivity(mol: Chem.Mol) -> str:
    """Write the skeleton of a molecule as RDKit's canonical SMILES of bare atoms and single bonds."""
    return Chem.MolToSmiles(_skeleton(mol))


def main_connectivity(mol: Chem.Mol) -> str:
    """Write the skeleton of the largest fragment, so that a salt and its parent have the same skeleton.

    Among fragments with the same number of atoms, the first SMILES in alphabetical order is taken.
    """
    fragments = Chem.GetMolFrags(_skeleton(mol), asMols=True, sanitizeFrags=False)
    named = [(-fragment.GetNumAtoms(), Chem.MolToSmiles(fragment)) for fragment in fragments]
    return min(named)[1] if named else ""


def _skeleton(mol: Chem.Mol) -> Chem.RWMol:
    skeleton = Chem.RWMol()
    place: dict[int, int] = {}
    for atom in mol.GetAtoms():
        if atom.GetAtomicNum() != 1:
            bare = Chem.Atom(atom.GetAtomicNum())
            bare.SetNoImplicit(True)
            place[atom.GetIdx()] = skeleton.AddAtom(bare)
    for bond in mol.GetBonds():
        ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        if ends[0] in place and ends[1] in place:
            skeleton.AddBond(place[ends[0]], place[ends[1]], Chem.BondType.SINGLE)
    return skeleton
