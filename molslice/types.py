"""Values that travel between layers, and the letters of their axes.

Letters, the same everywhere: B batch, N tokens (padding included), D width, H heads, C = D / H
channels per head, A atoms (padding included), S steps of an episode, T targets, M tokens of a separate
memory, and in a batch of molecules the bonds of all of them.
This module imports torch and jaxtyping alone; everything else in the package may import it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

PairBiasMode = Literal["none", "logits", "mix"]
State = tuple[Tensor, ...]  # what a causal attention remembers of the tokens before
Cost = Literal["linear", "log_linear", "n_sqrt_n", "quadratic"]
Symmetry = Literal["equivariant", "ordered"]


class MolsliceError(ValueError):
    """A user's mistake: the message names what was wrong, where, and the choices."""


@dataclass(frozen=True, slots=True)
class TokenContext:
    """What an attention may know besides the tokens.

    `pair_bias` is S + E, finite, and padding is never written into it; `pair_weights` is its softmax
    over the real tokens (rows sum to one, zero in the columns of padding), computed once a batch by
    the encoder for the attentions that mix by it; `carry` is what the same attention one layer
    below handed on. `memory` is the other sequence of a cross attention, which keys and values come from,
    and `memory_mask` tells its real tokens; both are None where a sequence attends to itself. `all_real` lets
    kernels that know no mask be used (asking the mask would make a GPU wait); where it is not true, the
    result is wrong.
    """

    token_mask: Bool[Tensor, "B N"]  # True = real token; never None
    pair_bias: Float[Tensor, "B H N N"] | None = None
    pair_weights: Float[Tensor, "B H N N"] | None = None
    carry: Tensor | None = None
    memory: Float[Tensor, "B M D"] | None = None
    memory_mask: Bool[Tensor, "B M"] | None = None  # True = real token
    all_real: bool = False  # promised by the caller: no padding anywhere, which the masks say without it

    def with_carry(self, carry: Tensor | None) -> "TokenContext":
        """The same context for the next layer, with what this layer handed on."""
        return replace(self, carry=carry)


class AttentionOutput(NamedTuple):
    """What an attention returns."""

    tokens: Float[Tensor, "B N D"]  # zero at padding
    penalty: Float[Tensor, ""] | None = None  # auxiliary loss, added to the task's loss
    carry: Tensor | None = None  # for the same attention one layer above


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What the model fixes for every attention alike.

    `layer` counts from 0. `pair_bias` says how the bias enters: not at all, into the scores
    (`logits`), or as softmax(S + E) V in the place of V (`mix`). `max_tokens` bounds N (and M) for the
    attentions whose parameters depend on it; None leaves it open. `cross`: keys and values come from a
    separate memory, `context.memory`.
    """

    dim: int
    num_heads: int
    layer: int = 0
    num_layers: int = 1
    dropout: float = 0.0
    causal: bool = False
    pair_bias: PairBiasMode = "none"
    max_tokens: int | None = None
    cross: bool = False

    def __post_init__(self) -> None:
        if self.dim < 1 or self.num_heads < 1 or self.dim % self.num_heads:
            raise MolsliceError(
                f"attention width dim={self.dim} must be a positive multiple of num_heads={self.num_heads}"
            )
        if not 0 <= self.layer < self.num_layers:
            raise MolsliceError(f"layer {self.layer} is not one of {self.num_layers} layers")
        if not 0.0 <= self.dropout < 1.0:
            raise MolsliceError(f"dropout must lie in [0, 1), got {self.dropout}")
        if self.pair_bias not in ("none", "logits", "mix"):
            raise MolsliceError(f"pair_bias must be none, logits or mix, got {self.pair_bias!r}")
        if self.cross and (self.causal or self.pair_bias != "none"):
            raise MolsliceError(
                "a cross attention has neither a causal form nor a pair bias: both are about one sequence"
            )

    @property
    def head_dim(self) -> int:
        """C, channels per head."""
        return self.dim // self.num_heads


@dataclass(frozen=True, slots=True)
class Traits:
    """What an attention promises; every promise, and every absence of one, is tested.

    `pair_bias` lists the ways a pair bias may enter, the preferred one first after `none`;
    `cost` is that of time and memory in N without a pair bias (with one it is quadratic for all);
    `causal` says that the spec may ask for a causal form, `recurrent` that this, without a pair bias, also
    runs token by token from a state whose size does not depend on the position; `cross` that it may ask for
    a separate memory; `fixed_length` that parameters depend on N; `vmap` that `torch.func.vmap` over a
    further axis gives what a loop gives (without the promise it is refused).
    """

    source: str
    cost: Cost
    symmetry: Symmetry
    pair_bias: tuple[PairBiasMode, ...] = ("none",)
    causal: bool = False
    recurrent: bool = False
    cross: bool = False
    fixed_length: bool = False
    vmap: bool = True

    @property
    def preferred_pair_bias(self) -> PairBiasMode:
        """How a pair bias enters when the configuration does not say."""
        for mode in self.pair_bias:
            if mode != "none":
                return mode
        return "none"


@dataclass(frozen=True, slots=True)
class MoleculeArrays:
    """One molecule as the store keeps it: compact integer arrays.

    `bonds` columns are begin atom, end atom, type, stereo, conjugated; each bond stands once.
    Feature entries are indices into OGB's vocabularies.
    """

    atoms: Any  # numpy uint8 [n, 9]
    bonds: Any  # numpy uint8 [m, 5]


class Batch:
    """What all batches can do: move as a whole. A subclass is a frozen dataclass of tensors."""

    __slots__ = ()

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The same batch on another device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """The same batch in page-locked memory."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        own: Any = self
        tensors = {field.name: getattr(self, field.name) for field in fields(own)}
        return replace(own, **{name: change(t) for name, t in tensors.items() if isinstance(t, Tensor)})


@dataclass(frozen=True, slots=True)
class MoleculeBatch(Batch):
    """A padded batch of molecules. Values at padding are arbitrary and must never matter.

    `bond_index` columns are molecule, begin atom, end atom, each undirected bond once;
    `targets` are in the data set's own unit, NaN where a target is missing; `rows` are the rows of the
    data set that the molecules come from.
    """

    atoms: UInt8[Tensor, "B A 9"]
    atom_mask: Bool[Tensor, "B A"]
    bond_index: Int[Tensor, "M 3"]
    bond_features: UInt8[Tensor, "M 3"]
    targets: Float[Tensor, "B T"] | None = None
    rows: Int[Tensor, "B"] | None = None

    def __len__(self) -> int:
        return self.atoms.shape[0]


@dataclass(frozen=True, slots=True)
class SequenceBatch(Batch):
    """A padded batch of sequences. Values at padding are arbitrary and must never matter.

    `tokens` are numbers of a vocabulary or, of a series or cut image, F channels a token. Without a mask
    all tokens are real. `pair_tokens` is the second sequence of each row where a task compares two.
    `targets` are in the data set's own unit, NaN where one is missing; a class is its number. `rows` are the
    rows of the data set.
    """

    tokens: Int[Tensor, "B N"] | Float[Tensor, "B N F"]
    token_mask: Bool[Tensor, "B N"] | None = None
    targets: Float[Tensor, "B T"] | None = None
    rows: Int[Tensor, "B"] | None = None
    pair_tokens: Int[Tensor, "B P"] | Float[Tensor, "B P F"] | None = None
    pair_mask: Bool[Tensor, "B P"] | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]


@dataclass(frozen=True, slots=True)
class EpisodeBatch(Batch):
    """Windows of episodes, S steps each, padded. Values at padding are arbitrary and must never matter.

    All in the environment's own units. `returns_to_go` is the sum of the rewards from a step, its own among
    them, to the end of its episode, in a rollout what is still asked for. `timesteps` count the steps of an
    episode from 0. Without a mask all steps are real. `rows` are the rows of the data set.
    """

    states: Float[Tensor, "B S F"]
    actions: Float[Tensor, "B S T"]
    returns_to_go: Float[Tensor, "B S"]
    timesteps: Int[Tensor, "B S"]
    step_mask: Bool[Tensor, "B S"] | None = None  # True = real step
    rows: Int[Tensor, "B"] | None = None

    def __len__(self) -> int:
        return self.states.shape[0]


@dataclass(frozen=True, slots=True)
class DataSpec:
    """What a model has to know of its data; travels with its weights.

    `num_outputs` is the number of values that the model returns for a row (or a token, in language).
    `tokens` says what a batch holds: molecules, `ids` (integers below `vocabulary_size`), `values`
    (`channels` numbers a token) or `steps` of episodes (`channels` numbers a state, three tokens a step).
    `max_tokens` is the longest sequence. `paired`: two sequences a row. `grid` is how many rows and columns
    of patches an image was cut into.
    `vocabulary` identifies what the integers mean, so that a model never meets another vocabulary.
    `timesteps` is how many steps an episode has at most. `statistics` are numbers of the training data that
    the model computes with; two specs may differ in them and be about the same data.

    Raises:
        MolsliceError: a number that is missing or below one.
    """

    num_outputs: int
    tokens: Literal["molecules", "ids", "values", "steps"] = "molecules"
    vocabulary_size: int | None = None
    channels: int | None = None
    max_tokens: int | None = None
    paired: bool = False
    vocabulary: str = ""
    timesteps: int | None = None
    grid: tuple[int, int] | None = None
    statistics: Mapping[str, tuple[float, ...]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        needed = {
            "molecules": (),
            "ids": ("vocabulary_size", "max_tokens"),
            "values": ("channels", "max_tokens"),
            "steps": ("channels", "max_tokens", "timesteps"),
        }
        for name in ("num_outputs", *needed[self.tokens]):
            value = getattr(self, name)
            if value is None or value < 1:
                raise MolsliceError(f"{name} of the data must be at least 1, got {value}")


class ModelOutput(NamedTuple):
    """What every model returns for a batch; predictions are standardized, without unit.

    `heads` are the logits of a model that learns from labels and from a teacher, in this order; `prediction`
    is their mean.
    """

    prediction: Float[Tensor, "B T"] | Float[Tensor, "B N T"]  # the latter where every token is predicted
    penalty: Float[Tensor, ""] | None = None
    heads: tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]] | None = None


Options = Mapping[str, Any]
