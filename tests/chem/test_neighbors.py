"""The nearest molecules by Morgan counts, against RDKit and against a direct computation."""

import numpy as np
import pytest
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

from molslice.chem.neighbors import CountIndex, describe
from tests.inference.models import embedded_smiles


def slow_similarity(first, second):
    """The definition, bin by bin in Python integers."""
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    return sum(min(pair) for pair in pairs) / sum(max(pair) for pair in pairs)


@pytest.mark.parametrize("seed", range(3))
def test_similarities_follow_the_definition(seed):
    generator = np.random.default_rng(seed)
    counts = (generator.integers(0, 256, (30, 2048)) * (generator.random((30, 2048)) < 0.02)).astype(np.uint8)
    index, query = CountIndex.from_counts(counts[:25]), counts[25:]
    for row in query:
        np.testing.assert_array_equal(
            index.similarities(row), [slow_similarity(each, row) for each in counts[:25]]
        )
    for row in range(25):
        np.testing.assert_array_equal(index.dense(row), counts[row])


def test_similarities_are_those_of_rdkit():
    smiles = embedded_smiles(40)
    make = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    prints = [make.GetCountFingerprint(Chem.MolFromSmiles(text)) for text in smiles]
    index = CountIndex.from_counts(np.stack([describe(text).counts for text in smiles]))
    for row in range(0, 40, 7):
        expected = DataStructs.BulkTanimotoSimilarity(prints[row], prints)
        np.testing.assert_allclose(index.similarities(index.dense(row)), expected, rtol=1e-12)


def test_the_nearest_other_molecule_has_other_counts():
    counts = np.stack([describe(text).counts for text in ("CCO", "CCN", "CCN", "c1ccccc1")])
    index = CountIndex.from_counts(counts)
    assert index.most_similar(describe("CCN").counts, 2) == [(1, 1.0), (2, 1.0)]
    assert index.nearest_other(describe("CCN").counts) == index.similarities(counts[1])[0] > 0.0
    assert index.nearest_other(describe("c1ccccc1").counts) == 0.0
    assert CountIndex.from_counts(counts[1:3]).nearest_other(counts[1]) == 0.0


def test_a_molecule_is_described_by_its_heavy_atoms():
    found = describe("[Na+].OCC[2H]")
    assert (found.elements, found.size) == ({"Na", "O", "C"}, 4)
    assert describe("*C").elements == {"*", "C"}
    assert describe("OCC").smiles == describe("CCO").smiles
