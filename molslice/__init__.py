"""Predict molecular properties from graphs, with interchangeable attention.

`load_model("gap-xtb").predict(["CCO"])` is the shortest way in. The names below are imported when they are
first used, so that `import molslice` stays fast. `docs/design.md` describes the folders.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from molslice.version import __version__

if TYPE_CHECKING:
    from molslice.attention import ATTENTIONS, build_attention
    from molslice.config import load_config
    from molslice.data import build_dataset
    from molslice.errors import MolsliceError
    from molslice.estimators import MolsliceClassifier, MolsliceFeaturizer, MolsliceRegressor
    from molslice.explanation.explain import explain
    from molslice.export.exported_file import export_model
    from molslice.fitting.fit import fit
    from molslice.inference.base import Predictor
    from molslice.inference.evaluate import evaluate
    from molslice.inference.hub import from_pretrained, push_to_hub
    from molslice.inference.load import load_model
    from molslice.inference.predictions import Domain, Predictions
    from molslice.inference.ranking import rank
    from molslice.training.run import train

__all__ = [
    "ATTENTIONS",
    "Domain",
    "MolsliceClassifier",
    "MolsliceError",
    "MolsliceFeaturizer",
    "MolsliceRegressor",
    "Predictions",
    "Predictor",
    "__version__",
    "build_attention",
    "build_dataset",
    "evaluate",
    "export_model",
    "explain",
    "fit",
    "from_pretrained",
    "load_config",
    "load_model",
    "push_to_hub",
    "rank",
    "train",
]

_MODULES = {
    "ATTENTIONS": "molslice.attention",
    "Domain": "molslice.inference.predictions",
    "MolsliceClassifier": "molslice.estimators",
    "MolsliceError": "molslice.errors",
    "MolsliceFeaturizer": "molslice.estimators",
    "MolsliceRegressor": "molslice.estimators",
    "Predictions": "molslice.inference.predictions",
    "Predictor": "molslice.inference.base",
    "build_attention": "molslice.attention",
    "build_dataset": "molslice.data",
    "evaluate": "molslice.inference.evaluate",
    "export_model": "molslice.export.exported_file",
    "explain": "molslice.explanation.explain",
    "fit": "molslice.fitting.fit",
    "from_pretrained": "molslice.inference.hub",
    "load_config": "molslice.config",
    "load_model": "molslice.inference.load",
    "push_to_hub": "molslice.inference.hub",
    "rank": "molslice.inference.ranking",
    "train": "molslice.training.run",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'molslice' has no attribute {name!r}")
