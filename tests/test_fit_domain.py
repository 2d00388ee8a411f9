"""The recorded measurement of the domain of `molslice fit`."""

import json

from tests.programs import ROOT


def test_the_guide_has_the_measured_numbers():
    result = json.loads((ROOT / "benchmarks/results/fit_domain.json").read_text())
    guide = (ROOT / "docs/guides/uncertainty.md").read_text()
    assert len(result["fits"]) == 6
    for fit in result["fits"]:
        cells = [f"{fit['set']}, {fit['draw']}", f"{fit['edge']:.2f}", f"{fit['like']:.2f}"]
        cells += [f"{one['error']:.2f}, {one['coverage']:.0%} ({one['rows']:,})" for one in fit["domains"]]
        assert f"| {' | '.join(cells)} |" in guide
