import numpy as np
import pytest

from molslice.data.molecules import leaderboard as submission_of_data
from molslice.inference.tables import submission
from molslice.inference.tables.submission import predict_submission
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from tests.data.molecules.builders import gap_folder
from tests.inference.models import TWO, embedded_smiles, untrained

GAP = TargetInfo(("homolumogap",), ("eV",), "regression", (3.0,), (1.5,))
SPLITS = {"train": [0, 1], "valid": [2, 3], "test-dev": [4, 5, 6], "test-challenge": [7, 8, 9, 10]}
SIZES = {
    ("v1", "test"): ("y_pred_pcqm4m", 2),
    ("v2", "test-dev"): ("y_pred_pcqm4m-v2_test-dev", 3),
    ("v2", "test-challenge"): ("y_pred_pcqm4m-v2_test-challenge", 4),
}


@pytest.fixture
def root(tmp_path):
    smiles = embedded_smiles(11)
    gaps = ["1.0"] * 4 + [""] * 7
    return gap_folder(tmp_path / "data", smiles, gaps, SPLITS)


@pytest.fixture
def small(monkeypatch):
    """Write OGB's test splits with a few rows each."""
    monkeypatch.setattr(submission_of_data, "SUBMISSIONS", SIZES)
    monkeypatch.setattr(submission, "SUBMISSIONS", SIZES)


@pytest.mark.usefixtures("small")
def test_one_file_for_each_test_split_in_its_order(tmp_path, root):
    model = untrained(tmp_path / "model", targets=GAP)
    paths = predict_submission(model, root, tmp_path / "out", dataset="pcqm4m-v2")
    assert [path.name for path in paths] == [
        "y_pred_pcqm4m-v2_test-dev.npz",
        "y_pred_pcqm4m-v2_test-challenge.npz",
    ]
    expected = model.predict(embedded_smiles(11))
    for path, rows in zip(paths, ([4, 5, 6], [7, 8, 9, 10]), strict=True):
        written = np.load(path)["y_pred"]
        assert written.dtype == np.float32
        np.testing.assert_allclose(written, expected[rows], atol=1e-5)


def test_the_sizes_are_those_that_ogb_asks_for():
    evaluator = submission_of_data.import_ogb("ogb.lsc").PCQM4Mv2Evaluator()
    for split in ("test-dev", "test-challenge"):
        _, rows = submission.SUBMISSIONS["v2", split]
        with pytest.raises(AssertionError):
            evaluator.save_test_submission({"y_pred": np.zeros(rows + 1)}, "/nowhere", split)


def test_other_data_are_refused_before_anything_is_predicted(tmp_path, root, monkeypatch):
    model = untrained(tmp_path / "model", targets=GAP)
    monkeypatch.setattr(model, "predict_molecules", pytest.fail)
    with pytest.raises(MolsliceError, match="has 3 rows, OGB's has 147037"):
        predict_submission(model, root, tmp_path / "out")
    with pytest.raises(MolsliceError, match="splits of PCQM4M v2, not the splits of pcqm4m"):
        predict_submission(model, root, tmp_path / "out", dataset="pcqm4m")
    assert not (tmp_path / "out").exists()


def test_a_model_of_other_targets_is_refused(tmp_path, root):
    with pytest.raises(MolsliceError, match="one target"):
        predict_submission(untrained(tmp_path / "model", targets=TWO), root, tmp_path / "out")
