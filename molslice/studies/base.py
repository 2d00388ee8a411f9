"""The interface of a study: what it measures, draws and writes."""

import contextlib
import csv
import io
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

from matplotlib.figure import Figure

from molslice.figures import to_picture
from molslice.studies.options import constructor_options
from molslice.types import MolsliceError
from molslice.version import __version__

__all__ = ["Findings", "Request", "Study", "StudyResult", "rows_to_csv"]

PACKAGES = ("numpy", "torch", "matplotlib", "rdkit", "lightning")


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments that all studies share.

    Attributes:
        out: Folder of the files.
        seed: Seed of everything random.
        runs: Run folders or shipped models to study instead of models that the study trains.
        quiet: Whether to hide the progress bars.
        tell: Receives a line before each long part.
    """

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


@dataclass(frozen=True, slots=True)
class StudyResult:
    """The files of a finished study.

    Attributes:
        name: Name of the study.
        csv: Path of the table.
        png: Path of the figure as PNG.
        svg: Path of the figure as SVG.
        json: Path of the conditions of the measurements.
        rows: Number of rows of the table.
        notes: The notes of the findings.
    """

    name: str
    csv: Path
    png: Path
    svg: Path
    json: Path
    rows: int
    notes: Mapping[str, Any]

    def to_mapping(self) -> dict[str, Any]:
        """Return the result as JSON types."""
        files = {kind: str(getattr(self, kind)) for kind in ("csv", "png", "svg", "json")}
        return {"study": self.name, "files": files, "rows": self.rows, "notes": dict(self.notes)}


class Study(ABC):
    """A question about attentions that a table and a figure answer.

    The constructor of a subclass takes keyword-only options with defaults, checks them, and stores each one
    as an attribute of the same name. The subclass implements `measure` and `draw`. The same options, seed and
    versions give the same files. The docstring of the class is the description in `molslice study NAME
    --help`.

    Attributes:
        summary: One line for `molslice study --list`.
        takes_runs: Whether the study supports given runs.
        unused_with_runs: Options of the networks that given runs replace.
    """

    summary: ClassVar[str]
    takes_runs: ClassVar[bool] = False
    unused_with_runs: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> str:
        """Name of the study: the stem of its file."""
        return type(self).__module__.rsplit(".", 1)[-1]

    def settings(self, request: Request) -> dict[str, Any]:
        """Return the values of the options that a request uses."""
        unused = self.unused_with_runs if request.runs else ()
        return {name: getattr(self, name) for name in constructor_options(type(self)) if name not in unused}

    def run(self, request: Request) -> StudyResult:
        """Measure, draw and write NAME.csv, NAME.png, NAME.svg and NAME.json. Final: do not override it.

        Raises:
            MolsliceError: The request has runs but the study does not take any, the folder cannot be written,
                or `measure` fails.
        """
        from molslice.files.atomic import made_folder, write_atomically
        from molslice.inference.json_text import to_json

        if request.runs and not self.takes_runs:
            raise MolsliceError(f"study {self.name!r} does not use trained models, so it takes no runs")
        out = request.out
        with made_folder(out):
            findings = self.measure(request)
        figure = Figure(layout="constrained")
        self.draw(findings, figure)
        conditions = {
            "study": self.name,
            "summary": self.summary,
            "seed": request.seed,
            "runs": [str(run) for run in request.runs],
            "options": self.settings(request),
            "notes": findings.notes,
            "rows": len(findings.rows),
            "versions": _versions(),
        }
        files = {kind: out / f"{self.name}.{kind}" for kind in ("csv", "png", "svg", "json")}
        write_atomically(files["csv"], rows_to_csv(findings.rows))
        for kind in ("png", "svg"):
            write_atomically(files[kind], to_picture(figure, kind))
        write_atomically(files["json"], to_json(conditions))
        return StudyResult(self.name, **files, rows=len(findings.rows), notes=findings.notes)

    @abstractmethod
    def measure(self, request: Request) -> Findings:
        """Measure the numbers.

        Raises:
            MolsliceError: Data or a model cannot be loaded, or an option does not fit them.
        """

    @abstractmethod
    def draw(self, findings: Findings, figure: Figure) -> None:
        """Draw the findings.

        Args:
            findings: The result of `measure`.
            figure: An empty figure.
        """


def rows_to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Convert rows with the same keys to a CSV table: eight digits of floats, empty cells for None."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        short = {name: f"{value:.8g}" for name, value in row.items() if isinstance(value, float)}
        writer.writerow({**row, **short})
    return text.getvalue()


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect the numbers of a study, by name."""
    versions = {"python": platform.python_version(), "molslice": __version__}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions
