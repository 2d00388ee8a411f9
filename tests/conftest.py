"""Settings of every test: one thread, a fixed seed, and checks of tensor shapes and of results as JSON."""

import importlib
import signal
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests share their builders as `tests.<folder>.<file>`

from tests import json_results, shapes  # noqa: E402
from tests.browser import CHROMIUM  # noqa: E402

shapes.install("molslice")
json_results.install()
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded():
    torch.default_generator.manual_seed(0)  # `torch.manual_seed` costs a stack trace for each kind of device


@pytest.fixture(autouse=True, scope="session")
def _hangups_end_programs():
    """Restore the default action of SIGHUP, which `nohup` disables: tests send it to child programs."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def _descriptors_are_remembered():
    """Compute the descriptors of a molecule once in each process: many tests fit the same molecules."""
    module = importlib.import_module("molslice.chem.descriptors")
    compute, known = module.descriptors, {}

    def remembered(mol):
        key = mol.ToBinary()
        if key not in known:
            known[key] = compute(mol)
        return known[key].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "descriptors", remembered)
        yield


@pytest.fixture(scope="module")
def few_trees():
    """Fit few extra trees, to save time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("molslice.learners.extra_trees.NUM_TREES", 20)
        yield


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, for modules with `NEEDS_BROWSER` of `tests/browser.py`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()
