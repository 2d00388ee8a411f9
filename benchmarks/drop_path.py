"""Graphormer with stochastic depth, to measure whether small models gain from it.

Source: Huang et al. 2016, arXiv 1603.09382.
"""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from molslice.model.base import AttentionChoice
from molslice.model.encoder import EncoderLayer, drop_path_rates
from molslice.model.graphormer import Graphormer, GraphormerSpec
from molslice.types import DataSpec


@dataclass(frozen=True, slots=True)
class DropPathSpec(GraphormerSpec):
    """The spec of the model, with the options of Graphormer.

    Attributes:
        name: Configuration name of the model.
        drop_path: Rate of stochastic depth in the last layer; it grows evenly from 0 in the first.
    """

    name: Literal["drop_path"] = "drop_path"
    drop_path: float = 0.1

    def build(self, attention: AttentionChoice, data: DataSpec) -> nn.Module:
        """Construct the module; see `ModelSpec.build`."""
        model = Graphormer(self, attention, data)
        layers = [module for module in model.modules() if isinstance(module, EncoderLayer)]
        for layer, rate in zip(layers, drop_path_rates(self.drop_path, len(layers)), strict=True):
            layer.drop_path = rate
        return model
