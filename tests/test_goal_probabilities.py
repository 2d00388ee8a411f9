"""The recorded comparison of probabilities of goals with what held-out molecules met."""

import json

from tests.programs import ROOT


def test_the_guide_has_the_measured_numbers():
    results = json.loads((ROOT / "benchmarks/results/goal_probabilities.json").read_text())["results"]
    guide = (ROOT / "docs/guides/rank.md").read_text()
    assert len(results) == 8
    for start, end in {(one["from"], one["to"]) for result in results for one in result["bins"]}:
        cells = [f"{start:.0%} to {end:.0%}"]
        for division in ("random", "scaffold"):
            of_division = [result["bins"] for result in results if result["division"] == division]
            bins = [one for group in of_division for one in group if one["from"] == start]
            count = sum(one["count"] for one in bins)
            means = [
                sum(one["count"] * one[name] for one in bins) / count for name in ("probability", "share")
            ]
            cells += [f"{count:,}", *(f"{mean:.1%}" for mean in means)]
        assert f"| {' | '.join(cells)} |" in guide
