"""Contracts of every learner, and its formula against a slow reference in float64."""

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from molslice.learners import LEARNERS, Features, Labels
from molslice.learners.boosting import BINS, splittable_columns
from molslice.learners.features import NormalScores
from molslice.learners.gaussian_process import MAX_POOL, draw_pool
from molslice.learners.similarities import (
    JITTER,
    fit_weights,
    min_max_kernel,
    negative_evidence,
    rational_quadratic_kernel,
    solve,
    squared_distances,
)
from molslice.learners.standardizing import standardize
from molslice.types import MolsliceError


def draw_features(rows: int = 60, *, embedding: bool = False, seed: int = 0) -> Features:
    draw = np.random.default_rng(seed)
    descriptors = draw.normal(size=(rows, 5)) * np.array([1.0, 1e6, 1e-6, 0.0, 3.0])
    descriptors[draw.random((rows, 5)) < 0.05] = np.nan
    counts = draw.poisson(0.4, (rows, 40)).astype(np.uint8)
    states = draw.normal(size=(rows, 4)).astype(np.float32) if embedding else None
    return Features(descriptors, counts, states)


def draw_values(features: Features, classes: bool) -> np.ndarray:
    known = np.nan_to_num(features.descriptors)
    values = known[:, 0] + 0.3 * features.counts[:, 0] + 0.1 * known[:, 4]
    return (values > np.median(values)).astype(float) if classes else values


@pytest.fixture(
    scope="module", params=[(name, c, e) for name in LEARNERS.names() for c in (0, 1) for e in (0, 1)]
)
def fitted(request):
    name, classes, embedding = request.param
    features = draw_features(embedding=bool(embedding))
    values, folds = draw_values(features, bool(classes)), np.arange(len(features)) % 3
    learner, unseen = LEARNERS.find(name).fit(features, Labels(values), folds, classes=bool(classes), seed=0)
    return name, learner, features, values, folds, unseen, bool(classes)


def test_an_out_of_fold_prediction_is_that_of_the_model_of_the_fold(fitted):
    _, learner, features, _, folds, unseen, _ = fitted
    expected = learner.predict(features)[folds, np.arange(len(folds))]
    np.testing.assert_allclose(unseen, expected, rtol=1e-4, atol=1e-6)  # kernels are kept in float32


def test_the_values_of_a_fold_do_not_change_its_own_predictions(fitted):
    name, _, features, values, folds, unseen, classes = fitted
    other = np.where(folds == 1, 1.0 - values if classes else values + 100.0, values)
    _, changed = LEARNERS.find(name).fit(features, Labels(other), folds, classes=classes, seed=0)
    np.testing.assert_allclose(changed[folds == 1], unseen[folds == 1], rtol=1e-9)
    assert np.abs(changed[folds != 1] - unseen[folds != 1]).max() > 1e-3


@pytest.mark.parametrize("rare", [0.0, 1.0])
def test_the_pool_keeps_the_rarer_class(rare):
    values = np.full(40_000, 1.0 - rare)
    values[::4_000] = rare
    pool = draw_pool(values, np.random.default_rng(0), classes=True)
    assert len(np.unique(pool)) == len(pool) == MAX_POOL
    assert (values[pool] == rare).sum() == 10
    half = draw_pool(np.arange(20_000) % 2.0, np.random.default_rng(0), classes=True)
    assert (half % 2).sum() == MAX_POOL / 2
    assert len(draw_pool(values, np.random.default_rng(0), classes=False)) == MAX_POOL
    assert draw_pool(values[:5], np.random.default_rng(0), classes=True).tolist() == [0, 1, 2, 3, 4]


def test_it_learns(fitted):
    _, _, _, values, _, unseen, _ = fitted
    assert np.corrcoef(unseen, values)[0, 1] > 0.5


def test_a_prediction_depends_on_its_row_only(fitted):
    _, learner, _, _, _, _, _ = fitted
    new = draw_features(30, embedding=_has_embedding(learner), seed=1)
    whole = learner.predict(new)
    assert np.isfinite(whole).all()
    alone = np.concatenate([learner.predict(new[i : i + 1]) for i in range(len(new))], axis=1)
    np.testing.assert_allclose(alone, whole, rtol=1e-9, atol=1e-12)
    assert learner.predict(new[:0]).shape == (3, 0)


def _has_embedding(learner):
    arrays = learner.arrays()
    return "embedding" in arrays or int(arrays.get("num_features", [45])[0]) == 49


def test_signs_come_with_the_same_predictions(fitted):
    _, learner, _, _, _, _, _ = fitted
    new = draw_features(30, embedding=_has_embedding(learner), seed=1)
    predicted, indicators = learner.predict_with_indicators(new)
    np.testing.assert_array_equal(predicted, learner.predict(new))
    assert tuple(indicators) == learner.indicators
    for values in indicators.values():
        assert values.shape == (3, 30)
        assert (values >= 0).all()
        assert np.ptp(values) > 0


def test_the_novelty_of_a_molecule_is_its_distance_from_the_rows_of_the_fold():
    features, folds = draw_features(), np.arange(60) % 3
    learner, _ = LEARNERS.find("gaussian_process").fit(
        features, Labels(draw_values(features, False)), folds, classes=False, seed=0
    )
    novelty = learner.predict_with_indicators(features)[1]["novelty"]
    similarity = min_max_kernel(features.counts, features.counts)
    for fold in range(3):
        expected = 1 - np.where(folds == fold, -1.0, similarity).max(1)
        np.testing.assert_allclose(novelty[fold], expected, atol=1e-6)
    assert (novelty[folds, np.arange(60)] > 0).all()
    others = (folds + 1) % 3
    np.testing.assert_allclose(novelty[others, np.arange(60)], 0, atol=1e-6)  # it is one of the rows


def test_the_spread_of_trees_is_that_of_the_single_trees(monkeypatch):
    monkeypatch.setattr("molslice.learners.extra_trees.NUM_TREES", 12)
    features, folds = draw_features(), np.arange(60) % 3
    learner, _ = LEARNERS.find("extra_trees").fit(
        features, Labels(draw_values(features, False)), folds, classes=False, seed=0
    )
    trees, matrix = learner.trees, learner.matrix_of(features)
    alone: dict[int, list[np.ndarray]] = {}
    for root, fold in zip(trees.roots, trees.groups, strict=True):
        group = {"groups": np.array([0], np.int32), "offsets": np.zeros(1), "units": trees.units[[fold]]}
        one = dataclasses.replace(trees, roots=np.array([root]), **group)
        alone.setdefault(int(fold), []).append(4 * one.predict(matrix)[0])  # of four trees
    expected = np.array([np.std(each, axis=0) for each in alone.values()])
    np.testing.assert_allclose(learner.predict_with_indicators(features)[1]["trees"], expected, atol=1e-6)


def test_arrays_rebuild_the_same_learner(fitted):
    name, learner, features, _, _, _, _ = fitted
    again = LEARNERS.find(name).from_arrays(learner.arrays())
    np.testing.assert_array_equal(again.predict(features), learner.predict(features))


def test_arrays_of_another_learner_are_refused(fitted):
    name, learner, *_ = fitted
    with pytest.raises(MolsliceError, match="do not describe"):
        LEARNERS.find(name).from_arrays({"weights": np.zeros(3)})
    damaged = {key: array for key, array in learner.arrays().items() if key != "offsets"}
    with pytest.raises(MolsliceError, match="do not describe"):
        LEARNERS.find(name).from_arrays(damaged)


def test_the_same_rows_give_the_same_learner(fitted):
    name, learner, features, values, folds, _, classes = fitted
    again, _ = LEARNERS.find(name).fit(features, Labels(values), folds, classes=classes, seed=0)
    for key, array in learner.arrays().items():
        np.testing.assert_array_equal(again.arrays()[key], array)


def test_features_of_another_width_are_refused(fitted):
    _, learner, features, *_ = fitted
    wider = Features(
        np.concatenate([features.descriptors, features.descriptors], axis=1),
        features.counts,
        features.embedding,
    )
    with pytest.raises(MolsliceError, match="features, got"):
        learner.predict(wider)


def in_standard_unit(values, classes):
    return (values, 0.0, 1.0) if classes else standardize(values)


@pytest.mark.parametrize("classes", [False, True])
def test_boosting_predicts_as_scikit_learn_does(classes):
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    features = draw_features(200)
    values, folds = draw_values(features, classes), np.arange(200) % 2
    learner, _ = LEARNERS.find("boosting").fit(features, Labels(values), folds, classes=classes, seed=3)
    new = draw_features(100, seed=5)
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    for fold in range(2):
        model: Any = kind(random_state=3 + fold)
        model.set_params(early_stopping=False, max_bins=BINS)
        learned, mean, spread = in_standard_unit(values[folds != fold], classes)
        model.fit(features.matrix()[folds != fold], learned)
        theirs = model.decision_function(new.matrix()) if classes else model.predict(new.matrix())
        theirs = theirs * spread + mean
        np.testing.assert_allclose(learner.predict(new)[fold], theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("classes", [False, True])
def test_extra_trees_predict_as_scikit_learn_does(classes):
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    features = draw_features(200)
    values, folds = draw_values(features, classes), np.arange(200) % 2
    learner, _ = LEARNERS.find("extra_trees").fit(features, Labels(values), folds, classes=classes, seed=3)
    new = draw_features(100, seed=5)
    known, other = (np.nan_to_num(each.matrix()) for each in (features, new))
    varying = np.flatnonzero(np.ptp(known, axis=0) > 0)
    assert len(varying) < known.shape[1]
    for fold in range(2):
        settings: dict[str, Any] = {"n_estimators": 125, "random_state": 3 + fold}
        used = folds != fold
        for kind in (ExtraTreesRegressor, ExtraTreesClassifier)[: 1 + classes]:
            # the classifier has the same splits as the regression up to ties of rounding
            model: Any = kind(**settings, max_features="sqrt" if classes else 0.2)
            model.set_params(min_samples_leaf=3 if classes else 1)
            learned, mean, spread = in_standard_unit(values[used], classes)
            model.fit(known[used][:, varying], learned)
            inner = other[:, varying]
            if kind is ExtraTreesRegressor:
                expected = model.predict(inner) * spread + mean
                np.testing.assert_allclose(learner.predict(new)[fold], expected, rtol=1e-6, atol=1e-7)
            else:
                expected = model.predict_proba(inner)[:, 1]
                np.testing.assert_allclose(learner.predict(new)[fold], expected, atol=0.15)


@pytest.mark.parametrize("name", ["boosting", "extra_trees"])
def test_the_filters_of_warnings_stay(name, monkeypatch):
    """Threads of scikit-learn enter and leave `catch_warnings` in any order, which may remove all filters."""
    from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

    kind: Any = {"boosting": HistGradientBoostingRegressor, "extra_trees": ExtraTreesRegressor}[name]
    original = kind.fit

    def resetting(self, *args, **options):
        warnings.filters.clear()
        warnings.warn("without filters", stacklevel=1)
        return original(self, *args, **options)

    monkeypatch.setattr(kind, "fit", resetting)
    features = draw_features()
    values, folds = draw_values(features, False), np.arange(len(features)) % 3
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        LEARNERS.find(name).fit(features, Labels(values), folds, classes=False, seed=0)
        assert list(warnings.filters) == before
    assert not shown


def test_a_fold_of_one_class_is_predicted_by_it():
    features = draw_features(40)
    values = np.zeros(40)
    values[::2] = 1.0
    learner, unseen = LEARNERS.find("extra_trees").fit(
        features, Labels(values), np.arange(40) % 2, classes=True, seed=0
    )
    # each fold was trained on the other class
    np.testing.assert_allclose(unseen, 1.0 - values, atol=1e-12)
    np.testing.assert_allclose(learner.predict(features[:3]), [[0.0] * 3, [1.0] * 3], atol=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", LEARNERS.names())
def test_a_descriptor_that_is_not_defined_in_any_row_or_in_one_fold_only(name):
    features, folds = draw_features(60), np.arange(60) % 2
    features.descriptors[:, 2] = np.nan
    features.descriptors[folds == 0, 4] = np.nan
    values = draw_values(features, False)
    _, unseen = LEARNERS.find(name).fit(features, Labels(values), folds, classes=False, seed=0)
    assert np.isfinite(unseen).all()


@pytest.mark.parametrize("name", ["boosting", "extra_trees"])
def test_trees_that_never_end_are_refused(name):
    features = draw_features(200)
    learner, _ = LEARNERS.find(name).fit(
        features, Labels(draw_values(features, False)), np.arange(200) % 2, classes=False, seed=0
    )
    arrays = learner.arrays()
    for child in ("to_left", "to_right"):
        offsets = arrays[child].copy()
        offsets[np.flatnonzero(offsets)[3]] = 0  # a node that is its own child
        with pytest.raises(MolsliceError, match="do not describe decision trees"):
            LEARNERS.find(name).from_arrays({**arrays, child: offsets})
        with pytest.raises(MolsliceError, match="the arrays do not describe"):
            LEARNERS.find(name).from_arrays({**arrays, child: offsets.astype(np.int32)})
    arrays.pop("roots")
    with pytest.raises(MolsliceError, match="the arrays do not describe"):
        LEARNERS.find(name).from_arrays(arrays)


@pytest.mark.parametrize("embedding", [False, True])
def test_the_gaussian_process_keeps_the_rows_of_a_pool_and_predicts_the_others(monkeypatch, embedding):
    monkeypatch.setattr("molslice.learners.gaussian_process.MAX_POOL", 40)
    monkeypatch.setattr("molslice.learners.gaussian_process.MAX_ROWS", 20)
    features = draw_features(90, embedding=embedding)
    values, folds = draw_values(features, classes=False), np.arange(90) % 3
    kind = LEARNERS.find("gaussian_process")
    learner, unseen = kind.fit(features, Labels(values), folds, classes=False, seed=0)
    kept = learner.arrays()
    assert len(kept["count_sizes"]) == len(kept["descriptors"]) == len(kept["solved"]) == 40
    assert ((kept["solved"] != 0).sum(0) == 20).all()
    rows = {row.tobytes() for row in kind.from_arrays(kept).rows.counts}
    outside = [row for row in range(90) if features.counts[row].tobytes() not in rows]
    assert len(outside) == 50
    assert np.isfinite(unseen).all()
    expected = learner.predict(features)[folds, np.arange(90)]
    np.testing.assert_allclose(unseen[outside], expected[outside], rtol=1e-9)
    np.testing.assert_allclose(unseen, expected, rtol=1e-4, atol=1e-6)
    assert np.corrcoef(unseen[outside], values[outside])[0, 1] > 0.3
    monkeypatch.setattr("molslice.learners.gaussian_process.MAX_POOL", 90)
    whole, _ = kind.fit(features, Labels(values), folds, classes=False, seed=0)
    np.testing.assert_array_equal(whole.rows.counts, features.counts)
    np.testing.assert_array_equal(kind.from_arrays(whole.arrays()).rows.counts, features.counts)


def test_the_gaussian_process_has_the_mean_of_its_formula():
    """k(x, X) (K + noise I)^-1 y with the weights that the evidence chose, computed entry by entry."""
    features = draw_features(40, embedding=True)
    values, folds = draw_values(features, False), np.arange(40) % 2
    learner, unseen = LEARNERS.find("gaussian_process").fit(
        features, Labels(values), folds, classes=False, seed=0
    )
    new = draw_features(7, embedding=True, seed=9)
    parts = [(features.descriptors, new.descriptors), (features.embedding, new.embedding)]
    kernels = [(loop_min_max(features.counts, features.counts), loop_min_max(new.counts, features.counts))]
    for known, other in parts:
        scores = NormalScores.of(known)
        train, test = scores(known), scores(other)
        scale = 2.0 * train.var(0).sum()
        for factor in (0.25, 1.0, 4.0):
            quadratic = [loop_quadratic(rows, train, factor * scale) for rows in (train, test)]
            kernels.append((quadratic[0], quadratic[1]))
        kernels.append((train @ train.T * 2.0 / scale, test @ train.T * 2.0 / scale))
    draw = np.random.default_rng(0)
    for fold in range(2):
        used = draw.permutation(np.flatnonzero(folds != fold))
        mean, spread = values[used].mean(), values[used].std()
        target = (values[used] - mean) / spread
        weights = None
        for _ in range(2):
            inner = np.stack([kernel[0][np.ix_(used, used)] for kernel in kernels])
            weights = fit_weights(inner, target, start=weights)
        covariance = sum(w * k[0][np.ix_(used, used)] for w, k in zip(weights, kernels, strict=False))
        covariance += (weights[-1] + 1e-4) * np.eye(len(used))
        cross = sum(w * k[1][:, used] for w, k in zip(weights, kernels, strict=False))
        expected = mean + spread * cross @ np.linalg.solve(covariance, target)
        np.testing.assert_allclose(learner.predict(new)[fold], expected, rtol=2e-4, atol=2e-4)
        held = np.flatnonzero(folds == fold)
        np.testing.assert_allclose(unseen[held], learner.predict(features[held])[fold], rtol=1e-4, atol=1e-4)


def loop_min_max(left, right):
    result = np.ones((len(left), len(right)))
    for i, one in enumerate(left.astype(int)):
        for j, other in enumerate(right.astype(int)):
            if np.maximum(one, other).sum():
                result[i, j] = np.minimum(one, other).sum() / np.maximum(one, other).sum()
    return result


def loop_quadratic(left, right, scale):
    return np.array([[1 / (1 + ((a - b) ** 2).sum() / (2 * scale)) for b in right] for a in left])


def test_the_min_max_kernel_is_the_tanimoto_similarity_of_counts():
    draw = np.random.default_rng(0)
    left, right = (draw.poisson(1.0, (n, 30)).astype(np.uint8) for n in (9, 11))
    left[0], right[0] = 0, 0
    np.testing.assert_allclose(min_max_kernel(left, right), loop_min_max(left, right), rtol=1e-6)
    assert min_max_kernel(left[:0], right).shape == (0, 11)
    capped = np.array([[200, 1]], np.uint8)
    assert min_max_kernel(capped, capped)[0, 0] == 1.0


def test_weights_maximize_the_evidence():
    draw = np.random.default_rng(0)
    points = draw.normal(size=(50, 2))
    kernels = [rational_quadratic_kernel(squared_distances(points, points), 1.0), points @ points.T]
    values = draw.multivariate_normal(np.zeros(50), 2.0 * kernels[1] + 0.01 * np.eye(50))
    weights = fit_weights(np.stack(kernels), values)

    def evidence(logs):
        covariance = sum(np.exp(log) * kernel for log, kernel in zip(logs, kernels, strict=False))
        covariance = covariance + (np.exp(logs[-1]) + 1e-4) * np.eye(50)
        quadratic = values @ np.linalg.solve(covariance, values)
        return -0.5 * quadratic - 0.5 * np.linalg.slogdet(covariance)[1] - 0.05 * (logs**2).sum()

    best = evidence(np.log(weights))
    for _ in range(50):
        assert evidence(np.log(weights) + 0.3 * draw.normal(size=3)) <= best + 1e-3
    assert weights[1] > weights[0]
    for logs in (np.log(weights), draw.normal(size=3)):
        found, gradient = negative_evidence(*map(torch.from_numpy, (logs, np.stack(kernels), values)))
        assert float(found) == pytest.approx(-evidence(logs), rel=1e-10)
        steps = 1e-5 * np.eye(3)
        slopes = [(evidence(logs - step) - evidence(logs + step)) / 2e-5 for step in steps]
        np.testing.assert_allclose(gradient.numpy(), slopes, rtol=1e-5, atol=1e-5)
    later = fit_weights(np.stack(kernels), values, weights * np.array([2.0, 0.5, 1.5]))
    assert evidence(np.log(later)) >= best - 1e-2


def test_a_smooth_function_without_noise_is_fitted():
    """Its weights are large and its noise small, so kernels must be positive definite to many digits."""
    draw = np.random.default_rng(1)
    hidden = draw.normal(size=(600, 1))
    features = Features(np.tanh(hidden @ draw.normal(size=(1, 30))), np.ones((600, 4), np.uint8), None)
    values, folds = hidden[:, 0] ** 2, np.arange(600) % 2
    _, unseen = LEARNERS.find("gaussian_process").fit(features, Labels(values), folds, classes=False, seed=0)
    assert np.sqrt(np.mean((unseen - values) ** 2)) < 0.2 * values.std()


def test_the_noise_is_raised_where_the_covariance_is_not_positive_definite():
    draw = np.random.default_rng(0)
    factor = draw.normal(size=(80, 3))
    covariance = factor @ factor.T - 0.003 * np.eye(80)
    values = factor @ draw.normal(size=3)
    found = solve(covariance.copy(), 1e-5, values)
    raised = covariance + 1.1e-2 * np.eye(80)  # (1e-5 + JITTER) * 100
    np.testing.assert_allclose(raised @ found, values, rtol=1e-6, atol=1e-8)
    definite = factor @ factor.T
    kept = solve(definite.copy(), 1e-5, values)
    np.testing.assert_allclose((definite + 1.1e-4 * np.eye(80)) @ kept, values, rtol=1e-6, atol=1e-6)


def test_undefined_values_have_no_influence_on_the_scores_of_others():
    values = np.random.default_rng(0).gamma(2.0, size=(300, 1)) + 5.0
    expected = NormalScores.of(values)(values)
    among = np.concatenate([values, np.full((100, 1), np.nan), np.full((50, 1), np.inf)])
    np.testing.assert_allclose(NormalScores.of(among)(values), expected)


def test_leaves_of_large_tables_have_more_rows(monkeypatch):
    """One more for each 20 rows here: 11, so that the trees on 133 rows have at most 12 leaves."""
    monkeypatch.setattr("molslice.learners.extra_trees.ROWS_PER_LEAF_ROW", 20)
    monkeypatch.setattr("molslice.learners.extra_trees.NUM_TREES", 6)
    features = draw_features(200)
    values = draw_values(features, classes=False)
    learner, _ = LEARNERS.find("extra_trees").fit(
        features, Labels(values), np.arange(200) % 3, classes=False, seed=0
    )
    trees = learner.trees
    leaves = np.flatnonzero(trees.left == np.arange(len(trees.left)))
    counts = np.bincount(np.searchsorted(trees.roots, leaves, "right") - 1)
    assert len(counts) == 6
    assert (counts > 3).all()
    assert (counts <= 134 // 11).all()


def test_normal_scores_are_those_of_scikit_learn():
    from sklearn.preprocessing import QuantileTransformer

    draw = np.random.default_rng(0)
    known = np.stack(
        [draw.normal(size=300), draw.poisson(2.0, 300), np.exp(3 * draw.normal(size=300))], axis=1
    )
    theirs = QuantileTransformer(n_quantiles=200, output_distribution="normal").fit(known).transform(known)
    inner = np.abs(theirs) < 3  # theirs sends the smallest and the largest value to the ends, also with ties
    np.testing.assert_allclose(NormalScores.of(known)(known)[inner], theirs[inner], atol=1e-6)
    assert inner.mean() > 0.9


def test_normal_scores_of_undefined_and_constant_columns_are_zero():
    known = np.array([[1.0, np.nan, 2.0], [2.0, np.nan, 2.0], [np.nan, np.nan, 2.0]])
    scores = NormalScores.of(known)(np.array([[np.nan, 4.0, 2.0], [1.5, np.inf, 2.0]]))
    assert scores[0, 0] == scores[1, 1] == 0.0
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores[:, 2], 0.0, atol=1e-12)


def test_features_of_different_lengths_are_refused():
    with pytest.raises(MolsliceError, match="same number of rows"):
        Features(np.zeros((3, 2)), np.zeros((4, 2), np.uint8))


def test_extra_trees_divide_rows_by_a_descriptor_that_is_missing_or_constant():
    values = np.arange(60) % 2
    descriptors = np.where(values[:, None] > 0, np.nan, 7.0)
    features = Features(descriptors, np.zeros((60, 4), np.uint8))
    _, unseen = LEARNERS.find("extra_trees").fit(
        features, Labels(values.astype(float)), np.arange(60) // 2 % 3, classes=False, seed=0
    )
    np.testing.assert_allclose(unseen, values, atol=1e-6)


@pytest.mark.parametrize("embedding", [False, True])
@pytest.mark.parametrize("name", LEARNERS.names())
def test_arrays_of_earlier_versions_are_read(name, embedding):
    """Trees as their fields, and a Gaussian process as products of weights and solved targets."""
    features, kind = draw_features(60, embedding=embedding), LEARNERS.find(name)
    values, folds = draw_values(features, classes=False), np.arange(60) % 3
    learner: Any = kind.fit(features, Labels(values), folds, classes=False, seed=0)[0]
    if name == "gaussian_process":
        earlier = {
            "descriptors": learner.rows.descriptors,
            "counts": learner.rows.counts,
            "scales": learner.scales,
            "coefficients": learner.weights[:, None] * learner.solved,
            "offsets": learner.offsets,
            **{f"quantiles_{i}": scores.quantiles for i, scores in enumerate(learner.scores)},
            **({"embedding": learner.rows.embedding} if embedding else {}),
        }
    else:
        trees = learner.trees
        tree = np.searchsorted(trees.roots, np.arange(len(trees.value)), "right") - 1
        unit = trees.units[trees.groups[tree]]
        names = ("feature", "threshold", "missing_left", "left", "right", "roots", "groups", "offsets")
        earlier = {field: getattr(trees, field) for field in names} | {"value": trees.value * unit}
        earlier["num_features"] = np.array([learner.num_features])
    again = kind.from_arrays(earlier)
    np.testing.assert_allclose(again.predict(features), learner.predict(features), rtol=1e-9, atol=1e-9)


def test_the_scores_of_an_earlier_gaussian_process_are_not_rounded():
    features = draw_features(40)
    values, folds = draw_values(features, classes=False), np.arange(40) % 2
    learner: Any = LEARNERS.find("gaussian_process").fit(
        features, Labels(values), folds, classes=False, seed=0
    )[0]
    arrays = learner.arrays()
    assert arrays["descriptors"].dtype == np.float16
    moved = arrays["descriptors"].astype(np.float64) + 1e-7
    earlier: Any = LEARNERS.find("gaussian_process").from_arrays({**arrays, "descriptors": moved})
    assert earlier.arrays()["descriptors"].dtype == np.float64
    difference = earlier.predict(features) - learner.predict(features)
    assert 0.0 < np.abs(difference).max() < 1e-2


@pytest.mark.parametrize(
    "damage", ["count_sizes", "many_sizes", "count_columns", "count_values", "count_width", "solved"]
)
def test_damaged_counts_and_weights_are_refused(damage):
    features = draw_features(40)
    values, folds = draw_values(features, classes=False), np.arange(40) % 2
    kind = LEARNERS.find("gaussian_process")
    arrays = kind.fit(features, Labels(values), folds, classes=False, seed=0)[0].arrays()
    changed = {
        "count_sizes": arrays["count_sizes"] + np.uint16(1),
        "many_sizes": np.zeros(100_000_000, np.uint8),
        "count_columns": arrays["count_columns"] + np.uint16(60_000),
        "count_values": arrays["count_values"].astype(np.int16),
        "count_width": np.array([1 << 40]),
        "solved": arrays["solved"][:-1],
    }[damage]
    with pytest.raises(MolsliceError, match="do not describe a Gaussian process"):
        kind.from_arrays({**arrays, damage.replace("many", "count"): changed})


@pytest.mark.parametrize("name", ["boosting", "extra_trees"])
def test_trees_without_the_embedding_predict_molecules_that_have_one(name):
    features = draw_features(60, embedding=True)
    values, folds = draw_values(features, classes=False), np.arange(60) % 3
    learner = LEARNERS.find(name).fit(
        features.without_embedding(), Labels(values), folds, classes=False, seed=0
    )[0]
    expected = learner.predict(features.without_embedding())
    np.testing.assert_array_equal(learner.predict(features), expected)


def test_a_fitted_forest_takes_less_than_ten_bytes_for_a_node():
    features = draw_features(400)
    values, folds = draw_values(features, classes=False), np.arange(400) % 2
    learner: Any = LEARNERS.find("extra_trees").fit(features, Labels(values), folds, classes=False, seed=0)[0]
    stored = sum(array.nbytes for array in learner.arrays().values())
    assert stored < 10 * len(learner.trees.value)


@pytest.mark.parametrize("name", LEARNERS.names())
def test_rows_of_class_1_that_count_more_raise_its_scores(name):
    features = draw_features(80)
    values = draw_values(features, True)
    folds = np.arange(80) % 2
    learner = LEARNERS.find(name)
    fitted = {
        weight: learner.fit(
            features, Labels(values, weights=np.where(values > 0.5, weight, 1.0)), folds, classes=True, seed=0
        )[1]
        for weight in (1.0, 2.0, 20.0)
    }
    unweighted = learner.fit(features, Labels(values), folds, classes=True, seed=0)[1]
    np.testing.assert_allclose(fitted[1.0], unweighted, atol=1e-9)
    assert unweighted.mean() < fitted[2.0].mean() < fitted[20.0].mean()


def test_a_row_that_counts_twice_has_half_of_the_noise():
    draw = np.random.default_rng(0)
    covariance, values = np.cov(draw.normal(size=(6, 20))), draw.normal(size=6)
    noise = np.linspace(0.1, 0.6, 6)
    expected = np.linalg.solve(covariance + np.diag(noise + JITTER), values)
    np.testing.assert_allclose(solve(covariance.copy(), noise, values), expected, rtol=1e-9)


def test_boosting_takes_its_settings():
    from sklearn.ensemble import HistGradientBoostingRegressor

    features = draw_features(200)
    values, folds = draw_values(features, False), np.arange(200) % 2
    settings = {"learning_rate": 0.05, "trees": 20, "leaves": 7, "least_rows": 5, "columns": 0.3}
    learner, _ = LEARNERS.find("boosting").fit(
        features, Labels(values), folds, classes=False, seed=3, **settings
    )
    columns = splittable_columns(features.matrix(), 5)
    model: Any = HistGradientBoostingRegressor(learning_rate=0.05, max_iter=20, max_leaf_nodes=7)
    model.set_params(min_samples_leaf=5, max_features=0.3, max_bins=BINS, random_state=3)
    model.set_params(early_stopping=False)
    learned, mean, spread = standardize(values[folds != 0])
    model.fit(features.matrix()[folds != 0][:, columns], learned)
    expected = model.predict(features.matrix()[:, columns]) * spread + mean
    np.testing.assert_allclose(learner.predict(features)[0], expected, rtol=1e-9, atol=1e-9)


def test_extra_trees_take_their_settings(monkeypatch):
    monkeypatch.setattr("molslice.learners.extra_trees.NUM_TREES", 20)
    features = draw_features(200)
    values, folds = draw_values(features, False), np.arange(200) % 2
    fits = {
        rows: LEARNERS.find("extra_trees").fit(
            features, Labels(values), folds, classes=False, seed=0, least_rows=rows, columns=1.0
        )[0]
        for rows in (1, 20)
    }
    assert len(fits[1].trees.value) > 100
    leaves = (fits[20].trees.left == np.arange(len(fits[20].trees.left))).sum()
    assert 20 < leaves <= 20 * 100 / 20  # of 20 trees, each for 100 rows


@pytest.mark.parametrize(("kernels", "unused"), [("counts", "descriptors"), ("scores", "counts")])
def test_a_process_without_some_kernels_does_not_see_their_features(kernels, unused):
    features, folds = draw_features(), np.arange(60) % 3
    labels = Labels(draw_values(features, False))
    kind = LEARNERS.find("gaussian_process")
    learner, unseen = kind.fit(features, labels, folds, classes=False, seed=0, kernels=kernels)
    other = draw_features(seed=5)
    changed = dataclasses.replace(features, **{unused: getattr(other, unused)})
    np.testing.assert_allclose(learner.predict(changed), learner.predict(features), rtol=1e-12)
    again = kind.fit(changed, labels, folds, classes=False, seed=0, kernels=kernels)[1]
    np.testing.assert_allclose(again, unseen, rtol=1e-12)
    assert np.abs(unseen - kind.fit(features, labels, folds, classes=False, seed=0)[1]).max() > 1e-3
    expected = learner.predict(features)[folds, np.arange(60)]
    np.testing.assert_allclose(unseen, expected, rtol=1e-4, atol=1e-6)
    restored = kind.from_arrays(learner.arrays())
    np.testing.assert_array_equal(restored.predict(features), learner.predict(features))


def test_a_process_without_the_embedding_takes_features_with_it():
    features, folds = draw_features(embedding=True), np.arange(60) % 3
    plain = features.without_embedding()
    learner, _ = LEARNERS.find("gaussian_process").fit(
        plain, Labels(draw_values(features, False)), folds, classes=False, seed=0
    )
    np.testing.assert_array_equal(learner.predict(features), learner.predict(plain))


def test_the_noise_has_a_floor_and_the_prior_a_strength():
    """Values without noise: the evidence alone would choose a small one."""
    draw = np.random.default_rng(0)
    points = draw.normal(size=(40, 2))
    kernels = rational_quadratic_kernel(squared_distances(points, points), 1.0)[None]
    values = standardize(points[:, 0])[0]
    free = fit_weights(kernels, values)
    bounded = fit_weights(kernels, values, least_noise=0.2)
    assert free[-1] < 0.05 < bounded[-1] == pytest.approx(0.2)
    drawn = fit_weights(kernels, values, prior=100.0)
    assert np.abs(np.log(drawn)).max() < np.abs(np.log(free)).max() / 2
