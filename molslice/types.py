"""Data types shared by all layers of the package, and the letters of tensor axes.

Axes: B batch, N tokens with padding, D width, H heads, C channels per head, E = H C, A atoms with padding, S
steps of an episode, T targets, K targets of each atom, F channels of a value or state. M is the number of
tokens of the memory in cross attention, and the number of bonds in a batch of molecules. P is the number of
tokens of a second sequence.
This module imports only torch, jaxtyping and `molslice.errors`; every other module may import it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from molslice.errors import MolsliceError as MolsliceError

PairBiasMode = Literal["none", "logits", "mix"]
Initialization = Literal["glorot", "truncated_normal"]
State = tuple[Tensor, ...]  # state of a causal attention after some tokens


@dataclass(frozen=True, slots=True)
class TokenContext:
    """The inputs of an attention besides the tokens.

    Attributes:
        token_mask: True at real tokens [B, N].
        pair_bias: S + E [B, H, N, N], finite and not masked: entries at padding are arbitrary. None without a
            pair bias.
        pair_weights: Softmax of `pair_bias` over the real tokens [B, H, N, N]. Rows sum to one; columns of
            padding are zero. The encoder computes it once per batch for `pair_bias: mix`. If it is None, the
            attention computes it.
        masked_bias: `pair_bias` with a large negative number where a token is padding [B, H, N, N]. The
            encoder computes it once per batch for `pair_bias: logits`. If it is None, the attention computes
            it. Arbitrary at padding if all layers ignore padding.
        carry: `AttentionOutput.carry` of the layer below; None in the first layer.
        memory: The sequence of keys and values in cross attention [B, M, D]; None in self-attention.
        memory_mask: True at real tokens of the memory [B, M]; None in self-attention.
        all_real: Whether the caller guarantees that no token is padding; the memory may be padded. Kernels
            without a mask can then be used, without a synchronization on a GPU to read the mask. If it is
            true for a padded batch, results are wrong.
        padding_is_unread: Whether the caller guarantees finite values at padding, and uses no output at
            padding except that it is finite. An attention that `ignores_padding` then need not be given
            zeros, and may leave a bias to the caller.
        is_checked: Whether the caller has called `Attention.check_input`, once for all layers.
        num_queries: Number of first tokens whose result the caller needs; None for all. An attention may skip
            the others.
    """

    token_mask: Bool[Tensor, "B N"]
    pair_bias: Float[Tensor, "B H N N"] | None = None
    pair_weights: Float[Tensor, "B H N N"] | None = None
    masked_bias: Float[Tensor, "B H N N"] | None = None
    carry: Tensor | None = None
    memory: Float[Tensor, "B M D"] | None = None
    memory_mask: Bool[Tensor, "B M"] | None = None
    all_real: bool = False
    padding_is_unread: bool = False
    is_checked: bool = False
    num_queries: int | None = None

    def with_carry(self, carry: Tensor | None) -> "TokenContext":
        """Return the context of the next layer, with the carry of this layer."""
        return replace(self, carry=carry)

    def first(self, tensor: Tensor, dim: int = 1) -> Tensor:
        """Return the first `num_queries` entries of a dimension, or all."""
        return tensor if self.num_queries is None else tensor.narrow(dim, 0, self.num_queries)


class AttentionOutput(NamedTuple):
    """The output of an attention.

    Attributes:
        tokens: Mixed tokens [B, N, D], zero at padding; [B, num_queries, D] with
            `TokenContext.num_queries`.
        penalty: Auxiliary loss, a scalar added to the loss of the task; None without one.
        carry: Tensor for the same attention in the next layer, such as its scores; None without one.
        output_bias: A vector [D] that the caller adds to the tokens, only with
            `TokenContext.padding_is_unread`; None without one.
    """

    tokens: Float[Tensor, "B N D"]
    penalty: Float[Tensor, ""] | None = None
    carry: Tensor | None = None
    output_bias: Float[Tensor, " D"] | None = None

    def with_tokens(self, tokens: Float[Tensor, "B N D"]) -> "AttentionOutput":
        """Return the same output with other tokens. torch.compile of torch 2.11 cannot return `_replace`."""
        return AttentionOutput(tokens, self.penalty, self.carry, self.output_bias)


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """The settings that a model passes to each of its attentions.

    Attributes:
        dim: Width D of the tokens, a multiple of `num_heads` unless `channels_per_head` is set.
        num_heads: Number of heads H.
        layer: Index of the layer, from 0.
        num_layers: Number of layers of the encoder.
        dropout: Dropout rate in [0, 1).
        causal: Whether a token depends only on itself and tokens before it.
        pair_bias_mode: How the pair bias is used: `none` (unused), `logits` (added to the scores) or `mix`
            (softmax(S + E) V replaces V).
        max_tokens: Upper limit of N and M, for attentions whose parameters depend on it; None for no limit.
        cross: Whether keys and values come from `TokenContext.memory`.
        qkv_bias: Whether the maps to query, key and value have a bias.
        channels_per_head: The option `head_dim` of a model; None for D / H.
        initialization: How the linear maps are initialized; see `molslice.attention.base.initialize_map`.

    Raises:
        MolsliceError: A value is invalid, or `cross` is combined with `causal` or a pair bias.
    """

    dim: int
    num_heads: int
    layer: int = 0
    num_layers: int = 1
    dropout: float = 0.0
    causal: bool = False
    pair_bias_mode: PairBiasMode = "none"
    max_tokens: int | None = None
    cross: bool = False
    qkv_bias: bool = True
    channels_per_head: int | None = None
    initialization: Initialization = "glorot"

    def __post_init__(self) -> None:
        divided = self.channels_per_head is None and self.num_heads > 0
        if self.dim < 1 or self.num_heads < 1 or (divided and self.dim % self.num_heads):
            raise MolsliceError(
                f"attention width dim={self.dim} must be a positive multiple of num_heads={self.num_heads}, "
                "unless head_dim is set"
            )
        if self.channels_per_head is not None and self.channels_per_head < 1:
            raise MolsliceError(f"head_dim must be at least 1, got {self.channels_per_head}")
        if not 0 <= self.layer < self.num_layers:
            raise MolsliceError(f"layer must be from 0 to {self.num_layers - 1}, got {self.layer}")
        if not 0.0 <= self.dropout < 1.0:
            raise MolsliceError(f"dropout must be in [0, 1), got {self.dropout}")
        if self.pair_bias_mode not in ("none", "logits", "mix"):
            raise MolsliceError(f"pair_bias must be none, logits or mix, got {self.pair_bias_mode!r}")
        if self.cross and (self.causal or self.pair_bias_mode != "none"):
            raise MolsliceError(
                "cross attention supports neither causal nor pair_bias, which apply to one sequence"
            )

    @property
    def head_dim(self) -> int:
        """Number of channels per head, C."""
        return self.dim // self.num_heads if self.channels_per_head is None else self.channels_per_head

    @property
    def inner_dim(self) -> int:
        """Width of queries, keys and values, H C; it is D unless `channels_per_head` is set."""
        return self.num_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class MoleculeArrays:
    """One molecule in compact integer arrays, as in a store. Features are indices into OGB's vocabularies.

    Attributes:
        atoms: Features of n atoms, numpy uint8 [n, 9].
        bonds: Features of m bonds, each listed once, numpy uint8 [m, 5]: begin atom, end atom, type, stereo,
            conjugated.
    """

    atoms: Any
    bonds: Any


class ManyArrays(NamedTuple):
    """The arrays of k molecules, one after the other. A row without a molecule has no atoms and no bonds.

    Attributes:
        atoms: Features of all atoms, numpy uint8 [sum n, 9], as in `MoleculeArrays`.
        bonds: Features of all bonds, numpy uint8 [sum m, 5].
        atom_counts: Number of atoms of each row, int64 [k].
        bond_counts: Number of bonds of each row, int64 [k].
        errors: Reason of each row without a molecule.
    """

    atoms: Any
    bonds: Any
    atom_counts: Any
    bond_counts: Any
    errors: dict[int, str]


class Batch:
    """Base class of batches, which are frozen dataclasses of tensors and move between devices as a whole."""

    __slots__ = ()

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """Return the batch on another device; `non_blocking` copies need pinned memory."""
        return self._change_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Return the batch in page-locked memory."""
        return self._change_tensors(lambda tensor: tensor.pin_memory())

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the batch by name, without the tensors of inner batches."""
        batch: Any = self
        values = {entry.name: getattr(batch, entry.name) for entry in fields(batch)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def copied_to(self, device: torch.device) -> Self:
        """Return a copy of the batch on a device, also if it is there."""
        return self._change_tensors(lambda tensor: tensor.to(device, copy=True))

    def overwrite(self, other: Self) -> None:
        """Copy the tensors of a batch with the same `form` into the tensors of this one."""
        batch: Any = self
        for entry in fields(batch):
            value, new = getattr(batch, entry.name), getattr(other, entry.name)
            if isinstance(value, Tensor):
                value.copy_(new, non_blocking=True)
            elif isinstance(value, Batch):
                value.overwrite(new)

    @property
    def form(self) -> tuple[Any, ...]:
        """The shapes of the tensors, and the other values."""
        batch: Any = self
        values = [getattr(batch, entry.name) for entry in fields(batch)]
        return tuple(
            tuple(value.shape)
            if isinstance(value, Tensor)
            else value.form
            if isinstance(value, Batch)
            else value
            for value in values
        )

    def _change_tensors(self, change: Callable[[Tensor], Tensor]) -> Self:
        batch: Any = self
        changed: dict[str, Any] = {}
        for entry in fields(batch):
            value = getattr(self, entry.name)
            if isinstance(value, Tensor):
                changed[entry.name] = change(value)
            elif isinstance(value, Batch):
                changed[entry.name] = value._change_tensors(change)
        return replace(batch, **changed)


@dataclass(frozen=True, slots=True)
class PathLevels(Batch):
    """The shortest paths of a batch of molecules: the pairs of atoms in the order of their distance.

    Pairs without a path are first, then those at distance 0, 1, 2, ... Q is the number of pairs at distances
    1 to h, where h is the number of bonds of a path that count.

    Attributes:
        degree: Number of bonds of each atom [B, A].
        place: Place of each pair of tokens in that order, for N = A + 1 tokens with the graph token as token
            0 [B, N, N]. Pairs with the graph token are after all pairs of atoms, at the place B A A.
        shorter: Index of the pair one step shorter among the pairs at its distance [Q].
        last_bond: Row of the last bond of the path in the bond list [Q].
        beyond: For pairs farther apart, the index of the first h bonds of their path among the pairs at
            distance h.
        sizes: Number of pairs without a path, then at distance 0, 1, 2, ...
        hops: The number h.
    """

    degree: Int[Tensor, "B A"]
    place: Int[Tensor, "B N N"]
    shorter: Int[Tensor, " Q"]
    last_bond: Int[Tensor, " Q"]
    beyond: Int[Tensor, " R"]
    sizes: tuple[int, ...]
    hops: int

    @property
    def steps(self) -> list[tuple[Tensor, Tensor]]:
        """Parts of `shorter` and `last_bond` for distance 1, 2, ..., h."""
        sizes = self.sizes[2 : 2 + self.hops]
        return list(zip(self.shorter.split(sizes), self.last_bond.split(sizes), strict=True))


@dataclass(frozen=True, slots=True)
class PathCodes(Batch):
    """The shortest paths of a batch of molecules as codes; see `molslice.ops.path_codes`.

    Attributes:
        distance: Length of the path in bonds [B, A, A], -1 if there is no path.
        bonds: Codes of the first five bonds of the path, six bits each, the first in the lowest [B, A, A].
        degree: Number of bonds of each atom [B, A].
    """

    distance: Int[Tensor, "B A A"]
    bonds: Int[Tensor, "B A A"]
    degree: Int[Tensor, "B A"]


@dataclass(frozen=True, slots=True)
class MoleculeBatch(Batch):
    """A padded batch of molecules. Values at padding are arbitrary and must not affect results.

    Attributes:
        atoms: Features of the atoms, indices into OGB's vocabularies [B, A, 9].
        atom_mask: True at real atoms [B, A].
        bond_index: Molecule, begin atom and end atom of each undirected bond, listed once [M, 3].
        bond_features: Type, stereo and conjugation of each bond, indices into OGB's vocabularies [M, 3].
        targets: Targets in the unit of the data set [B, T], NaN where missing; None without targets.
        rows: Row of the data set of each molecule [B]; None if unknown.
        atom_targets: Targets of each atom [B, A, K], NaN where missing; None without such targets.
        hidden_atoms: True at atoms whose features a model must not use [B, A]; None if none are hidden.
        hidden_bonds: True at bonds whose features a model must not use [M]; None if none are hidden. In
            `adjacency` they have the code `HIDDEN_BOND`.
        descriptors: Descriptors of each molecule [B, D], NaN where not defined; None without descriptors.
        coordinates: Coordinates of the atoms in Angstrom [B, A, 3], NaN where unknown, which only training
            uses; None without a geometry.
        levels: The shortest paths, which the thread that prepares batches can compute ahead; None if the
            model computes them.
        adjacency: Codes of the bonds between atoms [B, A, A], as `molslice.ops.path_codes.bond_codes`, zero
            where there is no bond, padding included. In batches of fixed shapes, the sizes B and A determine
            the shapes of all tensors: `bond_index` has the atoms -1 at places without a bond, and molecules
            without atoms fill up the batch. None if only the bonds are listed.
    """

    atoms: UInt8[Tensor, "B A 9"]
    atom_mask: Bool[Tensor, "B A"]
    bond_index: Int[Tensor, "M 3"]
    bond_features: UInt8[Tensor, "M 3"]
    targets: Float[Tensor, "B T"] | None = None
    rows: Int[Tensor, " B"] | None = None
    atom_targets: Float[Tensor, "B A K"] | None = None
    hidden_atoms: Bool[Tensor, "B A"] | None = None
    hidden_bonds: Bool[Tensor, " M"] | None = None
    descriptors: Float[Tensor, "B D"] | None = None
    coordinates: Float[Tensor, "B A 3"] | None = None
    levels: PathLevels | None = None
    adjacency: UInt8[Tensor, "B A A"] | None = None

    def __len__(self) -> int:
        return self.atoms.shape[0]


@dataclass(frozen=True, slots=True)
class SequenceBatch(Batch):
    """A padded batch of sequences. Values at padding are arbitrary and must not affect results.

    Attributes:
        tokens: Token ids [B, N], or F values per token of a series or image [B, N, F].
        token_mask: True at real tokens [B, N]; None if all are real.
        targets: Targets in the unit of the data set, or class numbers [B, T], NaN where missing; None without
            targets.
        rows: Row of the data set of each sequence [B]; None if unknown.
        pair_tokens: The second sequence of each row [B, P] or [B, P, F], for tasks that compare two; None
            otherwise.
        pair_mask: True at real tokens of `pair_tokens` [B, P]; None if all are real. In language modeling,
            True at tokens that are predicted; None for `token_mask`.
        other_targets: Targets of the row that is mixed into each row [B, T]; None if rows are not mixed.
        other_share: Share of the other row in the mixture, 0 to 1 [B].
    """

    tokens: Int[Tensor, "B N"] | Float[Tensor, "B N F"]
    token_mask: Bool[Tensor, "B N"] | None = None
    targets: Float[Tensor, "B T"] | None = None
    rows: Int[Tensor, " B"] | None = None
    pair_tokens: Int[Tensor, "B P"] | Float[Tensor, "B P F"] | None = None
    pair_mask: Bool[Tensor, "B P"] | None = None
    other_targets: Float[Tensor, "B T"] | None = None
    other_share: Float[Tensor, " B"] | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]


@dataclass(frozen=True, slots=True)
class EpisodeBatch(Batch):
    """A padded batch of windows of episodes, S steps each, in the units of the environment.

    Values at padding are arbitrary and must not affect results.

    Attributes:
        states: State at each step [B, S, F].
        actions: Action at each step [B, S, T].
        returns_to_go: Sum of the rewards from a step to the end of its episode, inclusive [B, S]. In a
            rollout it is the return that is still requested.
        timesteps: Index of each step in its episode, from 0 [B, S].
        step_mask: True at real steps [B, S]; None if all are real.
        rows: Row of the data set of each window [B]; None if unknown.
    """

    states: Float[Tensor, "B S F"]
    actions: Float[Tensor, "B S T"]
    returns_to_go: Float[Tensor, "B S"]
    timesteps: Int[Tensor, "B S"]
    step_mask: Bool[Tensor, "B S"] | None = None
    rows: Int[Tensor, " B"] | None = None

    def __len__(self) -> int:
        return self.states.shape[0]


@dataclass(frozen=True, slots=True)
class DataSpec:
    """The properties of the data that a model depends on. They are saved with its weights.

    Attributes:
        num_outputs: Number of values that the model returns for a row, or for a token in language modeling.
        tokens: Kind of data in a batch: `molecules`, `ids` (integers below `vocabulary_size`), `values`
            (`channels` numbers per token) or `steps` (of episodes: `channels` numbers per state, three tokens
            per step).
        vocabulary_size: Number of token ids, for `ids`.
        channels: Numbers per token for `values`, or per state for `steps`.
        max_tokens: Length of the longest sequence in tokens; None for molecules.
        paired: Whether a row has two sequences.
        vocabulary: Identifies the meaning of the ids, so that a model is not used with another vocabulary.
        timesteps: Largest number of steps of an episode, for `steps`.
        grid: Rows and columns of patches of an image; None for other data.
        num_atom_outputs: Number K of values that the model returns for each atom.
        num_descriptors: Number D of descriptors of each molecule; 0 without descriptors.
        predicts_variance: Whether the model returns the log variance of each output too.
        has_geometry: Whether the molecules have coordinates, so that the model learns distances in training.
        statistics: Numbers of the training data that the model computes with. They are ignored when two specs
            are compared.

    Raises:
        MolsliceError: A required number is missing or below one, or a count is not an integer.
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
    num_atom_outputs: int = 0
    num_descriptors: int = 0
    predicts_variance: bool = False
    has_geometry: bool = False
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
        for name in ("num_atom_outputs", "num_descriptors"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise MolsliceError(f"{name} of the data must be an integer of at least 0, got {value}")


class PretrainingOutput(NamedTuple):
    """The outputs of a pretraining model besides its prediction, without unit.

    S and R are the sums of the sizes of the features that are predicted of hidden atoms and bonds.

    Attributes:
        atom_targets: Standardized values of each atom [B, A, K], arbitrary at padding.
        atom_logits: Logits of the features of each atom [B, A, S], arbitrary at padding; None if no atoms are
            hidden.
        bond_logits: Logits of the features of each bond [M, R], arbitrary at places without a bond; None if
            no bonds are hidden.
    """

    atom_targets: Float[Tensor, "B A K"] | None = None
    atom_logits: Float[Tensor, "B A S"] | None = None
    bond_logits: Float[Tensor, "M R"] | None = None


class ModelOutput(NamedTuple):
    """The output of a model for a batch. Predictions are standardized, without unit.

    Attributes:
        prediction: Values of each row [B, T], or of each token [B, N, T].
        penalty: Auxiliary loss, a scalar added to the loss of the task; None without one.
        heads: The logits learned from labels and from a teacher, in this order, each [B, T], for a model with
            distillation. `prediction` is their mean. None without distillation.
        log_variance: Natural logarithm of the variance of each standardized value [B, T]; None without it.
        pretraining: The other outputs of a pretraining model; None for other models.
        distances: Logits of the distance of each pair of atoms [B, P, K], in the order of `ops.distances`, of
            a model in training whose data have a geometry; else None.
    """

    prediction: Float[Tensor, "B T"] | Float[Tensor, "B N T"]
    penalty: Float[Tensor, ""] | None = None
    heads: tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]] | None = None
    pretraining: PretrainingOutput | None = None
    log_variance: Float[Tensor, "B T"] | None = None
    distances: Float[Tensor, "B P K"] | None = None


Options = Mapping[str, Any]
