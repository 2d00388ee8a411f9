"""Small checkpoints that ship with the package, each in a folder of its name.

What lives here: `<name>/model.safetensors`, `<name>/config.yaml` and `<name>/README.md`, the card: data,
error and baselines, what the model is not for. May import: `molslice.types`, `molslice.registry`.
To add one: copy these two files out of a run folder and write the card; at most 5 MB a model, because
every installation carries it. Why so: `load_model("gap-xtb")` works without a network and without a
search for files.
"""

from pathlib import Path

from molslice.registry import near_names
from molslice.types import MolsliceError

__all__ = ["find_pretrained", "pretrained_names"]

_FOLDER = Path(__file__).parent


def pretrained_names() -> list[str]:
    """The names of the models that ship with the package, sorted."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/model.safetensors"))


def find_pretrained(name: str) -> Path:
    """The checkpoint folder of the shipped model `name`.

    Raises:
        MolsliceError: no model of that name ships; the message lists those that do.
    """
    if name not in pretrained_names():
        raise MolsliceError(f"no model {name!r} ships with molslice; {near_names(name, pretrained_names())}")
    return _FOLDER / name
