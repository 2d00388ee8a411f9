"""Predict the test splits of PCQM4M and write submissions to OGB's leaderboard."""

from pathlib import Path

from molslice.data.molecules.leaderboard import SUBMISSIONS, write_submission
from molslice.data.molecules.pcqm4m import Pcqm4m
from molslice.inference.load import NetworkPredictor
from molslice.types import MolsliceError


def predict_submission(
    predictor: NetworkPredictor,
    root: str | Path,
    folder: str | Path,
    *,
    dataset: str | None = None,
    workers: int = 0,
    progress: bool = True,
) -> list[Path]:
    """Write a submission file for each test split of the data in `root`, and return the files.

    Args:
        predictor: A model with one target, the gap of PCQM4M.
        root: The folder of the data.
        folder: The folder to write to. It is created if needed.
        dataset: The required version of the data, `pcqm4m` or `pcqm4m-v2`. None accepts both.
        workers: Number of processes that prepare the molecules; 0 chooses it.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: The data are of another version, the model has several targets, or the splits are not
            OGB's.
        OSError: A file cannot be written. No partial file is left.
    """
    if len(predictor.target_names) != 1:
        raise MolsliceError(
            f"a submission has one target, {predictor.name} has {len(predictor.target_names)}"
        )
    data = Pcqm4m(root=root, atom_order=predictor.atom_order, workers=workers or None)
    if dataset is not None:
        data.check_version(dataset)
    wanted = {split: rows for (version, split), (_, rows) in SUBMISSIONS.items() if version == data.version}
    for split, rows in wanted.items():
        count = len(data.rows(split))
        if count != rows:  # checked before hours of prediction
            raise MolsliceError(f"split {split!r} of {data.source} has {count} rows, OGB's has {rows}")
    paths = []
    for split in wanted:
        values = predictor.predict_dataset(data, data.rows(split), progress=progress).values[:, 0]
        paths.append(write_submission(folder, values, data.version, split))
    return paths
