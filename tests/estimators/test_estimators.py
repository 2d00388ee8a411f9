import gc
import io
import json
import pickle
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from rdkit import Chem
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import has_fit_parameter

import molslice
from molslice.estimators import MolsliceClassifier, MolsliceFeaturizer, MolsliceRegressor
from molslice.fitting.fit import fit
from molslice.inference.load import load_encoder, load_model
from molslice.types import MolsliceError
from tests.inference.models import TWO, checkpoint_folder, embedded_smiles

ROWS = 24
FAST = {"encoder": None, "members": 2, "random_state": 0}
SMILES = embedded_smiles(ROWS)
SIZE = np.array([len(text) for text in SMILES], float)
BIG = np.array(["no", "yes"])[(np.median(SIZE) < SIZE).astype(int)]


@pytest.fixture(scope="module")
def regressor():
    return MolsliceRegressor(**FAST).fit(SMILES, SIZE)


@pytest.fixture(scope="module")
def classifier():
    return MolsliceClassifier(**FAST).fit(SMILES, BIG)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return checkpoint_folder(tmp_path_factory.mktemp("encoder"))


@pytest.mark.parametrize("kind", [MolsliceRegressor, MolsliceClassifier])
def test_a_failed_fit_changes_nothing(kind):
    y = SIZE if kind is MolsliceRegressor else BIG
    model = kind(**FAST).fit(SMILES, y)
    before = model.predict(SMILES[:3])
    constant = np.zeros((ROWS, 2)) if kind is MolsliceRegressor else np.array([["a", "b"]] * ROWS)
    with pytest.raises(MolsliceError):
        model.fit(SMILES, constant)
    np.testing.assert_array_equal(model.predict(SMILES[:3]), before)


@pytest.mark.parametrize("kind", [MolsliceRegressor, MolsliceClassifier])
def test_a_second_fit_replaces_the_model_of_the_first(kind):
    y = SIZE if kind is MolsliceRegressor else BIG
    model = kind(**FAST).fit(SMILES, y)
    before = model.predict(SMILES)  # the model is loaded and kept
    model.fit(SMILES[::-1], y)
    after = model.predict(SMILES)
    assert (before != after).any()
    np.testing.assert_array_equal(after, kind(**FAST).fit(SMILES[::-1], y).predict(SMILES))


def test_the_names_are_exported():
    assert molslice.MolsliceRegressor is MolsliceRegressor
    assert molslice.MolsliceClassifier is MolsliceClassifier
    assert molslice.MolsliceFeaturizer is MolsliceFeaturizer


@pytest.mark.parametrize(
    "form",
    [
        np.array,
        pd.Series,
        pl.Series,
        lambda rows: pd.DataFrame({"smiles": rows}),
        lambda rows: np.array(rows, object)[:, None],
        lambda rows: [Chem.MolFromSmiles(text) for text in rows],
    ],
)
def test_every_form_of_molecules_gives_the_same_model(form, regressor):
    found = MolsliceRegressor(**FAST).fit(form(SMILES), SIZE)
    np.testing.assert_array_equal(found.predict(form(SMILES)), regressor.predict(SMILES))
    assert found.score(form(SMILES), SIZE) > 0.5


def test_the_model_is_that_of_fit(regressor, tmp_path):
    table = tmp_path / "in.csv"
    frame = pd.DataFrame({"smiles": SMILES, "y": SIZE, "split": "train"})
    frame.to_csv(table, index=False)
    molslice.fit(table, "y", tmp_path / "model", split="split", encoder=None, members=2, quiet=True)
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(SMILES), regressor.predict(SMILES))


def test_one_molecule_and_unreadable_rows(regressor, classifier):
    (expected,) = regressor.predict(["CCO"])
    assert regressor.predict("CCO").tolist() == [expected]
    found = regressor.predict(["CCO", "C(", None, "CCO"])
    np.testing.assert_array_equal(found, [expected, np.nan, np.nan, expected])
    labels = classifier.predict(["CCO", None])
    assert (labels[0] in BIG, labels[1]) == (True, None)
    assert np.isnan(classifier.predict_proba(["CCO", None])[1]).all()
    numeric = MolsliceClassifier(**FAST).fit(SMILES, (BIG == "yes").astype(int))
    assert np.isnan(numeric.predict(["CCO", None])[1])
    assert numeric.predict(SMILES).dtype.kind == "i"


def test_unreadable_rows_are_left_out_of_the_fit_with_a_warning(regressor):
    with pytest.warns(UserWarning, match="left out of the fit: 2 no SMILES given; 1 not valid SMILES"):
        found = MolsliceRegressor(**FAST).fit(["C(", *SMILES, None, None], [0.0, *SIZE, 0.0, 0.0])
    np.testing.assert_array_equal(found.predict(SMILES), regressor.predict(SMILES))


def test_classes_keep_their_names(classifier):
    assert classifier.classes_.tolist() == ["no", "yes"]
    probable = classifier.predict_proba(SMILES)
    np.testing.assert_allclose(probable.sum(1), 1.0)
    np.testing.assert_array_equal(classifier.predict(SMILES), classifier.classes_[probable.argmax(1)])
    assert classifier.score(SMILES, BIG) > 0.8


def test_several_outputs():
    y = np.stack([SIZE, -SIZE], axis=1)
    y[::3, 1] = np.nan
    found = MolsliceRegressor(**FAST).fit(SMILES, y)
    predicted = found.predict(SMILES)
    assert predicted.shape == (ROWS, 2)
    assert np.corrcoef(predicted.T)[0, 1] < -0.5
    assert found.predict_interval(SMILES, 0.8).shape == (ROWS, 2, 2)
    labels = np.stack([BIG, BIG[::-1]], axis=1)
    several = MolsliceClassifier(**FAST).fit(SMILES, labels)
    assert [found.tolist() for found in several.classes_] == [["no", "yes"]] * 2
    assert several.predict(SMILES).shape == (ROWS, 2)
    first, second = several.predict_proba(SMILES)
    assert first.shape == second.shape == (ROWS, 2)
    np.testing.assert_array_equal(several.predict(SMILES)[:, 1], np.array(["no", "yes"])[second.argmax(1)])


def test_intervals_hold_the_prediction_and_grow_with_the_coverage(regressor, classifier, tmp_path):
    regressor.save(tmp_path / "model")
    expected = load_model(tmp_path / "model").predict_with_errors(SMILES, interval=0.8)
    narrow, wide = (regressor.predict_interval(SMILES, coverage) for coverage in (0.5, 0.9))
    found = regressor.predict_interval(SMILES, 0.8)
    np.testing.assert_array_equal(found, np.concatenate([expected.lower, expected.upper], axis=1))
    assert (np.diff(narrow) < np.diff(wide)).all()
    sets = classifier.predict_set(SMILES, 0.7)
    assert (sets.shape, sets.dtype) == ((ROWS, 2), bool)
    classifier.save(tmp_path / "classes")
    expected = load_model(tmp_path / "classes").predict_with_errors(SMILES, interval=0.7)
    np.testing.assert_array_equal(sets, expected.sets[:, 0])
    with pytest.raises(MolsliceError, match="0.9999"):
        classifier.predict_set(SMILES, 0.9999)
    with pytest.raises(MolsliceError, match="0.9999"):
        regressor.predict_interval(SMILES, 0.9999)
    assert np.isnan(regressor.predict_interval(["C("])).all()


def test_an_estimator_leaves_no_folder_behind(regressor, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = pickle.loads(pickle.dumps(regressor))
    found.predict(["CCO"])
    assert len(list(tmp_path.iterdir())) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a folder that is removed by chance
        del found
        gc.collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("kind", "y"), [(MolsliceRegressor, SIZE), (MolsliceClassifier, BIG)])
def test_sample_weights_are_the_column_of_weights(kind, y, tmp_path):
    weights = 1.0 + np.arange(ROWS) % 4
    model = kind(**FAST).fit(SMILES, y, sample_weight=weights)
    table = pd.DataFrame(
        {"smiles": SMILES, "y": np.unique(y, return_inverse=True)[1] if y is BIG else y, "w": weights}
    )
    options = {"weight": "w", "kind": model.about_["targets"]["kind"], "outliers": "keep"}
    expected = fitted_by_table(table, tmp_path, **options).predict(SMILES)
    predicted = model.predict(SMILES) if kind is MolsliceRegressor else model.predict_proba(SMILES)[:, 1]
    np.testing.assert_array_equal(predicted, expected)
    plain = kind(**FAST).fit(SMILES, y)
    assert plain.about_["results"][0] != model.about_["results"][0]


def test_a_row_of_weight_zero_is_left_out():
    weights = np.ones(ROWS)
    weights[:2] = 0.0
    model = MolsliceRegressor(**FAST).fit(SMILES, SIZE, sample_weight=weights.tolist())
    assert model.about_["rows"]["train"] == ROWS - 2
    fewer = MolsliceRegressor(**FAST).fit(SMILES[2:], SIZE[2:], sample_weight=weights[2:])
    np.testing.assert_array_equal(model.predict(SMILES), fewer.predict(SMILES))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * (ROWS - 1) + [-1.0], "Negative values in data passed to `sample_weight`"),
        ([1.0] * (ROWS - 1), "sample_weight.shape"),
        ([1.0] * (ROWS - 1) + [np.nan], "sample_weight contains NaN"),
    ],
)
def test_weights_that_have_no_meaning_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        MolsliceRegressor(**FAST).fit(SMILES, SIZE, sample_weight=weights)


def test_a_featurizer_has_no_sample_weights():
    assert not has_fit_parameter(MolsliceFeaturizer(), "sample_weight")
    assert all(has_fit_parameter(kind(), "sample_weight") for kind in (MolsliceRegressor, MolsliceClassifier))


@pytest.fixture
def one_epoch(monkeypatch):
    for name in ("MIN_EPOCHS", "MAX_EPOCHS"):
        monkeypatch.setattr(f"molslice.training.duration.{name}", 1)


def test_an_encoder_is_fine_tuned_and_travels_with_the_estimator(encoder, one_epoch, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_WEIGHT", 0.0)
    best = {"quality": "best", "members": 2, "random_state": 0}
    found = MolsliceRegressor(encoder=encoder, **best).fit(SMILES, SIZE)
    assert "fine_tuned" in found.about_["results"][0]["weights"]
    assert {"encoder/model.safetensors", "networks/fold0/model.safetensors"} <= {*found.folder_}
    expected = found.predict(SMILES)
    found.encoder = tmp_path / "gone"  # the copy in the estimator is used
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).predict(SMILES), expected)
    assert found.predict_interval(SMILES, 0.8).shape == (ROWS, 2)
    with pytest.raises(MolsliceError, match="gone"):
        MolsliceRegressor(encoder=tmp_path / "gone", members=2).fit(SMILES, SIZE)


@pytest.mark.exhaustive
def test_fits_with_an_encoder_again_of_classes_and_in_cross_validation(encoder, one_epoch):
    model = MolsliceRegressor(encoder=encoder, members=2, random_state=0)
    one, two = (clone(model).fit(SMILES, SIZE).predict(SMILES) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    classes = MolsliceClassifier(encoder=encoder, members=2, random_state=0).fit(SMILES, BIG)
    assert classes.predict_proba(SMILES).shape == (ROWS, 2)
    assert np.isfinite(cross_val_score(model, SMILES, SIZE, cv=2, error_score="raise")).all()


def test_clone_and_parameters():
    found = clone(MolsliceRegressor(**FAST, n_jobs=2, minutes=1.5, duplicates="keep", fragment="largest"))
    assert found.get_params() == {
        **{"encoder": None, "members": 2, "random_state": 0, "n_jobs": 2},
        **{
            "minutes": 1.5,
            "tune": None,
            "smiles_column": None,
            "symmetric": False,
            "duplicates": "keep",
            "fragment": "largest",
            "wildcards": "refuse",
            "scale": None,
        },
        **{"standardize": "no", "quality": "good"},
        **{"outliers": "refuse", "limits": "learn", "conditions": (), "related": ()},
    }
    assert found.set_params(members=3).members == 3
    with pytest.raises(NotFittedError):
        found.predict(["CCO"])


def test_both_estimators_have_the_common_parameters():
    numbers, classes = (
        set(kind().get_params()) - special
        for kind, special in (
            (MolsliceRegressor, {"scale", "outliers", "limits"}),
            (MolsliceClassifier, {"class_weight", "ordered"}),
        )
    )
    assert numbers == classes
    given = {"quality": "fast", "standardize": "neutral", "conditions": ("t",)}
    assert given.items() <= MolsliceClassifier(**given).get_params().items()


def test_the_scale_reaches_the_fit():
    assert "scale" not in MolsliceClassifier().get_params()
    found = MolsliceRegressor(**FAST, scale="log").fit(SMILES, SIZE)
    assert "y: learned as its logarithm" in found.about_["findings"]
    assert found.about_["options"]["scale"] == "log"


def test_values_far_outside_are_refused_until_the_user_decides():
    odd = SIZE.copy()
    odd[3:5] = -999
    with pytest.raises(MolsliceError) as caught:
        MolsliceRegressor(**FAST).fit(SMILES, odd)
    assert str(caught.value).startswith(
        "the molecules, column 'y': -999 in 2 rows (position 3, position 4): far"
    )
    assert str(caught.value).endswith("give only the other rows; if it is right, give outliers='keep'")
    with pytest.raises(MolsliceError, match="column 'y1': -999 in 2 rows .* give NaN; if it is right"):
        MolsliceRegressor(**FAST).fit(SMILES, np.stack([SIZE, odd], axis=1))
    kept = MolsliceRegressor(outliers="keep", **FAST).fit(SMILES, odd)
    assert kept.about_["notices"][0].startswith("y: -999 in 2 rows")


@pytest.mark.parametrize(
    ("y", "names"),
    [
        (pd.Series(SIZE, name="length"), ["length"]),
        (pl.Series("length", SIZE), ["length"]),
        (pd.DataFrame({"length": SIZE, "smiles": -SIZE}), ["length", "smiles_"]),
        (pd.DataFrame({"smiles": SIZE, "smiles_": -SIZE}), ["smiles__", "smiles_"]),
        (pd.DataFrame({0: SIZE, 1: -SIZE}), ["y0", "y1"]),
        (pd.Series(SIZE), ["y"]),
    ],
    ids=["pandas", "polars", "taken", "made", "numbers", "unnamed"],
)
def test_targets_have_the_names_of_a_series_or_a_frame(y, names, regressor):
    model = MolsliceRegressor(**FAST).fit(SMILES, y)
    assert model.about_["targets"]["names"] == tuple(names)
    if len(names) == 1:
        np.testing.assert_array_equal(model.predict(SMILES), regressor.predict(SMILES))


def test_a_class_of_a_saved_model_has_the_name_of_its_series(tmp_path):
    MolsliceClassifier(**FAST).fit(SMILES, pd.Series(BIG, name="big")).save(tmp_path / "model")
    assert load_model(tmp_path / "model").columns == ("big_yes",)


def fitted_by_table(frame, folder, target="y", **options):
    """Fit to columns of a DataFrame as `molslice fit` does, and return the model."""
    frame.to_csv(folder / "table.csv", index=False)
    given = {"encoder": None, "members": FAST["members"], "seed": FAST["random_state"], "quiet": True}
    fit(folder / "table.csv", target, folder / "model", split="all", **given, **options)
    return load_model(folder / "model")


@pytest.mark.parametrize("limits", ["learn", "drop", "exact"])
def test_limits_are_learned_as_in_a_table(limits, tmp_path):
    y = [
        *map(float, SIZE[:-6]),
        *(f"> {size:.0f}" for size in SIZE[-6:-3]),
        *(f"<{size}" for size in SIZE[-3:]),
    ]
    model = MolsliceRegressor(limits=limits, **FAST).fit(SMILES, pd.Series(y, index=range(5, 5 + ROWS)))
    expected = fitted_by_table(pd.DataFrame({"smiles": SMILES, "y": y}), tmp_path, limits=limits)
    np.testing.assert_array_equal(model.predict(SMILES), expected.predict(SMILES))


def test_limits_of_several_columns_and_missing_values(tmp_path):
    y = np.stack([SIZE, -SIZE], axis=1).astype(object)
    y[2, 0], y[3, 1], y[4, 1] = ">=30", None, "< -5"
    model = MolsliceRegressor(**FAST).fit(SMILES, y)
    names = ["y0", "y1"]
    table = pd.DataFrame({"smiles": SMILES, **dict(zip(names, y.T, strict=True))})
    expected = fitted_by_table(table, tmp_path, names)
    np.testing.assert_array_equal(model.predict(SMILES), expected.predict(SMILES))


def test_a_text_that_is_no_number_is_refused():
    words = list(map(str, SIZE))
    words[3] = "n.d."
    with pytest.raises(ValueError, match="could not convert string to float: 'n.d.'"):
        MolsliceRegressor(**FAST).fit(SMILES, words)
    with pytest.raises(MolsliceError, match=r"position 3, column 'y': 'n\.d\.' is not a number"):
        MolsliceRegressor(**FAST).fit(SMILES, [">10", *words[1:]])


def test_standard_errors_are_the_column_of_errors(tmp_path):
    errors = np.where(np.arange(ROWS) % 3 == 0, 4.0, 0.1)
    errors[5] = np.nan
    model = MolsliceRegressor(**FAST).fit(SMILES, SIZE, standard_error=errors)
    table = pd.DataFrame({"smiles": SMILES, "y": SIZE, "se": errors})
    expected = fitted_by_table(table, tmp_path, error="se")
    np.testing.assert_array_equal(model.predict(SMILES), expected.predict(SMILES))
    assert (model.predict(SMILES) != MolsliceRegressor(**FAST).fit(SMILES, SIZE).predict(SMILES)).any()


def test_standard_errors_have_the_shape_of_y():
    with pytest.raises(ValueError, match=r"standard_error has the shape \(3,\), but y \(24,\)"):
        MolsliceRegressor(**FAST).fit(SMILES, SIZE, standard_error=[0.1] * 3)
    with pytest.raises(
        ValueError, match=r"standard_error is -1\.0 at position 3, expected a positive number"
    ):
        MolsliceRegressor(**FAST).fit(SMILES, SIZE, standard_error=[0.5] * 3 + [-1.0] * (ROWS - 3))


@pytest.mark.parametrize("symmetric", [False, True])
def test_pairs_are_two_columns_of_a_frame(symmetric, tmp_path):
    frame = pd.DataFrame({"solute": SMILES, "solvent": ["CCO", "CCCCCC"] * (ROWS // 2)})
    names = ["solute", "solvent"]
    model = MolsliceRegressor(smiles_column=names, symmetric=symmetric, **FAST).fit(frame, SIZE)
    expected = fitted_by_table(
        frame.assign(y=SIZE), tmp_path, smiles_column=names, symmetric=symmetric
    ).predict(frame)
    np.testing.assert_array_equal(model.predict(frame[["solvent", "solute"]]), expected)
    assert model.predict_interval(frame, 0.5).shape == (ROWS, 2)
    with pytest.raises(MolsliceError, match="DataFrame with the columns solute"):
        clone(model).fit(SMILES, SIZE)
    with pytest.raises(MolsliceError, match="takes the conditions solvent, got no values of them"):
        model.predict(SMILES)
    odd = frame.copy()
    odd.loc[3, "solvent"] = None
    with pytest.warns(UserWarning, match="left out of the fit: 1 no SMILES given"):
        assert np.isnan(clone(model).fit(odd, SIZE).predict(odd)[3])


def test_one_of_several_columns_of_smiles(regressor):
    frame = pd.DataFrame({"first": SMILES, "second": SMILES[::-1], "temperature": 1.0 + np.arange(ROWS)})
    model = MolsliceRegressor(smiles_column="second", **FAST).fit(frame, SIZE[::-1])
    plain = MolsliceRegressor(**FAST).fit(SMILES[::-1], SIZE[::-1])
    np.testing.assert_array_equal(model.predict(frame), plain.predict(SMILES[::-1]))
    np.testing.assert_array_equal(model.predict(SMILES), plain.predict(SMILES))
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(frame), model.predict(frame))
    hot = MolsliceRegressor(smiles_column="first", conditions="temperature", **FAST).fit(frame, SIZE)
    assert hot.predict(frame).shape == (ROWS,)


def test_a_classifier_of_pairs():
    frame = pd.DataFrame({"drug": SMILES, "former": SMILES[::-1]})
    model = MolsliceClassifier(smiles_column=("drug", "former"), **FAST).fit(frame, BIG)
    np.testing.assert_allclose(model.predict_proba(frame).sum(1), 1.0)


def test_parameters_reach_the_fit():
    salts = [f"{text}.Cl" for text in SMILES]
    found = MolsliceRegressor(**FAST, fragment="largest").fit(salts, SIZE)
    assert (found.about_["fragment"], found.about_["replaced"]) == ("largest", ROWS)
    np.testing.assert_array_equal(found.predict(salts), found.predict(SMILES))
    assert found.about_["options"]["members"] == 2
    two = [MolsliceRegressor(encoder=None, members=2, random_state=seed).fit(SMILES, SIZE) for seed in (1, 2)]
    assert (two[0].predict(SMILES) != two[1].predict(SMILES)).any()
    state = np.random.RandomState(3)
    seeds = {MolsliceRegressor(random_state=state)._seed() for _ in range(5)}
    assert len(seeds) == 5
    with pytest.raises(MolsliceError, match="members must be from 2 to 20"):
        MolsliceRegressor(encoder=None, members=1).fit(SMILES, SIZE)


def test_a_pickle_holds_the_files_and_loads_in_another_process(regressor, tmp_path):
    data = pickle.dumps(regressor)
    np.testing.assert_array_equal(pickle.loads(data).predict(SMILES[:3]), regressor.predict(SMILES[:3]))
    assert pickle.dumps(pickle.loads(data)) == data
    assert tempfile.gettempdir().encode() not in data  # no path, which another machine would not have
    assert all(type(content) is bytes for content in regressor.folder_.values())
    (tmp_path / "model.pickle").write_bytes(data)
    program = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).predict(['CCO'])[0])"
    command = [sys.executable, "-c", program, str(tmp_path / "model.pickle")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(run.stdout) == pytest.approx(regressor.predict(["CCO"])[0], abs=1e-6)


def test_the_saved_folder_is_a_model_of_the_command_line(regressor, tmp_path, capsys):
    regressor.save(tmp_path / "model")
    assert molslice.load_model(tmp_path / "model").predict("CCO") == regressor.predict("CCO").astype("f4")
    from molslice.cli import main

    assert main(["predict", str(tmp_path / "model"), "--smiles", "CCO", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["targets"][0]["name"] == "y"
    with pytest.raises(MolsliceError, match="exists"):
        regressor.save(tmp_path / "model")


def test_search_and_cross_validation():
    search = GridSearchCV(MolsliceRegressor(**FAST), {"members": [2, 3]}, cv=KFold(2), error_score="raise")
    search.fit(pd.Series(SMILES), SIZE)
    assert search.best_params_["members"] in (2, 3)
    assert search.predict(["CCO"]).shape == (1,)
    scores = cross_val_score(MolsliceClassifier(**FAST), SMILES, BIG, cv=2, error_score="raise")
    assert scores.shape == (2,)
    assert scores.mean() > 0.6


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (SMILES, None, "requires y to be passed"),
        (SMILES, SIZE[:-1], "inconsistent numbers of samples"),
        (SMILES, [np.nan, *SIZE[1:]], "contains NaN"),
        (SMILES, [np.inf, *SIZE[1:]], "infinity"),
        (SMILES[:3], SIZE[:3], "n_samples = 3: a fit needs at least 5"),
        (["C("] * ROWS, SIZE, "the molecules: none of the 24 SMILES can be read"),
        (SMILES, np.ones(ROWS), "the molecules, column 'y': the target is 1 in every training row"),
        (b"CCO", SIZE, "molecules must be a SMILES"),
    ],
)
def test_data_that_cannot_be_used_are_refused_in_words(X, y, message):
    with pytest.raises(ValueError, match=message):
        MolsliceRegressor(**FAST).fit(X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a"] * ROWS, "two classes are needed, got one class"),
        (
            [["a", "b"], ["b", "c"], ["a", "d"]] * 8,
            "each of several columns needs two classes, got 3 classes",
        ),
        (["a", "b", *["c", "d"] * 11], "trained without the class 'a' of 'y'"),
        (SIZE + 0.5, "Unknown label type: continuous"),
        (None, "requires y to be passed"),
    ],
)
def test_other_classes_are_refused_in_words(y, message):
    with pytest.raises(ValueError, match=message):
        MolsliceClassifier(**FAST).fit(SMILES, y)


def test_the_featurizer_gives_the_fingerprints_of_its_model(encoder):
    found = MolsliceFeaturizer(encoder)
    features = found.fit_transform(SMILES)
    np.testing.assert_array_equal(features, load_encoder(encoder).embed(SMILES))
    names = found.get_feature_names_out()
    assert names.tolist() == [f"molslicefeaturizer{place}" for place in range(features.shape[1])]
    frame = found.set_output(transform="pandas").transform(
        pd.DataFrame({"smiles": SMILES[:3]}, index=[7, 8, 9])
    )
    assert frame.index.tolist() == [7, 8, 9]
    assert frame.columns.tolist() == names.tolist()
    assert np.isnan(frame.to_numpy()).sum() == 0
    assert np.isnan(found.transform(["C(", "CCO"]).to_numpy()).all(axis=1).tolist() == [True, False]
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.transform(SMILES).to_numpy(), features)


def test_the_featurizer_in_a_pipeline_with_other_columns(encoder):
    frame = pd.DataFrame({"smiles": SMILES, "weight": SIZE})
    both = ColumnTransformer(
        [("molecule", MolsliceFeaturizer(encoder), ["smiles"]), ("as is", "passthrough", ["weight"])]
    )
    model = make_pipeline(both, Ridge()).fit(frame, SIZE)
    assert model.score(frame, SIZE) > 0.9
    search = GridSearchCV(
        make_pipeline(MolsliceFeaturizer(encoder), HistGradientBoostingRegressor(max_iter=3)),
        {"molslicefeaturizer__fragment": ["keep", "largest"]},
        cv=2,
        error_score="raise",
    )
    assert search.fit(SMILES, SIZE).predict(["CCO"]).shape == (1,)


def test_the_featurizer_follows_its_parameters(encoder, tmp_path):
    found = MolsliceFeaturizer(encoder)
    kept = found.transform(["CCO.Cl"])
    alone = found.set_params(fragment="largest").transform(["CCO.Cl"])
    np.testing.assert_array_equal(alone, found.transform(["CCO"]))
    assert (alone != kept).any()
    folder = checkpoint_folder(tmp_path / "gin", TWO, model={"name": "gin_virtual"})
    with pytest.raises(MolsliceError, match="has no embedding"):
        found.set_params(model=folder).fit(["CCO"])
    assert MolsliceFeaturizer().fit_transform(["CCO"]).shape == (
        1,
        load_encoder("encoder-small").embed("C").shape[1],
    )


@pytest.mark.parametrize("kind", [MolsliceRegressor, MolsliceClassifier])
def test_groups_are_in_one_fold(kind):
    groups = [f"p{place % 8}" for place in range(ROWS - 1)] + [None]
    model = kind(**FAST).fit(SMILES, SIZE if kind is MolsliceRegressor else BIG, groups=groups)
    assert any(
        "groups: column 'group', 8 in 24 rows; 1 row without a group" in text
        for text in model.about_["findings"]
    )
    rows = pd.read_csv(io.BytesIO(model.folder_["rows.csv"]))
    folds = dict(zip(rows["smiles"], rows["fold"], strict=True))
    pairs = {(group, folds[text]) for group, text in zip(groups, SMILES, strict=True)}
    assert len(pairs) == 9
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        kind(**FAST).fit(SMILES, SIZE if kind is MolsliceRegressor else BIG, groups=groups[:-1])


def test_a_condition_named_group_is_beside_the_groups():
    table = pd.DataFrame({"smiles": SMILES, "group": np.arange(ROWS) % 3})
    groups = [f"p{place % 8}" for place in range(ROWS)]
    model = MolsliceClassifier(**FAST, conditions="group").fit(table, BIG, groups=groups)
    assert any("groups: column 'group_', 8 in 24 rows" in text for text in model.about_["findings"])
    assert [condition["name"] for condition in model.about_["conditions"]] == ["group"]
    assert model.predict(table).shape == (ROWS,)


def test_without_groups_nothing_is_said_about_them(regressor):
    assert "groups" not in regressor.about_["options"]
    assert not any(text.startswith("groups:") for text in regressor.about_["findings"])


@pytest.mark.parametrize("ordered", [False, True])
def test_three_classes_have_a_probability_each(ordered, tmp_path):
    thirds = np.array([30, 10, 20])[np.argsort(np.argsort(SIZE)) // 8]
    model = MolsliceClassifier(**FAST, ordered=ordered, class_weight="balanced").fit(SMILES, thirds)
    assert model.classes_.tolist() == [10, 20, 30]
    probable = model.predict_proba([*SMILES, "C("])
    assert probable.shape == (ROWS + 1, 3)
    np.testing.assert_allclose(probable[:-1].sum(1), 1.0, atol=1e-6)
    chosen = model.predict(SMILES)
    place = (probable[:-1].cumsum(1) < 0.5).sum(1) if ordered else probable[:-1].argmax(1)
    np.testing.assert_array_equal(chosen, model.classes_[place])
    assert model.score(SMILES, thirds) > 0.5
    assert np.isnan(model.predict(["C(", "CCO"])).tolist() == [True, False]
    assert model.predict_set(SMILES, 0.7).shape == (ROWS, 3)
    assert model.about_["options"]["class_weight"] == "balanced"
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(SMILES), probable[:-1].astype("f4"))
    assert loaded.columns == ("y_10", "y_20", "y_30")
    assert loaded.predict_with_errors(SMILES).labels == [(str(label),) for label in chosen]


def test_words_have_the_given_order():
    names = np.array(["low", "medium", "high"])
    ranks = np.argsort(np.argsort(SIZE)) // 8
    by_number = MolsliceClassifier(**FAST, ordered=True).fit(SMILES, ranks)
    model = MolsliceClassifier(**FAST, ordered=["low", "medium", "high"]).fit(SMILES, names[ranks])
    assert model.classes_.tolist() == ["high", "low", "medium"]
    order = [2, 0, 1]  # of the ascending classes
    np.testing.assert_array_equal(model.predict_proba(SMILES), by_number.predict_proba(SMILES)[:, order])
    np.testing.assert_array_equal(
        model.predict_set(SMILES, 0.7), by_number.predict_set(SMILES, 0.7)[:, order]
    )
    np.testing.assert_array_equal(model.predict(SMILES), names[by_number.predict(SMILES)])
    assert model.predict(["C(", "CCO"])[0] is None


@pytest.mark.parametrize(
    ("labels", "column", "positive"),
    [
        (["No", "yes"], "y_yes", True),
        (["yes", "No"], "y_yes", False),
        ([1, 2], "y_2", True),
        ([10.0, 9.0], "y_10.0", False),
        ([False, True], "y", True),
        ([0, 1], "y", True),
        (["0", "1"], "y", True),
        (["a", "A"], "y", False),
        (["1", "b"], "y", True),
        (["none", "some"], "y", True),
    ],
)
def test_two_classes_keep_their_names_in_the_saved_folder(labels, column, positive, tmp_path):
    y = np.array(labels)[(BIG == "yes").astype(int)]
    model = MolsliceClassifier(**FAST).fit(SMILES, y)
    assert model.score(SMILES, y) > 0.8
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.columns == (column,)
    np.testing.assert_array_equal(loaded.predict(SMILES), model.predict_proba(SMILES)[:, 1].astype("f4"))
    assert (np.corrcoef(loaded.predict(SMILES), SIZE)[0, 1] > 0) == positive


def test_words_of_several_columns_are_kept(tmp_path):
    y = np.stack([BIG, np.where(BIG == "yes", "2", "1"), np.where(BIG == "yes", "no", "yes")], axis=1)
    model = MolsliceClassifier(**FAST).fit(SMILES, y)
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").columns == ("y0_yes", "y1_2", "y2_yes")
    np.testing.assert_array_equal(
        load_model(tmp_path / "model").predict(SMILES),
        np.stack([pair[:, 1] for pair in model.predict_proba(SMILES)], 1).astype("f4"),
    )
    assert (model.predict(SMILES) == y).mean() > 0.5


@pytest.mark.parametrize(
    ("ordered", "message"),
    [
        (True, "the order of the classes 'a', 'b', 'c' is not known; give them as ordered="),
        (["a", "b"], r"ordered has the classes \['a', 'b'\], but y has \['a', 'b', 'c'\]"),
        (["a", "b", "d"], "ordered has the classes"),
    ],
)
def test_an_unknown_order_of_words_is_refused(ordered, message):
    with pytest.raises(MolsliceError, match=message):
        MolsliceClassifier(**FAST, ordered=ordered).fit(SMILES, [*"abc"] * 8)


def test_a_class_without_a_readable_molecule_is_refused():
    smiles, y = [*SMILES, *[None] * 6], [*(np.arange(ROWS) % 3), *[3] * 6]
    with pytest.raises(MolsliceError, match="4 classes, but only 3 have a molecule that can be read"):
        MolsliceClassifier(**FAST).fit(smiles, y)
