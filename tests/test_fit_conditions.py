"""The recorded measurement of what a temperature is worth in `molslice fit`."""

import json

from tests.programs import ROOT


def test_the_guide_has_the_measured_numbers():
    rows = json.loads((ROOT / "benchmarks/results/fit_conditions.json").read_text())["rows"]
    guide = (ROOT / "docs/guides/conditions.md").read_text()
    for name in ("mae", "mae_of_differences"):
        for row in rows:
            assert f"{row[name]:.3f}" in guide
