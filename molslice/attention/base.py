"""The interface that every attention implements."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from molslice.ops.derivatives import channel_maps, head_rows
from molslice.ops.masked import pair_softmax, zero_padding
from molslice.ops.windows import gather_pairs
from molslice.types import (
    AttentionOutput,
    AttentionSpec,
    Initialization,
    MolsliceError,
    PairBiasMode,
    State,
    TokenContext,
)

Cost = Literal["linear", "log_linear", "n_sqrt_n", "quadratic"]
Symmetry = Literal["equivariant", "ordered"]
NORMAL_STD = 0.02


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties that an attention declares. Tests check each one, and the refusal of what it excludes.

    Attributes:
        source: The publication, for the documentation.
        cost: Growth of time and memory with N, without a pair bias; with one it is quadratic for all.
        symmetry: `equivariant` if permuting the tokens permutes the result, else `ordered`.
        pair_bias: The supported modes, `none` first, then the preferred one.
        causal: Whether there is a causal form.
        recurrent: Whether the causal form, without a pair bias, also runs one token at a time with a state of
            constant size.
        cross: Whether cross attention to a memory is supported.
        fixed_length: Whether parameters or defaults of options depend on the largest number of tokens.
        vmap: Whether `torch.func.vmap` over an extra axis gives the result of a loop; if not, it is refused.
        head_dim: Whether heads may have another width than D / H.
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
    head_dim: bool = False

    @property
    def preferred_pair_bias(self) -> PairBiasMode:
        """The mode for a pair bias if the configuration does not set one."""
        for mode in self.pair_bias:
            if mode != "none":
                return mode
        return "none"


class Projection(nn.Linear):
    """A linear map that `Attention.reset_parameters` initializes by `initialize_map`."""


def initialize_map(linear: nn.Linear, initialization: Initialization) -> None:
    """Initialize the weights of a linear map, and its biases with zero.

    Args:
        linear: The map.
        initialization: `glorot`, the uniform form (Glorot and Bengio 2010), or `truncated_normal`, with
            standard deviation 0.02 and cut off at two of them (Devlin et al. 2019, arXiv 1810.04805, in the
            authors' code).
    """
    if initialization == "glorot":
        nn.init.xavier_uniform_(linear.weight)
    else:
        nn.init.trunc_normal_(linear.weight, std=NORMAL_STD, a=-2 * NORMAL_STD, b=2 * NORMAL_STD)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


class ExactMap(NamedTuple):
    """The attention map of a layer and the tensors from which it is computed.

    Attributes:
        weights: The map [B, H, N, M] to the M tokens of the memory, or to the N tokens themselves. Entry
            (i, j) is the weight of token j in the output of token i. The product with the values of a head is
            the input of the output projection.
        parts: Tensors by name, described in the docstring of `exact_map` of the attention.
        by_token: Values per token [B, N] to draw next to the map, by caption.
    """

    weights: Float[Tensor, "B H N M"]
    parts: Mapping[str, Tensor] = MappingProxyType({})
    by_token: Mapping[str, Tensor] = MappingProxyType({})


class Attention(nn.Module, ABC):
    """Base class of the attentions: mixes the tokens of each sequence of a batch.

    A subclass declares what it supports in `traits`, takes its own options as keyword arguments, and
    implements `mix`. If an option changes the traits, the constructor passes the changed `traits` to
    `super().__init__`. `forward` is final: it checks the input, calls `mix`, and sets padding to zero. The
    maps to query, key and value have a bias if `spec.qkv_bias` is true. `vectors` names the parameters of
    several axes that are no matrices, such as a bias of each head; see `stacked_vectors`. Every subclass
    raises the errors below.

    Args:
        spec: Settings that the model passes to each attention.
        traits: Properties with these options; None for the traits of the class.

    Raises:
        MolsliceError: The traits exclude what the spec asks for, or an option of the subclass is invalid.
    """

    traits: Traits
    vectors: ClassVar[tuple[str, ...]] = ()

    def __init__(self, spec: AttentionSpec, traits: Traits | None = None) -> None:
        super().__init__()
        self.spec = spec
        if traits is not None:
            self.traits = traits
        self._check_spec()
        self.dropout = nn.Dropout(spec.dropout)  # of the weights; of the output where none are computed

    def reset_parameters(self) -> None:
        """Initialize the weights: `initialize_map` for each `Projection`.

        A model calls this once for each attention after building it, and does not change the weights
        afterwards. All other parameters keep the values that the constructor gave them. Override it for
        another initialization.
        """
        for module in self.modules():
            if isinstance(module, Projection):
                initialize_map(module, self.spec.initialization)

    @property
    def name(self) -> str:
        """The configuration name: the name of the file, or of the class if it is outside the package."""
        package, _, stem = type(self).__module__.rpartition(".")
        return stem if package == "molslice.attention" else type(self).__name__

    def _check_spec(self) -> None:
        spec, traits, reasons = self.spec, self.traits, []
        if spec.causal and not traits.causal:
            reasons.append("it has no causal form")
        if spec.cross and not traits.cross:
            reasons.append("cross attention to a memory is not supported")
        if spec.pair_bias_mode not in traits.pair_bias:
            choices = ", ".join(traits.pair_bias)
            reasons.append(f"invalid pair_bias {spec.pair_bias_mode!r} (choices: {choices})")
        if traits.fixed_length and spec.max_tokens is None:
            reasons.append("it depends on the largest number of tokens, so max_tokens must be set")
        if spec.channels_per_head is not None and not traits.head_dim:
            reasons.append("its width follows dim, so head_dim must be null")
        if reasons:
            raise MolsliceError(f"attention {self.name!r} cannot be built: {'; '.join(reasons)}")

    def forward(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Mix the tokens of each sequence. Values at padding may be arbitrary. Final: implement `mix`.

        Returns:
            Tokens [B, N, D], zero at padding and where the memory of a sequence has no real token, with the
            penalty and the carry of the attention. Finite at padding with `TokenContext.padding_is_unread`.
            Only the first tokens with `TokenContext.num_queries`.

        Raises:
            MolsliceError: As `check_input`, or the carry does not have the shape of the scores to which it is
                added.
        """
        if not context.is_checked:
            self.check_input(tokens, context)
        if not torch.compiler.is_compiling() and not tokens.shape[1]:
            return AttentionOutput(tokens)
        if not self.spec.cross and (
            context.all_real or (context.padding_is_unread and self.ignores_padding(tokens, context))
        ):
            output = self.mix(tokens, context)
            return output.with_tokens(context.first(output.tokens))
        mask = context.token_mask[..., None]
        if self.spec.cross:
            memory, memory_mask = self.memory_of(tokens, context)
            context = replace(context, memory=zero_padding(memory, memory_mask))
            output = self.mix(tokens.masked_fill(~mask, 0.0), context)
            mask = mask & memory_mask.any(1)[:, None, None]
        else:
            output = self.mix(tokens.masked_fill(~mask, 0.0), context)
        return output.with_tokens(context.first(output.tokens).masked_fill(~context.first(mask), 0.0))

    @abstractmethod
    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute the attention. Tokens and memory are zero at padding, where the result is ignored.

        The caller needs only the first tokens if `context.num_queries` is set.
        """

    def read_out(
        self, mixed: Float[Tensor, "B N E"], context: TokenContext, carry: Tensor | None
    ) -> AttentionOutput:
        """Apply the output map of an attention that has one, whose bias the caller adds if it can."""
        mixed = context.first(mixed)
        output: nn.Linear = self.output  # pyright: ignore[reportAssignmentType]
        if not context.padding_is_unread:
            return AttentionOutput(output(mixed), carry=carry)
        tokens = nn.functional.linear(mixed, output.weight)
        return AttentionOutput(tokens, carry=carry, output_bias=output.bias)

    @property
    def active_dropout(self) -> float:
        """The dropout rate that applies now, zero outside of training."""
        return self.spec.dropout if self.training else 0.0

    def added_bias(self, context: TokenContext) -> Float[Tensor, "B H N N"] | None:
        """Return S + E if `pair_bias: logits` adds it to the scores, else None. Arbitrary at padding."""
        return context.pair_bias if self.spec.pair_bias_mode == "logits" else None

    def added_bias_at(
        self, context: TokenContext, order: Int[Tensor, "B N"], rows: Tensor, columns: Tensor
    ) -> Float[Tensor, "B H G S K"] | None:
        """Return entries of `added_bias` at positions of the packed sequence; see `gather_pairs`."""
        bias = self.added_bias(context)
        return None if bias is None else gather_pairs(bias, order, context.token_mask.sum(1), rows, columns)

    def add_carry(self, scores: Float[Tensor, "B H R S"], context: TokenContext) -> Float[Tensor, "B H R S"]:
        """Return the sum of the scores and of the carry of the layer below, if there is one."""
        carry = self.check_carry(context, *scores.shape)
        return scores if carry is None else scores + carry

    def check_carry(self, context: TokenContext, *shape: int) -> Tensor | None:
        """Return the carry of the layer below, or None in the first layer.

        Raises:
            MolsliceError: It has another shape.
        """
        carry = context.carry
        if carry is not None and carry.shape != shape:
            raise MolsliceError(
                f"{self.name} takes a carry of shape {list(shape)} from the layer below, "
                f"got {list(carry.shape)}"
            )
        return carry

    def check_pair_carry(self, context: TokenContext) -> Tensor | None:
        """Return the carry of the layer below where it is the pair bias or its weights; see `check_carry`."""
        batch, length = context.token_mask.shape
        return self.check_carry(context, batch, self.spec.num_heads, length, length)

    def bias_for_kernel(self, context: TokenContext, dtype: torch.dtype) -> Float[Tensor, "B H N N"] | None:
        """Return `added_bias`, in a type if the caller has it; a kernel ignores what it has at padding."""
        bias = self.added_bias(context)
        masked = context.masked_bias
        return bias if bias is None or masked is None or masked.dtype != dtype else masked

    def handed_on_bias(self, context: TokenContext, dtype: torch.dtype) -> Float[Tensor, "B H N N"]:
        """Return the pair bias that the layer below handed on; in the first layer `added_bias`."""
        carry = self.check_pair_carry(context)
        bias = self.bias_for_kernel(context, dtype) if carry is None else carry
        assert bias is not None  # checked in `forward`
        return bias

    def ignores_padding(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> bool:
        """Return whether finite values at padding change neither results nor gradients of `mix`."""
        return False

    def hands_on_pairs(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> bool:
        """Return whether the carry is the pair bias, or its weights, of the next layer."""
        return self.ignores_padding(tokens, context)

    @property
    def has_steps(self) -> bool:
        """Whether the causal form also runs one token at a time, in constant memory if `traits.recurrent`."""
        return self.traits.causal and type(self).step is not Attention.step

    def init_state(self, batch: int) -> State:
        """Return the state of `step` before the first token of `batch` sequences.

        Raises:
            MolsliceError: The attention has no steps, or was built with a pair bias or without `causal`.
        """
        if not self.has_steps:
            raise MolsliceError(
                f"attention {self.name!r} has no steps: its causal form needs all tokens at once"
            )
        if not self.spec.causal or self.spec.pair_bias_mode != "none":
            raise MolsliceError(f"the steps of attention {self.name!r} need causal: true and no pair bias")
        return self._empty_state(batch)

    def _empty_state(self, batch: int) -> State:
        raise NotImplementedError

    def step(self, token: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B D"], State]:
        """Compute the causal form for the next token of each sequence, all of them real.

        The given state is not changed; the next one may share tensors with it. A subclass that overrides this
        method also implements `_empty_state`.
        """
        raise NotImplementedError

    @staticmethod
    def memory_of(
        tokens: Float[Tensor, "B N D"], context: TokenContext
    ) -> tuple[Float[Tensor, "B M D"], Bool[Tensor, "B M"]]:
        """Return the source of keys and values with its mask: the memory, or the tokens themselves."""
        if context.memory is None or context.memory_mask is None:
            return tokens, context.token_mask
        return context.memory, context.memory_mask

    def mix_pairs(self, value: Float[Tensor, "B H N C"], context: TokenContext) -> Float[Tensor, "B H N C"]:
        """Return U = softmax(S + E) V, which replaces V with `pair_bias: mix`; otherwise V.

        Dropout is applied to the weights.
        """
        if self.spec.pair_bias_mode != "mix":
            return value
        weights = context.pair_weights
        if weights is None or self.spec.causal:  # `pair_weights` includes future tokens
            assert context.pair_bias is not None  # checked in `forward`
            weights = pair_softmax(context.pair_bias, context.token_mask, self.spec.causal)
        return self.dropout(weights).to(value.dtype) @ value

    def mix_values(self, value: Float[Tensor, "B N E"], context: TokenContext) -> Float[Tensor, "B N E"]:
        """Return `mix_pairs` of values whose heads are not split."""
        if self.spec.pair_bias_mode != "mix":
            return value
        return self.merge_heads(self.mix_pairs(self.split_heads(value), context))

    def mix_map(self, weights: Float[Tensor, "B H K N"], context: TokenContext) -> Float[Tensor, "B H K N"]:
        """Return a map, or some rows of it, multiplied by softmax(S + E) with `pair_bias: mix`."""
        if self.spec.pair_bias_mode != "mix":
            return weights
        assert context.pair_bias is not None  # checked in `forward`
        return weights @ pair_softmax(context.pair_bias, context.token_mask, self.spec.causal)

    def exact_map(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> ExactMap | None:
        """Return the exact attention map, or None if it cannot be computed.

        By default it is the derivative of the input of the second map of `value_path` by the output of the
        first, if applying it to the values gives that input again. The part `channels` [B, H, C, N, N] holds
        the map of each channel, and the result is their mean over a head. Override this method if there is a
        formula. The attention is in evaluation mode, tokens are zero at padding, and entries of the map at
        padding are arbitrary.
        """
        values_and_mixed = self._values_and_mixed(tokens, context)
        if values_and_mixed is None:
            return None
        values, mixed = values_and_mixed
        channels = channel_maps(mixed, values, context.token_mask, self.spec.num_heads)
        return None if channels is None else ExactMap(channels.mean(2), {"channels": channels})

    def exact_rows(
        self, tokens: Float[Tensor, "B N D"], context: TokenContext, rows: Int[Tensor, " K"]
    ) -> Float[Tensor, "B H K N"] | None:
        """Return some rows of `exact_map`, with one backward pass for each row; None as there.

        Unlike `exact_map` it needs no tensor with N^2 entries besides the tensors of the attention itself.
        """
        values_and_mixed = self._values_and_mixed(tokens, context)
        if values_and_mixed is None:
            return None
        values, mixed = values_and_mixed
        return head_rows(mixed, values, context.token_mask, self.spec.num_heads, rows)

    def value_path(self) -> tuple[nn.Linear, nn.Linear] | None:
        """Return the projection to values and the output projection: the modules `value` and `output`.

        Returns None if the attention lacks one of them.
        """
        first, last = getattr(self, "value", None), getattr(self, "output", None)
        return (first, last) if isinstance(first, nn.Linear) and isinstance(last, nn.Linear) else None

    @torch.enable_grad()
    def _values_and_mixed(self, tokens: Tensor, context: TokenContext) -> tuple[Tensor, Tensor] | None:
        """Return the values as a leaf of the graph, and the input of the output projection.

        Returns None if the attention uses one of the two projections more than once, or with another shape.
        """
        path = self.value_path()
        if path is None:
            return None
        leaves: list[Tensor] = []
        taken: list[Tensor] = []

        def put(module: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
            leaves.append(output.detach().requires_grad_())
            return leaves[-1]

        def take(module: nn.Module, args: tuple[Tensor]) -> None:
            taken.append(args[0])

        handles = [path[0].register_forward_hook(put), path[1].register_forward_pre_hook(take)]
        try:
            self(tokens, context)
        finally:
            for handle in handles:
                handle.remove()
        if len(leaves) != 1 or len(taken) != 1:
            return None
        values, mixed = leaves[0], taken[0]
        shape = (*tokens.shape[:2], self.spec.inner_dim)
        fits = values.shape == mixed.shape == shape and mixed.requires_grad
        return (values, mixed) if fits else None

    def check_input(self, tokens: Tensor, context: TokenContext) -> None:
        """Check the shapes of the input of `forward`.

        A caller of several layers checks once, and sets `TokenContext.is_checked`.

        Raises:
            MolsliceError: Shapes do not match each other or the spec, a memory is missing or unexpected, or
                `torch.func.vmap` is used on an attention that does not support it.
        """
        spec, bias = self.spec, context.pair_bias
        self._check_sequence("tokens", tokens, context.token_mask)
        batch, length, _ = tokens.shape
        if not self.traits.vmap and not torch.compiler.is_compiling() and _is_vmapped(tokens):
            raise MolsliceError(
                f"{self.name} cannot run under torch.func.vmap; loop over the extra axis instead"
            )
        self._check_memory(tokens, context)
        # `mix` needs only the weights, but a context always holds the bias from which they are computed.
        if spec.pair_bias_mode != "none" and bias is None:
            raise MolsliceError(f"{self.name} needs a pair bias, but the context has no pair_bias")
        if bias is not None and bias.shape != (batch, spec.num_heads, length, length):
            raise MolsliceError(
                f"{self.name} takes a pair_bias of shape {[batch, spec.num_heads, length, length]}, "
                f"got {list(bias.shape)}"
            )

    def _check_memory(self, tokens: Tensor, context: TokenContext) -> None:
        memory, mask = context.memory, context.memory_mask
        if not self.spec.cross:
            if memory is not None or mask is not None:
                raise MolsliceError(f"{self.name} was built without `cross`, but the context has a memory")
            return
        if memory is None or mask is None:
            raise MolsliceError(
                f"{self.name} was built with `cross`, but the context lacks memory or memory_mask"
            )
        self._check_sequence("memory", memory, mask, tokens.shape[0])

    def _check_sequence(self, name: str, tokens: Tensor, mask: Tensor, batch: int | None = None) -> None:
        """Check the shapes of the tokens or of the memory, and of their mask."""
        dim, longest, mask_name = self.spec.dim, self.spec.max_tokens, f"{name.removesuffix('s')}_mask"
        if tokens.ndim != 3 or tokens.shape[2] != dim or batch not in (None, tokens.shape[0]):
            wanted = f"[{'B' if batch is None else batch}, {'N' if batch is None else 'M'}, {dim}]"
            raise MolsliceError(f"{self.name} takes {name} of shape {wanted}, got {list(tokens.shape)}")
        if mask.shape != tokens.shape[:2] or mask.dtype != torch.bool:
            raise MolsliceError(
                f"{self.name} takes a boolean {mask_name} of shape {list(tokens.shape[:2])}, "
                f"got {mask.dtype} {list(mask.shape)}"
            )
        if longest is not None and tokens.shape[1] > longest:
            size = f"{'' if batch is None else 'a memory of '}{tokens.shape[1]}"
            raise MolsliceError(f"{self.name} was built for {longest} tokens, got {size}")

    def split_heads(self, tokens: Float[Tensor, "B N E"]) -> Float[Tensor, "B H N C"]:
        """Split the channels into heads [B, H, N, C]: head h takes channels h C to (h + 1) C."""
        return tokens.unflatten(-1, (self.spec.num_heads, -1)).transpose(1, 2)

    @staticmethod
    def merge_heads(heads: Float[Tensor, "B H N C"]) -> Float[Tensor, "B N E"]:
        """Invert `split_heads`."""
        return heads.transpose(1, 2).flatten(-2)


class QueryKeyValueAttention(Attention):
    """Base class of attentions with the projections `query`, `key`, `value` and `output`, in this order."""

    def __init__(self, spec: AttentionSpec, traits: Traits | None = None) -> None:
        super().__init__(spec, traits)
        self.query = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.key = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)

    def project_heads(
        self, tokens: Float[Tensor, "B N D"], context: TokenContext
    ) -> tuple[
        Float[Tensor, "B H N C"], Float[Tensor, "B H M C"], Float[Tensor, "B H M C"], Bool[Tensor, "B M"]
    ]:
        """Return queries, keys and the values of `mix_pairs`, and the mask of keys and values."""
        return self.split_heads(self.query(tokens)), *self.project_memory(tokens, context)

    def project_memory(
        self, tokens: Float[Tensor, "B N D"], context: TokenContext
    ) -> tuple[Float[Tensor, "B H M C"], Float[Tensor, "B H M C"], Bool[Tensor, "B M"]]:
        """Return keys and the values of `mix_pairs`, and their mask."""
        memory, memory_mask = self.memory_of(tokens, context)
        key = self.split_heads(self.key(memory))
        return key, self.mix_pairs(self.split_heads(self.value(memory)), context), memory_mask

    def project_packed(
        self, tokens: Float[Tensor, "B N D"]
    ) -> tuple[Float[Tensor, "B N 3 H C"], Float[Tensor, " D3"] | None]:
        """Return Q, K and V by one product, for a kernel.

        Their bias has been added without a gradient, and is the second result, None without one. The kernel
        sums its gradient, which otherwise takes a pass over Q, K and V.
        """
        maps = (self.query, self.key, self.value)
        bias = torch.cat([linear.bias for linear in maps]) if self.spec.qkv_bias else None
        weight = torch.cat([linear.weight for linear in maps])
        packed = nn.functional.linear(tokens, weight, None if bias is None else bias.detach())
        return packed.unflatten(-1, (3, self.spec.num_heads, -1)), bias


def check_least(attention: str, least: int, **options: int | None) -> None:
    """Check that options of an attention are integers of at least `least`, or None.

    Raises:
        MolsliceError: An option is less, or no integer.
    """
    for option, value in options.items():
        if value is None:
            continue
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise MolsliceError(f"{attention}: invalid {option} {value!r}; expected an integer")
        if value < least:
            raise MolsliceError(f"{attention} takes {option} of at least {least}, got {value}")


def check_choice(attention: str, option: str, value: object, choices: Collection[str | None]) -> None:
    """Check that an option of an attention is one of the choices.

    Raises:
        MolsliceError: It is not.
    """
    if value not in choices:
        named = ", ".join("null" if choice is None else choice for choice in choices)
        raise MolsliceError(f"{attention}: invalid {option} {value!r}; choices: {named}")


def _is_vmapped(tokens: Tensor) -> bool:
    return torch._C._functorch.is_batchedtensor(tokens)  # pyright: ignore[reportAttributeAccessIssue]
