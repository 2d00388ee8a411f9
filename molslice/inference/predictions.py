"""Predictions of molecules, with their uncertainty, and the rows that they are in a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from molslice.errors import MolsliceError
from molslice.inference.columns import ERROR, SMILES
from molslice.tasks.target_types import TargetType, columns_of_kind, has_named_classes

if TYPE_CHECKING:
    import pandas as pd

NOT_FINITE = "the prediction for this molecule is not finite"
PLACE, REASON, NEAREST, SIMILARITY = "domain", "domain_reason", "nearest_smiles", "nearest_similarity"


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A training molecule that is similar to a molecule.

    Attributes:
        smiles: Its canonical SMILES.
        similarity: Tanimoto similarity of the Morgan counts, from 0 to 1.
        measured: Its value of each target in the units of the targets, NaN where missing; None if the folder
            of the model does not have the values.
    """

    smiles: str
    similarity: float
    measured: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Domain:
    """How a molecule compares with the training molecules.

    Attributes:
        place: `like the training molecules`, `at the edge` or `outside`; see
            `molslice.uncertainty.similarity_rule`.
        reason: Why it is not like them; empty if it is.
        neighbors: The most similar training molecules, at most three and at least one; of equals the first.
        is_training: Whether it is a known training molecule.
    """

    place: str
    reason: str
    neighbors: tuple[Neighbor, ...]
    is_training: bool = False

    @property
    def nearest_smiles(self) -> str:
        """The most similar training molecule."""
        return self.neighbors[0].smiles

    @property
    def nearest_similarity(self) -> float:
        """Its similarity, from 0 to 1."""
        return self.neighbors[0].similarity


@dataclass(frozen=True, slots=True)
class Members:
    """What the intervals of n molecules and T targets are computed from.

    Attributes:
        spread: Standard deviation of each prediction, float64 [n, T] in the units of the targets; None
            without one.
        models: Prediction by the model of each of the F folds of the held-out rows, float64 [n, F, T].
        difficulty: Difficulty of each row for these models (see `HeldOut`), float64 [n, F, T]; None without
            one.
    """

    spread: np.ndarray | None
    models: np.ndarray
    difficulty: np.ndarray | None

    @classmethod
    def of_ensemble(cls, values: np.ndarray, spreads: np.ndarray | None = None) -> "Members":
        """Describe an ensemble whose members have not seen any of the held-out rows.

        The spread is the square root of the variance of the predictions plus the mean variance that the
        members state themselves. The difficulty of a row is its spread.

        Args:
            values: Prediction by each of K members, float [n, K, T].
            spreads: Standard deviation that each member states, float [n, K, T]; None without one.

        Source: Lakshminarayanan et al. 2017, "Simple and Scalable Predictive Uncertainty Estimation using
        Deep Ensembles", section 2.4 (a mixture of normal distributions).
        """
        wide, spread = values.astype(np.float64), None
        if wide.shape[1] > 1 or spreads is not None:
            stated = 0.0 if spreads is None else (spreads.astype(np.float64) ** 2).mean(1)
            spread = np.sqrt(wide.var(1) + stated)
        return cls(spread, wide.mean(1, keepdims=True), None if spread is None else spread[:, None])


@dataclass(frozen=True, slots=True)
class TableRows:
    """What n rows of a table get: numbers, texts and reasons.

    Attributes:
        values: The numbers, float32 [n, C]; NaN where missing.
        errors: Reason of each failed row; None for the others.
        texts: The texts of each row; no rows if there are no columns of text.
        replaced: Number of mixtures that were replaced by their largest molecule.
    """

    values: np.ndarray
    errors: list[str | None]
    texts: Sequence[Sequence[str]] = ()
    replaced: int = 0

    def __iter__(self) -> Iterator[tuple[np.ndarray, Sequence[str], str | None]]:
        """Yield the numbers, the texts and the reason of each row."""
        return zip(self.values, self.texts or [()] * len(self.errors), self.errors, strict=True)


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions for n molecules, in C columns: one for each of T targets, K for a target of K > 2 classes.

    The other fields are None unless they were asked for; see `Predictor.predict_with_errors`.

    Attributes:
        values: float32 [n, C], numbers in the units of the targets and probabilities of classes; NaN in
            failed rows.
        errors: Reason of each failed row; None for the others.
        spread: Standard deviation of the prediction, float32 [n, C] in the units of the targets: over the
            members of an ensemble and over dropout passes, with the variance that the model predicts. None
            for a model without any of these.
        lower: Lower bounds of the intervals of numbers, float32 [n, C] in the units of the targets; NaN for
            classes beside numbers.
        upper: Upper bounds of the intervals, as `lower`.
        sets: Whether the set of a target has a class, bool [n, T, L] for at most L classes; False for numbers
            beside classes.
        calibrated: For two classes, the calibrated probability of class 1, float32 [n, C]; NaN for other
            targets beside them.
        domain: How each molecule compares with the training molecules; None in failed rows.
        replaced: Number of mixtures that were replaced by their largest molecule; never None.
        members: What the intervals are computed from.
        labels: For each row, the chosen class of each target of more than two classes; "" in failed rows.
        types: What each target is; empty for networks, whose targets have one kind and no names of classes.
        smiles: The SMILES of each row; None in the predictions of a chunk.
        names: Names of the numbers and of the texts in a table; None in the predictions of a chunk.
        index: The index of the rows in pandas; None if they had none.
    """

    values: np.ndarray
    errors: list[str | None]
    spread: np.ndarray | None = None
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None
    sets: np.ndarray | None = None
    calibrated: np.ndarray | None = None
    domain: list[Domain | None] | None = None
    replaced: int = 0
    members: Members | None = None
    labels: list[tuple[str, ...]] | None = None
    types: tuple[TargetType, ...] = ()
    smiles: list[str] | None = None
    names: tuple[tuple[str, ...], ...] | None = None
    index: Any = None

    @classmethod
    def concatenate(cls, parts: Sequence["Predictions"]) -> "Predictions":
        """Join parts that have the same fields; there is at least one."""
        return _joined(parts)

    def to_frame(self) -> "pd.DataFrame":
        """Return the predictions as a table: `smiles`, the columns of `molslice predict`, and `error`.

        The index is the one of the molecules if they were of pandas. Missing texts and errors are None.

        Raises:
            MolsliceError: These are the predictions of a chunk, without SMILES.
        """
        import pandas as pd  # takes long to import

        if self.smiles is None or self.names is None:
            raise MolsliceError("these predictions have no SMILES; take the result of predict_with_errors")
        rows, (numbers, texts) = self.table_rows(), self.names
        frame = pd.DataFrame(rows.values, columns=[*numbers])
        for place, name in enumerate(texts):
            frame[name] = [text_to_json(of_row[place]) for of_row in rows.texts]
        frame.insert(0, SMILES, self.smiles)
        frame[ERROR] = rows.errors
        return frame if self.index is None else frame.set_axis(self.index, axis=0)

    def table_rows(self) -> TableRows:
        """Return the numbers and texts in the order of `Predictor.table_columns`."""
        columns = [self.values]
        for block, kind in (
            (self.lower, "regression"),
            (self.upper, "regression"),
            (self.calibrated, "classification"),
            (self.spread, None),
        ):
            if block is not None:
                columns.append(block[:, columns_of_kind(self.types, kind)] if self.types and kind else block)
        texts: list[list[str]] = [[*labels] for labels in self.labels or ()] or [[] for _ in self.errors]
        if self.sets is not None:
            for row in range(len(self.errors)):
                of_row = self.set_texts(row)
                texts[row] += of_row if self.errors[row] is None else [""] * len(of_row)
        if self.domain is not None:
            similarity = [np.nan if domain is None else domain.nearest_similarity for domain in self.domain]
            columns.append(np.array(similarity, np.float32)[:, None])
            for row, domain in enumerate(self.domain):
                texts[row] += _domain_texts(domain)
        has_texts = self.sets is not None or self.domain is not None or self.labels is not None
        values = np.concatenate(columns, axis=1) if len(columns) > 1 else self.values
        return TableRows(values, self.errors, texts if has_texts else (), self.replaced)

    def set_members(self, row: int) -> list[list[int | str]]:
        """Return the classes in the set of each target of a row: names, or numbers if none has a name."""
        assert self.sets is not None
        names: list[tuple[int | str, ...]] = [(0, 1)] * self.sets.shape[1]
        if self.types:
            named = has_named_classes(self.types)
            names = [
                target_type.class_names if named else (0, 1) * target_type.has_classes
                for target_type in self.types
            ]
        return [
            [name for name, is_in in zip(of_target, members, strict=False) if is_in]
            for of_target, members in zip(names, self.sets[row], strict=True)
        ]

    def set_texts(self, row: int) -> list[str]:
        """Return the set of each target of a row that has classes, such as `0 1` or `low; medium`."""
        separator = "; " if has_named_classes(self.types) else " "
        members = self.set_members(row)
        are_classes = [target_type.has_classes for target_type in self.types] or [True] * len(members)
        return [
            separator.join(map(str, of_target))
            for of_target, has_classes in zip(members, are_classes, strict=True)
            if has_classes
        ]


def _joined(values: Sequence[Any]) -> Any:  # noqa: ANN401
    """Join the values of a field, or of all fields of objects, over parts."""
    first = values[0]
    if isinstance(first, Predictions | Members):
        names = [column.name for column in fields(first)]
        return type(first)(**{name: _joined([getattr(value, name) for value in values]) for name in names})
    if isinstance(first, list):
        return [item for value in values for item in value]
    if isinstance(first, int):
        return sum(values)
    if isinstance(first, np.ndarray):
        return np.concatenate(values)
    return first  # None, or the types of the targets


def _domain_texts(domain: Domain | None) -> list[str]:
    if domain is None:
        return ["", "", ""]
    return [domain.place, domain.reason, domain.nearest_smiles]


def text_to_json(text: str | None) -> str | bool | None:
    """Return the JSON value of a text of `TableRows`: null for an empty one, true and false for the words."""
    return {"true": True, "false": False}.get(text, text) if text else None
