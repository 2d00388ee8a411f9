"""The rows of a fit: molecules, targets, and which of them are held out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from molslice.data.molecules.conditions import Condition, encode
from molslice.data.molecules.describe import DescribedMolecules
from molslice.data.molecules.refusals import Refusals
from molslice.files.tables import DEFAULT_FORMAT, NumberFormat
from molslice.learners import Features
from molslice.tasks.targets import Kind

__all__ = ["Duplicates", "FitData", "FitOptions", "Scale"]

Duplicates = Literal["average", "keep", "refuse"]
Scale = Literal["linear", "log"]


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How a table is read, divided and fitted; see the arguments of `molslice.fitting.fit.fit`.

    Attributes:
        partner_column: The column of the second molecule of a pair; None for single molecules.
        symmetric: Whether the order of a pair has no meaning.
        written: How the numbers of the targets are written.
    """

    smiles_column: str | None = None
    partner_column: str | None = None
    symmetric: bool = False
    delimiter: str | None = None
    written: NumberFormat = DEFAULT_FORMAT
    outliers: str = "refuse"
    kind: Kind | None = None
    scale: Scale | None = None
    split: str = "random"
    conditions: tuple[str, ...] = ()
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
            "scale": self.scale,
            "split": self.split,
            "conditions": list(self.conditions),
            **({"symmetric": self.symmetric} if self.partner_column else {}),
            "duplicates": self.duplicates,
            "members": self.members,
            "minutes": self.minutes,
            "seed": self.seed,
        }


@dataclass(slots=True)
class FitData:
    """Rows of a fit: one for each molecule in its conditions, or for each measurement if duplicates are kept.

    Attributes:
        smiles: SMILES of each row as in the table.
        molecules: Descriptors, counts, canonical SMILES, parents and their scaffolds of the n rows.
        targets: float64 [n, T], NaN where missing.
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
        conditions: What the training rows have of each condition.
        partner: The column of the second molecule; None for single molecules.
        partners: SMILES of the second molecule of each row as in the table; empty for single molecules.
        symmetric: Whether the order of a pair has no meaning. `molecules` are in alphabetical order then.
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
    conditions: tuple[Condition, ...] = ()
    partner: str | None = None
    partners: list[str] = field(default_factory=list)
    symmetric: bool = False

    @property
    def names_of_molecules(self) -> list[tuple[str, ...]]:
        """The canonical SMILES of the molecule of each row, or of both molecules."""
        second = [] if self.molecules.partners is None else [self.molecules.partners.canonical]
        return [*zip(self.molecules.canonical, *second, strict=True)]

    def features(self, embed: Callable[[list[str]], np.ndarray | None]) -> Features:
        """Return what the learners take; `embed` returns embeddings of SMILES, None without an encoder."""
        first, second = self.molecules, self.molecules.partners
        features = Features(first.descriptors, first.counts, embed(first.canonical), self.encoded_conditions)
        if second is None:
            return features
        others = Features(second.descriptors, second.counts, embed(second.canonical))
        return features.joined(others, symmetric=self.symmetric)

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
        self.partners = [self.partners[row] for row in rows if self.partners]
        self.molecules = self.molecules.take(rows)
        self.targets = self.targets[rows]
        self.test = self.test[rows] if len(self.test) else self.test

    def sort(self) -> np.ndarray:
        """Sort the rows by canonical SMILES, and rows of one molecule by split, targets and conditions.

        Returns:
            The place of each row before, int [n].
        """
        values = np.where(np.isfinite(self.targets), self.targets, np.inf)
        if self.molecules.conditions is not None:
            given = np.nan_to_num(self.molecules.conditions, nan=np.inf)
            values = np.concatenate([values, given], axis=1)
        keys = [*zip(self.names_of_molecules, self.test.tolist(), values.tolist(), strict=True)]
        rows = np.array(sorted(range(len(keys)), key=keys.__getitem__))
        self.keep(rows)
        return rows

    @property
    def encoded_conditions(self) -> np.ndarray | None:
        """The conditions as learners take them, float64 [n, C]; None without any."""
        values = self.molecules.conditions
        return None if values is None else encode(self.conditions, values)

    def condition_cells(self, row: int) -> list[str]:
        """Return the cells of the conditions of a row, as `Condition.read` takes them."""
        values = self.molecules.conditions
        pairs = zip(self.conditions, () if values is None else values[row].tolist(), strict=True)
        return [condition.cell(value) for condition, value in pairs]

    def lose(self, finding: str) -> None:
        """Add a finding that says why there are fewer rows or values than in the table."""
        self.findings.append(finding)
        self.losses.append(finding)

    @property
    def learned(self) -> np.ndarray:
        """What the model learns: `targets` or their logarithms; NaN where a held-out row has no logarithm."""
        learned = self.targets.copy()
        for index in np.flatnonzero(self.logarithmic):
            values = self.targets[:, index]
            learned[:, index] = np.log10(values, where=values > 0, out=np.full(len(values), np.nan))
        return learned
