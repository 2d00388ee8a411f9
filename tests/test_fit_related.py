"""The recorded measurement of what related tables are worth in `molslice fit`."""

import json

from tests.programs import ROOT


def test_the_guide_has_the_measured_numbers():
    result = json.loads((ROOT / "benchmarks/results/fit_related.json").read_text())
    guide = (ROOT / "docs/guides/related-tables.md").read_text()
    assert len(result["pairs"]) == 3
    for pair in result["pairs"]:
        for name in ("without_held_out", "with_held_out", "change", "change_sd", "with_cross_validated"):
            assert f"{pair[name]:.3f}" in guide
