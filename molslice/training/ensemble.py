"""Train the members of an ensemble: the same configuration from several seeds."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from molslice.config import RunConfig, config_to_yaml
from molslice.data import build_dataset
from molslice.data.molecules.base import MoleculeDataset
from molslice.files.atomic import made_folder, write_atomically
from molslice.files.lock import LOCK, lock_folder
from molslice.folders.ensemble import ENSEMBLE, MEMBERS, is_ensemble, member_folders, write_ensemble
from molslice.folders.run import CONFIG
from molslice.inference.held_out import write_calibration
from molslice.training.continuation import as_begun, check_data
from molslice.training.run import train
from molslice.types import MolsliceError


def train_ensemble(
    config: RunConfig, out: Path | str, members: int, *, resume: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Train K networks, each with its own seed, and write the folder of their ensemble.

    Member k has the seed of the configuration plus k, and its own run folder `members/k`. A data set that
    is divided at random is divided in the same way for all of them.

    Args:
        config: The configuration.
        out: The folder. It must be new or empty unless `resume` is true.
        members: K, at least 2.
        resume: Whether to continue the ensemble in `out`: finished members stay, others are trained.
        quiet: Whether to hide the progress bars.

    Returns:
        `members`, the content of `summary.json` of each, and `mean`: the mean of each error over the members.

    Raises:
        MolsliceError: As in `train`; the folder holds something else, or another number of members.
        KeyboardInterrupt: Stopped by Ctrl-C or a signal; `resume` continues.
    """
    folder = Path(out)
    if config.trainer.devices > 1 or config.trainer.num_nodes > 1:
        raise MolsliceError("an ensemble trains each member on one device; trainer.devices must be 1")
    with made_folder(folder):
        return _train_members(config, folder, members, resume, quiet)


def _train_members(
    config: RunConfig, folder: Path, members: int, resume: bool, quiet: bool
) -> dict[str, Any]:
    dataset = build_dataset(config.data.name, dict(config.data.options))
    if not isinstance(dataset, MoleculeDataset):
        raise MolsliceError(
            f"an ensemble is for molecules; the rows of {dataset.source} are {dataset.row_name}"
        )
    with lock_folder(folder):
        left = {path.name for path in folder.iterdir()} - {LOCK}
        if left and not is_ensemble(folder):
            raise MolsliceError(f"{folder} is not empty, and has no {ENSEMBLE}; choose another folder")
        # a member without a configuration was refused; the folder may get another configuration
        if any((folder / MEMBERS).glob(f"*/{CONFIG}")):
            if not resume:
                raise MolsliceError(
                    f"{folder} is not empty; choose another folder, remove it, or continue its ensemble with "
                    "--resume"
                )
            if (count := len(member_folders(folder))) != members:
                raise MolsliceError(f"{folder} is an ensemble of {count} members, not of {members}")
            as_begun(config, folder)
            for run in member_folders(folder):
                check_data(run, dataset)  # also of those that are finished
        else:
            write_ensemble(folder, members)
            write_atomically(folder / CONFIG, config_to_yaml(config))
        summaries = []
        for index, run in enumerate(member_folders(folder)):
            member = dataclasses.replace(config, seed=config.seed + index)
            has_begun = run.is_dir() and any(path.name != LOCK for path in run.iterdir())
            try:
                summaries.append(train(member, run, resume=has_begun, quiet=quiet))
            except KeyboardInterrupt:
                raise KeyboardInterrupt(
                    f"stopped in member {index + 1} of {members}; the same command with --resume continues"
                ) from None
        write_calibration(folder, dataset)
    return {"members": summaries, "mean": _mean_errors(summaries)}


def _mean_errors(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean error of each target on each split; None for a split without known targets."""
    metric = summaries[0]["metric"]
    means = {}
    for split in ("train", "valid", "test"):
        errors = [summary[split][metric] for summary in summaries if summary[split][metric]]
        # an error that is not defined is None in `summary.json`, and makes the mean NaN
        values = {
            name: [member_errors[name] for member_errors in errors] for name in (errors[0] if errors else ())
        }
        means[split] = {
            name: float(np.mean([math.nan if value is None else value for value in of_members]))
            for name, of_members in values.items()
        } or None
    return means
