"""A policy as a sequence model: return-to-go, state and action of each step are tokens."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.model.base import SIZES, AttentionChoice, OneEncoderSpec, Tokens
from molslice.model.encoder import Encoder, initialize_linear
from molslice.types import DataSpec, EpisodeBatch, ModelOutput, MolsliceError

TOKENS_PER_STEP = 3  # return-to-go, state, action, in this order


@dataclass(frozen=True, slots=True)
class DecisionSpec(OneEncoderSpec):
    """The spec of a return-conditioned policy. See `OneEncoderSpec` for the other fields.

    Attributes:
        name: Configuration name of the model.
        return_scale: Divisor of returns.
        action_limit: Bound of the absolute value of each action; None if the action space is unbounded.

    Raises:
        MolsliceError: A size is below one, or a scale or limit is not positive.
    """

    takes: ClassVar[tuple[Tokens, ...]] = ("steps",)
    num_layers: int
    dim: int
    ffn_dim: int
    num_heads: int
    name: Literal["decision"] = "decision"
    head_dim: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm: Literal["pre", "post"] = "pre"
    return_scale: float = 1000.0
    action_limit: float | None = 1.0
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        self.check_sizes(SIZES)
        self.check_scales(("return_scale", "action_limit"))
        self.check_rates()

    @property
    def is_causal(self) -> bool:
        """True: an action does not depend on later steps."""
        return True

    def build(self, attention: AttentionChoice, data: DataSpec) -> "DecisionModel":
        """Construct the module; see `ModelSpec.build`."""
        return DecisionModel(self, attention, data)


class DecisionModel(nn.Module):
    """Encode tokens R_1, s_1, a_1, R_2, s_2, a_2, ... causally, and predict action a_t from the token of s_t.

    a_t therefore depends on the returns and states up to t and the actions before t. A batch is in the units
    of the environment. The model itself standardizes states, by the statistics of the training data in
    `DataSpec`, and divides returns by `return_scale`, in training and in rollouts. With `action_limit` the
    action is limit * tanh(x), otherwise x. Padding may be anywhere.

    Raises:
        MolsliceError: The attention does not support the spec, for example lacks a causal form, actions in
            the data exceed `action_limit`, or the context is shorter than a step.

    Source: Decision Transformer (Chen et al. 2021, arXiv 2106.01345, section 3 and algorithm 1), with the
    norm of the embedded tokens and the learned timesteps of the authors' code.
    """

    parts: ClassVar[Mapping[str, str]] = MappingProxyType({"encoder": "layers"})

    def __init__(self, spec: DecisionSpec, attention: AttentionChoice, data: DataSpec) -> None:
        super().__init__()
        self.spec, self.data = spec, data
        if data.max_tokens is not None and data.max_tokens < TOKENS_PER_STEP:
            raise MolsliceError(f"a step has {TOKENS_PER_STEP} tokens, but max_tokens is {data.max_tokens}")
        check_actions(spec.action_limit, data)
        self.embedding = EpisodeEmbedding(spec, data)
        self.encoder = Encoder(
            attention, **spec.encoder_options, causal=spec.is_causal, max_tokens=data.max_tokens
        )
        self.readout = nn.Linear(spec.dim, data.num_outputs)
        initialize_linear(self.encoder)
        initialize_linear(self.readout)

    def forward(self, batch: EpisodeBatch) -> ModelOutput:
        """Predict the action of each step.

        Returns:
            Actions [B, S, T] as `prediction`, in their own unit, arbitrary at padding.

        Raises:
            MolsliceError: There are more steps than the context of the model.
        """
        steps, context = batch.states.shape[1], (self.data.max_tokens or 0) // TOKENS_PER_STEP
        if steps > context:
            raise MolsliceError(f"the model was built for a context of {context} steps, got {steps}")
        mask = None if batch.step_mask is None else batch.step_mask.repeat_interleave(TOKENS_PER_STEP, 1)
        encoded = self.encoder(self.embedding(batch), mask)
        action = self.readout(encoded.tokens[:, 1::TOKENS_PER_STEP])
        return ModelOutput(bound_actions(action, self.spec.action_limit), encoded.penalty)


class EpisodeEmbedding(nn.Module):
    """Embed each kind of token by its own linear map, and add the embedding of the timestep.

    The tokens of a step share its timestep. The maps and the table keep PyTorch's initialization, as in the
    authors' code. After the norm, the single number of the return then has about the same weight as the state
    and the timestep.

    Source: Decision Transformer (Chen et al. 2021, arXiv 2106.01345), the authors' code.
    """

    def __init__(self, spec: DecisionSpec, data: DataSpec) -> None:
        super().__init__()
        assert data.channels is not None  # checked in `DataSpec`
        assert data.timesteps is not None
        self.return_scale = spec.return_scale
        self.return_to_go = nn.Linear(1, spec.dim)
        self.state = nn.Linear(data.channels, spec.dim)
        self.action = nn.Linear(data.num_outputs, spec.dim)
        self.positions = nn.Embedding(data.timesteps, spec.dim)
        self.norm = nn.LayerNorm(spec.dim)
        self.standardize = StandardStates(data)

    def forward(self, batch: EpisodeBatch) -> Float[Tensor, "B N D"]:
        """Return three tokens per step [B, N, D], N = 3 S, arbitrary but not NaN at padding."""
        returns, states, actions = batch.returns_to_go[..., None], batch.states, batch.actions
        timesteps = batch.timesteps
        if batch.step_mask is not None:
            hidden = ~batch.step_mask
            returns, states, actions = (
                values.masked_fill(hidden[..., None], 0.0) for values in (returns, states, actions)
            )
            timesteps = timesteps.masked_fill(hidden, 0)
        tokens = torch.stack(
            (
                self.return_to_go(returns / self.return_scale),
                self.state(self.standardize(states)),
                self.action(actions),
            ),
            2,
        )
        tokens = tokens + self.positions(timesteps)[:, :, None]
        return self.norm(tokens.flatten(1, 2))


class StandardStates(nn.Module):
    """Subtract the mean of each number of a state and divide by its spread, both of the training data."""

    def __init__(self, data: DataSpec) -> None:
        super().__init__()
        assert data.channels is not None  # checked in `DataSpec`
        self.state_mean: Tensor
        self.state_std: Tensor
        for name, default in (("state_mean", 0.0), ("state_std", 1.0)):
            values = data.statistics.get(name, (default,) * data.channels)
            # saved in the data spec, next to the weights
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32), persistent=False)

    def forward(self, states: Float[Tensor, "B S F"]) -> Float[Tensor, "B S F"]:
        """Return the standardized states."""
        return (states - self.state_mean) / self.state_std


def bound_actions(values: Float[Tensor, "B S T"], limit: float | None) -> Float[Tensor, "B S T"]:
    """Return limit * tanh(x); x itself without a limit."""
    return values if limit is None else limit * torch.tanh(values)


def check_actions(limit: float | None, data: DataSpec) -> None:
    """Check that the actions in the data are within the limit of a model, up to rounding.

    Raises:
        MolsliceError: An action exceeds the limit.
    """
    bounds = [*data.statistics.get("action_low", ()), *data.statistics.get("action_high", ())]
    largest = max(map(abs, bounds), default=0.0)
    if limit is not None and largest > limit and not math.isclose(largest, limit, rel_tol=1e-5):
        raise MolsliceError(
            f"the data have actions up to {largest:g}, beyond model.action_limit {limit:g}; "
            "set it to the bound of the action space, or to null if the space is unbounded"
        )
