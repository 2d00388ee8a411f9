"""Small stores and folders for the tests."""

import gzip

import numpy as np
import torch

from molslice.chem.featurize import ChemError, molecule_arrays
from molslice.data.molecules.store import MoleculeStore

SMILES = [
    "CCO",
    "c1ccccc1C(=O)O",
    "C",
    "XXX",
    "C[C@H](N)C(=O)O",
    "[Na+].[Cl-]",
    "CC(C)(C)c1ccc(O)cc1",
    "F/C=C/F",
    "CC#N",
    "O=C1CCCN1",
]


def molecules(smiles=SMILES, **options):
    """Return the arrays of each SMILES, or the reason of its failure."""
    found = []
    for text in smiles:
        try:
            found.append(molecule_arrays(text, **options))
        except ChemError as error:
            found.append(str(error))
    return found


def memory_store(smiles=SMILES):
    """Return a store in memory; the target is the number of the row."""
    targets = np.arange(len(smiles), dtype=np.float32)[:, None]
    return MoleculeStore.in_memory(molecules(smiles), targets, target_names=["row"], target_units=["eV"])


def gap_folder(folder, smiles=SMILES, gaps=None, splits=None):
    """Write a folder in OGB's layout."""
    gaps = [1.5 + row for row in range(len(smiles))] if gaps is None else gaps
    (folder / "raw").mkdir(parents=True)
    rows = "".join(f"{row},{text},{gap}\n" for row, (text, gap) in enumerate(zip(smiles, gaps, strict=True)))
    with gzip.open(folder / "raw" / "data.csv.gz", "wt") as file:
        file.write("idx,smiles,homolumogap\n" + rows)
    if splits is None:
        splits = {"train": [0, 1, 2, 3, 4, 5], "valid": [6, 7], "test": [8, 9]}
    arrays = {name: np.array(part, None if len(part) else np.int64) for name, part in splits.items()}
    torch.save(arrays, folder / "split_dict.pt")
    return folder
