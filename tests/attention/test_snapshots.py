"""State-dict names and forward values equal the snapshots."""

import json

import pytest
import torch

from tests.attention.snapshots import FILE, snapshot
from tests.attention.subjects import all_subjects

SNAPSHOTS = json.loads(FILE.read_text(encoding="utf-8"))
REWRITE = "if the change is meant, say why and run: python -m tests.attention.snapshots"


@pytest.mark.parametrize("subject", all_subjects(), ids=lambda subject: subject.label)
def test_state_and_values_do_not_change(subject):
    assert subject.label in SNAPSHOTS, f"no snapshot of {subject.label}; {REWRITE}"
    expected, found = SNAPSHOTS[subject.label], snapshot(subject)
    assert found["state"] == expected["state"], REWRITE
    for part in ("values", "penalty"):
        if expected[part] is None:
            assert found[part] is None, REWRITE
        else:
            one, other = (torch.tensor(x[part], dtype=torch.float64) for x in (found, expected))
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8, msg=lambda m: f"{m}\n{REWRITE}")


def test_no_snapshot_is_left_over():
    assert set(SNAPSHOTS) == {subject.label for subject in all_subjects()}
