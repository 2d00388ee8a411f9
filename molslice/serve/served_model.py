"""Load models, and find out what they can compute."""

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from molslice.explanation.explain import Explainer
    from molslice.inference.base import SmilesPredictor
    from molslice.inference.options import PredictionOptions

__all__ = ["ServedModel", "explainer_of", "load_models"]

METHODS: tuple[Literal["gradients", "shapley"], ...] = ("gradients", "shapley")  # the default is the first
Result = TypeVar("Result")
MOST_LEVELS = 16  # of intervals for which options are kept


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded model and what it can compute.

    Attributes:
        name: Its name in the service.
        plain: The loaded model.
        domain: Whether the model has training molecules to compare with.
        intervals: Whether the model has intervals or sets.
        part: The part that is explained, as in `Explainer`; None for the whole model.
        method: The method that explains its predictions by default; None if they cannot be explained.
        folders: Paths of its folder, which messages to clients do not contain.
        chosen: The options of the latest levels, because the held-out rows are in a file.
    """

    name: str
    plain: "SmilesPredictor"
    domain: bool
    intervals: bool
    part: Literal["networks"] | None
    method: Literal["gradients", "shapley"] | None
    folders: tuple[str, ...] = ()
    chosen: dict[tuple[float | None, bool], "PredictionOptions"] = field(default_factory=dict, repr=False)

    def options(self, interval: float | None, domain: bool) -> "PredictionOptions":
        """Return the options of predictions with the requested uncertainty.

        Raises:
            MolsliceError: Intervals are requested and the model has no calibration, or the domain is
                requested and it has no training molecules.
        """
        if (interval, domain) not in self.chosen:
            options = self.plain.find_options(interval, domain=domain)
            if len(self.chosen) >= MOST_LEVELS:
                self.chosen.clear()
            self.chosen[interval, domain] = options
        return self.chosen[interval, domain]

    def describe(self) -> dict[str, Any]:
        """Return what `/models` shows."""
        return {
            "name": self.name,
            "kind": self.plain.targets.kind,
            "targets": [self._named(column) for column in self.plain.described_columns],
            "intervals": self.intervals,
            "domain": self.domain,
            "explanations": self.method is not None,
            "conditions": self.plain.condition_names,
        }

    def _named(self, column: Mapping[str, str]) -> dict[str, str]:
        """Return name, unit and column of a number; the name has the class of several."""
        several = self.plain.targets.kind == "multiclass"
        name = f"{column['name']}: {column['class']}" if several else column["name"]
        return {"name": name, "unit": column["unit"], "column": column["column"]}


def load_models(models: Mapping[str, str], device: str) -> dict[str, ServedModel]:
    """Load models by name.

    Raises:
        MolsliceError: A model cannot be loaded, or does not predict molecules.
    """
    import torch
    from tqdm import tqdm

    from molslice.inference.load import load_model
    from molslice.types import MolsliceError

    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # its own lock is a system semaphore, which a killed process would leak
    loaded = {}
    for name, path in models.items():
        plain = load_model(path, device)
        plain.name = name  # messages to clients do not tell where the folder is
        with plain.reader():  # refuses a model that does not take molecules
            pass
        if not plain.target_names:
            raise MolsliceError(f"{path} predicts no targets; serve a model that does")
        part, method = _explaining(plain)
        loaded[name] = ServedModel(
            name,
            plain,
            domain=plain.known_domain() is not None,
            intervals=_or_none(plain.find_calibration) is not None,
            part=part,
            method=method,
            folders=_paths_of(path),
        )
    return loaded


def _paths_of(model: str) -> tuple[str, ...]:
    """Return the paths by which messages may name the folder of a model; none for the name of a model."""
    if os.sep not in model:
        return ()
    return (str(Path(model)), os.path.abspath(model), os.path.realpath(model))


def _explaining(
    predictor: "SmilesPredictor",
) -> tuple[Literal["networks"] | None, Literal["gradients", "shapley"] | None]:
    """Return the part and the method that explain a model by default; no method if it cannot be explained."""
    for method in METHODS:
        for part in (None, "networks"):
            if _or_none(partial(explainer_of, predictor, part, method)):
                return part, method
    return None, None


def _or_none(attempt: Callable[[], Result]) -> Result | None:
    """Return the result of a function; None if it raises a `MolsliceError`."""
    from molslice.types import MolsliceError

    with suppress(MolsliceError):
        return attempt()
    return None


def explainer_of(
    predictor: "SmilesPredictor",
    part: Literal["networks"] | None,
    method: Literal["gradients", "shapley"],
    target: str | None = None,
) -> "Explainer":
    """Return the explainer of a target, by default of the first.

    Raises:
        MolsliceError: The target is unknown, or the model cannot be explained.
    """
    from molslice.explanation.explain import Explainer

    name = predictor.target_names[0] if target is None else target
    return Explainer(predictor, method=method, target=name, part=part)
