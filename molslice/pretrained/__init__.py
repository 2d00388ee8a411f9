"""Small trained models that ship with the package, each in a folder of its name.

A folder holds `model.safetensors`, `config.yaml` and `README.md`, the model card with data, error, baselines
and limits. `load_model("gap-xtb")` therefore works without a network connection. `gap-xtb` predicts a gap;
`encoder-small` is an encoder to fine-tune.

Imports: `molslice.types`, `molslice.registry`.

To add a model, copy `model.safetensors`, `config.yaml` and, for intervals and domain, `calibration.*` and
`domain.*` from a run folder, and write the card. A model may
have at most 12 MB, because every installation contains it.
"""

from pathlib import Path

from molslice.registry import near_names
from molslice.types import MolsliceError

__all__ = ["DEFAULT_ENCODER", "find_pretrained", "pretrained_names"]

DEFAULT_ENCODER = "encoder-small"

_FOLDER = Path(__file__).parent


def pretrained_names() -> list[str]:
    """Return the names of the shipped models, sorted."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/model.safetensors"))


def find_pretrained(name: str) -> Path:
    """Return the checkpoint folder of the shipped model `name`.

    Raises:
        MolsliceError: No model of that name ships with the package. The message lists those that do.
    """
    if name not in pretrained_names():
        raise MolsliceError(f"no model {name!r} ships with molslice; {near_names(name, pretrained_names())}")
    return _FOLDER / name
