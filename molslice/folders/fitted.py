"""The folder that `molslice fit` writes: `fit.json`, `learners.safetensors`, `rows.csv` and a card.

`rows.csv` holds the rows that the model was fitted and measured on, with the split, the fold and the
prediction of each. If the model was fitted again to all rows after it was measured, `held_out.csv` holds the
rows that were held out, with predictions of the model that had not learned them. `table_rows.csv` says which
rows of the table each row was made of, with their values. If the fit used a trained encoder, `encoder/` is a
copy of it and `networks/` has the fine-tuned network of each fold. Nothing in the folder can run code.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import save

from molslice.chem import DESCRIPTORS_VERSION, FRAGMENTS, STANDARDS, WILDCARDS
from molslice.data.molecules.conditions import Condition
from molslice.files.cache import file_checksum
from molslice.files.parsing import read_json_object
from molslice.files.received import check_received, read_arrays
from molslice.folders.run import MODEL, write_in_half
from molslice.learners import LEARNERS, Features, Learner
from molslice.learners.stacking import Stack
from molslice.pretrained import find_pretrained, pretrained_names
from molslice.tasks.target_types import Learned, TargetType, learned_targets, types_of
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import CALIBRATION, Calibration, HeldOut
from molslice.uncertainty.difficulty import ErrorScale

FIT, LEARNER_FILE, ROWS, CARD = "fit.json", "learners.safetensors", "rows.csv", "card.md"
HELD_OUT = "held_out.csv"  # with the columns of `ROWS`
TABLE_ROWS = "table_rows.csv"  # the rows of the table that `ROWS` was made of
ENCODER = "encoder"  # a run folder with its weights only
NETWORKS = "networks"  # a folder like `ENCODER` for each fold
FINE_TUNED = "fine_tuned"  # the name of the networks among the learners
RELATED_LEARNER = "gaussian_process"  # of related targets, whose arrays follow
DISAGREEMENT, SIZE = "disagreement", "size"  # indicators of difficulty that come from no single learner
FORMATS = tuple(f"molslice-fit-{version}" for version in range(1, 5))
FORMAT = FORMATS[-1]  # earlier versions do not read the arrays of the learners
MAX_ASSIGNMENTS, MAX_MEMBERS = 2, 1_000  # of a sound folder with several assignments
ROW_COLUMNS = ("smiles", "split", "fold")  # of `rows.csv`, before targets and predictions
ORIGIN_COLUMNS = ("smiles", "row", "file", "table_row", "line")  # of `table_rows.csv`, before targets
OUT_OF_FOLD = "out-of-fold predictions of the training rows"
Row = TypeVar("Row")
SEPARATOR = "/"  # in the names of arrays: target index, learner, array


@dataclass(frozen=True, slots=True)
class RelatedModel:
    """A model of a related target, whose prediction is a condition of the learners.

    Attributes:
        learner: The models of all folds of the related table.
        offset: Mean of the predictions for the training rows.
        scale: Their standard deviation; 1 if it is 0.
    """

    learner: Learner
    offset: float
    scale: float

    def scaled(self, predicted: np.ndarray) -> np.ndarray:
        """Return predictions as the learners take them, of mean zero and variance one in training rows."""
        return (predicted - self.offset) / self.scale


def with_related(features: Features, related: Sequence[RelatedModel]) -> Features:
    """Return the features of new molecules with the predicted related targets, means over all folds."""
    if not related:
        return features
    alone = replace(features, conditions=None)
    return features.with_conditions(
        [related_model.scaled(related_model.learner.predict(alone).mean(0)) for related_model in related]
    )


@dataclass(frozen=True, slots=True)
class FittedModel:
    """The learners of each target and how they are weighted.

    Attributes:
        targets: The description of the T targets. `mean` and `std` describe what is learned: the common
            logarithm, if the stack of a target is logarithmic. A target of several classes has learners and
            stacks of each of its parts (`SeveralClasses`).
        learners: For each target or part, the learners by name, except for the networks.
        stacks: For each target or part, the weights of its learners.
        about: The content of `fit.json`.
        scales: For each target or part, the expected error of a row; None for classes and in older folders.
        conditions: The numbers and categories that the learners take beside the molecule.
        related: The models of related targets, whose predictions the learners take after the conditions.
    """

    targets: TargetInfo
    learners: tuple[Mapping[str, Learner], ...]
    stacks: tuple[Stack, ...]
    about: Mapping[str, Any]
    scales: tuple[ErrorScale | None, ...]
    conditions: tuple[Condition, ...] = ()
    related: tuple[RelatedModel, ...] = ()

    @property
    def partner(self) -> str | None:
        """The column of the second molecule of a pair; None for single molecules."""
        return self.about.get("partner")

    @property
    def symmetric(self) -> bool:
        """Whether the order of the molecules of a pair has no meaning."""
        return bool(self.about["options"].get("symmetric", False))

    @property
    def types(self) -> tuple[TargetType, ...]:
        """What each target is."""
        return _read_types(self.targets, self.about)

    @property
    def network_kinds(self) -> dict[str, Learned]:
        """What the fine-tuned networks learn, by the kind in `network_folder`; empty without networks."""
        groups = learned_targets(self.targets, self.types) if self.num_networks else {}
        learned = {
            kind: group
            for kind, group in groups.items()
            if any(FINE_TUNED in self.stacks[column].names for column in group.columns)
        }
        return learned if len(groups) > 1 else dict(zip([""], learned.values(), strict=False))

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


def row_columns(targets: Sequence[str], others: Sequence[str] = ROW_COLUMNS) -> list[str]:
    """Name the columns of the targets in `rows.csv`: the targets, unless another column has that name.

    `others` are `ORIGIN_COLUMNS` for `table_rows.csv`.
    """
    columns, taken = [], {*others, *(name.strip() for name in targets)}
    for name in targets:
        column = name
        if name.strip() in others:
            while column.strip() in taken:
                column += "_measured"
            taken.add(column.strip())
        columns.append(column)
    return columns


def network_folder(folder: Path, fold: int, kind: str = "") -> Path:
    """Return the folder of the fine-tuned network of a fold.

    If the networks of numbers and of classes differ, `kind` is what it learns; else it is empty.
    """
    return folder / NETWORKS / kind / f"fold{fold}"


def is_fitted_folder(path: Path) -> bool:
    """Whether a folder was written by `molslice fit`."""
    return (path / FIT).is_file()


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
        expected = sum(target_type.num_parts for target_type in _read_types(targets, record))
        scales = _read_scales(record, expected)
        conditions = _read_conditions(record)
    except MolsliceError as error:
        raise MolsliceError(f"cannot read {folder / FIT}: {error}") from error
    if len(stacks) != expected:
        raise MolsliceError(f"{folder / FIT} weighs {len(stacks)} targets, but has {expected}")
    if record.get("encoder") is not None and not _has_encoder(folder, record):
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
    related = _read_related(record, arrays, len(stacks), folder)
    model = FittedModel(targets, learners, stacks, record, scales, conditions, related)
    _check_folds(model, folder)
    _check_side_columns(model, folder)
    _check_scales(model, folder)
    for name, choices in (("fragment", FRAGMENTS), ("wildcards", WILDCARDS), ("standardize", STANDARDS)):
        _require(getattr(model, name) in choices, name, getattr(model, name), folder)
    _check_networks(model, folder)
    return model


def _read_types(targets: TargetInfo, record: Mapping[str, Any]) -> tuple[TargetType, ...]:
    ordered = record.get("ordered", ())
    if isinstance(ordered, bool):  # of the only target
        ordered = targets.names * ordered
    return types_of(targets, ordered, record.get("class_words"))


def _has_encoder(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether the folder has a copy of the encoder, in float16, or the same one ships with the package."""
    if (folder / ENCODER).is_dir():
        return True
    if record["encoder"] not in pretrained_names():
        return False
    return file_checksum(find_pretrained(record["encoder"]) / MODEL) == record.get("encoder_sha256")


def _check_classes(targets: TargetInfo, record: Mapping[str, Any]) -> None:
    """Check what the folder says about the names of classes."""
    kinds = {target.names[0]: target.kind for target in targets.each}
    for kind in kinds.values():
        if kind not in ("regression", "classification", "multiclass"):
            raise MolsliceError(f"invalid kind {kind!r}")
    ordered = record.get("ordered")
    if targets.kind == "mixed":
        sound = isinstance(ordered, list) and all(kinds.get(str(name)) == "multiclass" for name in ordered)
    else:
        sound = isinstance(ordered, bool) == (targets.kind == "multiclass")
    if not sound:
        raise MolsliceError(f"invalid ordered for targets of kind {targets.kind}: {ordered!r:.80}")
    words = record.get("class_words", {})
    sound = isinstance(words, dict)
    for name, pair in words.items() if sound else ():
        sound = sound and kinds.get(name) == "classification" and isinstance(pair, list) and len(pair) == 2
        sound = sound and all(isinstance(word, str) and word for word in pair) and pair[0] != pair[1]
    if not sound:
        raise MolsliceError(f"invalid class_words: {words!r:.200}")


def _check_folds(model: FittedModel, folder: Path) -> None:
    options = model.about.get("options")
    count = options.get("members") if isinstance(options, dict) else None
    _require(_is_whole(count, 1), "members", count, folder)
    repeats = model.num_assignments
    known = _is_whole(repeats, 1) and repeats <= MAX_ASSIGNMENTS
    _require(known and (repeats == 1 or model.num_members <= MAX_MEMBERS), "assignments", repeats, folder)


def _check_side_columns(model: FittedModel, folder: Path) -> None:
    for option in ("relations", "unit_columns"):
        columns = model.about["options"].get(option)
        sound = columns is None or (isinstance(columns, list) and len(columns) == len(model.targets.names))
        sound = sound and all(column is None or isinstance(column, str) for column in columns or ())
        _require(sound, option, columns, folder)


def _check_networks(model: FittedModel, folder: Path) -> None:
    """Check that there is a network for each fold if a stack weighs them."""
    count = model.num_networks
    _require(_is_whole(count, 0), "networks", count, folder)
    if not count and not any(FINE_TUNED in stack.names for stack in model.stacks):
        return
    if model.num_folds != count:
        raise MolsliceError(f"{folder / FIT} has {count} fine-tuned networks, but not as many folds")
    if not model.needs_encoder:
        raise MolsliceError(f"{folder / FIT} has fine-tuned networks, but no encoder")
    for place in (
        network_folder(folder, fold, kind) for kind in model.network_kinds for fold in range(count)
    ):
        if not place.is_dir():
            raise MolsliceError(f"{folder} is incomplete: {place} is missing")


def _is_whole(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def _require(sound: bool, name: str, value: object, folder: Path) -> None:
    if not sound:
        raise MolsliceError(f"invalid {name} in {folder / FIT}: {value!r:.200}")


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
    if len({condition.name for condition in conditions}) < len(conditions):
        raise MolsliceError("two conditions have the same name")
    return conditions


def _read_related(
    record: Mapping[str, Any], arrays: Mapping[str, np.ndarray], start: int, folder: Path
) -> tuple[RelatedModel, ...]:
    """Read the models of related targets, whose arrays are numbered from `start`."""
    listed = record.get("related", [])
    _require(isinstance(listed, list), "related", listed, folder)
    models = []
    for number, entry in enumerate(listed, start):
        _require(isinstance(entry, dict), "related", listed, folder)
        numbers = [entry.get(name) for name in ("offset", "scale")]
        sound = all(isinstance(value, float) and np.isfinite(value) for value in numbers) and numbers[1] > 0
        _require(sound, "offset or scale of a related target", numbers, folder)
        models.append(
            RelatedModel(_learner(RELATED_LEARNER, number, arrays, folder / LEARNER_FILE), *numbers)
        )
    return tuple(models)


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


def out_of_fold_calibration(folder: Path, model: FittedModel) -> Calibration:
    """Read the calibration of a folder that was written without one.

    The intervals have equal width for all rows, because `rows.csv` does not have the difficulty of a row.

    Raises:
        MolsliceError: `rows.csv` is missing or damaged, or has no out-of-fold predictions, or the model has
            several assignments.
    """
    if model.num_assignments > 1:
        raise MolsliceError(f"{folder} is incomplete: {folder / CALIBRATION} is missing")
    file, targets = folder / ROWS, model.targets
    columns = row_columns(targets.names)
    start, count = len(ROW_COLUMNS), len(columns)
    check_received(file)
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            header, *lines = csv.reader(stream)
        if header[: start + count] != [*ROW_COLUMNS, *columns] or len(header) < start + 2 * count:
            raise ValueError(f"unexpected columns {', '.join(header)}")
        training = [line for line in lines if line[1] == "train"]
        folds = np.array([int(line[2]) for line in training], np.int64)
        cells = np.array(
            [
                [float(cell) if cell else np.nan for cell in line[start : start + 2 * count]]
                for line in training
            ],
            np.float64,
        ).reshape(len(training), 2 * count)
    except (OSError, ValueError, IndexError, UnicodeDecodeError, csv.Error) as error:
        raise MolsliceError(f"cannot read out-of-fold predictions from {file}: {error}") from error
    if len(folds) and not (folds.min() >= 0 and folds.max() < model.num_folds):
        raise MolsliceError(f"{file} has folds up to {folds.max()}, but the model has {model.num_folds}")
    held_out = []
    for index, (name, stack) in enumerate(zip(targets.names, model.stacks, strict=False)):
        pair = cells[:, index], cells[:, count + index]
        held_out.append(HeldOut.of_rows(name, targets.kind, *pair, folds, logarithmic=stack.logarithmic))
    return Calibration(targets.kind, model.num_folds, OUT_OF_FOLD, tuple(held_out))


def training_pairs(folder: Path, partner: str) -> list[tuple[str, str]]:
    """Read both SMILES of the training rows of a fit of pairs; the second one is in the column `partner`.

    Raises:
        MolsliceError: `rows.csv` is missing or damaged.
    """
    return _read_training_rows(folder, lambda row: (row["smiles"], row[partner]))


def training_rows(folder: Path, targets: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Read the SMILES of the n training rows, and the values of T targets, float64 [n, T], NaN where missing.

    Raises:
        MolsliceError: `rows.csv` is missing or damaged.
    """
    columns = row_columns(targets)
    rows = _read_training_rows(
        folder, lambda row: (row["smiles"], [float(row[name] or np.nan) for name in columns])
    )
    values = np.array([of_row for _, of_row in rows])
    return [smiles for smiles, _ in rows], values.reshape(len(rows), len(columns))


def _read_training_rows(folder: Path, read: Callable[[dict[str, str]], Row]) -> list[Row]:
    """Read the training rows in `rows.csv`, each with a function of its cells."""
    file = folder / ROWS
    check_received(file)
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            return [read(row) for row in csv.DictReader(stream) if row["split"] == "train"]
    except FileNotFoundError as error:
        raise MolsliceError(
            f"{folder} has no {ROWS}, the training molecules to compare with; the folder of a published "
            "model lacks it, unless the training data were published too"
        ) from error
    except (OSError, KeyError, ValueError, TypeError, UnicodeDecodeError, csv.Error) as error:
        raise MolsliceError(f"cannot read the training molecules from {file}: {error}") from error
