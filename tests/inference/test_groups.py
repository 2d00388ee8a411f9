"""Which rows count as one in standard errors."""

import numpy as np
import pytest

from molslice.data.molecules.conditions import Conditioned
from molslice.data.molecules.describe import describe_molecules
from molslice.inference.groups import number_names


def groups_of(numbers):
    return {frozenset(np.flatnonzero(numbers == number).tolist()) for number in np.unique(numbers)}


def test_rows_of_one_name_have_one_number():
    assert groups_of(number_names(["C", "N", "C"])) == {frozenset({0, 2}), frozenset({1})}


@pytest.mark.parametrize("swap", [False, True])
def test_a_symmetric_pair_counts_as_its_molecule_with_fewer_partners(swap):
    solutes, solvents = ["CCO", "CCN", "CCC", "CCO"], ["O", "O", "CO", "CO"]
    if swap:
        solutes, solvents = solvents, solutes
    groups = groups_of(number_names(solutes, solvents))
    assert groups == {frozenset({0, 3}), frozenset({1}), frozenset({2})}
    rows = [Conditioned(first, (), second) for first, second in zip(solutes, solvents, strict=True)]
    of_fit = describe_molecules(rows).fewer_partners_first().canonical
    assert groups == groups_of(np.unique(of_fit, return_inverse=True)[1])
