"""Behavior cloning: the action of each step is predicted from its state alone, the baseline of policies."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from molslice.model.base import AttentionChoice, ModelSpec, Tokens
from molslice.model.encoder import initialize_linear
from molslice.model.sequences.decision import StandardStates, bound_actions, check_actions
from molslice.types import DataSpec, EpisodeBatch, ModelOutput


@dataclass(frozen=True, slots=True)
class BehaviorCloningSpec(ModelSpec):
    """The spec of a policy without returns and history.

    Attributes:
        num_layers: Number of hidden layers.
        dim: Width of the hidden layers.
        name: Configuration name of the model.
        dropout: Dropout rate of the hidden layers.
        action_limit: Bound of the absolute value of each action; None if the action space is unbounded.

    Raises:
        MolsliceError: A size is below one, or the limit is not positive.
    """

    takes: ClassVar[tuple[Tokens, ...]] = ("steps",)
    uses_attention: ClassVar[bool] = False
    num_layers: int
    dim: int
    name: Literal["behavior_cloning"] = "behavior_cloning"
    dropout: float = 0.1
    action_limit: float | None = 1.0

    def __post_init__(self) -> None:
        self.check_sizes(("num_layers", "dim"))
        self.check_rates(("dropout",))
        self.check_scales(("action_limit",))

    @property
    def size_label(self) -> str:
        """Layers and width, such as `3x256`."""
        return f"{self.num_layers}x{self.dim}"

    def build(self, attention: AttentionChoice, data: DataSpec) -> "BehaviorCloning":  # noqa: ARG002
        """Construct the module, without the attention; see `ModelSpec.build`."""
        return BehaviorCloning(self, data)


class BehaviorCloning(nn.Module):
    """Standardized state, hidden layers with ReLU and dropout, and a linear map to the action.

    With `action_limit` the action is limit * tanh(x), otherwise x. Returns, earlier steps and timesteps are
    not used. States are standardized as in `DecisionModel`.

    Raises:
        MolsliceError: Actions in the data exceed `action_limit`.

    Source: Pomerleau 1989 (ALVINN); layers as in the baseline of Decision Transformer (Chen et al. 2021,
    arXiv 2106.01345), which takes the last 20 states instead of one.
    """

    parts: ClassVar[Mapping[str, str]] = MappingProxyType({"hidden": "layers"})

    def __init__(self, spec: BehaviorCloningSpec, data: DataSpec) -> None:
        super().__init__()
        assert data.channels is not None  # checked in `DataSpec`
        self.spec, self.data = spec, data
        check_actions(spec.action_limit, data)
        self.standardize = StandardStates(data)
        widths = [data.channels, *[spec.dim] * spec.num_layers]
        self.hidden = nn.ModuleList(
            nn.Linear(width, following) for width, following in zip(widths[:-1], widths[1:], strict=True)
        )
        self.dropout = nn.Dropout(spec.dropout)
        self.readout = nn.Linear(spec.dim, data.num_outputs)
        initialize_linear(self)

    def forward(self, batch: EpisodeBatch) -> ModelOutput:
        """Return actions [B, S, T] as `prediction`, in their own unit, arbitrary but not NaN at padding."""
        states = batch.states
        if batch.step_mask is not None:
            states = states.masked_fill(~batch.step_mask[..., None], 0.0)
        values: Tensor = self.standardize(states)
        for layer in self.hidden:
            values = self.dropout(torch.relu(layer(values)))
        return ModelOutput(bound_actions(self.readout(values), self.spec.action_limit))
