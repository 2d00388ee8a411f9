"""From what a configuration says to a model."""

from torch import nn

from molslice.model.decision import DecisionModel
from molslice.model.graphormer import Graphormer
from molslice.model.hierarchical import HierarchicalClassifier
from molslice.model.language import LanguageModel
from molslice.model.sequence import SequenceClassifier
from molslice.model.spec import (
    AnySpec,
    AttentionChoice,
    DecisionSpec,
    HierarchicalSpec,
    LanguageSpec,
    SequenceSpec,
)
from molslice.types import DataSpec, MolsliceError

# the models that take what a batch holds
TAKERS = {
    "molecules": ("graphormer", "gin_virtual"),
    "ids": ("sequence", "language"),
    "values": ("sequence", "hierarchical"),
    "steps": ("decision",),
}


def build_model(spec: AnySpec, attention: AttentionChoice, data: DataSpec) -> nn.Module:
    """A module whose `forward` takes a batch and returns a `ModelOutput`.

    `gin_virtual` has no attention and ignores `attention`. PyG is imported only for it.

    Raises:
        MolsliceError: a model for other data, an unknown attention or option, or a spec that the attention
            cannot serve.
    """
    if spec.name not in TAKERS[data.tokens]:
        fit = ", ".join(TAKERS[data.tokens])
        raise MolsliceError(f"model.name {spec.name!r} does not take these data; choices: {fit}")
    if isinstance(spec, SequenceSpec):
        return SequenceClassifier(spec, attention, data)
    if isinstance(spec, HierarchicalSpec):
        return HierarchicalClassifier(spec, attention, data)
    if isinstance(spec, DecisionSpec):
        return DecisionModel(spec, attention, data)
    if isinstance(spec, LanguageSpec):
        return LanguageModel(spec, attention, data)
    if spec.name == "gin_virtual":
        from molslice.model.gin_virtual import GinVirtual

        return GinVirtual(spec, data.num_outputs)
    return Graphormer(spec, attention, data.num_outputs)
