"""The fine-tuned networks of a fit: what they see, what they predict, and where they are."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from molslice.data.molecules.prepare import read_smiles
from molslice.fitting.fit import fit
from molslice.fitting.networks import RECIPE, FineTuning, affordable_epochs, fine_tune
from molslice.folders.fitted import FINE_TUNED, network_folder
from molslice.folders.run import MODEL
from molslice.inference.fitted import network_scores
from molslice.inference.load import load_model, load_network
from molslice.inference.smiles_reader import read_molecules
from molslice.tasks.targets import TargetInfo
from molslice.training.run import train
from molslice.types import MolsliceError
from tests.fitting.test_fit import targets_of, write_table
from tests.inference.models import embedded_smiles
from tests.real_data import SAVED_MODEL

ENCODER = str(SAVED_MODEL)
FOLDS = np.array([0, 1, 2, -1] * 10)

pytestmark = pytest.mark.usefixtures("few_trees", "few_epochs")


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(len(FOLDS))


@pytest.fixture(scope="module")
def targets():
    """Two targets, the second large, far from zero and with every fifth value missing."""
    values = np.random.default_rng(0).normal(size=(len(FOLDS), 2)) * [1.0, 3e10] + [0.0, 5e12]
    values[::5, 1] = np.nan
    return values


def description(targets, kind="regression"):
    return TargetInfo.of_training(("a", "b"), ("", "V"), kind, targets[FOLDS >= 0])


def tune(smiles, targets, folder, info=None, folds=FOLDS, epochs=1):
    """Fine-tune the shipped model, with the description of two numbers by default."""
    info = info or description(targets)
    molecules = read_molecules(smiles)
    training = FineTuning(ENCODER, molecules, targets, info, folds, folder, epochs=epochs, seed=0)
    return fine_tune(training, smiles)


@pytest.fixture(scope="module")
def tuned(smiles, targets, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    return folder, tune(smiles, targets, folder, epochs=2)


def weights(folder, fold):
    return load_network(network_folder(folder, fold)).model.state_dict()


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_predictions_are_those_of_the_written_networks(tuned, smiles, targets):
    folder, found = tuned
    for fold in range(3):
        network = load_network(network_folder(folder, fold))
        expected = network_scores(network.predict(smiles), description(targets))
        own = fold == FOLDS
        np.testing.assert_allclose(found.unseen[own], expected[own], rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(found.held_out[fold], expected[FOLDS < 0], rtol=1e-5, atol=1e-4)
    assert np.isnan(found.unseen[FOLDS < 0]).all()
    assert not np.allclose(found.held_out[0], found.held_out[1])


def test_large_targets_keep_their_digits(tuned):
    assert abs(np.nanmean(tuned[1].unseen[:, 1]) - 5e12) < 6e10


def test_a_network_depends_on_the_rows_of_the_other_folds_only(tuned, smiles, targets, tmp_path):
    changed = targets.copy()
    changed[FOLDS <= 0] = np.nanmean(targets, 0)  # fold 0 and the held-out rows
    tune(smiles, changed, tmp_path, epochs=2)
    assert same(weights(tuned[0], 0), weights(tmp_path, 0))
    assert not same(weights(tuned[0], 1), weights(tmp_path, 1))


def test_equal_seeds_give_equal_files_and_leave_the_random_state(tuned, smiles, targets, tmp_path):
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    tune(smiles, targets, tmp_path, epochs=2)
    assert torch.equal(torch.random.get_rng_state(), state)
    for fold in range(3):
        one, other = (network_folder(each, fold) / MODEL for each in (tuned[0], tmp_path))
        assert one.read_bytes() == other.read_bytes()


def test_each_network_has_its_own_seed(tuned):
    assert [load_network(network_folder(tuned[0], fold)).config.seed for fold in range(3)] == [0, 1, 2]


def test_a_network_says_what_its_numbers_are(tuned):
    network = load_network(network_folder(tuned[0], 0))
    assert network.target_names == ("a", "b")
    assert network.target_units == ("standard deviations",) * 2
    assert "rows.csv" not in str(network.config)


@pytest.mark.parametrize("sizes", [(1, 1, 12), (2, 5, 13)])
def test_small_folds_have_networks(sizes, smiles, targets, tmp_path, caplog):
    """A fold of any size is divided into what a run validates and tests."""
    folds = np.repeat([0, 1, 2], sizes)
    order = np.argsort(np.arange(len(folds)) % 2, kind="stable")  # rows of a fold at even places
    folds = folds[np.argsort(order)]
    some = slice(len(folds))
    info = TargetInfo.of_training(("a",), ("",), "regression", targets[some, :1])
    networks = tune(smiles[some], targets[some, :1], tmp_path, info, folds)
    assert np.isfinite(networks.unseen).all()
    assert networks.held_out.shape == (3, 0, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["networks"]
    assert not caplog.records


def test_a_loss_that_is_not_finite_is_explained(smiles, targets, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPE["optimizer"], "lr", 1e30)
    with pytest.raises(MolsliceError) as refused:
        tune(smiles, targets, tmp_path, epochs=20)
    assert str(refused.value).startswith(f"cannot fine-tune {ENCODER} without fold 0: the ")
    assert "checkpoint" not in str(refused.value)
    assert not [path for path in tmp_path.iterdir() if path.name != "networks"]


def test_an_interruption_has_no_advice_about_temporary_runs(smiles, targets, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt("--resume continues the run in /tmp")

    monkeypatch.setattr("molslice.fitting.networks.train", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        tune(smiles, targets, tmp_path, epochs=1)
    assert not stopped.value.args
    assert not list(tmp_path.iterdir())


def test_a_prediction_that_is_not_a_number_is_refused(smiles, targets, tmp_path, monkeypatch):
    def broken(values, info):
        scores = network_scores(values, info)
        scores[2, 1] = np.nan
        return scores

    monkeypatch.setattr("molslice.fitting.networks.network_scores", broken)
    with pytest.raises(MolsliceError, match="fold 0 predicts a value that is not finite for") as refused:
        tune(smiles, targets, tmp_path, epochs=1)
    assert smiles[np.flatnonzero(FOLDS == 0)[2]] in str(refused.value)


def test_a_network_starts_from_the_encoder(tuned):
    before, after = load_network(ENCODER).model.state_dict(), weights(tuned[0], 0)
    name = next(key for key in before if key.startswith("encoder.") and before[key].ndim == 2)
    change = (after[name] - before[name]).norm() / before[name].norm()
    assert 0 < change < 0.2


def test_scores_of_classes_are_log_odds():
    info = TargetInfo(("a",), ("",), "classification", (0.0,), (1.0,))
    found = network_scores(np.array([[0.5], [0.8], [1.0], [0.0]], np.float32), info)[:, 0]
    np.testing.assert_allclose(found[:2], [0, np.log(4)], rtol=1e-6)
    np.testing.assert_allclose(found[2:], [16.118, -16.118], rtol=1e-4)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    smiles = embedded_smiles(70)
    rows = [[text, *values] for text, values in zip(smiles, targets_of(smiles), strict=True)]
    table = write_table(tmp_path_factory.mktemp("t") / "t.csv", ["smiles", "size", "active", "half"], rows)
    folder = tmp_path_factory.mktemp("fit") / "model"
    options = {"members": 2, "encoder": ENCODER, "quality": "best", "refit": False, "quiet": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "molslice.fitting.fold_networks.MIN_WEIGHT", 0.0
        )  # of networks that are trained for one epoch
        about = fit(table, ["active"], folder, **options)
    return table, folder, about


def test_a_fit_weighs_the_networks_among_its_learners(fitted):
    _, folder, about = fitted
    assert (about["networks"], about["network_epochs"]) == (2, 1)
    assert FINE_TUNED in about["results"][0]["weights"]
    assert len(load_model(folder).networks) == 2


def test_a_stack_with_networks_follows_them(fitted, smiles):
    _, folder, _ = fitted
    predictor = load_model(folder)
    part = next(iter(predictor.reader().read([smiles])))
    members = predictor.member_predictions(part)[0][:, :, 0]
    stack = predictor.model.stacks[0]
    one = dict.fromkeys(stack.names, 0.0) | {FINE_TUNED: 1.0}
    alone = type(stack)(stack.names, tuple(one.values()), stack.calibration)
    object.__setattr__(predictor.model, "stacks", (alone,))
    slope, intercept = stack.calibration[stack.names.index(FINE_TUNED)]
    for fold in range(2):  # the members are pairs of folds; networks belong to the first
        odds = network_scores(
            load_network(network_folder(folder, fold)).predict(part.canonical)[:, None], predictor.targets
        )[:, 0]
        expected = 1 / (1 + np.exp(-(slope * odds + intercept)))
        for values in predictor.member_predictions(part)[0][2 * fold : 2 * fold + 2, :, 0]:
            np.testing.assert_allclose(values, expected, rtol=1e-4)
    assert not np.allclose(predictor.member_predictions(part)[0][:, :, 0], members)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_missing_is_refused_before_the_work(fitted, tmp_path):
    with pytest.raises(MolsliceError, match="device 'cuda' is not available"):
        fit(fitted[0], "active", tmp_path / "m", encoder=ENCODER, device="cuda", quiet=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_fit_on_a_gpu_predicts_as_one_on_the_cpu(fitted, smiles, tmp_path):
    table, folder, _ = fitted
    options = {"members": 2, "encoder": ENCODER, "quality": "best", "refit": False, "quiet": True}
    fit(table, ["active"], tmp_path / "m", device="cuda", **options)
    for device in ("cpu", "cuda"):
        found = load_model(tmp_path / "m", device).predict(smiles)
        np.testing.assert_allclose(found, load_model(folder).predict(smiles), atol=0.05)


def test_a_folder_without_a_network_is_refused(fitted, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(fitted[1], moved)
    shutil.rmtree(network_folder(moved, 1))
    with pytest.raises(MolsliceError, match=r"is incomplete: .*fold1 is missing"):
        load_model(moved)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"networks": 0}, "has 0 fine-tuned networks, but not as many folds"),
        ({"networks": 1}, "has 1 fine-tuned networks, but not as many folds"),
        ({"networks": "2"}, "invalid networks in .*fit.json: '2'"),
        ({"networks": None}, "invalid networks in"),
        ({"encoder": None}, "has fine-tuned networks, but no encoder"),
    ],
)
def test_a_damaged_description_of_the_networks_is_refused(fitted, tmp_path, changes, reason):
    moved = tmp_path / "moved"
    shutil.copytree(fitted[1], moved)
    about = json.loads((moved / "fit.json").read_text())
    (moved / "fit.json").write_text(json.dumps({**about, **changes}))
    with pytest.raises(MolsliceError, match=reason):
        load_model(moved)


def test_networks_of_other_targets_are_refused(fitted, tuned, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(fitted[1], moved)
    shutil.copy(network_folder(tuned[0], 0) / MODEL, network_folder(moved, 1) / MODEL)
    with pytest.raises(MolsliceError, match=r"fold1 predicts a, b \(regression\), but .* fitted to active"):
        load_model(moved)


def test_networks_are_left_out_when_time_is_over(fitted, tmp_path):
    options = {"members": 2, "encoder": ENCODER, "quality": "best", "quiet": True}
    about = fit(fitted[0], "active", tmp_path / "m", **options, minutes=1e-4)
    assert "fine-tuned networks" in about["left_out"]
    assert about["networks"] == 0
    assert load_model(tmp_path / "m").networks == ()


def test_networks_without_a_weight_in_the_first_fold_are_left_out(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_WEIGHT", 1.1)
    trained = []
    monkeypatch.setattr("molslice.fitting.networks.train", counted(train, trained))
    options = {"members": 3, "encoder": ENCODER, "quality": "best", "quiet": True}
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_PROBED_ROWS", 1)
    about = fit(fitted[0], "size", tmp_path / "m", **options)
    assert len(trained) == 1  # one network, and no other in the fit to all rows
    assert 0.0 <= about["network_weight"] < 1.0
    assert about["networks"] == about["network_epochs"] == 0
    assert "fine_tuned" not in about["results"][0]["weights"]
    assert not (tmp_path / "m" / "networks").exists()
    assert (
        "not fine-tuned, because the first network had a weight of only"
        in (tmp_path / "m/card.md").read_text()
    )
    assert np.isfinite(load_model(tmp_path / "m").predict(["CCO"])).all()


@pytest.fixture
def beside_learners(monkeypatch):
    """Train networks in another process, which is started as beside a GPU."""
    monkeypatch.setattr("molslice.fitting.fit.may_start_process", lambda device: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr("molslice.fitting.networks.train", None)  # here


@pytest.mark.parametrize("target", [["active"], ["size", "active"]])
def test_networks_that_are_trained_beside_the_learners_are_the_same(
    fitted, target, tmp_path, monkeypatch, request
):
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_WEIGHT", 0.0)  # they are trained for one epoch
    options = {"members": 2, "encoder": ENCODER, "quality": "best", "quiet": True}
    expected = fit(fitted[0], target, tmp_path / "a", **options)
    request.getfixturevalue("beside_learners")
    about = fit(fitted[0], target, tmp_path / "b", **options)
    assert about["networks"] == 2
    for one, other in zip(about["results"], expected["results"], strict=True):
        assert one["weights"] == pytest.approx(other["weights"], abs=1e-3)
    files = sorted((tmp_path / "a" / "networks").rglob("*.safetensors"))
    assert len(files) == 2 * len(target)
    for file in files:  # another number of threads changes the rounding
        same_file = load_file(tmp_path / "b" / file.relative_to(tmp_path / "a"))
        for name, tensor in load_file(file).items():
            torch.testing.assert_close(same_file[name], tensor, rtol=1e-2, atol=1e-3)


def test_networks_beside_the_learners_are_stopped_if_they_are_not_worth_it(
    fitted, beside_learners, tmp_path, monkeypatch
):
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_WEIGHT", 1.1)
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_PROBED_ROWS", 1)
    options = {"members": 3, "encoder": ENCODER, "quality": "best", "quiet": True}
    about = fit(fitted[0], "size", tmp_path / "m", **options)
    assert about["networks"] == 0
    assert "fine_tuned" not in about["results"][0]["weights"]
    assert not [path for path in (tmp_path / "m").iterdir() if path.name == "networks"]


def test_networks_are_trained_here_if_another_process_cannot(fitted, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_WEIGHT", 0.0)  # they are trained for one epoch
    monkeypatch.setattr("molslice.fitting.fit.may_start_process", lambda device: True)

    def begin(self, function, calls):
        yield function(*calls[0])
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable")

    monkeypatch.setattr("molslice.files.processes.WorkerPool.begin", begin)
    options = {"members": 3, "encoder": ENCODER, "quality": "best", "refit": False, "quiet": True}
    assert fit(fitted[0], "active", tmp_path / "m", **options)["networks"] == 3
    assert "trained after the learners, not beside them: CUDA error" in caplog.text


def test_an_error_beside_the_learners_is_explained(fitted, beside_learners, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.fitting.networks.affordable_epochs", lambda *_: -1)
    options = {"members": 2, "encoder": ENCODER, "quality": "best", "quiet": True}
    with pytest.raises(MolsliceError, match="cannot fine-tune .* without fold 0: .*max_epochs"):
        fit(fitted[0], "size", tmp_path / "m", **options)
    assert not list(tmp_path.iterdir())


def test_few_rows_of_a_fold_do_not_leave_networks_out(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_WEIGHT", 1.1)
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_PROBED_ROWS", 1_000)
    options = {"members": 2, "encoder": ENCODER, "quality": "best", "refit": False, "quiet": True}
    about = fit(fitted[0], "size", tmp_path / "m", **options)
    assert (about["networks"], about["network_weight"]) == (2, None)


def counted(function, calls):
    def call(*arguments, **options):
        calls.append(arguments)
        return function(*arguments, **options)

    return call


def test_epochs_fit_into_the_time_that_is_left(monkeypatch):
    monkeypatch.setattr("molslice.training.duration.MIN_EPOCHS", 4)
    monkeypatch.setattr("molslice.training.duration.MAX_EPOCHS", 40)
    folds = np.array([0, 1, 2, 3, 4, -1] * 20)  # an epoch of all networks sees 400 rows
    seconds = 3.0  # for embedding 120 rows
    epoch = 4.0 * 400 * seconds / 120
    for left, expected in ((np.inf, 40), (10.5 * epoch, 10), (1000 * epoch, 40), (0.9 * epoch, 0), (-5.0, 0)):
        assert affordable_epochs(folds, left, seconds) == expected


def test_molecules_are_read_once_for_all_folds_and_both_stages(fitted, tmp_path, monkeypatch):
    counts = []

    def count(smiles, how):
        counts.append(len(smiles))
        return read_smiles(smiles, how)

    monkeypatch.setattr("molslice.inference.smiles_reader.read_smiles", count)
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_WEIGHT", 0.0)  # they are trained for one epoch
    about = fit(fitted[0], "size", tmp_path / "model", members=3, quality="best", encoder=ENCODER, quiet=True)
    assert "fine_tuned" in about["results"][0]["weights"]
    assert counts == [70]


def test_networks_learn_wildcards_that_are_kept(smiles, targets, tmp_path):
    networks = tune([f"*.{text}" for text in smiles], targets, tmp_path)
    assert np.isfinite(networks.unseen[FOLDS >= 0]).all()
