"""Small corpora for the tests of pretraining, as `scripts/make_corpus.py` writes them."""

import numpy as np

from molslice.chem import DESCRIPTORS_VERSION, FEATURIZER_VERSION
from molslice.chem.featurize import molecule_arrays
from molslice.data.molecules.store import MoleculeStore
from tests.real_data import embedded_smiles

DESCRIPTORS = ("atoms", "bonds", "rings")
QUANTUM = (("gap", "eV"), ("dipole", "D"))


def make_corpus(folder, rows=120, labels=True, quantum=QUANTUM):
    """Write a corpus of real molecules, every third with quantum labels and charges made from its graph."""
    smiles = embedded_smiles()[:: 13_000 // rows][:rows]
    molecules = [molecule_arrays(text) for text in smiles]
    counts = [[len(m.atoms), len(m.bonds), m.atoms[:, 8].sum()] for m in molecules]
    descriptors = np.array(counts, np.float64)
    values = np.stack([1.0 + 0.1 * descriptors[:, 2], descriptors[:, 0] - descriptors[:, 1]], 1)
    values[np.arange(rows) % 3 > 0] = np.nan
    charges = [
        0.05 * (m.atoms[:, 0].astype(np.float32) - 5) if row % 3 == 0 else np.full(len(m.atoms), np.nan)
        for row, m in enumerate(molecules)
    ]
    flat = np.concatenate(charges).astype(np.float32)[:, None]
    targets = np.concatenate([descriptors, values], 1) if labels else descriptors
    groups = np.arange(rows, dtype=np.uint64) * np.uint64(2**60 // 7)
    part = MoleculeStore.in_memory(molecules, targets, groups=groups, atom_targets=flat if labels else None)
    names = [name for name, _ in quantum] if labels else []
    about = {
        "families": {
            "descriptors": list(DESCRIPTORS),
            "quantum": names,
            "charges": ["charge"] if labels else [],
        },
        "scaling": scaling(targets),
        "charge_scaling": scaling(flat) if labels else None,
        "featurizer_version": FEATURIZER_VERSION,
        "descriptors_version": DESCRIPTORS_VERSION,
    }
    MoleculeStore.write(
        folder / "store",
        [part],
        target_names=[*DESCRIPTORS, *names],
        target_units=[*[""] * 3, *(unit for _, unit in quantum)][: targets.shape[1]],
        atom_target_names=["charge"] if labels else [],
        grouped=True,
        about=about,
    )
    return folder


def scaling(values):
    """The header's numbers of columns with missing values."""
    return {"mean": np.nanmean(values, 0).tolist(), "std": np.nanstd(values, 0).tolist()}
