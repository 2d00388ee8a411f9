"""Tests of the contract tests: each check fails for an attention that violates it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from molslice.attention import ATTENTIONS
from molslice.attention.base import Attention
from molslice.attention.flow import Flow
from molslice.attention.linear import Linear
from molslice.attention.singular import Singular
from molslice.attention.slice_sort import SliceSort
from molslice.attention.softmax import Softmax
from molslice.model.sequences import sequence
from molslice.testing import CHECKS, checks, in_model, traits
from molslice.testing.subjects import SPEC, Subject
from molslice.types import AttentionOutput
from tests.attention.references import find_reference


class _Mean(Attention):
    """Correct attention to derive faulty ones from: every token gets the mean of all tokens."""

    traits = replace(
        Softmax.traits, cost="linear", pair_bias=("none",), causal=False, cross=False, head_dim=False
    )

    def __init__(self, spec):
        super().__init__(spec)
        self.value = nn.Linear(spec.dim, spec.dim, bias=spec.qkv_bias)

    def mix(self, tokens, context):
        mask = context.token_mask[..., None]
        mean = (self.value(tokens) * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        return AttentionOutput(mean + tokens)


def _mean_of_sequence(attention, tokens, memory, pair_bias, carry):
    return attention.value(tokens).mean(0) + tokens, None, None


def _reference_of(mutant):
    """Return the reference of the attention that the faulty one is derived from."""
    original = next(kind for kind in mutant.__mro__ if kind.__module__.startswith("molslice.attention."))
    name = original.__module__.rpartition(".")[2]
    return find_reference(name) if name in ATTENTIONS.names() else _mean_of_sequence


class _SumsPadding(_Mean):
    def mix(self, tokens, context):
        return AttentionOutput(self.value(tokens).mean(1, keepdim=True) + tokens)


class _ReturnsTheLastRows(Softmax):
    def mix(self, tokens, context):
        mixed = super().mix(tokens, replace(context, num_queries=None))
        count = context.num_queries
        return mixed if count is None else mixed.with_tokens(mixed.tokens[:, -count:])


class _MultipliesByMask(Softmax):
    """Masks by multiplication, although NaN times zero is NaN."""

    def mix_pairs(self, value, context):
        pairs = context.token_mask[:, None, :, None] & context.token_mask[:, None, None, :]
        weights = context.pair_bias.exp() * pairs
        return weights @ value / weights.sum(-1, keepdim=True).clamp(min=1e-9)


class _GradientAtPadding(Softmax):
    def mix(self, tokens, context):
        bias = context.pair_bias.nan_to_num(0, 0, 0).sum()
        output = super().mix(tokens, context)
        return output._replace(tokens=output.tokens + bias - bias.detach())


class _CentersTheBatch(_Mean):
    def mix(self, tokens, context):
        return AttentionOutput(super().mix(tokens, context).tokens - tokens[context.token_mask].mean())


class _PenaltyOverPadding(Singular):
    def _penalty(self, unfolding, folding, weights, context):
        return super()._penalty(unfolding, folding, weights, context) / context.token_mask.shape[1]


class _PenaltyOfEmpty(Singular):
    def _penalty(self, unfolding, folding, weights, context):
        everything = replace(context, token_mask=torch.ones_like(context.token_mask))
        return super()._penalty(unfolding, folding, weights, everything)


class _ConstantPenalty(Singular):
    def _penalty(self, unfolding, folding, weights, context):
        return super()._penalty(unfolding, folding, weights, context).detach()


class _DeadParameter(_Mean):
    def __init__(self, spec):
        super().__init__(spec)
        self.unused = nn.Parameter(torch.ones(3))


class _DeadRow(_Mean):
    def mix(self, tokens, context):
        return super().mix(torch.cat([tokens[..., :-1], torch.zeros_like(tokens[..., :1])], -1), context)


class _DividesByOneLess(_Mean):
    def mix(self, tokens, context):
        count = context.token_mask.sum(1)[:, None, None]
        return AttentionOutput(super().mix(tokens, context).tokens * (count - 1) / (count - 1))


class _DividesByCount(_Mean):
    def mix(self, tokens, context):
        count = context.token_mask.sum(1)[:, None, None]
        mean = (self.value(tokens) * context.token_mask[..., None]).sum(1, keepdim=True) / count
        return AttentionOutput(mean + tokens)


class _KnowsPositions(_Mean):
    def mix(self, tokens, context):
        positions = torch.arange(tokens.shape[1], dtype=tokens.dtype)[:, None]
        return AttentionOutput(super().mix(tokens, context).tokens + positions)


class _SecretlyEquivariant(_Mean):
    traits = replace(_Mean.traits, symmetry="ordered")


class _TiesByIndex(SliceSort):
    def __init__(self, spec):
        super().__init__(spec, placement="aligned")

    def _share_ties(self, arranged, lead, count):
        return arranged


class _SeesTheFuture(Softmax):
    def _mask(self, context, dtype):
        return context.token_mask[:, None, None]


class _SeesTheLength(Softmax):
    def mix(self, tokens, context):
        count = context.token_mask.sum(1)[:, None, None]
        return AttentionOutput(super().mix(tokens, context).tokens * count)


class _SeesTheFutureOfTheBias(Flow):
    def _pair_flow(self, query, key, sinks, sources, bias):
        return super()._pair_flow(query, key, sinks, sources, bias.flip(-1, -2))


class _ForgetsThePast(Softmax):
    def mix(self, tokens, context):
        return AttentionOutput(self.output(self.value(tokens)))


class _RefusesNothing(_Mean):
    def _check_spec(self):
        pass


class _StepsForgetTheBeginning(Softmax):
    """A window of the past, but the attention is not declared local."""

    def step(self, token, state):
        token, (keys, values) = super().step(token, state)
        return token, (keys[:, :, -5:], values[:, :, -5:])


class _GrowsByTheToken(Softmax):
    traits = replace(Softmax.traits, recurrent=True)


class _PromisesSteps(_Mean):
    traits = replace(_Mean.traits, causal=True, recurrent=True)


class _IsRecurrentUnsaid(Linear):
    traits = replace(Linear.traits, recurrent=False)


class _SpendsItsState(Linear):
    def step(self, token, state):
        token, (following,) = super().step(token, state)
        state[0].copy_(following)
        return token, state


class _BeginsWhatItCannotStep(_Mean):
    def init_state(self, batch):
        return ()


class _IgnoresTheBias(Softmax):
    def _mask(self, context, dtype):
        return context.token_mask[:, None, None]


class _HalvesTheBias(Flow):
    def _pair_flow(self, query, key, sinks, sources, bias):
        return super()._pair_flow(query * 0.5 + 0.1, key, sinks, sources, bias)


class _NeedsNoBias(Softmax):
    def check_input(self, tokens, context):
        pass

    def _mask(self, context, dtype):
        if context.pair_bias is None:
            return context.token_mask[:, None, None]
        return super()._mask(context, dtype)


class _IgnoresGivenWeights(Softmax):
    def mix_pairs(self, value, context):
        if context.pair_weights is not None:
            context = replace(context, pair_weights=context.pair_weights.flip(1))
        return super().mix_pairs(value, context)


class _IgnoresTheMaskedBias(Softmax):
    def _mask(self, context, dtype):
        if context.masked_bias is not None:
            context = replace(context, masked_bias=context.masked_bias.flip(1))
        return super()._mask(context, dtype)


class _SecretlyQuadratic(Flow):
    def mix(self, tokens, context):
        return AttentionOutput((tokens @ tokens.transpose(1, 2)).sigmoid() @ tokens)


class _SecretlyLinear(_Mean):
    traits = replace(_Mean.traits, cost="quadratic")


class _OffByALittle(_Mean):
    def mix(self, tokens, context):
        return AttentionOutput(super().mix(tokens, context).tokens * (1 + 1e-7))


class _WrongGradient(_Mean):
    def mix(self, tokens, context):
        result = super().mix(tokens, context).tokens
        return AttentionOutput(2 * result - result.detach())


class _ForgetsTheCarry(Singular):
    def mix(self, tokens, context):
        return super().mix(tokens, context.with_carry(None))


class _LosesHalfPrecision(_Mean):
    def mix(self, tokens, context):
        return AttentionOutput(super().mix(tokens, context).tokens + 100 - 100)


class _ReturnsSinglePrecision(_Mean):
    def mix(self, tokens, context):
        return AttentionOutput(super().mix(tokens, context).tokens.float())


class _AlwaysDrops(_Mean):
    def mix(self, tokens, context):
        return AttentionOutput(nn.functional.dropout(super().mix(tokens, context).tokens, self.spec.dropout))


class _DrawsInEvaluation(_Mean):
    def mix(self, tokens, context):
        torch.rand(1)
        return super().mix(tokens, context)


class _ForgetsTheMemory(Softmax):
    """Ignores the memory and attends to its own tokens."""

    def mix(self, tokens, context):
        return super().mix(tokens, replace(context, memory=None, memory_mask=None))


class _TakesWhatItWasNotBuiltFor(_Mean):
    def _check_memory(self, tokens, context):
        pass


class _LeaksPaddingOfTheMemory(Softmax):
    def _mask(self, context, dtype):
        return torch.ones_like(context.memory_mask)[:, None, None]


class _CountsTheFurtherAxis(_Mean):
    """Must raise an error, because its traits do not declare the setting."""

    traits = replace(_Mean.traits, vmap=False)

    def check_input(self, tokens, context):
        pass


class _DiffersUnderVmap(_Mean):
    def mix(self, tokens, context):
        vmapped = torch._C._functorch.is_batchedtensor(tokens)
        return AttentionOutput(super().mix(tokens, context).tokens + int(vmapped))


class _CountsItsCalls(_Mean):
    calls = 0

    def mix(self, tokens, context):
        self.calls += 1
        return AttentionOutput(super().mix(tokens, context).tokens * self.calls)


class _HidesItsOperations(_Mean):
    """Does quadratic work in small tensors."""

    def mix(self, tokens, context):
        extra = sum((row @ tokens[0].T).sum() for row in tokens[0].split(1))
        return AttentionOutput(super().mix(tokens, context).tokens + 0 * extra)


class _DivergesWithoutPadding(_Mean):
    def mix(self, tokens, context):
        return AttentionOutput(super().mix(tokens, context).tokens + int(context.all_real))


class _KnowsTheColumnsInAModel(_Mean):
    def mix(self, tokens, context):
        return AttentionOutput(super().mix(tokens, context).tokens * tokens.shape[1])


class _StartsWithoutValues(_Mean):
    def reset_parameters(self):
        nn.init.constant_(self.value.weight, torch.nan)


class _KeepsTheBiasOfValues(Softmax):
    def __init__(self, spec):
        super().__init__(replace(spec, qkv_bias=True))


class _IsNarrowWithoutBias(_Mean):
    def __init__(self, spec):
        super().__init__(spec)
        if spec.qkv_bias:
            self.more = nn.Linear(spec.dim, spec.dim)


class _IgnoresTheWidthOfHeads(_Mean):
    traits = replace(_Mean.traits, head_dim=True)


class _MixesHeadsOfOneWidth(Softmax):
    """Takes the scale of the scores from D / H, in place of the width of a head."""

    def mix(self, tokens, context):
        heads = [self.split_heads(f(tokens)) for f in (self.query, self.key, self.value)]
        mask, scale = self._mask(context, tokens.dtype), (self.spec.dim / self.spec.num_heads) ** -0.5
        mixed = nn.functional.scaled_dot_product_attention(*heads, mask, scale=scale)
        return AttentionOutput(self.output(self.merge_heads(mixed)))


MUTANTS = [
    (checks.check_padding, _SumsPadding, {}),
    (checks.check_padding, _MultipliesByMask, {"pair_bias_mode": "mix"}),
    (checks.check_padding_gradient, _SumsPadding, {}),
    (checks.check_padding_gradient, _GradientAtPadding, {"pair_bias_mode": "logits"}),
    (checks.check_first_rows, _ReturnsTheLastRows, {}),
    (checks.check_batch_mates, _CentersTheBatch, {}),
    (checks.check_all_real, _DivergesWithoutPadding, {}),
    (checks.check_penalty, _PenaltyOverPadding, {}),
    (checks.check_penalty, _PenaltyOfEmpty, {}),
    (checks.check_penalty, _ConstantPenalty, {}),
    (checks.check_every_parameter_trained, _DeadParameter, {}),
    (checks.check_every_parameter_trained, _DeadRow, {}),
    (checks.check_one_token, _DividesByOneLess, {}),
    (checks.check_empty_sequence, _DividesByCount, {}),
    (traits.check_symmetry, _KnowsPositions, {}),
    (traits.check_symmetry, _SecretlyEquivariant, {}),
    (traits.check_symmetric_tokens, _TiesByIndex, {}),
    (traits.check_causal, _SeesTheFuture, {}),
    (traits.check_causal, _SeesTheLength, {}),
    (traits.check_causal, _SeesTheFutureOfTheBias, {"pair_bias_mode": "logits"}),
    (traits.check_causal, _ForgetsThePast, {}),
    (traits.check_causal, _RefusesNothing, {}),
    (checks.check_steps, _StepsForgetTheBeginning, {"causal": True}),
    (checks.check_steps, _GrowsByTheToken, {"causal": True}),
    (checks.check_steps, _PromisesSteps, {}),
    (checks.check_steps, _IsRecurrentUnsaid, {"causal": True}),
    (checks.check_steps, _SpendsItsState, {"causal": True}),
    (checks.check_steps, _BeginsWhatItCannotStep, {}),
    (traits.check_pair_bias, _RefusesNothing, {}),
    (traits.check_pair_bias, _IgnoresTheBias, {"pair_bias_mode": "logits"}),
    (traits.check_pair_bias, _HalvesTheBias, {"pair_bias_mode": "logits"}),
    (traits.check_pair_bias, _NeedsNoBias, {"pair_bias_mode": "logits"}),
    (traits.check_shared_bias, _IgnoresGivenWeights, {"pair_bias_mode": "mix"}),
    (traits.check_shared_bias, _IgnoresTheMaskedBias, {"pair_bias_mode": "logits"}),
    (traits.check_cost, _SecretlyQuadratic, {}),
    (traits.check_cost, _SecretlyLinear, {}),
    (traits.check_cost, _HidesItsOperations, {}),
    (traits.check_cross, _ForgetsTheMemory, {}),
    (traits.check_cross, _TakesWhatItWasNotBuiltFor, {}),
    (traits.check_cross, _RefusesNothing, {}),
    (checks.check_padding, _LeaksPaddingOfTheMemory, {"cross": True}),
    (traits.check_vmap, _CountsTheFurtherAxis, {}),
    (traits.check_vmap, _DiffersUnderVmap, {}),
    (traits.check_activation_checkpointing, _CountsItsCalls, {}),
    (checks.check_reference, _OffByALittle, {}),
    (checks.check_reference, _WrongGradient, {}),
    (checks.check_reference, _ForgetsTheCarry, {}),
    (traits.check_half_precision, _LosesHalfPrecision, {}),
    (traits.check_half_precision, _ReturnsSinglePrecision, {}),
    (checks.check_evaluation, _AlwaysDrops, {}),
    (checks.check_evaluation, _DrawsInEvaluation, {}),
    (in_model.check_padding_in_a_model, _KnowsTheColumnsInAModel, {}),
    (in_model.check_initialization_in_a_model, _StartsWithoutValues, {}),
    (in_model.check_head_dim, _IgnoresTheWidthOfHeads, {}),
    (in_model.check_head_dim, _MixesHeadsOfOneWidth, {}),
    (in_model.check_head_dim, _RefusesNothing, {}),
    (in_model.check_qkv_bias, _KeepsTheBiasOfValues, {}),
    (in_model.check_qkv_bias, _IsNarrowWithoutBias, {}),
]


@pytest.mark.parametrize(
    ("check", "mutant", "spec"), MUTANTS, ids=[f"{c.__name__[6:]}-{m.__name__[1:]}" for c, m, _ in MUTANTS]
)
def test_a_mutant_is_caught(check, mutant, spec):
    subject = Subject(mutant.__name__, mutant, replace(SPEC, **spec), reference=_reference_of(mutant))
    with pytest.raises(AssertionError):
        check(subject)


def test_every_check_has_a_mutant():
    assert {check for check, _, _ in MUTANTS} == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__[6:])
def test_what_the_mutants_are_made_from_passes(check):
    check(Subject("mean", _Mean, SPEC, reference=_mean_of_sequence))


def test_a_model_that_draws_the_weights_again_is_caught(monkeypatch):
    def draw_again(module, _):
        for part in module.modules():
            if isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)

    monkeypatch.setattr(sequence, "initialize_linear", draw_again)
    with pytest.raises(AssertionError, match="changed the initial value of"):
        in_model.check_initialization_in_a_model(Subject("softmax", Softmax))


def test_each_attention_has_a_reference():
    files = {file.stem for file in (Path(__file__).parent / "references").glob("*.py")}
    assert files == {*ATTENTIONS.names(), "__init__"}
