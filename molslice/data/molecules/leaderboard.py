"""The leaderboard of PCQM4M: OGB's evaluator, and submission files."""

import importlib
import os
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from molslice.files.atomic import atomic_file
from molslice.types import MolsliceError

Version = Literal["v1", "v2"]
# (version, split) -> file name, rows
SUBMISSIONS: dict[tuple[str, str], tuple[str, int]] = {
    ("v1", "test"): ("y_pred_pcqm4m", 377_423),
    ("v2", "test-dev"): ("y_pred_pcqm4m-v2_test-dev", 147_037),
    ("v2", "test-challenge"): ("y_pred_pcqm4m-v2_test-challenge", 147_432),
}


def import_ogb(module: str) -> ModuleType:
    """Import a module such as `ogb.lsc` without the network request of `import ogb`.

    OGB looks up its newest version in a thread, unless the package `outdated` cannot be imported.
    """
    if "ogb" in sys.modules:
        return importlib.import_module(module)
    before = {name: sys.modules[name] for name in ("outdated",) if name in sys.modules}
    sys.modules["outdated"] = None  # type: ignore[assignment]  # makes `import outdated` fail
    try:
        return importlib.import_module(module)
    finally:
        del sys.modules["outdated"]
        sys.modules.update(before)


def evaluate_gap(version: Version, target: np.ndarray, prediction: np.ndarray) -> float:
    """Compute the mean absolute error of gaps [n] with OGB's evaluator of PCQM4M `v1` or `v2`.

    Raises:
        MolsliceError: The version is unknown, or the shapes differ.
    """
    if target.shape != prediction.shape or target.ndim != 1:
        raise MolsliceError(f"{list(prediction.shape)} predictions for {list(target.shape)} targets")
    if version not in ("v1", "v2"):
        raise MolsliceError(f"version must be v1 or v2, got {version!r}")
    lsc: Any = import_ogb("ogb.lsc")
    evaluator = lsc.PCQM4MEvaluator() if version == "v1" else lsc.PCQM4Mv2Evaluator()
    return float(evaluator.eval({"y_true": target, "y_pred": prediction})["mae"])


def write_submission(
    folder: str | os.PathLike[str], predictions: np.ndarray, version: Version, split: str | None = None
) -> Path:
    """Write the file of a leaderboard submission and return its path.

    Name and contents equal OGB's `save_test_submission`: float32 [rows of the split] under `y_pred`.

    Args:
        folder: Output folder; created if missing.
        predictions: Gaps in eV in the order of the split: [147037] for test-dev (v2), [147432] for
            test-challenge (v2), [377423] for test (v1).
        version: `v1` (PCQM4M-LSC) or `v2` (PCQM4Mv2).
        split: `test-dev` or `test-challenge` for v2; `test`, the default, for v1.

    Raises:
        MolsliceError: The version or the split is unknown, or the number of predictions is wrong.
        OSError: The file cannot be written; no partial file is left.
    """
    split = "test" if split is None and version == "v1" else split
    if (version, str(split)) not in SUBMISSIONS:
        choices = ", ".join(f"{known} {name}" for known, name in SUBMISSIONS)
        raise MolsliceError(f"no submission for {version} {split}; choices: {choices}")
    stem, rows = SUBMISSIONS[version, str(split)]
    if predictions.shape != (rows,):
        raise MolsliceError(
            f"{version} {split} takes {rows} predictions, got shape {list(predictions.shape)}"
        )
    values = predictions.astype(np.float32)
    if not_finite := int((~np.isfinite(values)).sum()):
        warnings.warn(
            f"{not_finite} predictions for {version} {split} are not finite, so OGB's score will not be "
            "finite"
        )
    path = Path(folder) / f"{stem}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        np.savez_compressed(file, y_pred=values)
    return path
