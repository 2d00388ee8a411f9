"""Predict the test splits of PCQM4M and write the files that OGB's leaderboard takes."""

from pathlib import Path

from molslice.data.pcqm4m import Pcqm4m
from molslice.data.submission import SUBMISSIONS, write_submission
from molslice.inference.load import Predictor
from molslice.types import MolsliceError

__all__ = ["predict_submission"]

VERSIONS = {"pcqm4m": "v1", "pcqm4m-v2": "v2"}


def predict_submission(
    predictor: Predictor,
    root: str | Path,
    folder: str | Path,
    *,
    dataset: str | None = None,
    workers: int = 0,
    progress: bool = True,
) -> list[Path]:
    """Write a submission file for every test split of the data in `root`, and return the files.

    Args:
        predictor: a model with the one target of PCQM4M.
        root: the folder of the data.
        folder: where to write; it is made if it is not there.
        dataset: `pcqm4m` or `pcqm4m-v2`, which the data must be; by default whichever they are.
        workers: processes for preparing the molecules, 0 for as many as pay.
        progress: show a bar on standard error.

    Raises:
        MolsliceError: another data set, a model with other targets, or splits that are not OGB's.
        OSError: a file cannot be written; nothing is left under its name.
    """
    if len(predictor.target_names) != 1:
        raise MolsliceError(
            f"a submission has one target, {predictor.name} has {len(predictor.target_names)}"
        )
    data = Pcqm4m(root=root, atom_order=predictor.atom_order, workers=workers or None)
    if dataset is not None and VERSIONS[dataset] != data.version:
        raise MolsliceError(f"{data.source} has the splits of PCQM4M {data.version}, not those of {dataset}")
    wanted = {split: rows for (version, split), (_, rows) in SUBMISSIONS.items() if version == data.version}
    for split, rows in wanted.items():
        found = len(data.rows(split))
        if found != rows:  # known now, and not after hours of predicting
            raise MolsliceError(f"split {split!r} of {data.source} has {found} rows, OGB's has {rows}")
    paths = []
    for split in wanted:
        values = predictor.predict_dataset(data, data.rows(split), progress=progress).values[:, 0]
        paths.append(write_submission(folder, values, data.version, split))
    return paths
