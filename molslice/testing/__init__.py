"""The contract of an attention as checks, for the attentions of the package and for those written elsewhere.

Contents: `subjects.py`, the attention under test and its batches; `reference.py`, the float64 form of its
author; `checks.py`, values and gradients; `traits.py`, the traits; `in_model.py`, the attention inside a
model. Each check is a function of a `Subject` that raises AssertionError.

A test file for an attention outside the package:

    import pytest
    from molslice.attention import ATTENTIONS
    from molslice.testing import CHECKS, subjects_of
    from my_package import GatedMean

    ATTENTIONS.add("gated_mean", GatedMean)

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    @pytest.mark.parametrize("subject", subjects_of("gated_mean"), ids=lambda subject: subject.label)
    def test_contract(subject, check):
        check(subject)

`subjects_of` returns the attention with each pair bias mode and direction that its traits support. It takes
the options of the attention, a float64 `Reference` for comparison (without one, the comparison is skipped),
and the names of parameters whose gradient is zero by the formula.
Imports: everything below `training`. No other module of the package imports it.
"""

from molslice.testing import checks, in_model, traits
from molslice.testing.reference import Reference, apply_reference
from molslice.testing.subjects import Inputs, Subject, subjects_of

__all__ = ["CHECKS", "Inputs", "Reference", "Subject", "apply_reference", "subjects_of"]

CHECKS = [*checks.CHECKS, *traits.CHECKS, *in_model.CHECKS]
