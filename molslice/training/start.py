"""Start a run from the weights of a trained model: which ones fit, and which are new."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from molslice.chem import have_same_features
from molslice.config import RunConfig, StartConfig, config_to_mapping, load_config
from molslice.data.base import Dataset
from molslice.files.cache import file_checksum
from molslice.folders.run import LoadedRun, model_file, read_config, read_run
from molslice.inference.load import find_network
from molslice.model import MODELS
from molslice.model.base import SIZES
from molslice.model.graphormer import DescriptorState
from molslice.model.layer_depth import head_names
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError

SHOWN = 8  # modules that a report names
# settings that the weights depend on; the number of layers may differ
SAME = (*SIZES[1:], "norm", "legacy_vocab")
FEATURES = "featurizer_version"
MAP = "descriptor_state.map"
# heads for atoms, bonds and pairs, whatever the targets
OF_ATOMS = {"atom_readout", "atom_head", "bond_head", "distance_head"}
CONVERTIBLE = {"descriptor_state", "readout", "variance_readout", *OF_ATOMS}


@dataclass(frozen=True, slots=True)
class StartSource:
    """A trained model to start from, which takes the data of the new run."""

    model: str  # its name
    sha256: str  # of its weights
    run: LoadedRun


@dataclass(frozen=True, slots=True)
class StartReport:
    """What a run took from a trained model."""

    model: str  # its name
    taken: int  # number of parameters that were taken
    total: int  # number of parameters of the new model
    new: tuple[str, ...]  # modules that start from random weights, with the reason
    unused: tuple[str, ...]  # modules of the trained model that are not used

    def __str__(self) -> str:
        share = f"{self.taken:,} of {self.total:,} parameters come from {self.model}"
        new = f"new: {_listed(self.new)}" if self.new else "nothing is new"
        unused = f"; not used: {_listed(self.unused)}" if self.unused else ""
        return f"{share}; {new}{unused}"


def load_run_config(path: str | Path, overrides: Sequence[tuple[str, str]] = ()) -> RunConfig:
    """Read a configuration as `load_config`, with the model and attention of `start.model` as defaults.

    Raises:
        MolsliceError: As `load_config`, or the model of `start.model` does not exist or is damaged.
    """
    return load_config(path, overrides, find_base=_sections_of_start)


def _sections_of_start(mapping: Mapping[str, Any]) -> dict[str, Any]:
    start = mapping.get("start")
    name = start.get("model") if isinstance(start, Mapping) else None
    if not isinstance(name, str):
        return {}
    config = read_config(find_network(name))
    source = config_to_mapping(config)
    given = mapping.get("model")
    wanted = given.get("name") if isinstance(given, Mapping) else None
    if wanted not in MODELS.names():  # a pretraining model is continued without its heads
        wanted = config.model.family
    known = {field.name for field in fields(MODELS.find(str(wanted)))} - {"preset"}  # pyright: ignore
    if isinstance(given, Mapping) and given.get("preset") is not None:
        known -= set(SIZES)
    model = {key: value for key, value in source["model"].items() if key in known}
    return {"model": {**model, "name": wanted}, "attention": source["attention"]}


def read_start(start: StartConfig, dataset: Dataset) -> StartSource:
    """Read a trained model and check that it takes the data of a new run, before its model is built."""
    folder = find_network(start.model)
    run, file = read_run(folder), model_file(folder)
    checksum = file_checksum(file)
    if start.sha256 not in (None, checksum):
        raise MolsliceError(
            f"{file} is not the model that the run started from: its SHA-256 is {checksum}, not "
            f"{start.sha256}"
        )
    _check_data(start.model, run, dataset)
    return StartSource(start.model, checksum, run)


def start_from(source: StartSource, config: RunConfig, model: nn.Module, targets: TargetInfo) -> StartReport:
    """Load the weights of a trained model that fit by name and shape.

    Heads are taken only for the same targets. They are converted to the mean and spread of the new training
    rows, so that predictions in the units of the targets stay the same. Predictions change for molecules with
    a descriptor that is limited to the range of the training rows, because the new rows have another range.

    Raises:
        MolsliceError: The trained model is of another family or size.
    """
    _check_model(source.model, source.run, config)
    weights, trained = model.state_dict(), source.run.model.state_dict()
    heads = tuple(f"{child}." for child in _heads_of_other_targets(model, source.run, targets))
    reasons: dict[str, str] = {}
    taken: dict[str, Tensor] = {}
    for key, tensor in weights.items():
        other = trained.get(key)
        if other is None:
            reasons[key] = "not there"
        elif key.startswith(heads):
            reasons[key] = "for other targets"
        elif other.shape != tensor.shape:
            reasons[key] = f"{list(tensor.shape)} instead of {list(other.shape)}"
        else:
            taken[key] = other
    model.load_state_dict({**weights, **taken, **_converted(model, source.run, taken, targets)})
    unused = trained.keys() - taken.keys() - reasons.keys()
    return StartReport(
        model=source.model,
        taken=sum(tensor.numel() for tensor in taken.values()),
        total=sum(tensor.numel() for tensor in weights.values()),
        new=tuple(f"{module} ({reason})" for module, reason in _by_module(reasons).items()),
        unused=tuple(_by_module(dict.fromkeys(unused, ""))),
    )


def _check_data(name: str, source: LoadedRun, dataset: Dataset) -> None:
    spec = dataset.spec
    if source.data.tokens != spec.tokens:
        raise MolsliceError(
            f"{name} takes {source.data.tokens}, but the data {dataset.source} are {spec.tokens}"
        )
    for field in ("vocabulary", "vocabulary_size", "channels", "grid"):
        trained, new = getattr(source.data, field), getattr(spec, field)
        if trained != new:
            raise MolsliceError(
                f"{name} was trained with another {field.replace('_', ' ')} than {dataset.source} has: "
                f"{trained!r} instead of {new!r}"
            )
    then, now = source.metadata.get(FEATURES), dataset.metadata.get(FEATURES)
    if then is not None and not have_same_features(then, now):
        raise MolsliceError(f"{name} was trained on features of version {then}; this version makes {now}")


def _check_model(name: str, source: LoadedRun, config: RunConfig) -> None:
    trained, new = source.config.model, config.model
    if trained.family != new.family:
        raise MolsliceError(
            f"{name} is a {trained.name}, whose weights do not fit model.name {new.name}; leave model out of "
            "the configuration to use the trained model's"
        )
    differing = [
        f"model.{field} is {getattr(new, field)!r}, not {getattr(trained, field)!r}"
        for field in SAME
        if getattr(new, field, None) != getattr(trained, field, None)
    ]
    if differing:
        raise MolsliceError(
            f"the weights of {name} do not fit: {'; '.join(differing)}; leave these settings out to use the "
            "trained model's"
        )


def _same_targets(one: TargetInfo, other: TargetInfo) -> bool:
    return all(
        getattr(one, field) == getattr(other, field) for field in ("names", "units", "kind", "classes")
    )


def _heads_of_other_targets(model: nn.Module, source: LoadedRun, targets: TargetInfo) -> list[str]:
    """Return the heads whose outputs have another meaning in the trained model."""
    heads, trained = head_names(model), source.targets
    scaled = targets.kind == "regression" and (trained.mean, trained.std) != (targets.mean, targets.std)
    if scaled and not set(heads) <= CONVERTIBLE:
        return heads
    changed = [] if _same_targets(trained, targets) else [name for name in heads if name not in OF_ATOMS]
    if trained.atoms and targets.atoms and not _same_targets(trained.atoms, targets.atoms):
        changed.append("atom_readout")
    if getattr(source.model, "atom_columns", None) != getattr(model, "atom_columns", None):
        changed.append("atom_head")
    return changed


def _converted(
    model: nn.Module, source: LoadedRun, taken: Mapping[str, Tensor], targets: TargetInfo
) -> dict[str, Tensor]:
    """Return the tensors of `taken` that change with the mean and spread of the training rows."""
    changed: dict[str, Tensor] = {}
    scalings = {"readout": (source.targets, targets), "atom_readout": (source.targets.atoms, targets.atoms)}
    for head, (then, now) in scalings.items():
        if f"{head}.weight" not in taken or then is None or now is None:
            continue
        shift, ratio = _float64(then.mean) - _float64(now.mean), _float64(then.std) / _float64(now.std)
        if not shift.any() and (ratio == 1.0).all():
            continue
        weight, bias = _linear(taken, head)
        changed[f"{head}.weight"] = weight * ratio[:, None]
        changed[f"{head}.bias"] = bias * ratio + shift / _float64(now.std)
        if head == "readout" and (key := "variance_readout.bias") in taken:
            changed[key] = taken[key].double() + 2.0 * ratio.log()
    then, now = (getattr(network, "descriptor_state", None) for network in (source.model, model))
    if isinstance(then, DescriptorState) and isinstance(now, DescriptorState) and f"{MAP}.weight" in taken:
        weight, bias = _linear(taken, MAP)
        changed[f"{MAP}.weight"] = weight * (now.std.double() / then.std.double())
        changed[f"{MAP}.bias"] = bias + weight @ (
            (now.mean.double() - then.mean.double()) / then.std.double()
        )
    return {key: tensor.to(taken[key].dtype) for key, tensor in changed.items()}


def _linear(tensors: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    """Return the weight and the bias of a linear map in float64."""
    return tensors[f"{name}.weight"].double(), tensors[f"{name}.bias"].double()


def _float64(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _by_module(reasons: Mapping[str, str]) -> dict[str, str]:
    """Return the reason for the first tensor of each module, sorted by module."""
    modules: dict[str, str] = {}
    for key in sorted(reasons, key=lambda key: (key.rpartition(".")[0] or key, not key.endswith("weight"))):
        module, _, last = key.rpartition(".")
        modules.setdefault(module if last in ("weight", "bias") and module else key, reasons[key])
    return modules


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
