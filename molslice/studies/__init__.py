"""Studies of what an attention does: a figure and its numbers, in minutes on a CPU.

Contents: one file is one study, and its name is the name of the study. A study writes a figure (PNG and SVG),
the numbers of the figure (CSV), and their conditions (JSON). `base.py` is the interface and writes the files.
Shared modules:

    options: the options of a study, from its constructor.
    networks: untrained encoders.
    models: trained models, found or trained for a short time.
    patches: images as tokens.
    figures: molecules and matrices in a figure.

Imports: everything below `molslice.cli`. A study that needs chemistry uses `molslice.chem`.
To add one: write `my_study.py` with a class `MyStudy(Study)`: a `summary`, keyword-only options with defaults
(each `Annotated` with its line of help and stored as an attribute of its name), `measure` and `draw`.
`molslice study --list` finds it.
Reason: a claim about attentions is next to the program that checks it, and a figure shows only what the same
run has measured.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from molslice.registry import Registry
from molslice.studies.base import Request, Study, StudyResult
from molslice.types import MolsliceError

__all__ = ["STUDIES", "Study", "StudyResult", "run_study"]

STUDIES = Registry("molslice.studies", Study, "study")


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
    """Run a study and write its files.

    Args:
        name: One of `STUDIES.names()`.
        out: Folder of the files. Models that a study trains are kept in its subfolder `runs` and reused.
        seed: Seed of everything random.
        runs: Run folders, or names of shipped models, to study instead of models that the study trains.
        options: The options of the study; None for the defaults.
        quiet: Whether to hide the progress bars.
        tell: Receives a line before each long part.

    Returns:
        The files and the number of rows.

    Raises:
        MolsliceError: The study or an option is unknown, a value is invalid, the study does not take runs, or
            an option has no effect on given runs.
    """
    study = STUDIES.build(name, options=options)
    unused = [option for option in options or {} if runs and option in study.unused_with_runs]
    if unused:
        raise MolsliceError(f"study {name!r} with runs does not use {', '.join(unused)}")
    return study.run(Request(Path(out), seed, tuple(runs), quiet, tell))
