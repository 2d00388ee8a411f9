"""Compiled attentions equal eager ones, forward and backward, without graph breaks."""

import subprocess
import sys
from pathlib import Path

import pytest

from molslice.attention import ATTENTIONS
from tests.attention.subjects import all_subjects

ROOT = Path(__file__).parents[2]


def compare(backend, labels):
    command = [sys.executable, "-m", "tests.attention.compiled", backend, *labels]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]


def labels_of(name):
    """Return the labels of the default form and, for `slice_sort`, of the two most different forms."""
    wanted = {"slice_sort": ["ascending-sort_of_mix-aligned", "multi_permutation-mix_plus_sort-index"]}.get(
        name, []
    )
    labels = [subject.label for subject in all_subjects() if subject.label.split("-")[0] == name]
    chosen = [labels[0], *(label for label in labels if any(part in label for part in wanted))]
    return list(dict.fromkeys(chosen))


def test_traced_without_a_break():
    compare("aot_eager", ["slice_sort-ascending-sort_of_mix-index-mix"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_compiled_equals_eager(name, backend):
    compare(backend, labels_of(name))
