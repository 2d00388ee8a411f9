"""molslice: molecular properties from graphs, with attention that can be exchanged.

`load_model("gap-xtb").predict(["CCO"])` is the shortest way in. The rooms of the house:
`attention` (the zoo), `chem` (SMILES to arrays), `data` (stores, data sets, batches), `model` (the encoder),
`tasks`, `training`, `inference`, `config` and `cli`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from molslice.inference.load import load_model

__version__ = "0.1.0"
__all__ = ["__version__", "load_model"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name == "load_model":
        return import_module("molslice.inference.load").load_model
    raise AttributeError(f"module 'molslice' has no attribute {name!r}")
