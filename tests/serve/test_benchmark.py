"""The numbers of the guide are those that were measured."""

import json
import re
from pathlib import Path

from molslice.chem.smiles import HARD_MAX_ATOMS
from molslice.serve.limits import Limits

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


def test_the_guide_states_the_limits():
    guide = (ROOT / "docs/guides/serving.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", guide.partition("## Limits")[2], re.MULTILINE))
    limits = Limits()
    expected = {
        "molecules of a request": f"{limits.molecules:,}",
        "size of a request without a file": f"{limits.body_bytes / 1e6:g} MB",
        "size of a file, also after it is unpacked": f"{limits.file_bytes / 1e6:g} MB",
        "rows of a file": f"{limits.file_rows:,}",
        "files that wait": str(limits.files_waiting),
        "files that are kept": str(limits.files_kept),
        "molecules in the queue": f"{limits.waiting:,}",
        "explanations that wait": str(limits.explanations_waiting),
        "time for a request, in the queue and in the model": f"{limits.seconds:g} s",
        "time to receive the head or the body of a request": f"{limits.receive_seconds:g} s each",
        "time to receive a file": f"{limits.upload_seconds:g} s",
        "time for the client to take the next part of an answer": f"{limits.send_seconds:g} s",
        "connections": str(limits.connections),
        "atoms of a molecule": str(HARD_MAX_ATOMS),
    }
    assert {name: stated[name] for name in expected} == expected
