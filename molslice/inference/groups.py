"""Groups of molecules whose errors are compared: by size, and by scaffold."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from molslice.data.molecules.base import ArraysOnly, MoleculeDataset
from molslice.data.molecules.fragments import choose_fragments
from molslice.inference.base import SmilesPredictor

__all__ = ["MoleculeGroup", "find_groups", "group_by_size"]


class MoleculeGroup(NamedTuple):
    """Molecules that have something in common.

    Attributes:
        by: What molecules are grouped by: `size` or `scaffold`.
        name: What the molecules of the group have in common.
        rows: Whether each of n molecules is in the group, bool [n].
    """

    by: str
    name: str
    rows: np.ndarray


def find_groups(
    predictor: SmilesPredictor, dataset: MoleculeDataset, rows: np.ndarray
) -> list[MoleculeGroup]:
    """Group molecules into thirds by size, and by whether a training molecule has their scaffold.

    Args:
        predictor: The model, whose training molecules are compared if they are all known.
        dataset: The data.
        rows: The molecules, int [n].

    Returns:
        The groups that are not empty.
    """
    sizes = np.asarray(dataset.store.num_atoms)[rows]
    low, high = (int(value) for value in np.quantile(sizes, (1 / 3, 2 / 3), method="lower"))
    names = [f"up to {low} heavy atoms", f"{low + 1} to {high} heavy atoms", f"more than {high} heavy atoms"]
    groups = group_by_size(sizes, (0, low + 1, high + 1), names)
    domain = predictor.known_domain()
    # the scaffold of a molecule outside of a sample would look new
    if domain is None or domain.is_sample or isinstance(dataset, ArraysOnly):
        return groups
    from molslice.chem.scaffold import scaffold_groups, scaffolds  # needs rdkit

    smiles = dataset.smiles()
    fragment, _, standard = predictor.treatment
    chosen, _ = choose_fragments([smiles[row] for row in rows], fragment, standardize=standard)
    by_scaffold = scaffold_groups(scaffolds(chosen), scaffolds(domain.smiles))
    return [*groups, *(MoleculeGroup("scaffold", name, rows) for name, rows in by_scaffold.items())]


def group_by_size(sizes: np.ndarray, firsts: Sequence[int], names: Sequence[str]) -> list[MoleculeGroup]:
    """Group molecules by their number of heavy atoms; empty groups are left out.

    Args:
        sizes: Number of heavy atoms of each molecule, int [n].
        firsts: The smallest size of each group, ascending.
        names: The name of each group.
    """
    places = np.searchsorted(firsts, sizes, side="right") - 1
    groups = [MoleculeGroup("size", name, places == place) for place, name in enumerate(names)]
    return [group for group in groups if group.rows.any()]
