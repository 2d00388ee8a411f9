"""The depth of each parameter, for layers that are frozen or have other learning rates."""

from typing import Literal

from torch import nn

from molslice.types import MolsliceError

ENCODER = "encoder"


def head_names(model: nn.Module) -> list[str]:
    """Return the children of a model that are defined after its encoder.

    For a model without an encoder they are the children that are named like a readout.
    """
    children = [name for name, _ in model.named_children()]
    if ENCODER in children:
        return children[children.index(ENCODER) + 1 :]
    return [name for name in children if "readout" in name or "head" in name]


def parameter_depths(model: nn.Module) -> tuple[dict[str, int], int]:
    """Return the depth of each parameter by name, and the number L of layers.

    The depth is 0 before the encoder (embeddings and pair bias), 1 to L in its layers, L + 1 in its final
    norm, and L + 2 in the heads after it. Children of the model that are defined before the encoder feed it.

    Raises:
        MolsliceError: The model has no encoder with numbered layers.
    """
    layers = getattr(getattr(model, ENCODER, None), "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise MolsliceError(
            f"{type(model).__name__} has no numbered layers, which optimizer.layer_decay and "
            "training.frozen_layers need"
        )
    heads, depths = head_names(model), {}
    for name, _ in model.named_parameters():
        first, *rest = name.split(".")
        if first == ENCODER:
            depths[name] = int(rest[1]) + 1 if rest[1].isdecimal() else len(layers) + 1
        else:
            depths[name] = len(layers) + 2 if first in heads else 0
    return depths, len(layers)


def layer_factors(model: nn.Module, decay: float) -> dict[str, float]:
    """Return the factor of the learning rate of each parameter.

    It is 1 for the heads and the final norm, `decay` for the last layer, and `decay` times less for each
    layer below; the embeddings are below the first layer.

    Raises:
        MolsliceError: As `parameter_depths`.

    Source: Howard and Ruder 2018, "Universal Language Model Fine-tuning for Text Classification", section
    3.2.
    """
    depths, layers = parameter_depths(model)
    return {name: decay ** max(0, layers + 1 - depth) for name, depth in depths.items()}


def freeze_layers(model: nn.Module, frozen: int | Literal["all"]) -> None:
    """Exclude the embeddings and the first layers from training.

    Args:
        model: The model.
        frozen: The number of layers; 0 freezes nothing, `all` everything but the heads.

    Raises:
        MolsliceError: The model has fewer layers, no numbered layers, or no parameter that is left to train.
    """
    if frozen == 0:
        return
    depths, layers = parameter_depths(model)
    if frozen != "all" and frozen > layers:
        raise MolsliceError(f"training.frozen_layers is {frozen}, but the model has {layers} layers")
    last = layers + 1 if frozen == "all" else frozen
    for name, parameter in model.named_parameters():
        if depths[name] <= last:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise MolsliceError(f"training.frozen_layers {frozen} leaves no parameter to train")
