"""The contract, check by check, for every attention in every form that its traits support."""

import pytest

from molslice.attention import ATTENTIONS
from molslice.testing import CHECKS, Subject, subjects_of
from tests.attention.subjects import contract

CASES = list(contract())


@pytest.mark.parametrize(
    ("subject", "check"),
    CASES,
    ids=[f"{subject.label}-{check.__name__.removeprefix('check_')}" for subject, check in CASES],
)
def test_contract(subject: Subject, check):
    check(subject)


def test_every_attention_goes_through_every_check():
    found = {(subject.label.split("-")[0], check) for subject, check in CASES}
    assert found == {
        (name, check)
        for name in ATTENTIONS.names()
        for check in CHECKS
        if check.__name__ != "check_shared_bias" or len(ATTENTIONS.find(name).traits.pair_bias) > 1
    }
    labels = {subject.label.split("-")[0]: set() for subject, _ in CASES}
    for subject, _ in CASES:
        spec = subject.spec
        labels[subject.label.split("-")[0]].add((spec.pair_bias_mode, spec.causal, spec.cross))
    for name, forms in labels.items():
        promised = {(s.spec.pair_bias_mode, s.spec.causal, s.spec.cross) for s in subjects_of(name)}
        assert forms == promised, name
