"""Groups of rows: rows of one molecule, and molecules whose errors are compared, by size and by scaffold."""

from collections.abc import Mapping, Sequence

import numpy as np

from molslice.data.molecules.base import ArraysOnly, MoleculeDataset
from molslice.data.molecules.describe import second_has_fewer_partners
from molslice.data.molecules.fragments import choose_fragments
from molslice.inference.base import Predictor

Groups = Mapping[str, np.ndarray]  # by name, whether each of n molecules is in the group, bool [n]


def find_groups(predictor: Predictor, dataset: MoleculeDataset, rows: np.ndarray) -> dict[str, Groups]:
    """Group molecules into thirds by size, and by whether a training molecule has their scaffold.

    Returns:
        The groups by `size`, and by `scaffold` if the training molecules are known.
    """
    sizes = np.asarray(dataset.store.num_atoms)[rows]
    low, high = (int(value) for value in np.quantile(sizes, (1 / 3, 2 / 3), method="lower"))
    names = [f"up to {low} heavy atoms", f"{low + 1} to {high} heavy atoms", f"more than {high} heavy atoms"]
    groups: dict[str, Groups] = {"size": group_by_size(sizes, (0, low + 1, high + 1), names)}
    domain = predictor.known_domain()
    # the scaffold of a molecule outside of a sample would look new
    if domain is None or domain.is_sample or isinstance(dataset, ArraysOnly):
        return groups
    from molslice.chem.scaffold import scaffold_groups, scaffolds  # needs rdkit

    smiles = dataset.smiles()
    fragment, _, standard = predictor.treatment
    chosen = choose_fragments([smiles[row] for row in rows], fragment, standardize=standard).smiles
    return {**groups, "scaffold": scaffold_groups(scaffolds(chosen), scaffolds(domain.smiles))}


def number_molecules(predictor: Predictor, dataset: MoleculeDataset, rows: np.ndarray) -> np.ndarray:
    """Return the number of the molecule of each row, int64 [k], whose rows count as one in standard errors.

    Of a pair it is the first molecule, of a symmetric one as in `number_names`.
    """
    if not predictor.symmetric:
        return dataset.number_molecules(rows)
    assert predictor.partner is not None  # of a pair
    both = dataset.smiles(), dataset.side_cells([predictor.partner])[predictor.partner]
    return number_names(*(predictor.name_molecules([smiles[row] for row in rows]) for smiles in both))


def number_names(names: Sequence[str], partners: Sequence[str] = ()) -> np.ndarray:
    """Return the number of the molecule of each row, int64 [n], by its name, such as its canonical SMILES.

    With `partners`, the second molecules of symmetric pairs, it is the molecule with fewer partners in these
    rows, as in `molslice fit`, and of two with equally many the first in the alphabet.
    """
    if partners:
        pairs = np.sort([names, partners], axis=0)
        names = np.where(second_has_fewer_partners(*pairs.tolist()), pairs[1], pairs[0]).tolist()
    return np.unique(names, return_inverse=True)[1]


def group_by_size(sizes: np.ndarray, firsts: Sequence[int], names: Sequence[str]) -> Groups:
    """Group molecules by their number of heavy atoms; empty groups are left out.

    `firsts` are the smallest sizes of the groups, ascending.
    """
    places = np.searchsorted(firsts, sizes, side="right") - 1
    return {name: places == place for place, name in enumerate(names) if (places == place).any()}
