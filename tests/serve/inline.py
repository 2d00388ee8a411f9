"""A worker in this process, and one whose answers a test decides."""

import threading

from molslice.serve import worker
from molslice.serve.process import WorkerLostError
from molslice.serve.worker import load_models
from molslice.types import MolsliceError


class InlineWorker:
    """Has the methods of `WorkerProcess`, but computes in the calling thread."""

    is_alive = True
    starts = 1

    def __init__(self, models, device="cpu"):
        self.models = load_models(models, device)

    def start(self):
        return [each.describe() for each in self.models.values()]

    def call(self, task, options, *, seconds, report=lambda value: None):
        state, value = worker.answer(self.models, task, options, report)
        if state == "failed":
            raise MolsliceError(value)
        return value

    def kill(self):
        pass

    def close(self):
        pass


class HeldWorker:
    """Waits until the test sets `go`, returns each SMILES as its row, and dies of the SMILES `deadly`."""

    is_alive = True
    starts = 1

    def __init__(self):
        self.go, self.started = threading.Event(), threading.Event()
        self.batches, self.limits = [], []

    def call(self, task, options, *, seconds, report=None):
        self.started.set()
        assert self.go.wait(10)
        self.batches.append(list(options["smiles"]))
        self.limits.append(seconds)
        if "deadly" in options["smiles"]:
            raise WorkerLostError("the worker process has ended")
        if "refused" in options["smiles"]:
            raise MolsliceError("refused")
        if "unexpected" in options["smiles"]:
            raise OSError("a secret of the service")
        return [f"{task} {text}" for text in options["smiles"]]

    def kill(self):
        pass

    def close(self):
        self.go.set()
