"""The attention's own view of a molecule: its map, and the quantities that it defines for each token.

An attention map says how much of one token's value goes to another token in one layer. It does not say how
much an atom changes the prediction; for that, use contributions.
"""

import copy
from dataclasses import dataclass

import numpy as np
import torch

from molslice.attention import Attention
from molslice.explanation.molecule import MaskedMolecule
from molslice.explanation.score import Score
from molslice.inference.forward import float32_inference
from molslice.inference.maps import Kind, attention_maps
from molslice.types import MolsliceError

__all__ = ["LayerMaps", "check_maps", "layer_maps"]

GRAPH_TOKEN = "weight for the graph token"


@dataclass(frozen=True, slots=True)
class LayerMaps:
    """The maps of L layers over n atoms, with the graph token as token 0.

    Attributes:
        attention: Name of the attention.
        kind: `exact`, or `influence` for an attention without an exact map.
        maps: Mean over the heads of each layer, float32 [L, 1 + n, 1 + n]. Entry (i, j) is the weight of
            token j in the output of token i.
        by_atom: Values of each atom, float32 [L, n], by caption: what the attention defines (such as the
            share of channels that a sort moves to the graph token, or the competition of a flow), then the
            weight in the output of the graph token.
    """

    attention: str
    kind: Kind
    maps: np.ndarray
    by_atom: dict[str, np.ndarray]


def layer_maps(score: Score, molecule: MaskedMolecule) -> LayerMaps:
    """Compute the maps of all layers of the first network of a score.

    Raises:
        MolsliceError: The network has no attention.
    """
    check_maps(score)
    # a copy, because recording would mix the calls of other threads
    model = copy.deepcopy(score.networks[0].model)
    with float32_inference(score.device, gradients=True):
        layers = attention_maps(model, molecule.copies(1))
    maps = np.stack([_numpy(layer.weights[0].mean(0)) for layer in layers])
    by_atom = {
        caption.replace("token 0", "the graph token"): np.stack(
            [_numpy(layer.by_token[caption][0])[1:] for layer in layers]
        )
        for caption in layers[0].by_token
    }
    return LayerMaps(layers[0].name, layers[0].kind, maps, {**by_atom, GRAPH_TOKEN: maps[:, 0, 1:]})


def check_maps(score: Score) -> None:
    """Check that `layer_maps` supports the first network.

    Raises:
        MolsliceError: It has no attention.
    """
    network = score.networks[0]
    if not any(isinstance(module, Attention) for module in network.model.modules()):
        raise MolsliceError(
            f"{network.name} is a {network.config.model.name}, which has no attention; use the method shapley"
        )


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()
