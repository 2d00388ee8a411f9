"""From what a configuration says to a model."""

from torch import nn

from molslice.model.graphormer import Graphormer
from molslice.model.spec import AttentionChoice, ModelSpec


def build_model(spec: ModelSpec, attention: AttentionChoice, num_targets: int) -> nn.Module:
    """A module whose `forward` takes a `MoleculeBatch` and returns a `ModelOutput`.

    `gin_virtual` has no attention and ignores `attention`. PyG is imported only for it.

    Raises:
        MolsliceError: an unknown attention or option, or a spec that the attention cannot serve.
    """
    if spec.name == "gin_virtual":
        from molslice.model.gin_virtual import GinVirtual

        return GinVirtual(spec, num_targets)
    return Graphormer(spec, attention, num_targets)
