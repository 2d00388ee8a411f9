"""Clusters of similar molecules, by which a split keeps chemical series together.

Source: Taylor, J. Chem. Inf. Comput. Sci. 35 (1995) 59; Butina, J. Chem. Inf. Comput. Sci. 39 (1999) 747.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array

from molslice.chem.descriptors import morgan_counts
from molslice.chem.smiles import parse_unguarded, quiet_rdkit

SIMILARITY = 0.4  # unrelated drug-like molecules are rarely as similar
CELLS_AT_ONCE = 8_000_000  # similarities in memory, 32 MB


def find_clusters(smiles: Sequence[str], similarity: float = SIMILARITY) -> np.ndarray:
    """Divide molecules into clusters by the algorithm of Taylor and Butina; returns their numbers, int64 [n].

    The molecule with the most neighbors is the center of the first cluster, which has all its neighbors; then
    the next molecule that is in no cluster yet, in the order of the number of neighbors among all molecules,
    is the next center. Equal ones keep their order. Neighbors have at least a Tanimoto similarity of the bits
    of Morgan fingerprints (radius 2, 2048 bits). Similarities are computed twice, a block of rows at a time,
    so that memory grows with the number of molecules and time with its square.

    Raises:
        ChemError: A SMILES cannot be read.
    """
    with quiet_rdkit():
        counts = np.stack([morgan_counts(parse_unguarded(text)) for text in smiles])
    bits = csr_array((counts > 0).astype(np.float32))
    rows = np.arange(len(smiles))
    neighbors = np.concatenate([near.sum(1) for near in _blocks(bits, rows, rows, similarity)])
    order = np.argsort(-neighbors, kind="stable")
    order, alone = order[neighbors[order] > 1], order[neighbors[order] == 1]
    clusters, number = np.full(len(smiles), -1), 0
    step = _block_rows(len(smiles))
    for start in range(0, len(order), step):
        centers = order[start : start + step]
        centers, free = centers[clusters[centers] < 0], np.flatnonzero(clusters < 0)
        for block in _blocks(bits, centers, free, similarity):
            for center, near in zip(centers, block, strict=True):
                if clusters[center] < 0:
                    members = free[near]
                    clusters[members[clusters[members] < 0]] = number
                    number += 1
    clusters[alone] = number + np.arange(len(alone))
    return clusters


def _block_rows(count: int) -> int:
    return max(1, CELLS_AT_ONCE // count)


def _blocks(bits: csr_array, rows: np.ndarray, others: np.ndarray, similarity: float) -> Iterator[np.ndarray]:
    """Yield which of the other molecules are neighbors of each row, bool [block, others]."""
    totals, transposed = np.asarray(bits.sum(1)), bits[others].T.tocsr()
    step = _block_rows(len(totals))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        shared = (bits[block] @ transposed).toarray()
        yield shared >= similarity * (totals[block, None] + totals[others][None] - shared)
