"""The contract, check by check, for every attention in every form that its traits support."""

import pytest

from molslice.testing import CHECKS, Subject
from tests.attention.subjects import all_subjects


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("subject", all_subjects(), ids=lambda subject: subject.label)
def test_contract(subject: Subject, check):
    check(subject)
