"""The data set for a trained model."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from molslice.config import DataConfig
    from molslice.data import Dataset
    from molslice.inference.ensemble import EnsemblePredictor
    from molslice.inference.fitted import FittedPredictor
    from molslice.inference.network import Predictor

__all__ = ["find_dataset", "find_model_data"]

logger = logging.getLogger(__name__)


def find_model_data(
    predictor: "Predictor | FittedPredictor | EnsemblePredictor",
    data: "DataConfig",
    root: str | None,
    overrides: Sequence[tuple[str, str]],
    fragment: str | None,
) -> "Dataset":
    """Build the data on which a trained model is measured.

    Args:
        predictor: The model.
        data: The data of its training.
        root: As in `find_dataset`.
        overrides: As in `find_dataset`. If they name the columns of the targets, or the model is one of
            `molslice fit`, the targets get the names of the model.
        fragment: What happens to a mixture; None for what the model does.

    Raises:
        MolsliceError: As in `find_dataset`.
    """
    from molslice.inference.fitted import FittedPredictor

    settings = [*overrides]
    name = dict(settings).get("data.name") or data.name
    if fragment or (predictor.fragment != "keep" and name == "csv"):
        settings.insert(0, ("data.fragment", predictor.fragment))
    dataset = find_dataset(data, root, settings)
    if not overrides and root is None:
        _warn_of_other_division(predictor, dataset)
    columns = [key for key, _ in overrides if key.replace("-", "_") == "data.target_columns"]
    columns += ["data.target_columns"] if isinstance(predictor, FittedPredictor) else []
    if columns and len(dataset.target_names) == len(predictor.target_names):
        dataset.target_names = predictor.target_names  # columns may have any name
    return dataset


def _warn_of_other_division(
    predictor: "Predictor | FittedPredictor | EnsemblePredictor", dataset: "Dataset"
) -> None:
    """Warn if the splits are not those of the training, because rows of the training may be measured."""
    from molslice.data.identity import changed_parts, division_identity
    from molslice.files.parsing import read_json_object
    from molslice.inference.ensemble import EnsemblePredictor
    from molslice.run_folder import DATA

    members = predictor.members if isinstance(predictor, EnsemblePredictor) else [predictor]
    folder = members[0].folder  # all were trained on the same rows
    if folder is None or not (folder / DATA).is_file():
        return
    then, now = read_json_object(folder / DATA), division_identity(dataset)
    if changed := changed_parts({name: str(then.get(name)) for name in now}, now):
        logger.warning(
            "%s is not divided as it was when %s was trained (different: %s); rows of the training may be "
            "among those that are measured",
            dataset.source,
            folder,
            ", ".join(changed),
        )


def find_dataset(
    data: "DataConfig", root: str | None = None, overrides: Sequence[tuple[str, str]] = ()
) -> "Dataset":
    """Build the data set of a trained model.

    Args:
        data: The data of the model.
        root: Another folder of the data, for data sets with an option `root`.
        overrides: `data.` settings that replace those of the run. A new `data.name` drops the run's options.

    Raises:
        MolsliceError: A setting is not a `data.` setting, or the data cannot be loaded.
    """
    from molslice.config import override_data
    from molslice.data import build_dataset
    from molslice.types import MolsliceError

    settings = [*overrides, *([("data.root", root)] if root is not None else [])]
    for key, _ in settings:
        if not key.startswith("data."):
            raise MolsliceError(f"--{key}: only settings of the data (--data.<option>) can be changed here")
    changed = override_data(data, settings)
    return build_dataset(changed.name, dict(changed.options))
