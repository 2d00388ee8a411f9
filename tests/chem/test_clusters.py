"""Clusters of molecules, against the plain form of the algorithm of Taylor and Butina."""

import numpy as np
import pytest
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

from molslice.chem import clusters
from molslice.chem.clusters import SIMILARITY, find_clusters
from molslice.chem.smiles import ChemError
from tests.inference.models import embedded_smiles

SERIES = [f"c1ccc2nc({'C' * length})ccc2c1" for length in range(2, 12)]


def reference(smiles, similarity):
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    prints = [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in smiles]
    near = np.array([DataStructs.BulkTanimotoSimilarity(one, prints) for one in prints]) >= similarity - 1e-9
    labels, number = np.full(len(smiles), -1), 0
    for center in np.argsort(-near.sum(1), kind="stable"):
        if labels[center] < 0:
            labels[near[center] & (labels < 0)] = number
            number += 1
    return labels


@pytest.mark.parametrize("similarity", [0.25, SIMILARITY, 1.0])
@pytest.mark.parametrize("cells", [1, 5_000, clusters.CELLS_AT_ONCE])
def test_clusters_are_those_of_the_algorithm(similarity, cells, monkeypatch):
    """In blocks of any size: of one row, of a few, and of all."""
    monkeypatch.setattr(clusters, "CELLS_AT_ONCE", cells)
    smiles = [*embedded_smiles(300), *SERIES]
    labels = find_clusters(smiles, similarity)
    np.testing.assert_array_equal(labels, reference(smiles, similarity))
    assert (len(set(labels.tolist())) < len(smiles) - 5) == (similarity < 1.0)


def test_a_series_is_one_cluster():
    labels = find_clusters([*SERIES, "CCO", "OCC(O)CO"])
    assert len(set(labels[: len(SERIES)].tolist())) == 1
    assert len(set(labels.tolist())) == 3


def test_one_molecule_is_a_cluster():
    assert find_clusters(["CCO"]).tolist() == [0]


def test_a_smiles_that_cannot_be_read_is_an_error():
    with pytest.raises(ChemError, match="not valid SMILES"):
        find_clusters(["CCO", "C("])
