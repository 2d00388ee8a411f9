"""What each target of a model is: a number, or two or several classes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from molslice.tasks.metrics import METRIC_NAMES, mean_absolute_error, roc_auc
from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.targets import Kind, TargetInfo


@dataclass(frozen=True, slots=True)
class TargetType:
    """What a target is.

    Attributes:
        kind: `regression`, `classification` (two classes) or `multiclass`.
        several: The classes if there are more than two; else None.
        words: The names of class 0 and class 1; empty for a number, and if the classes have no names.
    """

    kind: Kind
    several: SeveralClasses | None = None
    words: tuple[str, ...] = ()

    @property
    def has_classes(self) -> bool:
        """Whether it is no number."""
        return self.kind != "regression"

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, "0" and "1" if they have none; empty for a number."""
        if self.several is not None:
            return self.several.names
        return (self.words or ("0", "1")) if self.has_classes else ()

    @property
    def metric(self) -> str:
        """Name of the primary metric."""
        return METRIC_NAMES[self.kind] if self.several is None else self.several.metrics[0]

    @property
    def num_columns(self) -> int:
        """Number of columns of a prediction: one, or one for each of several classes."""
        return 1 if self.several is None else len(self.several.names)

    @property
    def num_parts(self) -> int:
        """Number of columns that are learned: one, or one for each part of several classes."""
        return 1 if self.several is None else len(self.several.part_names)

    def absent_class(self, values: np.ndarray) -> str | None:
        """Return the first of several classes that no value has; None if all occur, or there are only two."""
        names = () if self.several is None else self.several.names
        return next((name for label, name in enumerate(names) if label not in values), None)

    def names_of_parts(self, name: str) -> tuple[str, ...]:
        """Name what is learned of a target of this name."""
        return (
            (name,)
            if self.several is None
            else tuple(f"{name} {part_name}" for part_name in self.several.part_names)
        )

    def measure(self, predicted: np.ndarray, truth: np.ndarray) -> dict[str, float]:
        """Compute metrics by name, the primary one first, of predictions [n, columns] and values [n]."""
        if self.several is not None:
            return self.several.measure_all(predicted, truth)
        compute = roc_auc if self.has_classes else mean_absolute_error
        return {self.metric: compute(predicted[:, 0], truth)}


class Learned(NamedTuple):
    """What the networks of one kind learn.

    Attributes:
        columns: Its columns among all that are learned.
        targets: Its description.
    """

    columns: list[int]
    targets: TargetInfo


def types_of(
    targets: TargetInfo, ordered: Sequence[str] = (), words: Mapping[str, Sequence[str]] | None = None
) -> tuple[TargetType, ...]:
    """Return the type of each target.

    Args:
        targets: The targets.
        ordered: Names of the targets whose classes have an order.
        words: The names of class 0 and class 1, by target, of targets whose two classes have names.
    """
    types = []
    for target in targets.each:
        name = target.names[0]
        several = SeveralClasses(target.classes, ordered=name in ordered) if target.classes else None
        types.append(TargetType(target.kind, several, tuple((words or {}).get(name, ()))))
    return tuple(types)


def common_kind(types: Sequence[TargetType]) -> Kind:
    """Return the kind of all targets; `mixed` if they differ, or if several targets have several classes."""
    kinds = {target_type.kind for target_type in types}
    several = len(types) > 1 and "multiclass" in kinds
    return "mixed" if len(kinds) > 1 or several else types[0].kind


def column_slices(types: Sequence[TargetType]) -> Iterator[slice]:
    """Yield the columns of each target in a prediction."""
    return _slices([target_type.num_columns for target_type in types])


def columns_of_kind(types: Sequence[TargetType], kind: str) -> list[int]:
    """Return the columns of the targets of a kind in a prediction."""
    pairs = zip(types, column_slices(types), strict=True)
    return [
        column
        for target_type, columns in pairs
        if target_type.kind == kind
        for column in range(columns.start, columns.stop)
    ]


def has_named_classes(types: Sequence[TargetType]) -> bool:
    """Whether the classes of some target have names; the others are then named "0" and "1"."""
    return any(target_type.words or target_type.several is not None for target_type in types)


def part_slices(types: Sequence[TargetType]) -> Iterator[slice]:
    """Yield the columns of each target among all that are learned."""
    return _slices([target_type.num_parts for target_type in types])


def targets_of_parts(types: Sequence[TargetType]) -> list[int]:
    """Return the number of the target of each column that is learned."""
    return [index for index, target_type in enumerate(types) for _ in range(target_type.num_parts)]


def _slices(sizes: Sequence[int]) -> Iterator[slice]:
    start = 0
    for size in sizes:
        yield slice(start, start + size)
        start += size


def learned_targets(targets: TargetInfo, types: Sequence[TargetType]) -> dict[str, Learned]:
    """Return what the networks of numbers (`regression`) and of classes (`classification`) learn."""
    by_kind: dict[str, list[tuple[int, tuple[str, str, float, float]]]] = {}
    for target, of_target, columns in zip(targets.each, types, part_slices(types), strict=True):
        kind = "classification" if of_target.has_classes else "regression"
        unit = target.units[0] if of_target.several is None else ""
        for column, name in enumerate(of_target.names_of_parts(target.names[0]), columns.start):
            by_kind.setdefault(kind, []).append((column, (name, unit, target.mean[0], target.std[0])))
    learned = {}
    for kind, parts in by_kind.items():
        names, units, means, spreads = zip(*(fields for _, fields in parts), strict=True)
        learned[kind] = Learned(
            [column for column, _ in parts],
            TargetInfo(names, units, kind, means, spreads),  # type: ignore[arg-type]
        )
    return learned
