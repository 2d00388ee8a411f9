"""Every test: one thread, a fixed seed, and the shapes that signatures promise checked at run time."""

import signal
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests share their builders as `tests.<folder>.<file>`

import tests.shapes  # noqa: E402, F401 - the hook below finds it as an attribute of `tests`

install_import_hook("molslice", "tests.shapes.check_tensors")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _hangups_end_programs():
    """Undo an ignored HUP, as `nohup` leaves it: the tests send this signal to programs that they start."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
