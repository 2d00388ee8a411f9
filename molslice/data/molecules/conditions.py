"""What a row has beside its SMILES: numbers and categories, such as a temperature, and a second molecule.

Such a row travels as a `Conditioned` text, so that whatever takes SMILES takes it too. A model refuses a row
that has lost what it takes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from molslice.data.target_values import is_log_normal
from molslice.files.tables import Unreadable, is_missing, trimmed
from molslice.files.tables.cells import TRUTH
from molslice.number_text import counted, read_number
from molslice.types import MolsliceError

MAX_WORDS = 50  # of a category; an identifier of each row has more
SHOWN_WORDS = 8


class Conditioned(str):
    """A SMILES with the conditions of its row, and with its second molecule.

    Attributes:
        values: The value of each condition, for a category its place among the words; NaN for a missing
            number.
        partner: The SMILES of the second molecule; None without one.
    """

    values: tuple[float, ...]
    partner: str | None

    def __new__(cls, smiles: str, values: tuple[float, ...] = (), partner: str | None = None) -> Self:
        """Create a text with values and a second molecule."""
        text = super().__new__(cls, smiles)
        text.values, text.partner = values, partner
        return text

    def __reduce__(self) -> tuple[type[Self], tuple[str, tuple[float, ...], str | None]]:
        return type(self), (str(self), self.values, self.partner)

    def with_molecules(self, smiles: str, partner: str | None) -> str:
        """Return a row of other molecules with the same values; one with a reason if a molecule has one."""
        reasons = [text for text in (smiles, partner) if isinstance(text, Unreadable)]
        return reasons[0] if reasons else type(self)(smiles, self.values, partner)


def with_conditions(smiles: str, row: str) -> str:
    """Return a molecule with the conditions and the second molecule of a row, if the row has some."""
    return row.with_molecules(smiles, row.partner) if isinstance(row, Conditioned) else smiles


@dataclass(frozen=True, slots=True)
class Condition:
    """A number or a category that a model takes beside the molecule, as the training rows have it.

    Attributes:
        name: The name of its column.
        words: The categories, in order, the empty one for a missing category; None for a number.
        can_miss: Whether some training rows have no number.
        logarithmic: Whether the model takes the common logarithm of the number.
        low: The smallest number.
        high: The largest number.
        mean: The mean of the numbers or of their logarithms; 0 for a category.
        std: Their standard deviation; for a category, of the vectors that `encode` makes.
    """

    name: str
    words: tuple[str, ...] | None = None
    can_miss: bool = False
    logarithmic: bool = False
    low: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    std: float = 1.0

    @classmethod
    def of_training(cls, name: str, values: np.ndarray, words: Sequence[str] | None = None) -> Self:
        """Describe the values of the training rows.

        Args:
            name: The name of the column.
            values: The numbers, NaN where missing, or the place of each word in `words`, float64 [n].
            words: The words of a category; words without a row are left out. None for a number.
        """
        if words is not None:
            places, counts = np.unique(values.astype(int), return_counts=True)
            std = float(np.sqrt(1.0 - ((counts / counts.sum()) ** 2).sum())) or 1.0
            return cls(name, tuple(words[int(place)] for place in places), std=std)
        known = np.sort(values[np.isfinite(values)])  # sums do not depend on the order of the rows
        logarithmic = is_log_normal(known)
        scaled = np.log10(known) if logarithmic else known
        return cls(
            name,
            can_miss=len(known) < len(values),
            logarithmic=logarithmic,
            low=float(known.min()),
            high=float(known.max()),
            mean=float(scaled.mean()),
            std=float(scaled.std()) or 1.0,
        )

    @property
    def columns(self) -> int:
        """Number of columns of `encode`."""
        return 1 + self.can_miss if self.words is None else len(self.words)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return what learners take, of variance one: float64 [n, columns].

        A number is standardized; a missing one is the mean, and a second column tells it. A category has a
        column for each word.
        """
        if self.words is not None:
            return (values[:, None] == np.arange(len(self.words))) / self.std
        known = np.isfinite(values)
        filled = np.where(known, values, 1.0)
        scaled = (np.log10(filled) if self.logarithmic else filled) - self.mean
        standardized = np.where(known, scaled / self.std, 0.0)
        return np.stack([standardized, ~known][: self.columns], axis=1).astype(np.float64)

    def read(self, cell: object) -> float:
        """Return the value of a cell, as in `Conditioned.values`; None and an empty text are missing.

        Raises:
            MolsliceError: The training rows say nothing about it; the message is the reason of the row.
        """
        text = _text_of(cell)
        if self.words is not None:
            if text in self.words:
                return float(self.words.index(text))
            if not text:
                raise MolsliceError(f"{self.name} is missing; choices: {_listed(self.words)}")
            raise MolsliceError(
                f"{self.name} {text!r} does not occur in the training rows; choices: {_listed(self.words)}"
            )
        if not text:
            if not self.can_miss:
                raise MolsliceError(f"{self.name} is missing, but all training rows have it")
            return np.nan
        value = TRUTH.get(text.lower(), read_number(text))
        if np.isnan(value):
            raise MolsliceError(f"{self.name} {text!r} is not a number")
        if self.logarithmic and value <= 0.0:
            raise MolsliceError(f"{self.name} {value:g} is not positive, but the model takes its logarithm")
        if self._excess(value) > 1.0:
            raise MolsliceError(
                f"{self.name} {value:g} is far outside the training rows, {self.low:g} to {self.high:g}"
            )
        return value

    def cell(self, value: float) -> str:
        """Return the text that `read` reads as this value."""
        if self.words is not None:
            return self.words[int(value)]
        return "" if np.isnan(value) else repr(value)

    def outside(self, value: float) -> str:
        """Return why a value that `read` has returned is not like the training rows; empty if it is."""
        if self.words is not None or np.isnan(value) or self._excess(value) <= 0.0:
            return ""
        return f"{self.name} {value:g} is outside the training rows, {self.low:g} to {self.high:g}"

    def _excess(self, value: float) -> float:
        """Return how far a number is outside the training rows, in widths of their range."""
        low, high, given = self.low, self.high, value
        if self.logarithmic:
            low, high, given = np.log10([low, high, given])
        return float(max(low - given, given - high) / ((high - low) or 1.0))

    def describe(self) -> str:
        """Return a sentence for `fit.json`."""
        if self.words is not None:
            return f"{self.name}: condition, a category (detected) of {_listed(self.words)}"
        taken = ", taken as its logarithm" if self.logarithmic else ""
        return f"{self.name}: condition, a number (detected) from {self.low:g} to {self.high:g}{taken}"

    def to_mapping(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**asdict(self), "words": None if self.words is None else list(self.words)}

    @classmethod
    def from_mapping(cls, mapping: Any) -> Self:  # noqa: ANN401
        """Rebuild a condition.

        Raises:
            MolsliceError: The values do not describe a condition.
        """
        try:
            words, flags = mapping["words"], (mapping["can_miss"], mapping["logarithmic"])
            numbers = tuple(float(mapping[name]) for name in ("low", "high", "mean", "std"))
            sound = isinstance(mapping["name"], str) and all(isinstance(flag, bool) for flag in flags)
            if words is not None:
                sound = sound and isinstance(words, list) and all(isinstance(word, str) for word in words)
                sound = sound and 0 < len(set(words)) == len(words) <= MAX_WORDS and not any(flags)
            low, high, _, std = numbers
            sound = sound and bool(np.isfinite(numbers).all()) and low <= high and std > 0.0
            if not sound or (flags[1] and low <= 0.0):
                raise ValueError(f"{dict(mapping)!r}")  # noqa: TRY301
            return cls(mapping["name"], None if words is None else tuple(words), *flags, *numbers)
        except (KeyError, TypeError, ValueError) as error:
            raise MolsliceError(f"invalid condition: {error}") from error


def _listed(words: Sequence[str]) -> str:
    shown, others = ", ".join(word or "(empty)" for word in words[:SHOWN_WORDS]), len(words) - SHOWN_WORDS
    return f"{shown} and {counted(others, 'other')}" if others > 0 else shown


def _text_of(cell: object) -> str:
    """Return a cell without blanks at its ends; empty if it is missing."""
    text = "" if cell is None else trimmed(str(cell))
    return "" if is_missing(text) else text


def conditioned_rows(
    smiles: Sequence[str],
    cells: Mapping[str, Sequence[object]],
    conditions: Sequence[Condition],
    partner: str | None = None,
) -> list[str]:
    """Add the conditions and the second molecule, from the cells of each column by name, to n rows.

    Returns:
        A `Conditioned` for each row; an `Unreadable` with the reason where a cell has no use. An `Unreadable`
        stays what it is.
    """
    rows: list[str] = []
    seconds: Sequence[Any] = [None] * len(smiles) if partner is None else cells[partner]
    columns = (cells[condition.name] for condition in conditions)
    for text, second, *given in zip(smiles, seconds, *columns, strict=True):
        if isinstance(text, Unreadable):
            rows.append(text)
            continue
        try:
            pairs = zip(conditions, given, strict=True)
            values = tuple(condition.read(cell) for condition, cell in pairs)
            if isinstance(second, Unreadable):
                raise MolsliceError(f"{partner}: {second.reason}")
            if partner is not None and not (second := _text_of(second)):
                raise MolsliceError(f"no SMILES in {partner}")
            rows.append(Conditioned(text, values, second))
        except MolsliceError as error:
            rows.append(Unreadable(str(error), written=str(text)))
    return rows


def values_of(rows: Sequence[str]) -> np.ndarray | None:
    """Return the conditions of rows, float64 [n, K], NaN in rows without; None if no row has any."""
    width = next((len(text.values) for text in rows if isinstance(text, Conditioned)), 0)
    if not width:
        return None
    missing = (np.nan,) * width
    return np.array([text.values if isinstance(text, Conditioned) else missing for text in rows])


def encode(conditions: Sequence[Condition], values: np.ndarray) -> np.ndarray:
    """Return what learners take of the values of n rows, [n, K]: float64 [n, C], without missing values."""
    return np.concatenate(
        [condition.encode(column) for condition, column in zip(conditions, values.T, strict=True)], axis=1
    )
