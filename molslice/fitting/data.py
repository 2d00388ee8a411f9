"""The rows of a fit: molecules, targets, and which of them are held out."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from molslice.data.molecules.describe import DescribedMolecules
from molslice.data.molecules.refusals import Refusals
from molslice.files.tables import DEFAULT_FORMAT, NumberFormat
from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.targets import Kind, TargetInfo

__all__ = ["Duplicates", "FitData", "FitOptions", "Scale"]

Duplicates = Literal["average", "keep", "refuse"]
Scale = Literal["linear", "log"]


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How a table is read, divided and fitted; see the arguments of `molslice.fitting.fit.fit`.

    Attributes:
        written: How the numbers of the targets are written.
        positive: Words of class 1 of targets with two classes.
        order: Names of the classes of the only target in their order; empty for classes without an order.
        class_weight: `balanced` for classes that have equal weight; None for rows of equal weight.
    """

    smiles_column: str | None = None
    delimiter: str | None = None
    written: NumberFormat = DEFAULT_FORMAT
    outliers: str = "refuse"
    kind: Kind | None = None
    positive: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    class_weight: str | None = None
    scale: Scale | None = None
    split: str = "random"
    duplicates: Duplicates = "average"
    fragment: str = "keep"
    wildcards: str = "refuse"
    strict: bool = False
    members: int = 5
    minutes: float | None = None
    seed: int = 0

    @property
    def by_scaffold(self) -> bool:
        """Whether scaffolds, instead of compounds, are in one fold or held out."""
        return self.split == "scaffold"

    def to_mapping(self) -> dict[str, Any]:
        """Return the options that `fit.json` lists."""
        return {
            "delimiter": self.delimiter,
            "decimal": self.written.decimal,
            "missing_values": list(self.written.missing),
            "outliers": self.outliers,
            "positive": list(self.positive),
            "order": list(self.order),
            "class_weight": self.class_weight,
            "scale": self.scale,
            "split": self.split,
            "duplicates": self.duplicates,
            "members": self.members,
            "minutes": self.minutes,
            "seed": self.seed,
        }


@dataclass(slots=True)
class FitData:
    """Rows of a fit: one for each molecule, or for each measurement if duplicates are kept.

    Attributes:
        smiles: SMILES of each row as in the table.
        molecules: Descriptors, counts, canonical SMILES, parents and their scaffolds of the n rows.
        targets: float64 [n, T], NaN where missing; for classes, their indices.
        test: Whether a row is held out, bool [n].
        names: Names of the targets.
        kind: `regression`, `classification` or `multiclass`.
        smiles_column: The column of SMILES.
        findings: What was found in the table, one sentence each.
        notices: What may be wrong with the targets, one sentence each.
        losses: Findings that say why there are fewer rows or values than in the table.
        refusals: The rows whose SMILES cannot be read, by reason.
        replaced: Number of mixtures that were replaced by their largest molecule.
        logarithmic: Whether the common logarithm of a target is learned, for each target.
        classes: The classes of the only target if the kind is multiclass; else None.
        words: The names of class 0 and class 1 by target, of targets of two classes that have names.
    """

    smiles: list[str]
    molecules: DescribedMolecules
    targets: np.ndarray
    test: np.ndarray
    names: tuple[str, ...]
    kind: Kind
    smiles_column: str
    findings: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    refusals: Refusals = field(default_factory=Refusals)
    replaced: int = 0
    logarithmic: tuple[bool, ...] = ()
    classes: SeveralClasses | None = None
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def class_names(self, index: int) -> tuple[str, ...]:
        """Return the names of the classes of a target."""
        if self.classes is not None:
            return self.classes.names
        return self.words.get(self.names[index], ("0", "1"))

    def scaffold_or_parent(self, row: int) -> str:
        """Return the scaffold of a row, or its parent without rings: such compounds share no scaffold."""
        return self.molecules.scaffolds[row] or self.molecules.parents[row]

    def number_groups(self, *, by_scaffold: bool) -> np.ndarray:
        """Number the compounds of the rows, or their scaffolds: int [n]."""
        rows = range(len(self.smiles))
        names = [self.scaffold_or_parent(row) for row in rows] if by_scaffold else self.molecules.parents
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return np.array([numbers[name] for name in names])

    def keep(self, rows: np.ndarray) -> None:
        """Keep only these rows, int [k], in their order."""
        self.smiles = [self.smiles[row] for row in rows]
        self.molecules = self.molecules.take(rows)
        self.targets = self.targets[rows]
        self.test = self.test[rows] if len(self.test) else self.test

    def sort(self) -> np.ndarray:
        """Sort the rows by canonical SMILES, and rows of one molecule by split and targets.

        Returns:
            The place of each row before, int [n].
        """
        values = np.where(np.isfinite(self.targets), self.targets, np.inf)
        keys = [*zip(self.molecules.canonical, self.test.tolist(), values.tolist(), strict=True)]
        rows = np.array(sorted(range(len(keys)), key=keys.__getitem__))
        self.keep(rows)
        return rows

    def lose(self, finding: str) -> None:
        """Add a finding that says why there are fewer rows or values than in the table."""
        self.findings.append(finding)
        self.losses.append(finding)

    def describe(self, units: tuple[str, ...]) -> TargetInfo:
        """Describe the targets of the model by the training rows; see `TargetInfo.of_training`."""
        if self.classes is not None:
            classes = self.classes.names
            return TargetInfo.of_training(self.names, units, self.kind, self.targets[~self.test], classes)
        return TargetInfo.of_training(self.names, units, self.kind, self.learned[~self.test])

    @property
    def learned(self) -> np.ndarray:
        """What the model learns, float64 [n, T or P]: `targets`, their logarithms or the parts of classes.

        NaN where a held-out row has no logarithm.
        """
        if self.classes is not None:
            return self.classes.split(self.targets[:, 0])
        learned = self.targets.copy()
        for index in np.flatnonzero(self.logarithmic):
            values = self.targets[:, index]
            learned[:, index] = np.log10(values, where=values > 0, out=np.full(len(values), np.nan))
        return learned
