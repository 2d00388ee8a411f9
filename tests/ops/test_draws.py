"""Random numbers as a function of integers."""

import torch

from molslice.ops.draws import uniform_of


def splitmix(value):
    """One step with Python's integers."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def expected(salt, *indices):
    state = salt
    for index in indices:
        state = splitmix(splitmix(state) ^ index % 2**64)
    return (splitmix(state) >> 40) / 2**24


def test_numbers_are_those_of_unsigned_integers():
    salts = (0, 1, 2**62 - 1, 123456789)
    rows, columns = torch.tensor([0, 1, -1, 2**62, 7]), torch.arange(3)
    for salt in salts:
        found = uniform_of(salt, rows[:, None], columns)
        assert found.shape == (5, 3)
        assert found.dtype == torch.float32
        for i, row in enumerate(rows.tolist()):
            assert found[i].tolist() == [expected(salt, row, column) for column in range(3)]


def test_a_number_depends_on_its_own_indices_only():
    rows = torch.randint(0, 10**6, (50,))
    together = uniform_of(5, rows)
    assert torch.equal(torch.stack([uniform_of(5, row) for row in rows]), together)
    torch.manual_seed(1)
    assert torch.equal(uniform_of(5, rows), together)


def test_numbers_are_uniform_and_independent():
    first = uniform_of(1, torch.arange(1000)[:, None], torch.arange(64)).double()
    second = uniform_of(2, torch.arange(1000)[:, None], torch.arange(64)).double()
    assert abs(first.mean() - 0.5) < 0.005
    assert abs((first < 0.15).double().mean() - 0.15) < 0.005
    counts = torch.histc(first, 16, 0, 1) / first.numel()
    assert (counts - 1 / 16).abs().max() < 0.004
    for one, other in ((first, second), (first[1:], first[:-1]), (first[:, 1:], first[:, :-1])):
        correlation = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]
        assert abs(correlation) < 0.02
    assert first.min() >= 0
    assert first.max() < 1
