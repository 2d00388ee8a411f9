"""Load a trained model by its folder or name: a network, an ensemble or a fit."""

import warnings
from pathlib import Path

import torch

from molslice.chem import check_choices
from molslice.files.received import check_inside
from molslice.folders.ensemble import is_ensemble, member_folders
from molslice.folders.fitted import (
    ENCODER,
    FIT,
    LEARNER_FILE,
    FittedModel,
    is_fitted_folder,
    network_folder,
    read_fitted,
)
from molslice.folders.run import read_run
from molslice.inference.embedding import Embedder
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.network import NetworkPredictor
from molslice.pretrained import find_pretrained, is_shipped, pretrained_names
from molslice.types import MolsliceError

AnyPredictor = NetworkPredictor | FittedPredictor | EnsemblePredictor


def load_model(
    name_or_path: str | Path,
    device: torch.device | str = "cpu",
    *,
    fragment: str | None = None,
    wildcards: str | None = None,
) -> AnyPredictor:
    """Load a trained model.

    Args:
        name_or_path: A run folder, the folder of an ensemble or of a fit, a checkpoint folder
            (`model.safetensors` and `config.yaml`), or the name of a model that ships with the package.
        device: Where to compute, such as `cpu` or `cuda`; `auto` for the first GPU if there is one, else the
            CPU.
        fragment: What happens to a mixture: `keep` it, predict its `largest` molecule, or `refuse` it. None
            does what was done in the training, which by default is `keep`.
        wildcards: What happens to a row with a wildcard, an R-group or a bond of any order: `refuse` it, or
            `keep` it as a graph. None does what was done in the training, which by default is `refuse`.

    Raises:
        MolsliceError: The folder or name does not exist, `fragment` or `wildcards` is unknown, the files are
            damaged or not molslice's, or the device is not available.
    """
    path = find_model(name_or_path)
    predictor = _load_folder(path, str(name_or_path), _find_device(device))
    for option, value in {"fragment": fragment, "wildcards": wildcards}.items():
        if value is not None:
            check_choices(**{option: value})
            setattr(predictor, option, value)
    return predictor


def _load_folder(path: Path, name: str, target: torch.device) -> AnyPredictor:
    if is_fitted_folder(path):
        model = read_fitted(path)
        if not model.needs_encoder:
            return FittedPredictor(model, name, path)
        encoder = _load_encoder(path, model, target)
        folds, kinds = range(model.num_networks), model.network_kinds
        folders = [network_folder(path, fold, kind) for kind in kinds for fold in folds]
        networks = _load_inside(folders, path, target)
        groups = [group.targets for group in kinds.values() for _ in folds]
        for network, expected in zip(networks, groups, strict=True):
            tuned = network.targets
            if (tuned.names, tuned.kind) != (expected.names, expected.kind):
                raise MolsliceError(
                    f"{network.name} predicts {', '.join(tuned.names)} ({tuned.kind}), but {path} was "
                    f"fitted to {', '.join(expected.names)} ({expected.kind})"
                )
        return FittedPredictor(model, name, path, encoder, networks)
    if is_ensemble(path):
        return EnsemblePredictor(_load_inside(member_folders(path), path, target), name, path)
    if (path / LEARNER_FILE).is_file():
        raise MolsliceError(f"no such file: {path / FIT}; its folder is incomplete")
    return NetworkPredictor(read_run(path), name, target, path.parent if path.is_file() else path)


def _load_encoder(folder: Path, model: FittedModel, device: torch.device) -> NetworkPredictor:
    """Load the encoder of a fit, in float16 as the learners saw it."""
    if (folder / ENCODER).is_dir():
        return _load_inside([folder / ENCODER], folder, device)[0]
    shipped = find_pretrained(model.about["encoder"])  # `read_fitted` has compared the weights
    return NetworkPredictor(read_run(shipped, in_half=True), str(shipped), device)


def _load_inside(runs: list[Path], folder: Path, device: torch.device) -> list[NetworkPredictor]:
    """Load the networks of a model, all of which must be inside of its folder."""
    for run in runs:
        check_inside(run, folder)
    return [NetworkPredictor(read_run(run), str(run), device) for run in runs]


def find_model(name_or_path: str | Path) -> Path:
    """Return the folder of a trained model, which may be the name of one that ships with the package.

    Raises:
        MolsliceError: The folder or name does not exist.
    """
    path = Path(name_or_path)
    if name_or_path != "" and path.exists():  # the path of an empty text is the current folder
        return path
    if not is_shipped(name_or_path):
        raise MolsliceError(
            f"no model {str(name_or_path)!r}: no folder of that path, and the models that ship with "
            f"molslice are {', '.join(pretrained_names())}"
        )
    return find_pretrained(str(name_or_path))


def find_network(name_or_path: str | Path) -> Path:
    """Return the folder of a trained network.

    Raises:
        MolsliceError: As in `find_model`, or the folder is an ensemble or was written by `molslice fit`.
    """
    path = find_model(name_or_path)
    if is_fitted_folder(path):
        inner = path / ENCODER
        use = f", such as {inner}" if inner.is_dir() else ""
        raise MolsliceError(
            f"{name_or_path} is a model of molslice fit, not a network; give the folder of a network{use}"
        )
    if is_ensemble(path):
        member = member_folders(path)[0]
        raise MolsliceError(
            f"{name_or_path} is an ensemble, not a network; give one of its networks, such as {member}"
        )
    return path


def load_network(
    name_or_path: str | Path,
    device: torch.device | str = "cpu",
    *,
    fragment: str | None = None,
    wildcards: str | None = None,
) -> NetworkPredictor:
    """Load a trained network; see `load_model`.

    Raises:
        MolsliceError: As in `load_model`, or the folder is an ensemble or was written by `molslice fit`.
    """
    find_network(name_or_path)
    predictor = load_model(name_or_path, device, fragment=fragment, wildcards=wildcards)
    assert isinstance(predictor, NetworkPredictor)
    return predictor


def load_encoder(
    name_or_path: str | Path,
    device: torch.device | str = "cpu",
    *,
    fragment: str | None = None,
    wildcards: str | None = None,
) -> NetworkPredictor:
    """Load a trained network that computes embeddings of molecules.

    Raises:
        MolsliceError: As in `load_network`, or the network has no embedding of molecules.
    """
    network = load_network(name_or_path, device, fragment=fragment, wildcards=wildcards)
    Embedder(network)
    return network


def name_device(device: str, *, computes: bool = True) -> str:
    """Return the device; for `auto` the first CUDA device if there is one and it `computes`, else the CPU."""
    if device != "auto":
        return device
    return "cuda" if computes and torch.cuda.is_available() else "cpu"


def _find_device(device: torch.device | str) -> torch.device:
    """Return the device after making an empty tensor on it."""
    device = name_device(device) if isinstance(device, str) else device
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names that torch is going to remove
            chosen = torch.device(device)
            torch.empty(0, device=chosen)
    except Exception as error:  # noqa: BLE001 - the errors of torch's backends have no common base
        reason = f"{error}".partition("\n")[0] or type(error).__name__
        raise MolsliceError(f"device {str(device)!r} is not available: {reason}") from error
    if chosen.type == "meta":
        raise MolsliceError("device 'meta' is not available for inference: its tensors have no values")
    return chosen
