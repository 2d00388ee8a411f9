"""Small trained models that ship with the package, each in a folder of its name.

`load_model("gap-xtb")` therefore works without a network connection. `encoder-small` is an encoder to
fine-tune; the others predict. A folder holds a model that was trained or fitted, `README.md`, the model card
with data, error, baselines and limits, and `about.json`, what `molslice models` lists. A fit does not hold a
copy of an encoder that ships too, and not its table.

Imports: `molslice.types`, `molslice.registry`.

To add a network, copy `model.safetensors`, `config.yaml` and, for intervals and domain, `calibration.*` and
`domain.*` from a run folder, and write the card and `about.json`. To add a fit, describe its table in
`scripts/endpoints.toml` and run `scripts/build_endpoints.py`. A model may have at most 15 MB, because every
installation contains it, and its data must have a license that allows it.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from molslice.errors import MolsliceError
from molslice.registry import near_names

__all__ = [
    "ABOUT",
    "DEFAULT_ENCODER",
    "ShippedModel",
    "ShippedTarget",
    "find_pretrained",
    "is_shipped",
    "pretrained_names",
    "shipped_models",
]

DEFAULT_ENCODER = "encoder-small"
ABOUT = "about.json"

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class ShippedTarget:
    """A target of a shipped model, and how well it is predicted for held-out molecules.

    Attributes:
        name: The target.
        unit: Unit of its values; "" without one.
        metric: Name of the metric, such as `mae` or `roc_auc`.
        error: Value of the metric.
        standard_error: Standard error of `error` over molecules.
        test_rows: Number of held-out molecules with a value.
        coverage: Share of them whose value is in its interval or set of level 0.9.
        train_rows: Number of molecules with a value that the shipped model learned from.
    """

    name: str
    unit: str
    metric: str
    error: float
    standard_error: float
    test_rows: int
    coverage: float
    train_rows: int


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """A model that ships with the package.

    Attributes:
        name: The name, as `load_model` takes it.
        summary: What it predicts, in a line.
        data: The data that it was trained on.
        source: Where the data were published.
        license: SPDX identifier of their license, or `public domain`.
        split: How the held-out molecules were chosen.
        targets: The targets; empty for an encoder.
    """

    name: str
    summary: str
    data: str
    source: str
    license: str
    split: str
    targets: tuple[ShippedTarget, ...]


def pretrained_names() -> list[str]:
    """Return the names of the shipped models, sorted."""
    return sorted(path.parent.name for path in _FOLDER.glob(f"*/{ABOUT}"))


def is_shipped(name_or_path: str | Path) -> bool:
    """Return whether a model is a shipped one: it has the name of one, and no folder here has this name."""
    return str(name_or_path) in pretrained_names() and not Path(name_or_path).exists()


def find_pretrained(name: str) -> Path:
    """Return the folder of the shipped model `name`.

    Raises:
        MolsliceError: No model of that name ships with the package. The message lists those that do.
    """
    if name not in pretrained_names():
        raise MolsliceError(f"no model {name!r} ships with molslice; {near_names(name, pretrained_names())}")
    return _FOLDER / name


def describe_shipped(name: str) -> ShippedModel:
    """Return the description of a shipped model.

    Raises:
        MolsliceError: As in `find_pretrained`.
    """
    about = json.loads((find_pretrained(name) / ABOUT).read_text(encoding="utf-8"))
    targets = tuple(ShippedTarget(**target) for target in about.pop("targets"))
    return ShippedModel(name, targets=targets, **about)


def shipped_models() -> list[ShippedModel]:
    """Return the descriptions of the shipped models, sorted by name."""
    return [describe_shipped(name) for name in pretrained_names()]
