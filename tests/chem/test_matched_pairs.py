"""Matched pairs of molecules with known substituents."""

from molslice.chem.matched_pairs import find_matched_pairs


def pairs_of(*smiles, **options):
    return {
        frozenset((pair.first, pair.second)): {pair.first: pair.before, pair.second: pair.after}
        for pair in find_matched_pairs(smiles, **options)
    }


def test_molecules_that_differ_by_a_substituent_are_pairs():
    pairs = pairs_of("Cc1ccccc1", "Clc1ccccc1", "c1ccccc1", "CCO", "nonsense", "Cc1ccccc1Cl")
    assert pairs == {
        frozenset({0, 1}): {0: "C[*:1]", 1: "Cl[*:1]"},
        frozenset({0, 2}): {0: "C[*:1]", 2: "[H][*:1]"},
        frozenset({1, 2}): {1: "Cl[*:1]", 2: "[H][*:1]"},
        frozenset({0, 5}): {0: "[H][*:1]", 5: "Cl[*:1]"},
        frozenset({1, 5}): {1: "[H][*:1]", 5: "C[*:1]"},
    }


def test_the_smallest_exchange_of_two_molecules_counts():
    (pair,) = find_matched_pairs(["CCc1ccc(C#N)cc1", "CCCc1ccc(C#N)cc1"])
    assert {pair.before, pair.after} == {"[H][*:1]", "C[*:1]"}  # not ethyl and propyl


def test_large_exchanges_and_stereoisomers_are_no_pairs():
    assert pairs_of("CCCCCCc1ccccc1", "Clc1ccccc1") == {}
    assert pairs_of("C[C@H](O)c1ccccc1", "C[C@@H](O)c1ccccc1") == {}


def test_at_most_so_many_pairs_with_the_largest_constant_parts():
    smiles = ["Cc1ccccc1", "Clc1ccccc1", "Cc1ccc2ccccc2c1", "Clc1ccc2ccccc2c1"]
    assert pairs_of(*smiles, most=1) == {frozenset({2, 3}): {2: "C[*:1]", 3: "Cl[*:1]"}}
