"""Random molecule-like graphs for the tests of the model."""

import numpy as np
import torch

from molslice.ops.vocabulary import ATOM_FEATURE_SIZES, BOND_FEATURE_SIZES
from molslice.types import MoleculeBatch


def random_batch(sizes, seed=0, pad_to=None, garbage=False, permutations=None, fragments=False):
    """Return graphs of one or two fragments with random features; the first `size` atoms are real."""
    rng = np.random.default_rng(seed)
    width = pad_to or max(sizes)
    atoms = np.zeros((len(sizes), width, 9), dtype=np.uint8)
    mask = np.zeros((len(sizes), width), dtype=bool)
    index, features = [], []
    for molecule, size in enumerate(sizes):
        rows = np.stack([rng.integers(0, top, size) for top in ATOM_FEATURE_SIZES], axis=1)
        joined = [j for j in range(1, size) if not (fragments and j == size // 2)]
        pairs = {(int(rng.integers(max(0, j - 3), j)), j) for j in joined}
        for _ in range(size // 4):
            i, j = sorted(rng.choice(size, 2, replace=False).tolist())
            pairs.add((i, j))
        order = np.arange(size) if permutations is None else np.asarray(permutations[molecule])
        place = np.argsort(order)
        atoms[molecule, :size], mask[molecule, :size] = rows[order], True
        for i, j in sorted(pairs):
            index.append((molecule, int(place[i]), int(place[j])))
            features.append([int(rng.integers(0, top)) for top in BOND_FEATURE_SIZES])
    if garbage:
        atoms[~mask] = rng.integers(0, 256, (int((~mask).sum()), 9))
    return MoleculeBatch(
        atoms=torch.from_numpy(atoms),
        atom_mask=torch.from_numpy(mask),
        bond_index=torch.tensor(index, dtype=torch.long).reshape(-1, 3),
        bond_features=torch.tensor(features, dtype=torch.uint8).reshape(-1, 3),
    )
