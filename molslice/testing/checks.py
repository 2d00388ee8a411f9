"""Checks of values and gradients that every attention must pass, one function per requirement.

Each takes a `Subject` and raises AssertionError. The checks of traits are in `traits.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from molslice.attention import Attention
from molslice.testing.reference import apply_reference
from molslice.testing.subjects import Inputs, Subject
from molslice.types import AttentionOutput, MolsliceError, TokenContext

LENGTHS = (6, 3, 1)
PADDINGS = [(6, 0.0, False), (8, torch.nan, False), (11, torch.inf, True), (15, 1e30, True)]


Forward = Callable[[Tensor, TokenContext], AttentionOutput]


class Run(NamedTuple):
    """The output of an attention and the gradients of a fixed loss.

    Attributes:
        output: The output of the attention.
        by_tokens: Gradient by the tokens [B, N, D].
        by_parameters: Gradient by each parameter.
        by_bias: Gradient by the pair bias [B, H, N, N]; None without a pair bias.
        by_memory: Gradient by the memory [B, M, D]; None without a memory.
    """

    output: AttentionOutput
    by_tokens: Tensor
    by_parameters: list[Tensor]
    by_bias: Tensor | None
    by_memory: Tensor | None

    def gradients(self) -> list[Tensor]:
        """List all gradients."""
        others = [self.by_bias, self.by_memory]
        return [self.by_tokens, *self.by_parameters, *(x for x in others if x is not None)]


@contextmanager
def refusal(word: str) -> Iterator[None]:
    """Expect a MolsliceError whose message contains `word`.

    Raises:
        AssertionError: No MolsliceError was raised, or its message lacks `word`.
    """
    try:
        yield
    except MolsliceError as error:
        if word not in str(error):
            raise AssertionError(f"expected {word!r} in the error message, got: {error}") from error
    else:
        raise AssertionError(f"expected a MolsliceError with {word!r}, but none was raised")


def run(
    attention: Attention,
    tokens: Tensor,
    context: TokenContext,
    positions: list[Tensor],
    forward: Forward | None = None,
) -> Run:
    """Compute the output, and gradients of a fixed loss on the real tokens plus the penalty.

    Args:
        attention: The attention under test.
        tokens: Tokens.
        context: The context of `tokens`.
        positions: Positions of the real tokens of each sequence.
        forward: Computes the output in place of `attention`; None for the attention itself.
    """
    tokens = tokens.clone().requires_grad_()
    bias, memory = (
        None if x is None else x.clone().requires_grad_() for x in (context.pair_bias, context.memory)
    )
    output = (forward or attention)(tokens, replace(context, pair_bias=bias, memory=memory))
    loss = output.tokens.new_zeros(())
    for b, position in enumerate(positions):
        weights = torch.linspace(-1, 2, len(position) * tokens.shape[-1])
        loss = loss + (output.tokens[b, position].flatten() * weights).sum()
    loss = loss if output.penalty is None else loss + output.penalty
    given = [x for x in (bias, memory) if x is not None]
    leaves = [tokens, *given, *attention.parameters()]
    by = list(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))
    by_given = dict(zip(map(id, given), by[1:], strict=False))
    parameters = by[1 + len(given) :]
    return Run(output, by[0], parameters, by_given.get(id(bias)), by_given.get(id(memory)))


def same(actual: Run, expected: Run, how: str) -> None:
    """Assert that results and gradients are finite and equal up to rounding.

    Args:
        actual: The run.
        expected: The expected run.
        how: How the run differs from the expected one, such as "with all_real", for the message.
    """
    close(actual.output.tokens, expected.output.tokens, f"the result {how}")
    for one, other in zip(actual.gradients(), expected.gradients(), strict=True):
        close(one, other, f"a gradient {how}")


def at_positions(output: Tensor, positions: list[Tensor]) -> Tensor:
    """Concatenate the rows at the positions of each sequence: [B, N, D] to [n, D]."""
    return torch.cat([output[b, position] for b, position in enumerate(positions)])


def close(actual: Tensor, expected: Tensor, what: str, tolerance: float = 1e-9) -> None:
    """Assert that both are finite and equal up to rounding.

    Args:
        actual: The result.
        expected: The expected result.
        what: Name of the result, for the message.
        tolerance: Relative and absolute tolerance.
    """
    assert torch.isfinite(actual).all(), f"{what} is not finite"
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, msg=lambda m: f"{what}: {m}")


def check_padding(subject: Subject) -> None:
    """Check that the result is zero at padding and does not depend on its amount, position or content."""
    attention, inputs = subject.attention(), Inputs.draw(*LENGTHS)
    expected = None
    for length, garbage, scattered in PADDINGS:
        tokens, context, positions = inputs.batch(subject.spec, length, garbage, scattered)
        output = attention(tokens, context)
        actual = at_positions(output.tokens, positions)
        expected = actual if expected is None else expected
        close(actual, expected, f"the result with {length} tokens, {garbage} at padding")
        assert not output.tokens[~context.token_mask].any(), "the result is not zero at padding"


def check_padding_gradient(subject: Subject) -> None:
    """Check that gradients are zero at padding, and elsewhere equal to those without padding."""
    attention, inputs = subject.attention(), Inputs.draw(*LENGTHS)
    expected = None
    for length, garbage, scattered in PADDINGS:
        tokens, context, positions = inputs.batch(subject.spec, length, garbage, scattered)
        result = run(attention, tokens, context, positions)
        assert not result.by_tokens[~context.token_mask].any(), (
            "the gradient by tokens is not zero at padding"
        )
        actual = [at_positions(result.by_tokens, positions), *result.by_parameters]
        if result.by_bias is not None:
            pairs = context.token_mask[:, None, :, None] & context.token_mask[:, None, None, :]
            outside = result.by_bias.masked_fill(pairs, 0.0)
            assert not outside.any(), "the gradient by the pair bias is not zero at padding"
            actual += [result.by_bias[b][:, position][:, :, position] for b, position in enumerate(positions)]
        if result.by_memory is not None:
            mask = context.memory_mask
            assert mask is not None
            assert not result.by_memory[~mask].any(), "the gradient by the memory is not zero at padding"
            actual.append(result.by_memory[mask])
        expected = actual if expected is None else expected
        for one, other in zip(actual, expected, strict=True):
            close(one, other, f"a gradient with {length} tokens, {garbage} at padding")


def check_all_real(subject: Subject) -> None:
    """Check that `all_real` does not change the result of a batch without padding, but for its memory."""
    attention, inputs = subject.attention(), Inputs.draw(6, 6)
    inputs.memories[1] = inputs.memories[1][:5]
    tokens, context, positions = inputs.batch(subject.spec, garbage=1e3)
    expected = run(attention, tokens, context, positions)
    actual = run(attention, tokens, replace(context, all_real=True), positions)
    same(actual, expected, "with all_real")


def check_first_rows(subject: Subject) -> None:
    """Check that `rows` returns the first tokens of the whole result, with the same gradients."""
    attention, rows = subject.attention(), 2
    for lengths in (LENGTHS, (6, 6)):
        inputs = Inputs.draw(*lengths)
        tokens, context, positions = inputs.batch(subject.spec, garbage=torch.nan)
        context = replace(context, all_real=len(set(lengths)) == 1)
        positions = [position[position < rows] for position in positions]
        expected = run(attention, tokens, context, positions)
        actual = run(attention, tokens, replace(context, num_queries=rows), positions)
        whole = expected.output.tokens[:, :rows]
        assert actual.output.tokens.shape == whole.shape
        same(actual, expected._replace(output=expected.output.with_tokens(whole)), f"of {rows} rows")


def check_batch_mates(subject: Subject) -> None:
    """Check that a sequence gives the same result alone and in a batch."""
    attention, inputs = subject.attention(), Inputs.draw(*LENGTHS)
    tokens, context, positions = inputs.batch(subject.spec)
    together = attention(tokens, context)
    for b, position in enumerate(positions):
        alone = inputs.only(b).batch(subject.spec)
        close(together.tokens[b, position], attention(*alone[:2]).tokens[0], f"sequence {b} in a batch")


def check_penalty(subject: Subject) -> None:
    """Check that a penalty is the mean over the sequences, without padding and sequences without tokens."""
    attention, inputs = subject.attention(), Inputs.draw(*LENGTHS)
    penalty = attention(*inputs.batch(subject.spec)[:2]).penalty
    if penalty is None:
        return
    assert penalty.ndim == 0
    assert penalty.requires_grad, "the penalty has no gradient"
    alone = [attention(*inputs.only(b).batch(subject.spec)[:2]).penalty for b in range(len(LENGTHS))]
    close(penalty, torch.stack(alone).mean(), "the penalty of a batch")
    with_empty = Inputs.draw(*LENGTHS, 0)  # the same sequences and an empty one
    with_empty = replace(inputs, **{k: [*v, getattr(with_empty, k)[-1]] for k, v in vars(inputs).items()})
    for length, garbage, scattered in PADDINGS:
        tokens, context, _ = with_empty.batch(subject.spec, length, garbage, scattered)
        close(attention(tokens, context).penalty, penalty, f"the penalty with {length} tokens")


def check_every_parameter_trained(subject: Subject) -> None:
    """Check that each entry of each parameter has a gradient, except for those that a softmax cancels."""
    attention = subject.attention()
    # Only a sequence of max_tokens uses all entries of parameters that depend on the length.
    longest = (subject.spec.max_tokens or 6) - 2 * subject.spec.cross  # a memory is two longer
    tokens, context, positions = Inputs.draw(longest, 5, longest, 4).batch(subject.spec)
    gradients = run(attention, tokens, context, positions).by_parameters
    for (name, _), gradient in zip(attention.named_parameters(), gradients, strict=True):
        largest, smallest = gradient.abs().max().item(), gradient.abs().min().item()
        if name in subject.canceled:
            assert largest < 1e-12, f"{name} is listed as canceled, but has a gradient"
        elif subject.spec.causal and attention.traits.fixed_length:
            # A table over positions also has entries for future tokens, which the causal form does not use.
            assert largest > 1e-12, f"{name} has no gradient"
        else:
            assert smallest > 1e-12, f"{name} has entries without gradient"


def check_one_token(subject: Subject) -> None:
    """Check that a sequence of one token gives the reference result and finite gradients."""
    attention = subject.attention()
    for batch in (Inputs.draw(1), Inputs.draw(1, 1, 1)):
        tokens, context, positions = batch.batch(subject.spec)
        result = run(attention, tokens, context, positions)
        if subject.reference is not None:
            expected = apply_reference(subject.reference, attention, tokens, context).tokens
            close(result.output.tokens, expected, "the result for one token")
        assert torch.isfinite(result.output.tokens).all(), "the result for one token is not finite"
        for gradient in result.gradients():
            assert torch.isfinite(gradient).all(), "a gradient for one token is not finite"


def check_empty_sequence(subject: Subject) -> None:
    """Check that a sequence without tokens gives zeros and finite gradients, without effect on the others."""
    attention = subject.attention()
    inputs = Inputs.draw(4, 0)
    for garbage in (0.0, torch.nan):
        tokens, context, positions = inputs.batch(subject.spec, 5, garbage)
        result = run(attention, tokens, context, positions)
        output = result.output
        assert not output.tokens[1].any(), "the result of an empty sequence is not zero"
        alone = attention(*inputs.only(0).batch(subject.spec)[:2]).tokens[0]
        close(output.tokens[0, :4], alone, "a sequence in a batch with an empty one")
        for gradient in result.gradients():
            assert torch.isfinite(gradient).all(), "a gradient beside an empty sequence is not finite"


def check_reference(subject: Subject) -> None:
    """Check that the fast form equals the reference in value, penalty, carry and all gradients."""
    reference = subject.reference
    if reference is None:
        return
    attention, inputs = subject.attention(), Inputs.draw(7, 2, 1)
    tokens, context, positions = inputs.batch(subject.spec)

    def slow(tokens: Tensor, context: TokenContext) -> AttentionOutput:
        return apply_reference(reference, attention, tokens, context)

    carry = attention(tokens, context).carry
    for below in [None] if carry is None else [None, carry.detach().flip(1)]:
        actual = run(attention, tokens, context.with_carry(below), positions)
        expected = run(attention, tokens, context.with_carry(below), positions, slow)
        same(actual, expected, "compared with the reference")
        for name in ("penalty", "carry"):
            one, other = getattr(actual.output, name), getattr(expected.output, name)
            assert (one is None) == (other is None), f"only one has a {name}"
            if one is not None:
                close(one, other, f"the {name} compared with the reference")


def check_evaluation(subject: Subject) -> None:
    """Check that evaluation is deterministic: no dropout, and no draw from the global generator."""
    tokens, context, _ = Inputs.draw(*LENGTHS).batch(subject.spec)
    plain, dropping = subject.attention(), subject.attention(dropout=0.5)
    state = torch.get_rng_state()
    expected = plain(tokens, context).tokens
    close(plain(tokens, context).tokens, expected, "the second call", tolerance=0.0)
    close(dropping(tokens, context).tokens, expected, "evaluation with dropout", tolerance=0.0)
    assert torch.equal(torch.get_rng_state(), state), "evaluation draws random numbers"
    close(plain.train()(tokens, context).tokens, expected, "training without dropout")


def check_steps(subject: Subject) -> None:
    """Check that steps give the results of the causal form; if recurrent, with a state of constant size.

    `init_state` of an attention without steps, not causal or with a pair bias raises an error.
    """
    attention = subject.attention()
    traits, spec = attention.traits, attention.spec
    assert attention.has_steps or not traits.recurrent, "traits.recurrent is true, but there are no steps"
    if not (attention.has_steps and spec.causal and spec.pair_bias_mode == "none"):
        with refusal("steps"):
            attention.init_state(2)
        return
    tokens, context, _ = Inputs.draw(9, 9).batch(spec)
    expected = attention(tokens, context).tokens
    states = [attention.init_state(2)]
    for position in range(9):
        actual, following = attention.step(tokens[:, position], states[-1])
        close(actual, expected[:, position], f"the result of step {position}")
        states.append(following)
    again, _ = attention.step(tokens[:, 4], states[4])  # a step does not change its input state
    close(again, expected[:, 4], "the result of a repeated step")
    sizes = [sum(tensor.numel() for tensor in state) for state in states]
    if traits.recurrent:
        assert len(set(sizes)) == 1, f"traits.recurrent is true, but the state grows: {sizes}"
    else:
        assert sizes[-1] > sizes[1], "traits.recurrent is false, but the state does not grow"
    half = subject.attention(torch.bfloat16)
    token = tokens[:, 0].bfloat16()
    assert half.step(token, half.init_state(2))[0].dtype == token.dtype, "a step changes the precision"


CHECKS = [value for name, value in list(vars().items()) if name.startswith("check_")]
