"""The folder that `molslice fit` writes: `fit.json`, `learners.safetensors`, `rows.csv` and a card.

`rows.csv` holds the rows that the model was fitted and measured on, with the split, the fold and the
prediction of each. If the model was fitted again to all rows after it was measured, `held_out.csv` holds the
rows that were held out, with predictions of the model that had not learned them. If the fit used a trained
encoder, `encoder/` is a copy of it and `networks/` has the fine-tuned network of each fold. Nothing in the
folder can run code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from molslice.chem import DESCRIPTORS_VERSION, FRAGMENTS, STANDARDS, WILDCARDS
from molslice.data.molecules.conditions import Condition
from molslice.files.parsing import read_json_object
from molslice.files.received import read_arrays
from molslice.folders.run import write_in_half
from molslice.learners import LEARNERS, Learner
from molslice.learners.stacking import Stack
from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from molslice.uncertainty.difficulty import ErrorScale

__all__ = [
    "CARD",
    "DISAGREEMENT",
    "ENCODER",
    "FINE_TUNED",
    "FIT",
    "HELD_OUT",
    "LEARNER_FILE",
    "NETWORKS",
    "ROWS",
    "ROW_COLUMNS",
    "SIZE",
    "FittedModel",
    "is_fitted_folder",
    "network_folder",
    "read_fitted",
    "row_columns",
    "save_encoder",
    "save_learners",
]

FIT, LEARNER_FILE, ROWS, CARD = "fit.json", "learners.safetensors", "rows.csv", "card.md"
HELD_OUT = "held_out.csv"  # with the columns of `ROWS`
ENCODER = "encoder"  # a run folder with its weights only
NETWORKS = "networks"  # a folder like `ENCODER` for each fold
FINE_TUNED = "fine_tuned"  # the name of the networks among the learners
DISAGREEMENT, SIZE = "disagreement", "size"  # indicators of difficulty that come from no single learner
FORMATS = tuple(f"molslice-fit-{version}" for version in range(1, 5))
FORMAT = FORMATS[-1]  # earlier versions do not read the arrays of the learners
MAX_ASSIGNMENTS, MAX_MEMBERS = 2, 1_000  # of a sound folder with several assignments
ROW_COLUMNS = ("smiles", "split", "fold")  # of `rows.csv`, before targets and predictions
SEPARATOR = "/"  # in the names of arrays: target index, learner, array


@dataclass(frozen=True, slots=True)
class FittedModel:
    """The learners of each target and how they are weighted.

    Attributes:
        targets: The description of the T targets. `mean` and `std` describe what is learned: the common
            logarithm, if the stack of a target is logarithmic. Several classes have learners and stacks of
            each of their P parts (`SeveralClasses`) instead of each target.
        learners: For each target or part, the learners by name, except for the networks.
        stacks: For each target or part, the weights of its learners.
        about: The content of `fit.json`.
        scales: For each target, the expected error of a row; None for classes and in older folders.
        conditions: The numbers and categories that the learners take beside the molecule.
    """

    targets: TargetInfo
    learners: tuple[Mapping[str, Learner], ...]
    stacks: tuple[Stack, ...]
    about: Mapping[str, Any]
    scales: tuple[ErrorScale | None, ...]
    conditions: tuple[Condition, ...] = ()

    @property
    def partner(self) -> str | None:
        """The column of the second molecule of a pair; None for single molecules."""
        return self.about.get("partner")

    @property
    def symmetric(self) -> bool:
        """Whether the order of the molecules of a pair has no meaning."""
        return bool(self.about["options"].get("symmetric", False))

    @property
    def classes(self) -> SeveralClasses | None:
        """The classes, if there are more than two."""
        names = self.targets.classes
        return SeveralClasses(names, ordered=self.about["ordered"]) if names else None

    @property
    def class_words(self) -> Mapping[str, Sequence[str]]:
        """The names of class 0 and class 1, by target, of targets whose classes have names."""
        return self.about.get("class_words", {})

    @property
    def num_networks(self) -> int:
        """Number of fine-tuned networks, one for each fold; 0 without them."""
        return self.about.get("networks", 0)

    @property
    def num_folds(self) -> int:
        """Number K of folds into which the rows were divided."""
        return self.about["options"]["members"]

    @property
    def num_assignments(self) -> int:
        """Number A of assignments of rows to folds."""
        return self.about.get("assignments", 1)

    @property
    def num_members(self) -> int:
        """Number K^A of members that are averaged; see `molslice.learners.fold_averages`."""
        return self.num_folds**self.num_assignments

    @property
    def fragment(self) -> str:
        """What happened to mixtures in the fit, and happens in predictions; one of `FRAGMENTS`."""
        return self.about.get("fragment", "keep")

    @property
    def wildcards(self) -> str:
        """What happened to wildcards in the fit, and happens in predictions; one of `WILDCARDS`."""
        return self.about.get("wildcards", "refuse")

    @property
    def standardize(self) -> str:
        """What standard form molecules had in the fit, and get in predictions; one of `STANDARDS`."""
        return self.about.get("standardize", "no")

    @property
    def needs_encoder(self) -> bool:
        """Whether the learners take the embeddings of the encoder in the folder."""
        return self.about.get("encoder") is not None


def row_columns(targets: Sequence[str]) -> list[str]:
    """Name the columns of the targets in `rows.csv`: the targets, unless another column has that name."""
    columns, taken = [], {*ROW_COLUMNS, *(name.strip() for name in targets)}
    for name in targets:
        column = name
        if name.strip() in ROW_COLUMNS:
            while column.strip() in taken:
                column += "_measured"
            taken.add(column.strip())
        columns.append(column)
    return columns


def network_folder(folder: Path, fold: int) -> Path:
    """Return the folder of the fine-tuned network of a fold."""
    return folder / NETWORKS / f"fold{fold}"


def is_fitted_folder(path: Path) -> bool:
    """Whether a folder was written by `molslice fit`."""
    return (path / FIT).is_file()


def describe_model(
    targets: TargetInfo,
    stacks: Sequence[Stack],
    scales: Sequence[ErrorScale | None],
    encoder: str | None,
    encoder_sha256: str | None,
    networks: int,
    assignments: int,
    standardize: str = "no",
    conditions: Sequence[Condition] = (),
    partner: str | None = None,
    classes: SeveralClasses | None = None,
    words: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return the part of `fit.json` that `read_fitted` needs.

    Args:
        targets: The description of the targets; see `FittedModel`.
        stacks: The weights of the learners of each target.
        scales: The expected error of a row for each target; None for classes.
        encoder: Name of the trained encoder whose embeddings are features; None without one.
        encoder_sha256: Checksum of its weights; None without one.
        networks: Number of fine-tuned networks.
        assignments: Number of assignments of rows to folds.
        standardize: What standard form molecules get.
        conditions: The numbers and categories that the learners take beside the molecule.
        partner: The column of the second molecule of a pair; None for single molecules.
        classes: The classes of the only target, if there are more than two.
        words: The names of class 0 and class 1, by target, of targets whose classes have names.
    """
    named = {} if classes is None else {"ordered": classes.ordered}
    if words:
        named = {"class_words": {name: list(pair) for name, pair in words.items()}}
    return {
        "format": FORMAT,
        "descriptors_version": DESCRIPTORS_VERSION,
        "targets": targets.to_mapping(),
        "stacks": [stack.to_mapping() for stack in stacks],
        "scales": [None if scale is None else scale.to_mapping() for scale in scales],
        "encoder": encoder,
        "encoder_sha256": encoder_sha256,
        "networks": networks,
        "assignments": assignments,
        **({} if standardize == "no" else {"standardize": standardize}),
        **({"conditions": [one.to_mapping() for one in conditions]} if conditions else {}),
        **({} if partner is None else {"partner": partner}),
        **named,
    }


def save_learners(folder: Path, learners: Sequence[Mapping[str, Learner]]) -> None:
    """Write the arrays of all learners to `learners.safetensors`."""
    arrays = {
        SEPARATOR.join((str(target), name, key)): np.ascontiguousarray(array)
        for target, by_name in enumerate(learners)
        for name, learner in by_name.items()
        for key, array in learner.arrays().items()
    }
    # unlike `save_file`, this raises an OSError if the disk is full
    (folder / LEARNER_FILE).write_bytes(save(arrays, metadata={"format": FORMAT}))


def save_encoder(folder: Path, file: Path) -> None:
    """Write the weights of a trained encoder in float16, with its configuration, into the folder."""
    (folder / ENCODER).mkdir()
    write_in_half(file, folder / ENCODER)


def read_fitted(folder: Path) -> FittedModel:
    """Read a fitted model.

    Raises:
        MolsliceError: A file is missing, damaged, of another version, or does not fit the others.
    """
    record = read_json_object(folder / FIT)
    if record.get("format") not in FORMATS:
        raise MolsliceError(
            f"{folder / FIT} has format {record.get('format')!r}; this version reads {', '.join(FORMATS)}"
        )
    if record.get("descriptors_version") != DESCRIPTORS_VERSION:
        raise MolsliceError(
            f"{folder} was fitted on descriptors of version {record.get('descriptors_version')!r}; this "
            f"version of molslice computes {DESCRIPTORS_VERSION}: fit it again"
        )
    try:
        targets = TargetInfo.from_mapping(record.get("targets"))
        _check_classes(targets, record)
        stacks = _read_stacks(record, folder)
        several = SeveralClasses(targets.classes, ordered=bool(record.get("ordered")))
        expected = len(several.part_names if targets.classes else targets.names)
        scales = _read_scales(record, expected)
        conditions = _read_conditions(record)
    except MolsliceError as error:
        raise MolsliceError(f"cannot read {folder / FIT}: {error}") from error
    if len(stacks) != expected:
        raise MolsliceError(f"{folder / FIT} weighs {len(stacks)} targets, but has {expected}")
    if record.get("encoder") is not None and not (folder / ENCODER).is_dir():
        raise MolsliceError(f"{folder} was fitted with the embeddings of an encoder, but has no {ENCODER}/")
    arrays = read_arrays(folder / LEARNER_FILE)
    learners = tuple(
        {
            name: _learner(name, index, arrays, folder / LEARNER_FILE)
            for name in stack.names
            if name != FINE_TUNED
        }
        for index, stack in enumerate(stacks)
    )
    model = FittedModel(targets, learners, stacks, record, scales, conditions)
    _check_folds(model, folder)
    _check_side_columns(model, folder)
    _check_scales(model, folder)
    if model.fragment not in FRAGMENTS:
        raise MolsliceError(f"invalid fragment in {folder / FIT}: {model.fragment!r}")
    if model.wildcards not in WILDCARDS:
        raise MolsliceError(f"invalid wildcards in {folder / FIT}: {model.wildcards!r}")
    if model.standardize not in STANDARDS:
        raise MolsliceError(f"invalid standardize in {folder / FIT}: {model.standardize!r}")
    _check_networks(model, folder)
    return model


def _check_classes(targets: TargetInfo, record: Mapping[str, Any]) -> None:
    """Check what the folder says about the names of classes.

    Raises:
        MolsliceError: It is invalid.
    """
    several = targets.kind == "multiclass"
    if targets.kind not in ("regression", "classification", "multiclass"):
        raise MolsliceError(f"invalid kind {targets.kind!r}")
    if several != isinstance(record.get("ordered"), bool):
        raise MolsliceError(
            f"invalid ordered for targets of kind {targets.kind}: {record.get('ordered')!r:.80}"
        )
    words = record.get("class_words", {})
    sound = isinstance(words, dict) and targets.kind == "classification" or words == {}
    for name, pair in words.items() if sound else ():
        sound = sound and name in targets.names and isinstance(pair, list) and len(pair) == 2
        sound = sound and all(isinstance(word, str) and word for word in pair) and pair[0] != pair[1]
    if not sound:
        raise MolsliceError(f"invalid class_words: {words!r:.200}")


def _check_folds(model: FittedModel, folder: Path) -> None:
    options = model.about.get("options")
    count = options.get("members") if isinstance(options, dict) else None
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise MolsliceError(f"invalid members in {folder / FIT}: {count!r}")
    repeats = model.num_assignments
    known = isinstance(repeats, int) and not isinstance(repeats, bool) and 1 <= repeats <= MAX_ASSIGNMENTS
    if not known or (repeats > 1 and model.num_members > MAX_MEMBERS):
        raise MolsliceError(f"invalid assignments in {folder / FIT}: {repeats!r}")


def _check_side_columns(model: FittedModel, folder: Path) -> None:
    for option in ("relations", "unit_columns"):
        columns = model.about["options"].get(option)
        sound = columns is None or (isinstance(columns, list) and len(columns) == len(model.targets.names))
        if not sound or not all(column is None or isinstance(column, str) for column in columns or ()):
            raise MolsliceError(f"invalid {option} in {folder / FIT}: {columns!r:.200}")


def _check_networks(model: FittedModel, folder: Path) -> None:
    """Check that there is a network for each fold if a stack weighs them."""
    count = model.num_networks
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise MolsliceError(f"invalid networks in {folder / FIT}: {count!r}")
    if not count and not any(FINE_TUNED in stack.names for stack in model.stacks):
        return
    folds = {model.about.get("options", {}).get("members")}
    if folds != {count}:
        raise MolsliceError(f"{folder / FIT} has {count} fine-tuned networks, but not as many folds")
    if not model.needs_encoder:
        raise MolsliceError(f"{folder / FIT} has fine-tuned networks, but no encoder")
    for fold in range(count):
        if not network_folder(folder, fold).is_dir():
            raise MolsliceError(f"{folder} is incomplete: {network_folder(folder, fold)} is missing")


def _read_stacks(record: Mapping[str, Any], folder: Path) -> tuple[Stack, ...]:
    stacks = record.get("stacks")
    if not isinstance(stacks, list) or not all(isinstance(stack, dict) for stack in stacks):
        raise MolsliceError(f"invalid stacks in {folder / FIT}")
    return tuple(Stack.from_mapping(stack) for stack in stacks)


def _read_scales(record: Mapping[str, Any], targets: int) -> tuple[ErrorScale | None, ...]:
    scales = record.get("scales", [None] * targets)
    if not isinstance(scales, list) or len(scales) != targets:
        raise MolsliceError(f"invalid scales: one for each of {targets} targets is needed")
    return tuple(None if scale is None else ErrorScale.from_mapping(scale) for scale in scales)


def _read_conditions(record: Mapping[str, Any]) -> tuple[Condition, ...]:
    listed = record.get("conditions", [])
    options, partner = record.get("options"), record.get("partner")
    asked = options if isinstance(options, dict) else {}
    if not isinstance(listed, list) or len(listed) != len(asked.get("conditions", ())):
        raise MolsliceError(f"invalid conditions: {listed!r:.80}")
    if not isinstance(partner, str | None) or isinstance(partner, str) != ("symmetric" in asked):
        raise MolsliceError(f"invalid second molecule: {partner!r:.80}")
    conditions = tuple(map(Condition.from_mapping, listed))
    if len({one.name for one in conditions}) < len(conditions):
        raise MolsliceError("two conditions have the same name")
    return conditions


def _check_scales(model: FittedModel, folder: Path) -> None:
    """Check that the learners of a target give the indicators of its scale, for each fold."""
    for scale, learners in zip(model.scales, model.learners, strict=True):
        known = {DISAGREEMENT, SIZE, *(name for learner in learners.values() for name in learner.indicators)}
        if scale is not None and (not known.issuperset(scale.names) or len(scale.lines) != model.num_folds):
            raise MolsliceError(f"the scales in {folder / FIT} do not fit the learners")


def _learner(name: str, target: int, arrays: Mapping[str, np.ndarray], file: Path) -> Learner:
    prefix = SEPARATOR.join((str(target), name, ""))
    of_learner = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    try:
        return LEARNERS.find(name).from_arrays(of_learner)
    except MolsliceError as error:
        raise MolsliceError(f"{file}, {name} of target {target + 1}: {error}") from error
