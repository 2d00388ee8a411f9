"""What every attention must keep: one function for each clause of the contract.

Each takes a `Subject` and fails by AssertionError; `test_mutants.py` gives each an attention that breaks the
clause on purpose, which it must catch.
"""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from molslice.ops.masked import pair_softmax
from molslice.types import MolsliceError
from tests.attention.subjects import Inputs, Subject

LENGTHS = (6, 3, 1)
PADDINGS = [(6, 0.0, False), (8, torch.nan, False), (11, torch.inf, True), (15, 1e30, True)]


def run(attention, tokens, context, places):
    """Output at the real tokens and penalty; gradients of a fixed loss by parameters, tokens and bias."""
    tokens = tokens.clone().requires_grad_()
    if context.pair_bias is not None:
        context = replace(context, pair_bias=context.pair_bias.clone().requires_grad_())
    output = attention(tokens, context)
    loss = sum(
        (output.tokens[b, place].flatten() * torch.linspace(-1, 2, len(place) * tokens.shape[-1])).sum()
        for b, place in enumerate(places)
    )
    loss = loss if output.penalty is None else loss + output.penalty
    leaves = [tokens, *attention.parameters()]
    leaves += [] if context.pair_bias is None else [context.pair_bias]
    gradients = list(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))
    bias_gradient = gradients.pop() if context.pair_bias is not None else None
    return output, gradients[0], gradients[1:], bias_gradient


def at_places(output, places):
    return torch.cat([output[b, place] for b, place in enumerate(places)])


def close(found, expected, what, tolerance=1e-9):
    assert torch.isfinite(found).all(), f"{what} is not finite"
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, msg=lambda m: f"{what}: {m}")


def check_padding(subject: Subject) -> None:
    """Neither the amount nor the place nor the content of padding changes the result, which is zero there."""
    attention, inputs = subject.attention(), Inputs.draw(*LENGTHS)
    expected = None
    for length, garbage, scattered in PADDINGS:
        tokens, context, places = inputs.batch(subject.spec.pair_bias, length, garbage, scattered)
        output = attention(tokens, context)
        found = at_places(output.tokens, places)
        expected = found if expected is None else expected
        close(found, expected, f"the result with {length} tokens, {garbage} at padding")
        assert not output.tokens[~context.token_mask].any(), "the result is not zero at padding"


def check_padding_gradient(subject: Subject) -> None:
    """Gradients are zero at padding, and elsewhere what they are without it."""
    attention, inputs = subject.attention(), Inputs.draw(*LENGTHS)
    expected = None
    for length, garbage, scattered in PADDINGS:
        tokens, context, places = inputs.batch(subject.spec.pair_bias, length, garbage, scattered)
        _, by_tokens, by_parameters, by_bias = run(attention, tokens, context, places)
        assert not by_tokens[~context.token_mask].any(), "the gradient by tokens is not zero at padding"
        found = [at_places(by_tokens, places), *by_parameters]
        if by_bias is not None:
            pairs = context.token_mask[:, None, :, None] & context.token_mask[:, None, None, :]
            outside = by_bias.masked_fill(pairs, 0.0)
            assert not outside.any(), "the gradient by the pair bias is not zero at padding"
            found += [by_bias[b][:, place][:, :, place] for b, place in enumerate(places)]
        expected = found if expected is None else expected
        for one, other in zip(found, expected, strict=True):
            close(one, other, f"a gradient with {length} tokens, {garbage} at padding")


def check_batch_mates(subject: Subject) -> None:
    """A sequence gives the same alone and in company."""
    attention, inputs = subject.attention(), Inputs.draw(*LENGTHS)
    tokens, context, places = inputs.batch(subject.spec.pair_bias)
    together = attention(tokens, context)
    for b, place in enumerate(places):
        alone = Inputs(inputs.tokens[b : b + 1], inputs.biases[b : b + 1]).batch(subject.spec.pair_bias)
        close(together.tokens[b, place], attention(*alone[:2]).tokens[0], f"sequence {b} in company")


def check_penalty(subject: Subject) -> None:
    """A penalty is the mean over the sequences, blind to padding and to sequences without tokens."""
    attention, inputs = subject.attention(), Inputs.draw(*LENGTHS)
    mode = subject.spec.pair_bias
    tokens, context, _ = inputs.batch(mode)
    penalty = attention(tokens, context).penalty
    if penalty is None:
        return
    assert penalty.ndim == 0
    assert penalty.requires_grad, "the penalty trains nothing"
    alone = [
        attention(*Inputs([t], [b]).batch(mode)[:2]).penalty
        for t, b in zip(inputs.tokens, inputs.biases, strict=True)
    ]
    close(penalty, torch.stack(alone).mean(), "the penalty of a batch")
    with_empty = Inputs(
        [*inputs.tokens, torch.zeros(0, 8).double()], [*inputs.biases, torch.zeros(2, 0, 0).double()]
    )
    for length, garbage, scattered in PADDINGS:
        tokens, context, _ = with_empty.batch(mode, length, garbage, scattered)
        close(attention(tokens, context).penalty, penalty, f"the penalty with {length} tokens")


def check_every_parameter_trained(subject: Subject) -> None:
    """Every entry of every parameter gets a gradient, but for those that a softmax cancels."""
    attention = subject.attention()
    tokens, context, places = Inputs.draw(6, 5, 6, 4).batch(subject.spec.pair_bias)
    _, _, gradients, _ = run(attention, tokens, context, places)
    for (name, _), gradient in zip(attention.named_parameters(), gradients, strict=True):
        largest, smallest = gradient.abs().max().item(), gradient.abs().min().item()
        if name in subject.cancelled:
            assert largest < 1e-12, f"{name} is said to be cancelled, and has a gradient"
        else:
            assert smallest > 1e-12, f"{name} has entries without gradient"


def check_one_token(subject: Subject) -> None:
    """One token is a sequence too."""
    attention = subject.attention()
    for batch in (Inputs.draw(1), Inputs.draw(1, 1, 1)):
        tokens, context, places = batch.batch(subject.spec.pair_bias)
        output, by_tokens, by_parameters, _ = run(attention, tokens, context, places)
        close(output.tokens, attention.reference(tokens, context).tokens, "the result for one token")
        for gradient in (by_tokens, *by_parameters):
            assert torch.isfinite(gradient).all(), "a gradient for one token is not finite"


def check_empty_sequence(subject: Subject) -> None:
    """A sequence without a real token gives zeros and finite gradients, and does not disturb the others."""
    attention = subject.attention()
    inputs = Inputs.draw(4, 0)
    for garbage in (0.0, torch.nan):
        tokens, context, places = inputs.batch(subject.spec.pair_bias, 5, garbage)
        output, by_tokens, by_parameters, by_bias = run(attention, tokens, context, places)
        assert not output.tokens[1].any(), "an empty sequence gives something"
        alone = Inputs(inputs.tokens[:1], inputs.biases[:1]).batch(subject.spec.pair_bias)
        close(output.tokens[0, :4], attention(*alone[:2]).tokens[0], "the mate of an empty sequence")
        for gradient in (by_tokens, *by_parameters, *([] if by_bias is None else [by_bias])):
            assert torch.isfinite(gradient).all(), "a gradient beside an empty sequence is not finite"


def _permuted(inputs: Inputs, seed: int) -> tuple[Inputs, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(tokens), generator=generator) for tokens in inputs.tokens]
    tokens = [t[order] for t, order in zip(inputs.tokens, orders, strict=True)]
    biases = [b[:, order][:, :, order] for b, order in zip(inputs.biases, orders, strict=True)]
    return Inputs(tokens, biases), orders


def check_symmetry(subject: Subject) -> None:
    """Equivariant: permuted tokens give the permuted result; ordered: they do not."""
    if subject.spec.causal:
        return  # a causal form depends on the order whatever the attention
    attention, inputs = subject.attention(), Inputs.draw(7, 5)
    mode = subject.spec.pair_bias
    tokens, context, places = inputs.batch(mode)
    original = attention(tokens, context).tokens
    largest = 0.0
    for seed in range(3):
        permuted, orders = _permuted(inputs, seed)
        found = attention(*permuted.batch(mode)[:2]).tokens
        for b, (order, place) in enumerate(zip(orders, places, strict=True)):
            largest = max(largest, (found[b, place] - original[b, order]).abs().max().item())
    if attention.traits.symmetry == "equivariant":
        assert largest < 1e-9, f"promised to be equivariant, and differs by {largest:.1e}"
    else:
        assert largest > 1e-2, "not promised to be equivariant, and is"


def check_symmetric_tokens(subject: Subject) -> None:
    """Tokens equal up to rounding (symmetric atoms) come out equal, if the attention is equivariant."""
    attention = subject.attention()
    if attention.traits.symmetry != "equivariant" or subject.spec.causal:
        return
    inputs = Inputs.draw(7)
    swap = torch.tensor([0, 4, 2, 3, 1, 6, 5])
    noise = 1e-14 * torch.randn(7, 8, dtype=torch.float64)
    tokens = (inputs.tokens[0] + inputs.tokens[0][swap]) / 2 + noise
    bias = (inputs.biases[0] + inputs.biases[0][:, swap][:, :, swap]) / 2
    found = attention(*Inputs([tokens], [bias]).batch(subject.spec.pair_bias)[:2]).tokens[0]
    close(found[swap], found, "the result of symmetric tokens")


def check_causal(subject: Subject) -> None:
    """Causal: the future changes nothing, the past does; without the promise a causal spec is refused."""
    attention = subject.attention(causal=False)
    if not attention.traits.causal:
        with pytest.raises(MolsliceError, match="causal"):
            _expect_refusal(subject, causal=True)
        return
    subject = subject.with_spec(causal=True)
    attention, mode = subject.attention(), subject.spec.pair_bias
    inputs, others = Inputs.draw(9), Inputs.draw(9, seed=1)
    before = attention(*inputs.batch(mode)[:2]).tokens[0]
    for now in (0, 3, 7):
        tokens, bias = inputs.tokens[0].clone(), inputs.biases[0].clone()
        tokens[now + 1 :] = others.tokens[0][now + 1 :]
        bias[:, now + 1 :] = others.biases[0][:, now + 1 :]
        bias[:, :, now + 1 :] = others.biases[0][:, :, now + 1 :]
        after = attention(*Inputs([tokens], [bias]).batch(mode)[:2]).tokens[0]
        close(after[: now + 1], before[: now + 1], f"the result up to token {now}")
        assert (after[now + 1 :] - before[now + 1 :]).abs().amax(-1).min() > 1e-4, (
            "the present changes nothing"
        )
    tokens = inputs.tokens[0].clone()
    tokens[0] = others.tokens[0][0]
    after = attention(*Inputs([tokens], inputs.biases).batch(mode)[:2]).tokens[0]
    assert (after - before).abs().amax(-1).min() > 1e-7, "the past changes nothing"


def _expect_refusal(subject: Subject, **changes) -> None:
    try:
        subject.attention(**changes)
    except MolsliceError:
        raise
    raise AssertionError(f"built for {changes}, which it does not promise")


def check_pair_bias(subject: Subject) -> None:
    """A bias enters in the promised ways, and only in these."""
    traits = subject.attention().traits
    mode = subject.spec.pair_bias
    for other in {"none", "logits", "mix"} - set(traits.pair_bias):
        with pytest.raises(MolsliceError, match=other):
            _expect_refusal(subject, pair_bias=other)
    if mode == "none":
        return
    attention, inputs = subject.attention(), Inputs.draw(6, 4)
    tokens, context, places = inputs.batch(mode)
    with pytest.raises(MolsliceError, match="pair bias"):
        attention(tokens, replace(context, pair_bias=None))
    output, *_, by_bias = run(attention, tokens, context, places)
    assert by_bias.abs().amax((1, 2, 3)).min() > 1e-6, "the pair bias gets no gradient"
    other = attention(tokens, replace(context, pair_bias=context.pair_bias.flip(-1, -2))).tokens
    assert (other - output.tokens).abs().amax((1, 2)).min() > 1e-3, "the pair bias changes nothing"
    if mode == "logits":
        zero = replace(context, pair_bias=torch.zeros_like(context.pair_bias))
        plain = subject.with_spec(pair_bias="none").attention()
        close(attention(tokens, zero).tokens, plain(tokens, context).tokens, "the result with a bias of zero")


def check_pair_weights(subject: Subject) -> None:
    """Weights that were computed once a batch give what the attention computes itself."""
    if subject.spec.pair_bias != "mix":
        return
    attention = subject.attention()
    tokens, context, places = Inputs.draw(*LENGTHS).batch("mix", 8, torch.nan)
    weights = pair_softmax(context.pair_bias, context.token_mask)
    found = run(attention, tokens, replace(context, pair_weights=weights), places)
    expected = run(attention, tokens, context, places)
    close(found[0].tokens, expected[0].tokens, "the result with given weights")
    for one, other in zip(found[2], expected[2], strict=True):
        close(one, other, "a gradient with given weights")


class _Largest(TorchDispatchMode):
    """Records the number of entries of the largest tensor that any operation returns."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        for value in output if isinstance(output, tuple | list) else [output]:
            if isinstance(value, torch.Tensor):
                self.entries = max(self.entries, value.numel())
        return output


def check_cost(subject: Subject) -> None:
    """The largest intermediate grows as promised: fourfold at twice the length if quadratic, else twofold."""
    if subject.spec.pair_bias != "none":
        return
    attention, largest = subject.attention(torch.float32), []
    for length in (256, 512):
        tokens, context, _ = Inputs.draw(length).batch("none")
        # The plain kernel: a fused one hides its N x N scores.
        with sdpa_kernel(SDPBackend.MATH), _Largest() as recorded:
            attention(tokens.float(), context)
        largest.append(recorded.entries)
    growth = largest[1] / largest[0]
    if attention.traits.cost == "quadratic":
        assert growth > 3.5, f"promised to be quadratic, and grows {growth:.1f} fold"
    else:
        assert growth < 2.2, f"promised to be {attention.traits.cost}, and grows {growth:.1f} fold"


def check_reference(subject: Subject) -> None:
    """The fast form agrees with the slow one in value, penalty, carry and every gradient."""
    attention, inputs = subject.attention(), Inputs.draw(7, 2, 1)
    tokens, context, places = inputs.batch(subject.spec.pair_bias)
    slow = _Reference(attention)
    carry = attention(tokens, context).carry
    for below in [None] if carry is None else [None, carry.detach().flip(1)]:
        found = run(attention, tokens, context.with_carry(below), places)
        expected = run(slow, tokens, context.with_carry(below), places)
        close(found[0].tokens, expected[0].tokens, "the result against the reference")
        assert (found[0].penalty is None) == (expected[0].penalty is None), "only one has a penalty"
        assert (found[0].carry is None) == (expected[0].carry is None), "only one has a carry"
        if found[0].carry is not None:
            close(found[0].carry, expected[0].carry, "the carry against the reference")
        if found[0].penalty is not None:
            close(found[0].penalty, expected[0].penalty, "the penalty against the reference")
        for one, other in zip([found[1], *found[2]], [expected[1], *expected[2]], strict=True):
            close(one, other, "a gradient against the reference")
        if found[3] is not None:
            close(found[3], expected[3], "the gradient by the pair bias against the reference")


class _Reference:
    def __init__(self, attention):
        self.attention, self.parameters = attention, attention.parameters

    def __call__(self, tokens, context):
        return self.attention.reference(tokens, context)


def check_bfloat16(subject: Subject) -> None:
    """Half precision, by weights or by autocast, is near single precision for nearly all entries.

    Half of the entries within a fiftieth of the spread: where an attention ranks tokens, a rounded tie may
    move single entries by much.
    """
    tokens, context, _ = Inputs.draw(9, 9, 9, 7).batch(subject.spec.pair_bias)
    tokens = tokens.bfloat16().float()
    bias = None if context.pair_bias is None else context.pair_bias.bfloat16().float()
    context = replace(context, pair_bias=bias)
    half, full = subject.attention(torch.bfloat16), subject.attention(torch.float32)
    full.load_state_dict(half.state_dict())
    with torch.no_grad():
        expected = full(tokens, context).tokens
        low = replace(context, pair_bias=None if bias is None else bias.bfloat16())
        found = [half(tokens.bfloat16(), low).tokens]
        assert found[0].dtype == torch.bfloat16, "half precision in, another precision out"
        with torch.autocast("cpu", torch.bfloat16):
            found.append(full(tokens, context).tokens)
    real = context.token_mask
    for result in found:
        error = (result.float() - expected)[real].abs().median() / expected[real].std()
        assert error < 0.02, f"half precision is off by {error:.3f} of the spread"


def check_evaluation(subject: Subject) -> None:
    """In evaluation nothing is random: no dropout, and no number drawn from the global generator."""
    tokens, context, _ = Inputs.draw(*LENGTHS).batch(subject.spec.pair_bias)
    plain, dropping = subject.attention(), subject.attention(dropout=0.5)
    state = torch.get_rng_state()
    expected = plain(tokens, context).tokens
    close(plain(tokens, context).tokens, expected, "the second call", tolerance=0.0)
    close(dropping(tokens, context).tokens, expected, "evaluation with dropout", tolerance=0.0)
    assert torch.equal(torch.get_rng_state(), state), "evaluation draws random numbers"
    close(plain.train()(tokens, context).tokens, expected, "training without dropout")


CHECKS = [value for name, value in list(vars().items()) if name.startswith("check_")]
