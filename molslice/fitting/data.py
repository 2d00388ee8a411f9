"""The rows of a fit: molecules, targets, and which of them are held out."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from molslice.data.molecules.describe import DescribedMolecules
from molslice.data.molecules.refusals import Refusals
from molslice.files.tables import DEFAULT_FORMAT, NumberFormat
from molslice.learners import Labels
from molslice.tasks.targets import Kind

__all__ = ["Duplicates", "FitData", "FitOptions", "Limits", "Scale", "Transform"]

Duplicates = Literal["average", "keep", "refuse"]
Limits = Literal["learn", "drop", "exact"]
Transform = Literal["p"]
Scale = Literal["linear", "log"]


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How a table is read, divided and fitted; see the arguments of `molslice.fitting.fit.fit`.

    Attributes:
        written: How the numbers of the targets are written.
        relations: The column of relations of each target, None for one without; None finds it.
        units: The unit of each target, "" for one without; empty for no units.
        unit_columns: The column of units of each target, None or "" for one without; None finds it.
        transform: `p` to learn the negative common logarithm of concentrations in mol/L; None for values.
        weight: The column of weights; None without one.
        errors: The column of standard errors of each target, None for one without.
    """

    smiles_column: str | None = None
    delimiter: str | None = None
    written: NumberFormat = DEFAULT_FORMAT
    outliers: str = "refuse"
    kind: Kind | None = None
    scale: Scale | None = None
    split: str = "random"
    duplicates: Duplicates = "average"
    limits: Limits = "learn"
    relations: tuple[str | None, ...] | None = None
    units: tuple[str, ...] = ()
    unit_columns: tuple[str | None, ...] | None = None
    transform: Transform | None = None
    weight: str | None = None
    errors: tuple[str | None, ...] | None = None
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
            "scale": self.scale,
            "split": self.split,
            "duplicates": self.duplicates,
            "limits": self.limits,
            "relations": self.relations,
            "unit_columns": self.unit_columns,
            "transform": self.transform,
            "weight": self.weight,
            "errors": self.errors,
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
        targets: Exact values, float64 [n, T], NaN where missing or a limit.
        test: Whether a row is held out, bool [n].
        names: Names of the targets.
        kind: `regression` or `classification`.
        smiles_column: The column of SMILES.
        findings: What was found in the table, one sentence each.
        notices: What may be wrong with the targets, one sentence each.
        losses: Findings that say why there are fewer rows or values than in the table.
        refusals: The rows whose SMILES cannot be read, by reason.
        replaced: Number of mixtures that were replaced by their largest molecule.
        logarithmic: Whether the common logarithm of a target is learned, for each target.
        bounds: Least and largest possible value of each target, float64 [2, n, T]: equal to `targets` where
            these are known, infinite where there is no bound; None if the table has no limits.
        units: Unit of each target, "" for one without.
        weights: How much a row counts, positive, float64 [n]; None if all rows count alike.
        noise: Standard error of each value, in its unit, float64 [n, T], 0 for a target without any; None if
            there are no standard errors.
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
    bounds: np.ndarray | None = None
    units: tuple[str, ...] = ()
    weights: np.ndarray | None = None
    noise: np.ndarray | None = None

    @property
    def known(self) -> np.ndarray:
        """Whether a target has a value or a limit, bool [n, T]."""
        finite = np.isfinite(self.targets[None] if self.bounds is None else self.bounds)
        return np.asarray(finite.any(0))

    @property
    def limited(self) -> np.ndarray:
        """Whether only limits of a target are known, bool [n, T]."""
        return np.asarray(self.known & np.isnan(self.targets))

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
        self.bounds = None if self.bounds is None else self.bounds[:, rows]
        self.weights = None if self.weights is None else self.weights[rows]
        self.noise = None if self.noise is None else self.noise[rows]
        self.test = self.test[rows] if len(self.test) else self.test

    def scale(self, index: int, factors: np.ndarray) -> None:
        """Multiply the values, limits and standard errors of a target by positive factors, float64 [n]."""
        self.targets[:, index] *= factors
        if self.bounds is not None:
            self.bounds[..., index] *= factors
        if self.noise is not None:
            self.noise[:, index] *= factors

    def sort(self) -> np.ndarray:
        """Sort the rows by canonical SMILES, and rows of one molecule by split and targets.

        Returns:
            The place of each row before, int [n].
        """
        blocks = [self.targets, *([] if self.bounds is None else self.bounds)]
        blocks += [
            block.reshape(len(self.test), -1) for block in (self.weights, self.noise) if block is not None
        ]
        values = np.concatenate(blocks, axis=1)
        values = np.where(np.isnan(values), np.inf, values)
        keys = [*zip(self.molecules.canonical, self.test.tolist(), values.tolist(), strict=True)]
        rows = np.array(sorted(range(len(keys)), key=keys.__getitem__))
        self.keep(rows)
        return rows

    def lose(self, finding: str) -> None:
        """Add a finding that says why there are fewer rows or values than in the table."""
        self.findings.append(finding)
        self.losses.append(finding)

    @property
    def learned(self) -> np.ndarray:
        """What the model learns: `targets` or their logarithms; NaN where a held-out row has no logarithm."""
        return self._in_learned_unit(self.targets)

    def _in_learned_unit(self, values: np.ndarray) -> np.ndarray:
        """Return values [..., T] with logarithms for logarithmic targets; NaN for one without a logarithm."""
        learned = values.copy()
        for index in np.flatnonzero(self.logarithmic):
            numbers = values[..., index]
            learned[..., index] = np.log10(numbers, where=numbers > 0, out=np.full(numbers.shape, np.nan))
        return learned

    def labels(self, index: int) -> Labels:
        """Return what learners are fitted to, for all rows of a target.

        A lower limit that has no logarithm is infinite. The standard error of a logarithm is the error of the
        value, divided by the value and ln 10 (the delta method).
        """
        values, bounds, noise = self.learned[:, index], None, None
        if self.bounds is not None:
            bounds = self._in_learned_unit(self.bounds)[..., index]
            bounds[0] = np.where(np.isnan(bounds[0]), -np.inf, bounds[0])
        if self.noise is not None and self.noise[:, index].any():
            noise = self.noise[:, index]
            if self.logarithmic[index]:
                noise = self.noise_of_logarithms(index)
        return Labels(values, bounds, self.weights, noise)

    def noise_of_logarithms(self, index: int) -> np.ndarray:
        """Return the standard errors of common logarithms, float64 [n]: error / (value ln 10).

        The value of a limit is its bound. A lower limit that is not positive has no logarithm, and 0 here.
        """
        assert self.noise is not None
        sizes = self.targets[:, index]
        if self.bounds is not None:
            lower, upper = self.bounds[..., index]
            sizes = np.where(np.isfinite(sizes), sizes, np.where(np.isfinite(lower), lower, upper))
        errors, positive = self.noise[:, index], sizes > 0
        return np.where(positive, errors / (np.where(positive, sizes, 1.0) * np.log(10.0)), 0.0)

    def nearest(self, predicted: np.ndarray, rows: np.ndarray, index: int) -> np.ndarray:
        """Return measured values, or for limits the possible values that are nearest to predictions.

        A limit that is met thus has no error, and the error of another one is the distance to the limit.

        Args:
            predicted: Predictions of the rows in the unit of the target, float64 [k].
            rows: The rows, int [k] or bool [n].
            index: Number of the target.

        Returns:
            float64 [k], NaN where missing.
        """
        values = self.targets[rows, index]
        if self.bounds is None:
            return values
        limited = self.limited[rows, index]
        return np.where(limited, np.clip(predicted, *self.bounds[:, rows, index]), values)
