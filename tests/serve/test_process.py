"""What a worker process does before it has a model."""

import multiprocessing
import sys

import pytest

from molslice.serve import process


class BrokenLibrary:
    """A finder of modules that cannot load a library which the worker needs."""

    def __init__(self, error):
        self.error = error

    def find_spec(self, name, path=None, target=None):
        if name == "molslice.serve.worker":
            raise self.error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            OSError("libtorch.so: cannot open shared object file"),
            "libtorch.so: cannot open shared object file",
        ),
        (OSError(24, "Too many open files", "/secret/libtorch.so"), "Too many open files"),
    ],
)
def test_a_library_that_cannot_be_loaded_is_the_reason(monkeypatch, error, reason):
    monkeypatch.setattr(process.signal, "signal", lambda *arguments: None)
    monkeypatch.setattr(process, "end_with_parent", lambda: None)
    monkeypatch.delitem(sys.modules, "molslice.serve.worker", raising=False)
    monkeypatch.setattr(sys, "meta_path", [BrokenLibrary(error), *sys.meta_path])
    here, there = multiprocessing.Pipe()
    with here, there:
        process.run_worker(there, {}, "cpu")
        assert here.recv() == ("failed", reason)
