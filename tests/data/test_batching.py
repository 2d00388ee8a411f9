"""Tests of batches: equal to single rows, every row once, within the budget, reproducible by seed."""

import numpy as np
import pytest
import torch

from molslice.data.batching import MOST_SHAPES, FixedShapeBatches, TokenBudgetBatches, ordered_batches
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.types import MolsliceError
from tests.data.molecules.builders import memory_store, molecules
from tests.real_data import embedded_smiles

GOOD = [0, 1, 2, 4, 5, 6, 7, 8, 9]


def check_batch(store, batch, rows):
    """Compare a batch with its molecules one by one."""
    assert batch.atoms.dtype == batch.bond_features.dtype == torch.uint8
    assert batch.bond_index.dtype == batch.rows.dtype == torch.int64
    assert batch.rows.tolist() == list(rows)
    bonds = 0
    for place, row in enumerate(rows):
        molecule = store.arrays(row)
        count = len(molecule.atoms)
        assert batch.atom_mask[place].tolist() == [i < count for i in range(batch.atoms.shape[1])]
        np.testing.assert_array_equal(batch.atoms[place, :count], molecule.atoms)
        assert not batch.atoms[place, count:].any()
        own = batch.bond_index[:, 0] == place
        np.testing.assert_array_equal(batch.bond_index[own, 1:], molecule.bonds[:, :2])
        np.testing.assert_array_equal(batch.bond_features[own], molecule.bonds[:, 2:])
        bonds += len(molecule.bonds)
    assert len(batch.bond_index) == bonds


@pytest.mark.parametrize("rows", [GOOD, GOOD[::-1], [2], [5, 5], [8, 0, 1]])
@pytest.mark.parametrize("pad_to", [None, 40])
def test_a_batch_is_its_molecules(rows, pad_to):
    store = memory_store()
    batch = collate(store, rows, pad_to=pad_to)
    check_batch(store, batch, rows)
    assert batch.atoms.shape[1] == (pad_to or store.num_atoms[rows].max())
    np.testing.assert_array_equal(batch.targets[:, 0], rows)


def test_real_molecules():
    store = memory_store(embedded_smiles()[:300])
    check_batch(store, collate(store, range(300)), range(300))


def test_without_targets_and_without_bonds():
    store = MoleculeStore.in_memory(molecules(["C", "N"]))
    batch = collate(store, [0, 1])
    assert batch.targets is None
    assert batch.bond_index.shape == (0, 3)
    assert batch.bond_features.shape == (0, 3)


def test_the_batch_does_not_share_memory_with_the_store():
    store = memory_store()
    rows = np.array([0, 1])
    batch = collate(store, rows)
    batch.targets.zero_()
    batch.atoms.zero_()
    rows[0] = 7
    assert store.targets[1, 0] == 1
    assert store.atoms.any()
    assert batch.rows.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "at least one row"),
        ([[0, 1]], {}, "got shape"),
        ([0, 3], {}, r"cannot batch rows of memory that could not be read: \[3\]"),
        ([0, 10], {}, "rows 0 to 10 are out of range: memory has 10 rows"),
        ([-1], {}, "rows -1 to -1"),
        ([1], {"pad_to": 8}, "pad_to=8 is less than the 9 atoms"),
    ],
)
def test_rows_are_checked(rows, options, message):
    with pytest.raises(MolsliceError, match=message):
        collate(memory_store(), rows, **options)


def graph(atoms, bonds):
    """Return a molecule without the numbering of its atoms: bonds between atoms given by their features."""
    told = [bytes(atom.tolist()) for atom in atoms]
    return sorted(told), sorted(
        (min(told[i], told[j]), max(told[i], told[j]), *rest) for i, j, *rest in bonds.tolist()
    )


def test_a_permutation_renumbers_atoms_and_nothing_else():
    store = memory_store(embedded_smiles()[:200])
    plain, shuffled = collate(store, range(200)), collate(store, range(200), atom_permutation=3)
    moved = 0
    for place in range(200):
        count = store.num_atoms[place]
        own = plain.bond_index[:, 0] == place
        assert torch.equal(own, shuffled.bond_index[:, 0] == place)
        sides = [
            graph(
                batch.atoms[place, :count].numpy(),
                torch.cat((batch.bond_index[own, 1:], batch.bond_features[own]), 1).numpy(),
            )
            for batch in (plain, shuffled)
        ]
        assert sides[0] == sides[1]
        moved += not torch.equal(plain.atoms[place], shuffled.atoms[place])
    assert moved > 190
    assert torch.equal(plain.atom_mask, shuffled.atom_mask)


def test_a_permutation_depends_on_seed_and_row_alone():
    store = memory_store(embedded_smiles()[:50])
    whole = collate(store, range(50), atom_permutation=3, pad_to=40)
    for rows in ([7], [7, 3, 49], [7, 7]):
        part = collate(store, rows, atom_permutation=3, pad_to=40)
        assert torch.equal(part.atoms, whole.atoms[rows])
    other = collate(store, range(50), atom_permutation=4, pad_to=40)
    assert (other.atoms != whole.atoms).any(dim=(1, 2)).sum() > 40


def test_permutations_are_uniform():
    # three atoms that differ, in 6 orders
    store = memory_store(["COF"] * 3000)
    batch = collate(store, range(3000), atom_permutation=1)
    orders, counts = np.unique(batch.atoms[:, :, 0].numpy(), axis=0, return_counts=True)
    assert len(orders) == 6
    assert ((counts - 500) ** 2 / 500).sum() < 20.5  # chi squared with 5 degrees of freedom, p = 0.001


def batches_of(num_tokens, **options):
    defaults = {"token_budget": 200, "batch_size": 16, "shuffle": True, "seed": 5}
    return TokenBudgetBatches(num_tokens, np.arange(len(num_tokens)), **(defaults | options))


@pytest.fixture(scope="module")
def num_tokens():
    return np.random.default_rng(0).integers(2, 51, size=5000)


@pytest.mark.parametrize(("shuffle", "mix_lengths"), [(True, False), (False, False), (True, True)])
def test_every_row_once_within_the_limits(num_tokens, shuffle, mix_lengths):
    batches = batches_of(num_tokens, shuffle=shuffle, mix_lengths=mix_lengths).epoch(0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(5000))
    for batch in batches:
        assert 1 <= len(batch) <= 16
        assert len(batch) * (num_tokens[batch].max()) <= 200


def test_little_is_padding(num_tokens):
    batches = batches_of(num_tokens).epoch(0)
    padded = sum(len(batch) * (num_tokens[batch].max()) for batch in batches)
    assert num_tokens.sum() / padded > 0.95


def test_the_budget_is_used(num_tokens):
    batches = batches_of(num_tokens, batch_size=1000).epoch(0)
    tokens = [len(batch) * (num_tokens[batch].max()) for batch in batches]
    assert np.mean(tokens) > 150


@pytest.mark.parametrize("mix_lengths", [False, True])
def test_lengths_are_mixed_for_batch_norm(num_tokens, mix_lengths):
    batches = batches_of(num_tokens, token_budget=9999, mix_lengths=mix_lengths).epoch(0)
    spreads = [num_tokens[batch].std() for batch in batches]
    expected = num_tokens.std() if mix_lengths else 0.0
    assert np.mean(spreads) == pytest.approx(expected, abs=0.1 * num_tokens.std())


@pytest.mark.parametrize("mix_lengths", [False, True])
def test_an_epoch_is_a_function_of_seed_and_number(num_tokens, mix_lengths):
    def epoch(seed, number):
        batches = batches_of(num_tokens, seed=seed, mix_lengths=mix_lengths).epoch(number)
        return [batch.tolist() for batch in batches]

    assert epoch(5, 3) == epoch(5, 3)
    assert epoch(5, 3) != epoch(5, 4)
    assert epoch(5, 3) != epoch(6, 3)
    used = batches_of(num_tokens, mix_lengths=mix_lengths)
    used.epoch(0)
    assert [batch.tolist() for batch in used.epoch(3)] == epoch(5, 3)


def test_without_shuffling_epochs_are_equal_and_sizes_grow(num_tokens):
    batches = batches_of(num_tokens, shuffle=False)
    first, second = batches.epoch(0), batches.epoch(1)
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))
    assert (np.diff(num_tokens[np.concatenate(first)]) >= 0).all()


def test_shuffling_mixes_sizes_over_the_epoch(num_tokens):
    means = [num_tokens[batch].mean() for batch in batches_of(num_tokens).epoch(0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.1


def test_the_batches_of_one_pool_are_shuffled(num_tokens):
    """Rows of a pool are sorted by length, so without shuffling the batches would go from short to long."""
    means = [num_tokens[batch].mean() for batch in batches_of(num_tokens[:440]).epoch(0)]
    assert len(means) > 30
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.4


def test_a_pool_holds_rows_from_the_whole_data_set():
    """Consecutive rows are often similar, and rows of equal length would stay together."""
    batches = batches_of(np.full(5000, 10)).epoch(0)
    assert np.mean([np.ptp(batch) for batch in batches]) > 2500


def test_only_the_rows_asked_for():
    batches = TokenBudgetBatches(
        np.arange(2, 12), [9, 2, 4], token_budget=11, batch_size=9, shuffle=False, seed=0
    )
    assert [batch.tolist() for batch in batches.epoch(0)] == [[2], [4], [9]]


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ([], {}, "no rows to batch"),
        ([3, 0], {}, r"cannot batch rows that could not be read: \[1\]"),
        ([3, 201], {}, "at least 201, the tokens of row 2"),
        ([3, 4], {"batch_size": 0}, "must be positive"),
    ],
)
def test_limits_are_checked(sizes, options, message):
    with pytest.raises(MolsliceError, match=message):
        batches_of(np.array(sizes, dtype=np.int64), **options)


@pytest.mark.parametrize(("parts", "sizes"), [(1, [8, 8]), (4, [2] * 8), (16, [1] * 16)])
def test_a_prediction_takes_batches_as_small_as_the_steps_of_its_training(parts, sizes):
    batches = ordered_batches(np.full(16, 4), token_budget=9999, batch_size=8, parts=parts)
    assert [len(batch) for batch in batches] == sizes
    by_tokens = ordered_batches(np.full(16, 4), token_budget=32, batch_size=99, parts=parts)
    assert [len(batch) for batch in by_tokens] == sizes
    assert sorted(np.concatenate(batches).tolist()) == list(range(16))


def fixed_batches(tokens, *, token_budget=2048, batch_size=64, seed=3):
    return FixedShapeBatches(
        tokens, np.arange(len(tokens)), token_budget=token_budget, batch_size=batch_size, seed=seed
    )


@pytest.mark.parametrize("longest", [10, 40, 200])
def test_fixed_shapes_are_few_and_every_row_occurs_once(longest):
    tokens = np.random.default_rng(0).integers(2, longest + 1, 5000)
    order = fixed_batches(tokens)
    batches = order.epoch(0)
    shapes = {order.shape_of(rows) for rows in batches}
    assert shapes == set(order.shapes)
    assert len(shapes) <= MOST_SHAPES
    assert sorted(np.concatenate(batches)) == list(range(len(tokens)))
    for rows in batches:
        width, size = order.shape_of(rows)
        assert size - 1 <= len(rows) <= size <= 64
        assert tokens[rows].max() <= width
        assert width * size <= 2048


def test_fixed_shapes_of_molecules_have_little_padding():
    """Lengths like those of PCQM4M, about normal; a batch is nearly as large as its limit."""
    tokens = np.random.default_rng(0).normal(15.5, 2.5, 100_000).round().clip(3, 52).astype(int)
    order = fixed_batches(tokens, token_budget=65536, batch_size=1024)
    shapes = [order.shape_of(rows) for rows in order.epoch(0)]
    padded = sum(width * rows for width, rows in shapes)
    assert 1 - tokens.sum() / padded < 0.03
    assert np.median([rows for _, rows in shapes]) > 900


def test_fixed_shapes_depend_on_seed_and_epoch_only():
    tokens = np.random.default_rng(0).integers(2, 30, 500)

    def rows_of(epoch, seed=3):
        return [rows.tolist() for rows in fixed_batches(tokens, seed=seed).epoch(epoch)]

    assert rows_of(1) == rows_of(1)
    assert rows_of(1) != rows_of(2)
    assert rows_of(1) != rows_of(1, seed=4)


def test_few_rows_have_few_fixed_shapes():
    assert len(fixed_batches(np.arange(2, 32)).shapes) <= 3
    assert [tuple(shape) for shape in fixed_batches(np.array([7])).shapes] == [(7, 1)]
