"""The numbers of the guide are those that were measured."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_guide_states_what_was_measured():
    guide = " ".join((ROOT / "docs/guides/serving.md").read_text(encoding="utf-8").split())
    alone, with_file = json.loads((ROOT / "benchmarks/results/serving.json").read_text())["results"]
    rates = [f"{each['answers_per_second']:.0f}" for each in (alone, with_file)]
    times = [(f"{each['p50_seconds']:.2f} s", f"{each['p99_seconds']:.2f} s") for each in (alone, with_file)]
    assert (
        f"get {rates[0]} answers per second, half of them within {times[0][0]} and 99% within {times[0][1]};"
        in guide
    )
    assert (
        f"while a file is also predicted, they get {rates[1]}, within {times[1][0]} and {times[1][1]}."
        in guide
    )
    for each in (alone, with_file):
        assert each["answers"] == each["requests"]
        assert each["lost"] == each["wrong"] == 0
        assert each["p99_seconds"] < 1
