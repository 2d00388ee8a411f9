"""The leaderboard file and the score equal those of OGB."""

import errno

import numpy as np
import pytest

from molslice.data.molecules.leaderboard import evaluate_gap, import_ogb, write_submission
from molslice.types import MolsliceError

CASES = [("v1", "test", 377_423), ("v2", "test-dev", 147_037), ("v2", "test-challenge", 147_432)]


@pytest.mark.parametrize(("version", "split", "rows"), CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_file_is_what_ogb_writes(tmp_path, version, split, rows, dtype):
    values = np.random.default_rng(0).normal(5, 1, rows).astype(dtype)
    options = {"mode": split} if version == "v2" else {}
    lsc = import_ogb("ogb.lsc")
    evaluator = lsc.PCQM4MEvaluator() if version == "v1" else lsc.PCQM4Mv2Evaluator()
    evaluator.save_test_submission({"y_pred": values}, str(tmp_path / "ogb"), **options)
    path = write_submission(tmp_path / "ours", values, version, split)
    (expected,) = (tmp_path / "ogb").iterdir()
    assert path == tmp_path / "ours" / expected.name
    with np.load(expected) as theirs, np.load(path) as ours:
        assert ours.files == theirs.files == ["y_pred"]
        assert ours["y_pred"].dtype == theirs["y_pred"].dtype
        assert ours["y_pred"].tobytes() == theirs["y_pred"].tobytes()
    assert [file.name for file in (tmp_path / "ours").iterdir()] == [expected.name]


def test_version_1_has_one_test_split(tmp_path):
    assert write_submission(tmp_path, np.zeros(377_423), "v1").name == "y_pred_pcqm4m.npz"


@pytest.mark.parametrize(
    ("version", "split", "rows", "message"),
    [
        (
            "v2",
            "test",
            147_037,
            "no submission for v2 test; choices: v1 test, v2 test-dev, v2 test-challenge",
        ),
        ("v2", None, 147_037, "choices"),
        ("v3", "test-dev", 147_037, "choices"),
        ("v2", "test-dev", 147_432, r"takes 147037 predictions, got shape \[147432\]"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, version, split, rows, message):
    with pytest.raises(MolsliceError, match=message):
        write_submission(tmp_path, np.zeros(rows), version, split)
    assert list(tmp_path.iterdir()) == []


def test_a_column_is_not_a_list(tmp_path):
    with pytest.raises(MolsliceError, match=r"got shape \[147037, 1\]"):
        write_submission(tmp_path, np.zeros((147_037, 1)), "v2", "test-dev")


def test_predictions_that_are_not_finite_are_reported(tmp_path):
    values = np.zeros(147_037)
    values[5] = np.nan
    with pytest.warns(UserWarning, match="1 predictions .* not finite"):
        path = write_submission(tmp_path, values, "v2", "test-dev")
    assert np.isnan(np.load(path)["y_pred"]).sum() == 1


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = write_submission(tmp_path, np.zeros(147_037), "v2", "test-dev")

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match=r"y_pred_pcqm4m-v2_test-dev.npz: No space left"):
        write_submission(tmp_path, np.ones(147_037), "v2", "test-dev")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert not np.load(path)["y_pred"].any()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_score_is_ogbs(version):
    target, prediction = np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.0, 3.0])
    assert evaluate_gap(version, target, prediction) == pytest.approx(0.5)
    with pytest.raises(MolsliceError, match=r"\[2\] predictions for \[3\] targets"):
        evaluate_gap(version, target, prediction[:2])
    with pytest.raises(MolsliceError, match="v1 or v2, got 'v7'"):
        evaluate_gap("v7", target, prediction)
