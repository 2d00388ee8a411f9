"""Studies of what an attention does: a figure and its numbers, in minutes on a CPU.

Contents: one file is one study, and its name is the name of the study. A study writes a figure (PNG and SVG),
the numbers of the figure (CSV), and their conditions (JSON). Other modules:

    base: the interface of a study.
    models: trained models, found or trained for a short time.
    untrained: untrained encoders, and images as their tokens.

Imports: everything below `molslice.cli`. A study that needs chemistry uses `molslice.chem`.
To add one: write `my_study.py` with a frozen, keyword-only dataclass `MyStudy(Study)`: a `summary`, options
with defaults (each `Annotated` with its line of help), `measure` and `draw`; `study --list` finds it.
Reason: a claim about attentions is next to the program that checks it, and a figure shows only what the same
run has measured.
"""

import contextlib
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from molslice.figures import to_picture
from molslice.files.atomic import write_atomically
from molslice.folders.results import results_folder
from molslice.inference.json_text import to_json
from molslice.registry import Registry
from molslice.studies.base import Request, Study
from molslice.types import MolsliceError
from molslice.version import __version__

__all__ = ["STUDIES", "Study", "StudyResult", "run_study"]

STUDIES = Registry("molslice.studies", Study, "study")
PACKAGES = ("numpy", "torch", "matplotlib", "rdkit", "lightning")  # which affect the numbers


@dataclass(frozen=True, slots=True)
class StudyResult:
    """The files of a finished study.

    Attributes:
        name: Name of the study.
        files: Path of the table (`csv`), the figure (`png`, `svg`) and the conditions (`json`).
        rows: Number of rows of the table.
        notes: The notes of the findings.
    """

    name: str
    files: Mapping[str, Path]
    rows: int
    notes: Mapping[str, Any]

    def to_mapping(self) -> dict[str, Any]:
        """Return the result as JSON types."""
        files = {kind: str(path) for kind, path in self.files.items()}
        return {"study": self.name, "files": files, "rows": self.rows, "notes": dict(self.notes)}


def run_study(
    name: str,
    out: Path | str,
    *,
    seed: int = 0,
    runs: Sequence[Path | str] = (),
    options: dict[str, Any] | None = None,
    quiet: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> StudyResult:
    """Run a study and write NAME.csv, NAME.png, NAME.svg and NAME.json, the same for the same arguments.

    Args:
        name: One of `STUDIES.names()`.
        out: Folder of the files. Models that a study trains are kept in its subfolder `runs` and reused.
        seed: Seed of everything random.
        runs: Run folders, or names of shipped models, to study instead of models that the study trains.
        options: The options of the study; None for the defaults.
        quiet: Whether to hide the progress bars.
        tell: Receives a line before each long part.

    Raises:
        MolsliceError: The study or an option is unknown, a value is invalid, the study does not take runs, an
            option has no effect on given runs, or the folder cannot be written.
    """
    study = STUDIES.build(name, options=options)
    request = Request(Path(out), seed, tuple(runs), quiet, tell)
    if runs and not study.unused_with_runs:
        raise MolsliceError(f"study {name!r} does not use trained models, so it takes no runs")
    unused = [option for option in options or {} if runs and option in study.unused_with_runs]
    if unused:
        raise MolsliceError(f"study {name!r} with runs does not use {', '.join(unused)}")
    with results_folder(request.out):
        findings = study.measure(request)
    figure = Figure(layout="constrained")
    study.draw(findings, figure)
    conditions = {
        "study": name,
        "summary": study.summary,
        "seed": seed,
        "runs": [str(run) for run in runs],
        "options": study.settings(request),
        "notes": findings.notes,
        "rows": len(findings.rows),
        "versions": _versions(),
    }
    contents = {
        "csv": findings.to_csv(),
        "png": to_picture(figure, "png"),
        "svg": to_picture(figure, "svg"),
        "json": to_json(conditions),
    }
    files = {kind: request.out / f"{name}.{kind}" for kind in contents}
    for kind, content in contents.items():
        write_atomically(files[kind], content)
    return StudyResult(name, files, len(findings.rows), findings.notes)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "molslice": __version__}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions
