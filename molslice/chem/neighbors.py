"""Nearest molecules by the Tanimoto similarity of Morgan counts, by an exact search.

The similarity of counts a and b is sum(min(a, b)) / sum(max(a, b)), from 0 to 1.

Source: Willett, Barnard and Downs, J. Chem. Inf. Comput. Sci. 38 (1998) 983.
"""

from typing import NamedTuple

import numpy as np

from molslice.chem.canonical import canonical_molecule
from molslice.chem.descriptors import MORGAN_BITS, morgan_counts
from molslice.chem.smiles import quiet_rdkit


class Described(NamedTuple):
    """What decides whether a molecule is like others.

    Attributes:
        smiles: The canonical SMILES.
        counts: Morgan counts, uint8 [2048].
        elements: Symbols of its heavy atoms; * for a dummy atom.
        size: Number of heavy atoms.
    """

    smiles: str
    counts: np.ndarray
    elements: frozenset[str]
    size: int


def describe(smiles: str) -> Described:
    """Describe a molecule.

    Raises:
        ChemError: The SMILES cannot be read.
    """
    canonical = canonical_molecule(smiles)
    with quiet_rdkit():
        counts = morgan_counts(canonical.mol)
    heavy = [atom.GetSymbol() for atom in canonical.mol.GetAtoms() if atom.GetAtomicNum() != 1]
    return Described(canonical.smiles or smiles, counts, frozenset(heavy), len(heavy))


class CountIndex:
    """Morgan counts of n molecules, stored as the counts that are not zero.

    Args:
        starts: Start of the counts of each molecule, and their end, int64 [n + 1].
        bins: Bin of each count, increasing in each molecule, uint16 [z].
        counts: The counts, positive, uint8 [z].
    """

    def __init__(self, starts: np.ndarray, bins: np.ndarray, counts: np.ndarray) -> None:
        self.starts, self.bins, self.counts = starts, bins, counts
        rows = np.repeat(np.arange(len(self)), np.diff(starts))
        self._totals = np.bincount(rows, weights=counts, minlength=len(self)).astype(np.int64)
        order = np.argsort(bins, kind="stable")
        self._rows, self._by_bin = rows[order], counts[order].astype(np.int64)
        self._places = np.searchsorted(bins[order], np.arange(MORGAN_BITS + 1))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def from_counts(cls, counts: np.ndarray) -> "CountIndex":
        """Store the counts of n molecules, uint8 [n, 2048]."""
        rows, bins = np.nonzero(counts)
        starts = np.searchsorted(rows, np.arange(len(counts) + 1)).astype(np.int64)
        return cls(starts, bins.astype(np.uint16), counts[rows, bins])

    def dense(self, row: int) -> np.ndarray:
        """Return the counts of a molecule, uint8 [2048]."""
        stored = slice(self.starts[row], self.starts[row + 1])
        counts = np.zeros(MORGAN_BITS, np.uint8)
        counts[self.bins[stored]] = self.counts[stored]
        return counts

    def similarities(self, counts: np.ndarray) -> np.ndarray:
        """Compute the similarity of a molecule, uint8 [2048], to each of the stored ones, float64 [n]."""
        shared = np.zeros(len(self), np.int64)
        for place in np.flatnonzero(counts):
            stored = slice(self._places[place], self._places[place + 1])
            # a molecule occurs once in a bin
            shared[self._rows[stored]] += np.minimum(self._by_bin[stored], int(counts[place]))
        union = self._totals + int(counts.sum(dtype=np.int64)) - shared
        return shared / np.maximum(union, 1)

    def most_similar(self, counts: np.ndarray, number: int) -> list[tuple[int, float]]:
        """Find the `number` most similar molecules, by decreasing similarity; of equals the first ones.

        Returns:
            The index and the similarity of each; fewer if there are not so many molecules.
        """
        similarities = self.similarities(counts)
        place = max(0, len(similarities) - number)
        candidates = np.flatnonzero(similarities >= np.partition(similarities, place)[place])
        best = candidates[np.argsort(-similarities[candidates], kind="stable")[:number]]
        return [(int(row), float(similarities[row])) for row in best]

    def nearest_other(self, counts: np.ndarray) -> float:
        """Return the largest similarity to a molecule with other counts; 0 without such a molecule."""
        similarities = self.similarities(counts)
        return float(similarities[similarities < 1.0].max(initial=0.0))
