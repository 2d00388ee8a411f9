"""Tests specific to `yoso`: the sample converges to the expectation; pair bias in the expectation."""

from dataclasses import replace

import pytest
import torch

from molslice.attention import build_attention
from molslice.testing import CHECKS, checks
from molslice.testing.subjects import SPEC, Inputs, Subject
from molslice.types import MolsliceError
from tests.attention.references import find_reference


def subject(**options) -> Subject:
    return Subject(
        "yoso", lambda spec: build_attention("yoso", spec, options), SPEC, reference=find_reference("yoso")
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_the_contract_with_a_pair_bias_in_the_expected_form(check):
    check(subject(form="expected", code_length=3).with_spec(pair_bias_mode="logits"))


def test_the_sample_and_its_gradient_tend_to_the_expectation():
    tokens, context, places = Inputs.draw(12, 7).batch(SPEC)
    expected_form = subject(form="expected", code_length=4).attention()
    expected = checks.run(expected_form, tokens, context, places)
    errors = []
    for num_hashes in (4, 64, 4096):
        sampled = subject(form="sampled", code_length=4, num_hashes=num_hashes).attention()
        sampled.load_state_dict(expected_form.state_dict() | {"planes": sampled.planes})
        found = checks.run(sampled, tokens, context, places)
        value = (found.output.tokens - expected.output.tokens).norm() / expected.output.tokens.norm()
        gradient = (found.by_tokens - expected.by_tokens).norm() / expected.by_tokens.norm()
        errors.append((value.item(), gradient.item()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[0][1] > errors[1][1] > errors[2][1]
    assert max(errors[2]) < 0.1


def test_a_large_pair_bias_does_not_overflow():
    attention = subject(form="expected").attention(torch.float32, pair_bias_mode="logits")
    spec = replace(SPEC, pair_bias_mode="logits")
    tokens, context, _ = Inputs.draw(6).batch(spec, 8)
    context = replace(context, pair_bias=1e4 * context.pair_bias.float())
    assert torch.isfinite(attention(tokens.float(), context).tokens).all()


def test_only_the_expected_form_takes_a_bias_into_its_weights():
    spec = replace(SPEC, pair_bias_mode="logits")
    assert subject(form="expected").make(spec).traits.cost == "quadratic"
    with pytest.raises(MolsliceError, match="logits"):
        subject(form="sampled").make(spec)


def test_planes_depend_on_seed_and_layer_and_are_saved():
    one = subject().make(SPEC)
    assert torch.equal(one.planes, subject().make(SPEC).planes)
    assert not torch.equal(one.planes, subject(seed=1).make(SPEC).planes)
    assert not torch.equal(one.planes, subject().make(replace(SPEC, layer=2)).planes)
    assert "planes" in one.state_dict()
    assert "planes" not in subject(form="expected").make(SPEC).state_dict()


@pytest.mark.parametrize(
    "options", [{"form": "exact"}, {"code_length": 0}, {"code_length": 17}, {"num_hashes": 0}], ids=str
)
def test_a_bad_option_is_refused_by_name(options):
    with pytest.raises(MolsliceError, match=next(iter(options))):
        subject(**options).make(SPEC)
