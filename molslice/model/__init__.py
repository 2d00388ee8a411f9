"""Models: tokens in, predictions out. One file, one model, one configuration name.

Contents: `base.py` (the interface of a spec), one file for each model, and what models share:
`embeddings.py` (integers to tokens), `graph_bias.py` (S + E), `encoder.py` (the layers), `pair_state.py` and
`local_bonds.py` (options of the layers), `distance_head.py` (distances of atoms), `count.py`,
`layer_depth.py` (the layer of each parameter), `dropout.py` (repeatable dropout), `skeleton.py` (models
without memory). Models of sequences are in `sequences`. Models do not depend on a data set.
Imports: `attention`, `ops`, `types`, `registry`, torch, numpy. Only `gin_virtual` imports PyG, when it is
built.
To add one: write `my_model.py` with a frozen dataclass `MyModelSpec(ModelSpec)`, without a list to edit. Its
fields are the options under `model` in a configuration, `takes` declares the kinds of data, `has_batch_norm`
declares batch norm, and `build` constructs the module from the spec, the choice of the attention and the
properties of the data. The module maps a batch to `ModelOutput`. It declares in `parts` how its children are
counted, in `lookup_tables` which of its parameters are looked up by an integer, and in `vectors` which of
several axes are no matrices.
Reason: training from a prepared store and predicting from a prepared batch need no chemistry.
"""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # the base class of all batch norms

from molslice.model.base import AttentionChoice, ModelSpec
from molslice.registry import Registry
from molslice.types import DataSpec, MolsliceError

__all__ = ["DEFAULT_MODEL", "MODELS", "AttentionChoice", "ModelSpec", "build_model"]

MODELS = Registry("molslice.model", ModelSpec, "model", suffix="Spec")
DEFAULT_MODEL = "graphormer"  # if a configuration does not name one


def build_model(spec: ModelSpec, attention: AttentionChoice, data: DataSpec) -> nn.Module:
    """Construct the module of a spec. Its `forward` takes a batch and returns a `ModelOutput`.

    Raises:
        MolsliceError: The model does not support the data, the attention or an option is unknown, the
            attention does not support the spec, or the model has batch norm and its spec does not declare it.
    """
    if data.tokens not in spec.takes:
        fit = ", ".join(name for name in MODELS.names() if data.tokens in MODELS.find(name).takes)
        raise MolsliceError(f"model.name {spec.name!r} does not take these data; choices: {fit}")
    if data.predicts_variance and not spec.predicts_variance:
        fit = ", ".join(name for name in MODELS.names() if MODELS.find(name).predicts_variance)
        raise MolsliceError(
            f"model.name {spec.name!r} does not predict a variance, which training.loss gaussian needs; "
            f"choices: {fit}"
        )
    if data.has_geometry and not spec.learns_distances:
        fit = ", ".join(name for name in MODELS.names() if MODELS.find(name).learns_distances)
        raise MolsliceError(
            f"model.name {spec.name!r} does not learn distances, which data.geometry is for; choices: {fit}"
        )
    model = spec.build(attention, data)
    if not spec.has_batch_norm and any(isinstance(module, _BatchNorm) for module in model.modules()):
        raise MolsliceError(
            f"model.name {spec.name!r} has batch norm, and batches of similar lengths spoil its statistics; "
            f"set has_batch_norm = True in {type(spec).__name__}"
        )
    return model
