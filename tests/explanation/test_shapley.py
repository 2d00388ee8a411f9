import itertools
import math

import numpy as np
import pytest
import torch

from molslice.explanation.explain import Explainer
from molslice.explanation.result import Contributions
from molslice.explanation.score import Score, find_score
from molslice.explanation.shapley import (
    EXACT_PLAYERS,
    FIRST_PAIRS,
    MAX_COALITIONS,
    TOLERANCE,
    exact_shapley,
    sampled_shapley,
    shapley_values,
)
from molslice.explanation.surrogate import Surrogate
from molslice.inference.load import load_model
from molslice.inference.network import NetworkPredictor
from tests.explanation.models import ODD, masked
from tests.inference.models import FORMS, embedded_smiles, untrained


def network_score(predictor):
    score = find_score(predictor)
    assert isinstance(score, Score)
    return score


def contributions(explainer, smiles):
    explanation = explainer(smiles)
    assert isinstance(explanation, Contributions)
    return explanation


def random_game(players, seed):
    """Return a game with a random value for each coalition."""
    values = np.random.default_rng(seed).normal(size=1 << players)
    return lambda members: values[members @ (1 << np.arange(players))]


@pytest.mark.parametrize("players", [0, 1, 2, 5])
def test_exact_values_are_means_over_all_orders(players):
    game = random_game(players, seed=3)
    expected = np.zeros(players)
    for order in itertools.permutations(range(players)):
        members = np.zeros((1, players), bool)
        for player in order:
            before = game(members)[0]
            members[0, player] = True
            expected[player] += (game(members)[0] - before) / math.factorial(players)
    estimate = exact_shapley(game, players)
    assert np.allclose(estimate.values, expected)
    assert estimate.coalitions == 1 << players
    assert not estimate.standard_errors.any()


@pytest.mark.parametrize("pairs", [FIRST_PAIRS, 48])
def test_the_estimate_agrees_with_exact_values_within_its_standard_error(pairs):
    game = random_game(12, seed=1)
    exact = exact_shapley(game, 12).values
    deviations = []
    for seed in range(30):
        estimate = sampled_shapley(game, 12, limit=0.0, seed=seed, max_pairs=pairs)
        assert estimate.pairs == pairs
        assert estimate.values.sum() == pytest.approx(exact.sum())
        deviations.append((estimate.values - exact) / estimate.standard_errors)
    assert np.abs(deviations).max() < 5
    assert 0.7 < np.square(deviations).mean() < 1.4  # the stated error is the actual one


def test_sampling_stops_at_the_limit_and_evaluates_each_coalition_once():
    calls = []

    def game(members):
        calls.append(len(members))
        return random_game(12, seed=2)(members)

    estimate = shapley_values(game, 12, limit=0.2)
    assert estimate.standard_errors.max() <= 0.2
    assert estimate.coalitions == sum(calls) < 2 * 13 * estimate.pairs
    loose = shapley_values(random_game(12, seed=2), 12, limit=10.0)
    assert loose.pairs == FIRST_PAIRS < estimate.pairs
    assert shapley_values(lambda members: members.sum(1) ** 3.0, 100, 0.0, 1_800).pairs == 9
    assert shapley_values(random_game(EXACT_PLAYERS, seed=2), EXACT_PLAYERS, limit=1e9).pairs == 0


def test_the_number_of_coalitions_is_limited(monkeypatch):
    def evaluated(players, limit, most):
        estimate = shapley_values(random_game(players, seed=2), players, limit, most)
        return estimate.pairs, estimate.coalitions

    pairs, coalitions = evaluated(14, 0.0, 1_000)
    assert (pairs, 500 < coalitions <= 1_000) == (1_000 // 28, True)
    assert evaluated(14, 0.0, 1)[0] == 8  # the fewest
    assert evaluated(10, 0.0, 1 << 10) == (0, 1 << 10)
    assert evaluated(10, 0.0, (1 << 10) - 1)[0] == 51
    monkeypatch.setattr("molslice.explanation.shapley.EXACT_PLAYERS", 8)
    assert evaluated(9, 0.0, 1 << 9) == (0, 1 << 9)  # exact values, after sampling stopped above the limit
    assert evaluated(9, 1e9, 1 << 9)[0] == FIRST_PAIRS


@pytest.mark.parametrize("players", [1, 2, 3, 6, 9])
def test_the_values_of_a_surrogate_are_exact(players):
    generator = np.random.default_rng(players)
    members, values = generator.random((40, players)) < 0.5, generator.normal(size=40)
    surrogate = Surrogate.fit(members, values)
    assert np.allclose(surrogate.shapley_values(), exact_shapley(surrogate, players).values, atol=1e-12)
    assert np.allclose(surrogate(members), -surrogate(~members))


def test_a_surrogate_interpolates_the_odd_part():
    members = np.unique(np.random.default_rng(0).random((60, 10)) < 0.5, axis=0)
    values = 1.0 + members @ np.arange(10) + members.prod(1)
    complements = 1.0 + ~members @ np.arange(10) + (~members).prod(1)
    surrogate = Surrogate.fit(members, (values - complements) / 2)
    assert np.allclose(surrogate(members), (values - complements) / 2, atol=0.2)


def enumerated(game, players):
    """Return Shapley values by the formula over subsets."""
    values = np.zeros(players)
    for player in range(players):
        others = [other for other in range(players) if other != player]
        for size in range(players):
            share = math.factorial(size) * math.factorial(players - size - 1) / math.factorial(players)
            subsets = list(itertools.combinations(others, size))
            before = np.zeros((len(subsets), players), bool)
            for row, subset in zip(before, subsets, strict=True):
                row[list(subset)] = True
            after = before.copy()
            after[:, player] = True
            values[player] += share * (game(after) - game(before)).sum()
    return values


@pytest.mark.parametrize("name", ["softmax", "slice_sort", "flow", "singular"])
def test_the_estimate_of_a_molecule_agrees_with_enumeration_in_float64(name, tmp_path):
    predictor = untrained(tmp_path, attention=FORMS[name])
    assert isinstance(predictor, NetworkPredictor)
    predictor.model.double()
    score, molecule = network_score(predictor), masked("OC(=O)c1ccncc1")
    count = len(molecule.players)
    assert 8 <= count <= 10

    numbers = np.arange(1 << count)
    visible = np.zeros((len(numbers), molecule.num_atoms), bool)
    visible[:, molecule.players] = numbers[:, None] >> np.arange(count) & 1
    scores = score.of_masked(molecule, visible)

    def game(members):
        return scores[members @ (1 << np.arange(count))]

    expected = enumerated(game, count)
    assert np.allclose(exact_shapley(game, count).values, expected, atol=1e-12)
    estimate = sampled_shapley(game, count, limit=0.0, max_pairs=48)
    assert (np.abs(estimate.values - expected) < 4 * estimate.standard_errors).all()
    assert estimate.values.sum() == pytest.approx(expected.sum(), abs=1e-12)


def test_a_smooth_game_needs_fewer_samples():
    generator = np.random.default_rng(5)
    weights, others = generator.normal(size=9) / 2, generator.normal(size=(9, 9)) / 8

    def game(members):
        return np.tanh(members @ weights + np.einsum("ki,ij,kj->k", members, others, members))

    exact = enumerated(game, 9)
    estimates = [sampled_shapley(game, 9, limit=0.0, max_pairs=40, seed=seed) for seed in range(30)]
    values, errors = (
        np.stack([getattr(one, name) for one in estimates]) for name in ("values", "standard_errors")
    )
    assert 0.7 < np.square((values - exact) / errors).mean() < 1.4  # the stated error is the actual one
    changes = [sampled_changes(game, np.random.default_rng(seed), 9, 40) for seed in range(30)]
    assert np.square(values - exact).mean() < np.square(np.array(changes) - exact).mean() / 4


def sampled_changes(game, generator, players, pairs):
    """Return the mean change over random orders and their reverses."""
    values = np.zeros(players)
    for order in (generator.permutation(players) for _ in range(pairs)):
        for one in (order, order[::-1]):
            members = np.tri(players + 1, players, -1, dtype=bool)[:, np.argsort(one)]
            values[one] += np.diff(game(members)) / (2 * pairs)
    return values


ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


def test_a_shipped_model_reaches_its_target_for_aspirin():
    explanation = contributions(Explainer(load_model("gap-xtb"), method="shapley"), ASPIRIN)
    assert explanation.largest_standard_error is not None
    assert explanation.standard_error_target is not None
    assert 0 < explanation.largest_standard_error <= explanation.standard_error_target
    assert explanation.standard_error_target == pytest.approx(TOLERANCE * 1.4651, rel=1e-4)
    assert explanation.evaluations < MAX_COALITIONS / 3
    assert (explanation.warning, explanation.to_dict()["converged"]) == ("", True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("smiles", [ASPIRIN, "CN(C)c1ccc(C=C(C#N)C#N)cc1"])
def test_the_error_of_a_shipped_model_is_the_stated_one(smiles):
    explainer = Explainer(load_model("gap-xtb"), method="shapley")
    explanation, score = contributions(explainer, smiles), network_score(explainer.predictor)
    assert explanation.standard_errors is not None
    molecule = masked(smiles)
    players = len(molecule.players)

    def game(members):
        visible = np.zeros((len(members), molecule.num_atoms), bool)
        visible[:, molecule.players] = members
        return score.of_masked(molecule, visible)

    exact = exact_shapley(game, players).values
    errors = (explanation.values[molecule.players] - exact) / explanation.standard_errors[molecule.players]
    assert np.abs(errors).max() < 4
    assert np.square(errors).mean() < 3


def test_an_order_and_its_reverse_are_exact_for_pairs():
    # for a game of players and pairs of players only, each antithetic pair has the exact value
    generator = np.random.default_rng(0)
    single, both = generator.normal(size=7), generator.normal(size=(7, 7))
    game = lambda members: members @ single + np.einsum("ki,ij,kj->k", members, both, members)  # noqa: E731
    estimate = sampled_shapley(game, 7, limit=1e-9, max_pairs=8)
    assert estimate.standard_errors.max() < 1e-9
    assert np.allclose(estimate.values, exact_shapley(game, 7).values)


@pytest.mark.parametrize("name", FORMS)
def test_contributions_add_up_and_the_estimate_agrees_with_exact_values(name, tmp_path):
    explainer = Explainer(untrained(tmp_path, wildcards="keep", attention=FORMS[name]), method="shapley")
    for smiles in ("OC=CN", *embedded_smiles(1), *ODD):
        explanation = contributions(explainer, smiles)
        assert explanation.values.sum() == pytest.approx(
            explanation.prediction - explanation.baseline, abs=1e-4
        )
    score, molecule = network_score(explainer.predictor), masked("Oc1cnccc1F")

    def game(members):
        visible = np.zeros((len(members), molecule.num_atoms), bool)
        visible[:, molecule.players] = members
        return score.of_masked(molecule, visible)

    count = len(molecule.players)
    exact, sampled = exact_shapley(game, count), sampled_shapley(game, count, limit=0.0, max_pairs=32)
    assert (np.abs(exact.values - sampled.values) < 5 * sampled.standard_errors + 1e-6).all()


def test_a_copy_is_that_of_the_molecule_the_baseline_or_between(tmp_path):
    predictor = untrained(tmp_path)
    score, molecule = network_score(predictor), masked("O=C(O)c1ccccc1")
    visible = np.zeros((3, 9), bool)
    visible[1] = True
    visible[2, :3] = True  # the acid alone
    baseline, whole, acid = score.of_masked(molecule, visible)
    expected = predictor.predict(["CC(C)C1CCCCC1", "O=C(O)c1ccccc1", "O=C(O)C1CCCCC1"])
    assert [baseline, whole] == pytest.approx(expected[:2].tolist(), abs=1e-5)
    # only the conjugation of the acid's bonds is not that of the smaller molecule
    assert acid == pytest.approx(expected[2], abs=0.5)


def test_a_bond_is_that_of_the_molecule_only_between_visible_atoms():
    molecule = masked("C=CC#N")
    visible = torch.tensor([[True, True, False, False], [True, False, True, True], [True] * 4, [False] * 4])
    bonds = molecule.masked(visible).bond_features.reshape(4, 3, -1)
    whole, single = bonds[2], bonds[3]
    assert [len(rows.unique(dim=0)) for rows in (whole, single)] == [3, 1]
    ends = molecule.bond_ends
    for row, shown in zip(bonds, visible, strict=True):
        for number, (begin, end) in enumerate(ends):
            expected = whole if shown[begin] and shown[end] else single
            assert row[number].equal(expected[number])
    atoms = molecule.masked(visible).atoms
    assert atoms[0, 2:].equal(molecule.baseline.atoms[0, 2:])
    assert atoms[0, :2].equal(atoms[2, :2])
    assert not atoms[2].eq(atoms[3]).all(1).any()


def test_atoms_of_the_baseline_are_not_players():
    assert masked("CCCC").players.tolist() == []
    assert masked("CCO").players.tolist() == [2]
    assert masked("CC=C").players.tolist() == [1, 2]
    assert masked("C1CCCCC1N").players.tolist() == [6]
