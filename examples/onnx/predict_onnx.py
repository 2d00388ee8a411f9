import json
import sys  # usage: python predict_onnx.py FILE.onnx SMILES ...

import numpy as np
import onnxruntime
from rdkit import Chem

how, read = Chem.RemoveHsParameters(), Chem.SmilesParserParams()
how.removeDefiningBondStereo = how.removeDummyNeighbors = how.updateExplicitCount = True


def joined(mol):  # without isotopes, atom-map numbers and hydrogens; H2 has to be written [H][H]
    for atom in mol.GetAtoms():
        atom.SetIsotope(0), atom.SetAtomMapNum(0)
    mol = Chem.RemoveHs(mol, how)
    [bond.SetBondDir(Chem.BondDir.NONE) for bond in mol.GetBonds()]
    Chem.SetDoubleBondNeighborDirections(mol)
    return Chem.MolFromSmiles(Chem.MolToSmiles(mol))


def canonical(mol):
    labels = [atom.GetIsotope() or atom.GetAtomMapNum() or atom.GetSymbol() == "H" for atom in mol.GetAtoms()]
    seen = [Chem.MolToSmiles(joined(mol) if any(labels) else mol)]
    while seen[0].replace("@@", "@").count("@") > 1 and seen.count(seen[-1]) == 1 and len(seen) < 6:
        seen.append(Chem.MolToSmiles(Chem.MolFromSmiles(seen[-1])))
    return Chem.MolFromSmiles(min(seen[seen.index(seen[-1]) :]))


def codes(item, kind):
    return [
        feature["codes"].get(str(getattr(item, feature["rdkit"])()), feature["other"])
        for feature in about[kind]
    ]


model = onnxruntime.InferenceSession(sys.argv[1])
about = json.loads(model.get_modelmeta().custom_metadata_map["molslice"])
read.removeHs = about["atom_order"] == "input"
for mol in (Chem.MolFromSmiles(smiles, read) for smiles in sys.argv[2:]):
    mol = canonical(mol) if about["atom_order"] == "canonical" else mol
    atoms = np.array([[codes(atom, "atoms") for atom in mol.GetAtoms()]], np.uint8)
    bonds = [[b.GetBeginAtomIdx(), b.GetEndAtomIdx(), *codes(b, "bonds")] for b in mol.GetBonds()]
    inputs = {"atoms": atoms, "atom_mask": np.ones(atoms.shape[:2], bool)}
    inputs["bonds"] = np.array(bonds, np.uint8).reshape(1, -1, 5)
    print(*np.array(model.run(None, inputs)).ravel())
