"""The attention's own view of a molecule: its map, and the quantities that it defines for each token.

An attention map says how much of one token's value goes to another token in one layer. It does not say how
much an atom changes the prediction; for that, use contributions.
"""

import copy

import numpy as np
import torch

from molslice.attention import Attention
from molslice.explanation.masked_molecule import MaskedMolecule
from molslice.explanation.score import Score
from molslice.inference.maps import Kind, attention_maps
from molslice.inference.precision import float32_inference
from molslice.types import MolsliceError

GRAPH_TOKEN = "weight for the graph token"


def layer_maps(score: Score, molecule: MaskedMolecule) -> tuple[str, Kind, np.ndarray, dict[str, np.ndarray]]:
    """Compute the maps of all layers of the first network of a score, as fields of `AttentionView`.

    Returns:
        The name of the attention and the kind of its maps. The maps, mean over the heads of each layer,
        float32 [L, 1 + n, 1 + n]. Values of each atom, float32 [L, n], by caption: what the attention defines
        (such as the share of channels that a sort moves to the graph token, or the competition of a flow),
        then the weight in the output of the graph token.
    """
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
    return layers[0].name, layers[0].kind, maps, {**by_atom, GRAPH_TOKEN: maps[:, 0, 1:]}


def check_maps(score: Score) -> None:
    """Check that `layer_maps` supports the first network."""
    network = score.networks[0]
    if not any(isinstance(module, Attention) for module in network.model.modules()):
        raise MolsliceError(
            f"{network.name} is a {network.config.model.name}, which has no attention; use the method shapley"
        )


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()
