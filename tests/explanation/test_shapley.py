import itertools
import math

import numpy as np
import pytest

from molslice.explanation.explain import Explainer
from molslice.explanation.score import find_score
from molslice.explanation.shapley import EXACT_PLAYERS, exact_shapley, sampled_shapley, shapley_values
from tests.explanation.models import ODD, masked
from tests.inference.models import FORMS, embedded_smiles, untrained


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
    found = exact_shapley(game, players)
    assert np.allclose(found.values, expected)
    assert found.coalitions == 1 << players
    assert not found.standard_errors.any()


def test_the_estimate_agrees_with_exact_values_within_its_standard_error():
    game = random_game(8, seed=1)
    exact = exact_shapley(game, 8).values
    deviations = []
    for seed in range(30):
        found = sampled_shapley(game, 8, limit=0.0, seed=seed, max_pairs=48)
        assert found.pairs == 48
        assert found.values.sum() == pytest.approx(exact.sum())
        deviations.append((found.values - exact) / found.standard_errors)
    assert np.abs(deviations).max() < 5
    assert 0.7 < np.square(deviations).mean() < 1.4  # the stated error is the actual one


def test_sampling_stops_at_the_limit_and_evaluates_each_coalition_once():
    calls = []

    def game(members):
        calls.append(len(members))
        return random_game(12, seed=2)(members)

    found = shapley_values(game, 12, limit=0.3)
    assert found.standard_errors.max() <= 0.3
    assert found.coalitions == sum(calls) < 2 * 13 * found.pairs
    loose = shapley_values(random_game(12, seed=2), 12, limit=10.0)
    assert loose.pairs < found.pairs
    assert loose.pairs == 8
    assert shapley_values(lambda members: members.sum(1) ** 3.0, 256, limit=0.0).pairs == 16
    assert shapley_values(random_game(EXACT_PLAYERS, seed=2), EXACT_PLAYERS, limit=1e9).pairs == 0


def test_an_order_and_its_reverse_are_exact_for_pairs():
    # for a game of players and pairs of players only, each antithetic pair has the exact value
    generator = np.random.default_rng(0)
    single, both = generator.normal(size=7), generator.normal(size=(7, 7))
    game = lambda members: members @ single + np.einsum("ki,ij,kj->k", members, both, members)  # noqa: E731
    found = sampled_shapley(game, 7, limit=1e-9)
    assert found.standard_errors.max() < 1e-9
    assert np.allclose(found.values, exact_shapley(game, 7).values)


@pytest.mark.parametrize("name", FORMS)
def test_contributions_add_up_and_the_estimate_agrees_with_exact_values(name, tmp_path):
    explainer = Explainer(untrained(tmp_path, attention=FORMS[name]), method="shapley")
    for smiles in ("OC=CN", *embedded_smiles(1), *ODD):
        found = explainer(smiles)
        assert found.values.sum() == pytest.approx(found.prediction - found.baseline, abs=1e-4)
    score, molecule = explainer.score, masked("Oc1cnccc1F")

    def game(members):
        visible = np.zeros((len(members), molecule.num_atoms), bool)
        visible[:, molecule.players] = members
        return score.of_masked(molecule, visible)

    count = len(molecule.players)
    exact, sampled = exact_shapley(game, count), sampled_shapley(game, count, limit=0.0, max_pairs=32)
    assert (np.abs(exact.values - sampled.values) < 5 * sampled.standard_errors + 1e-6).all()


def test_padding_does_not_matter(tmp_path):
    for name, form in FORMS.items():
        score = find_score(untrained(tmp_path / name, attention=form))
        plain, padded = masked("Oc1cnccc1F"), masked("Oc1cnccc1F", pad_to=30)
        visible = np.random.default_rng(0).random((20, plain.num_atoms)) < 0.5
        assert np.allclose(score.of_masked(plain, visible), score.of_masked(padded, visible), atol=1e-5)


def test_a_copy_is_that_of_the_molecule_the_baseline_or_between(tmp_path):
    predictor = untrained(tmp_path)
    score, molecule = find_score(predictor), masked("O=C(O)c1ccccc1")
    visible = np.zeros((3, 9), bool)
    visible[1] = True
    visible[2, :3] = True  # the acid alone
    baseline, whole, acid = score.of_masked(molecule, visible)
    expected = predictor.predict(["CC(C)C1CCCCC1", "O=C(O)c1ccccc1", "O=C(O)C1CCCCC1"])
    assert [baseline, whole] == pytest.approx(expected[:2].tolist(), abs=1e-5)
    # only the conjugation of the acid's bonds is not that of the smaller molecule
    assert acid == pytest.approx(expected[2], abs=0.5)


def test_atoms_of_the_baseline_are_not_players():
    assert masked("CCCC").players.tolist() == []
    assert masked("CCO").players.tolist() == [2]
    assert masked("CC=C").players.tolist() == [1, 2]
    assert masked("C1CCCCC1N").players.tolist() == [6]
