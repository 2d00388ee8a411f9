"""Checks of the traits of an attention, and of what they exclude, one function per trait.

Each takes a `Subject` and raises AssertionError.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from molslice.attention import Attention
from molslice.ops.masked import masked_pair_bias, pair_softmax
from molslice.testing.checks import LENGTHS, close, refusal, run, same
from molslice.testing.subjects import Inputs, Subject
from molslice.types import AttentionOutput, TokenContext


def _permuted(inputs: Inputs, seed: int) -> tuple[Inputs, list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(tokens), generator=generator) for tokens in inputs.tokens]
    tokens = [t[order] for t, order in zip(inputs.tokens, orders, strict=True)]
    biases = [b[:, order][:, :, order] for b, order in zip(inputs.biases, orders, strict=True)]
    memories = [m[torch.randperm(len(m), generator=generator)] for m in inputs.memories]
    return Inputs(tokens, biases, memories), orders


def check_symmetry(subject: Subject) -> None:
    """Check that permuting tokens permutes an equivariant result, and permuting the memory changes nothing.

    If the attention is not equivariant, check that permuting tokens changes the result in another way.
    """
    if subject.spec.causal:
        return  # every causal form depends on the order
    attention, inputs = subject.attention(), Inputs.draw(7, 5)
    tokens, context, positions = inputs.batch(subject.spec)
    original = attention(tokens, context).tokens
    largest = 0.0
    for seed in range(3):
        permuted, orders = _permuted(inputs, seed)
        actual = attention(*permuted.batch(subject.spec)[:2]).tokens
        for b, (order, position) in enumerate(zip(orders, positions, strict=True)):
            largest = max(largest, (actual[b, position] - original[b, order]).abs().max().item())
    if attention.traits.symmetry == "equivariant":
        assert largest < 1e-9, f"traits.symmetry is equivariant, but the result differs by {largest:.1e}"
    else:
        assert largest > 1e-2, "traits.symmetry is ordered, but the result is equivariant"


def check_symmetric_tokens(subject: Subject) -> None:
    """Check that tokens that are equal up to rounding get equal results if the attention is equivariant."""
    attention = subject.attention()
    if attention.traits.symmetry != "equivariant" or subject.spec.causal:
        return
    inputs = Inputs.draw(7)
    swap = torch.tensor([0, 4, 2, 3, 1, 6, 5])
    noise = 1e-14 * torch.randn(7, 8, dtype=torch.float64)
    tokens = (inputs.tokens[0] + inputs.tokens[0][swap]) / 2 + noise
    bias = (inputs.biases[0] + inputs.biases[0][:, swap][:, :, swap]) / 2
    actual = attention(*Inputs([tokens], [bias], inputs.memories).batch(subject.spec)[:2]).tokens[0]
    close(actual[swap], actual, "the result of symmetric tokens")


def check_causal(subject: Subject) -> None:
    """Check that causal results depend on past tokens only. Without the trait, a causal spec is refused."""
    if subject.spec.cross:
        return  # applies to one sequence only
    attention = subject.attention(causal=False)
    if not attention.traits.causal:
        with refusal("causal"):
            subject.attention(causal=True)
        return
    subject = subject.with_spec(causal=True)
    attention = subject.attention()
    inputs, others = Inputs.draw(9), Inputs.draw(9, seed=1)

    def result(tokens: Tensor, bias: Tensor) -> Tensor:
        return attention(*Inputs([tokens], [bias], inputs.memories).batch(subject.spec)[:2]).tokens[0]

    before = result(inputs.tokens[0], inputs.biases[0])
    for now in (0, 3, 7):
        tokens, bias = inputs.tokens[0].clone(), inputs.biases[0].clone()
        tokens[now + 1 :] = others.tokens[0][now + 1 :]
        bias[:, now + 1 :] = others.biases[0][:, now + 1 :]
        bias[:, :, now + 1 :] = others.biases[0][:, :, now + 1 :]
        after = result(tokens, bias)
        close(after[: now + 1], before[: now + 1], f"the result up to token {now}")
        alone = result(tokens[: now + 1], bias[:, : now + 1, : now + 1])
        close(alone, before[: now + 1], f"the result of tokens 0 to {now} without the others")
        assert (after[now + 1 :] - before[now + 1 :]).abs().amax(-1).min() > 1e-4, (
            "the token itself has no effect"
        )
    tokens = inputs.tokens[0].clone()
    tokens[0] = others.tokens[0][0]
    change = (result(tokens, inputs.biases[0]) - before).abs().amax(-1)
    # With a window the past reaches only the next token in one step, but many tokens in the end.
    assert change[1] > 1e-7, "the past has no effect"
    assert subject.is_local or change.min() > 1e-7, "the far past has no effect"


def check_pair_bias(subject: Subject) -> None:
    """Check that the pair bias is supported in the modes of the traits, and only in these."""
    traits = subject.attention().traits
    mode = subject.spec.pair_bias_mode
    if subject.spec.cross:
        return  # applies to one sequence only
    for other in {"none", "logits", "mix"} - set(traits.pair_bias):
        with refusal(other):
            subject.attention(pair_bias_mode=other)
    if mode == "none":
        return
    attention, inputs = subject.attention(), Inputs.draw(6, 4)
    tokens, context, positions = inputs.batch(subject.spec)
    with refusal("pair bias"):
        attention(tokens, replace(context, pair_bias=None))
    result = run(attention, tokens, context, positions)
    output, by_bias = result.output, result.by_bias
    assert by_bias is not None
    assert context.pair_bias is not None
    assert by_bias.abs().amax((1, 2, 3)).min() > 1e-6, "the pair bias gets no gradient"
    other = attention(tokens, replace(context, pair_bias=context.pair_bias.flip(-1, -2))).tokens
    assert (other - output.tokens).abs().amax((1, 2)).min() > 1e-3, "the pair bias has no effect"
    if mode == "logits" and "none" in traits.pair_bias:
        zero = replace(context, pair_bias=torch.zeros_like(context.pair_bias))
        plain = subject.with_spec(pair_bias_mode="none").attention()
        close(
            attention(tokens, zero).tokens, plain(tokens, context).tokens, "the result with a zero pair bias"
        )


def check_shared_bias(subject: Subject) -> None:
    """Check that `pair_weights` or `masked_bias` computed once per batch do not change the result."""
    if subject.spec.pair_bias_mode == "none":
        return
    attention = subject.attention()
    tokens, context, positions = Inputs.draw(*LENGTHS).batch(subject.spec, 8, torch.nan)
    assert context.pair_bias is not None
    if subject.spec.pair_bias_mode == "mix":
        name, shared = "pair_weights", pair_softmax(context.pair_bias, context.token_mask)
    else:
        masked = masked_pair_bias(context.pair_bias, context.token_mask, subject.spec.causal)
        name, shared = "masked_bias", masked
    actual = run(attention, tokens, replace(context, **{name: shared}), positions)
    expected = run(attention, tokens, context, positions)
    same(actual._replace(by_bias=None), expected._replace(by_bias=None), f"with given {name}")


class _Largest(TorchDispatchMode):
    """Records the number of entries of the largest tensor that any operation returns."""

    entries = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        output = function(*args, **(kwargs or {}))
        for value in output if isinstance(output, tuple | list) else [output]:
            if isinstance(value, Tensor):
                self.entries = max(self.entries, value.numel())
        return output


class CountedCost(NamedTuple):
    """The cost of one call of an attention.

    Attributes:
        operations: Multiplications and additions of its matrix products.
        entries: Number of entries of the largest tensor that any operation returns.
    """

    operations: int
    entries: int


def count_cost(attention: Attention, tokens: Float[Tensor, "B N D"], context: TokenContext) -> CountedCost:
    """Count the operations and the largest tensor of an attention, with all its scores.

    Sorts, look-ups and operations entry by entry are not counted.
    """
    counting = FlopCounterMode(display=False)
    # The plain kernel: a fused one hides its N x N scores.
    with sdpa_kernel(SDPBackend.MATH), _Largest() as recorded, counting as counted:
        attention(tokens, context)
    return CountedCost(counted.get_total_flops(), recorded.entries)


# How the largest tensor may grow with twice the tokens, and the increments of the counted operations
GROWTH = {"linear": (0.0, 2.2), "log_linear": (0.0, 2.2), "n_sqrt_n": (2.4, 3.3), "quadratic": (3.5, 4.1)}


def check_cost(subject: Subject) -> None:
    """Check that the largest intermediate tensor and the counted operations grow with N as the traits state.

    For operations, the increments are compared, so that constant terms cancel.
    """
    if subject.spec.pair_bias_mode != "none" or subject.spec.cross:
        return
    largest, operations = [], []
    for length in (128, 256, 512):
        attention = subject.with_spec(max_tokens=length).attention(torch.float32)
        tokens, context, _ = Inputs.draw(length).batch(subject.spec)
        counted = count_cost(attention, tokens.float(), context)
        largest.append(counted.entries)
        operations.append(counted.operations)
    cost = attention.traits.cost
    low, high = GROWTH[cost]
    growth = largest[2] / largest[1]
    assert low < growth < high, f"traits.cost is {cost}, but the largest tensor grows {growth:.1f}-fold"
    growth = (operations[2] - operations[1]) / (operations[1] - operations[0])
    assert low < growth < high, f"traits.cost is {cost}, but the operations grow {growth:.1f}-fold"


def check_cross(subject: Subject) -> None:
    """Check that cross attention works if the traits support it, and is refused otherwise."""
    if "none" not in subject.attention().traits.pair_bias:  # a memory has no pair bias
        assert not subject.attention().traits.cross, "traits.cross needs the pair bias none"
        return
    plain = subject.with_spec(pair_bias_mode="none", causal=False, cross=False)
    tokens, context, _ = Inputs.draw(6, 4).batch(plain.spec)
    with_memory = Inputs.draw(6, 4).batch(replace(plain.spec, cross=True))[1]
    with refusal("memory"):
        plain.attention()(tokens, with_memory)
    if not plain.attention().traits.cross:
        with refusal("memory"):
            plain.attention(cross=True)
        return
    attention = plain.attention(cross=True)
    with refusal("memory"):
        attention(tokens, context)
    before = attention(tokens, with_memory).tokens
    assert with_memory.memory is not None
    assert with_memory.memory_mask is not None
    other = replace(with_memory, memory=with_memory.memory.flip(2))
    change = (attention(tokens, other).tokens - before).abs().amax((1, 2))
    assert change.min() > 1e-3, "the memory has no effect"
    empty = torch.zeros_like(with_memory.memory_mask)
    for count in (empty.shape[1], 0):
        no_memory = replace(with_memory, memory=with_memory.memory[:, :count], memory_mask=empty[:, :count])
        tokens_without_memory = attention(tokens, no_memory).tokens
        close(tokens_without_memory, torch.zeros_like(tokens_without_memory), "the result of an empty memory")


def check_vmap(subject: Subject) -> None:
    """Check that `torch.func.vmap` over an extra axis gives the result of a loop, or a MolsliceError."""
    attention = subject.attention()
    batches = [Inputs.draw(*LENGTHS, seed=seed).batch(subject.spec, 8, 3.0)[:2] for seed in range(2)]
    tokens = torch.stack([tokens for tokens, _ in batches])
    names = [
        name for name in ("pair_bias", "memory", "memory_mask") if getattr(batches[0][1], name) is not None
    ]
    given = [torch.stack([getattr(context, name) for _, context in batches]) for name in names]
    mask = batches[0][1].token_mask

    def apply(tokens: Tensor, given: list[Tensor]) -> Tensor:
        return attention(tokens, replace(batches[0][1], **dict(zip(names, given, strict=True)))).tokens

    if not attention.traits.vmap:
        with refusal("vmap"):
            torch.func.vmap(apply)(tokens, given)
        return
    actual = torch.func.vmap(apply)(tokens, given)
    for result, (tokens_of, context) in zip(actual, batches, strict=True):
        close(result[mask], attention(tokens_of, context).tokens[mask], "the result under vmap")


def check_activation_checkpointing(subject: Subject) -> None:
    """Check that activation checkpointing does not change the gradients, also with dropout."""
    attention = subject.attention(dropout=0.3).train()
    tokens, context, positions = Inputs.draw(*LENGTHS).batch(subject.spec, 8)

    def recomputed(tokens: Tensor, context: TokenContext) -> AttentionOutput:
        return checkpoint(attention, tokens, context, use_reentrant=False)

    results = []
    for forward in (attention, recomputed):
        torch.manual_seed(5)
        results.append(run(attention, tokens, context, positions, forward))
    same(results[1], results[0], "with checkpointing")


def check_half_precision(subject: Subject) -> None:
    """Check that bfloat16 and float16 are close to float32 for nearly all entries, as weights or by autocast.

    At least half of the entries are within 1/50 of the spread. If an attention ranks tokens, a rounded tie
    may change single entries by much.
    """
    for dtype in (torch.bfloat16, torch.float16):
        tokens, context, _ = Inputs.draw(9, 9, 9, 7).batch(subject.spec)
        tokens = tokens.to(dtype).float()
        half, full = subject.attention(dtype), subject.attention(torch.float32)
        full.load_state_dict(half.state_dict())
        low, context = _cast(context, dtype), _cast(_cast(context, dtype), torch.float32)
        with torch.no_grad():
            expected = full(tokens, context).tokens
            actual = [half(tokens.to(dtype), low).tokens]
            assert actual[0].dtype == dtype, "the dtype of the output differs from the dtype of the input"
            with torch.autocast("cpu", dtype):
                actual.append(full(tokens, context).tokens)
        real = context.token_mask
        for result in actual:
            error = (result.float() - expected)[real].abs().median() / expected[real].std()
            assert error < 0.02, f"{dtype} differs by {error:.3f} of the spread"


def _cast(context: TokenContext, dtype: torch.dtype) -> TokenContext:
    floats = {name: getattr(context, name) for name in ("pair_bias", "memory")}
    return replace(context, **{name: None if x is None else x.to(dtype) for name, x in floats.items()})


CHECKS = [value for name, value in list(vars().items()) if name.startswith("check_")]
