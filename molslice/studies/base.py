"""The interface of a study: its options, what it measures and draws."""

import inspect
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from matplotlib.figure import Figure

from molslice.files.text_tables import csv_text
from molslice.types import MolsliceError


class Least(int):
    """The smallest value of an option, or of each number of a tuple."""


class Option(NamedTuple):
    """A field of a study written `name: Annotated[type, "help", Least(1)] = default`.

    Attributes:
        name: Name of the field.
        type: Its type, without `Annotated`.
        help: Its line of help.
        least: Its smallest value; None without a limit.
        default: Its default value.
    """

    name: str
    type: Any
    help: str
    least: Least | None
    default: Any


def study_options(study: type) -> dict[str, Option]:
    """Return the options of a study by name, in the order of its fields."""
    hints = typing.get_type_hints(study.__init__, include_extras=True)
    options = {}
    for name, parameter in inspect.signature(study).parameters.items():
        kind, text, *least = typing.get_args(hints[name])
        options[name] = Option(name, kind, text, least[0] if least else None, parameter.default)
    return options


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments that all studies share; see `molslice.studies.run_study`."""

    out: Path
    seed: int = 0
    runs: tuple[Path | str, ...] = ()
    quiet: bool = False
    tell: Callable[[str], None] = lambda message: None


@dataclass(frozen=True, slots=True)
class Findings:
    """The measurements of a study.

    Attributes:
        rows: Rows of the CSV file, all with the same columns.
        notes: Conditions for the JSON file, such as the models and what was omitted.
        extra: Values that only the figure needs, such as an image or the positions of atoms.
    """

    rows: list[dict[str, Any]]
    notes: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def select(self, **values: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Return the rows with these values, by name of the column."""
        return [row for row in self.rows if values.items() <= row.items()]

    def values_of(self, column: str) -> list[Any]:
        """Return the distinct values of a column in their order."""
        return list(dict.fromkeys(row[column] for row in self.rows))

    def to_csv(self) -> str:
        """Return the rows as a CSV table."""
        names = list(self.rows[0]) if self.rows else []
        return csv_text([names, *([row[name] for name in names] for row in self.rows)])


class Study(ABC):
    """A question about attentions that a table and a figure answer.

    A subclass is a frozen, keyword-only dataclass. Its fields are the options of the study, and its docstring
    is the description in `molslice study NAME --help`. It implements `measure` and `draw`. The same options,
    seed and versions give the same files.

    Attributes:
        summary: One line for `molslice study --list`.
        unused_with_runs: Options of the networks that given runs replace; empty if the study takes no runs.

    Raises:
        MolsliceError: An option is below its smallest value.
    """

    summary: ClassVar[str]
    unused_with_runs: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name, _, _, least, default in study_options(type(self)).values():
            value = getattr(self, name)
            several = isinstance(default, tuple)
            if least is not None and min(value if several else [value], default=least - 1) < least:
                raise MolsliceError(
                    f"{name} is {value!r}, expected {'numbers of ' * several}at least {least}"
                )

    def settings(self, request: Request) -> dict[str, Any]:
        """Return the values of the options that a request uses."""
        unused = self.unused_with_runs if request.runs else ()
        return {name: getattr(self, name) for name in study_options(type(self)) if name not in unused}

    @abstractmethod
    def measure(self, request: Request) -> Findings:
        """Measure the numbers.

        Raises:
            MolsliceError: Data or a model cannot be loaded, or an option does not fit them.
        """

    @abstractmethod
    def draw(self, findings: Findings, figure: Figure) -> None:
        """Draw the result of `measure` in an empty figure."""
