import threading

import pytest

from molslice.serve import batching
from molslice.serve.batching import BATCH_MOLECULES, Batcher, QueueFullError
from molslice.serve.limits import Limits
from molslice.serve.process import WorkerLostError
from molslice.types import MolsliceError
from tests.serve.inline import HeldWorker


@pytest.fixture
def worker():
    return HeldWorker()


@pytest.fixture
def batcher(worker):
    batcher = Batcher([worker], Limits(waiting=100))
    yield batcher
    batcher.close()


def hold(batcher, worker):
    """Occupy the worker with a first request, so that the next ones wait."""
    first = batcher.submit("predict", {}, ["first"])
    assert worker.started.wait(10)
    return first


def test_requests_that_wait_are_computed_together_and_answered_separately(batcher, worker):
    first = hold(batcher, worker)
    futures = [batcher.submit("predict", {}, [f"{i}a", f"{i}b"]) for i in range(10)]
    worker.go.set()
    assert first.result(10) == ["predict first"]
    for i, future in enumerate(futures):
        assert future.result(10) == [f"predict {i}a", f"predict {i}b"]
    assert [len(batch) for batch in worker.batches] == [1, 20]


def test_a_batch_is_bounded_and_keeps_the_order(batcher, worker):
    hold(batcher, worker)
    futures = [batcher.submit("predict", {}, [str(i)]) for i in range(90)]
    worker.go.set()
    assert [future.result(10) for future in futures] == [[f"predict {i}"] for i in range(90)]
    assert [len(batch) for batch in worker.batches] == [1, BATCH_MOLECULES, 90 - BATCH_MOLECULES]


def test_other_tasks_and_options_are_other_batches(batcher, worker):
    hold(batcher, worker)
    wanted = [("predict", {"model": "a"}), ("predict", {"model": "b"}), ("draw", {"model": "a"})] * 2
    futures = [batcher.submit(task, options, [str(i)]) for i, (task, options) in enumerate(wanted)]
    worker.go.set()
    for i, future in enumerate(futures):
        assert future.result(10) == [f"{wanted[i][0]} {i}"]
    assert worker.batches == [["first"], ["0", "3"], ["1", "4"], ["2", "5"]]


def test_a_full_queue_says_when_to_try_again(batcher, worker):
    hold(batcher, worker)
    waiting = batcher.submit("predict", {}, ["C"] * 99)
    assert batcher.waiting == 99
    with pytest.raises(QueueFullError, match="99 molecules are waiting") as caught:
        batcher.submit("predict", {}, ["C"] * 2)
    assert 1 <= caught.value.retry_seconds <= 60
    last = batcher.submit("predict", {}, ["C"])
    worker.go.set()
    assert len(waiting.result(10)) == 99
    assert last.result(10) == ["predict C"]
    assert batcher.waiting == 0


def test_only_the_request_that_breaks_the_worker_fails(batcher, worker):
    hold(batcher, worker)
    futures = [batcher.submit("predict", {}, [text]) for text in ("a", "deadly", "b")]
    worker.go.set()
    assert futures[0].result(10) == ["predict a"]
    assert futures[2].result(10) == ["predict b"]
    with pytest.raises(WorkerLostError, match="has ended"):
        futures[1].result(10)
    assert worker.batches[1:] == [["a", "deadly", "b"], ["a"], ["deadly"], ["b"]]
    assert worker.limits[1] < worker.limits[2] == Limits().seconds


def test_a_refusal_is_the_error_of_the_request(batcher, worker):
    worker.go.set()
    with pytest.raises(MolsliceError, match="refused"):
        batcher.submit("predict", {}, ["refused"]).result(10)
    assert batcher.submit("predict", {}, ["C"]).result(10) == ["predict C"]


def test_an_unexpected_error_is_logged_and_the_next_request_computed(batcher, worker, caplog):
    worker.go.set()
    with pytest.raises(WorkerLostError, match=r"^unexpected error of the service$"):
        batcher.submit("predict", {}, ["unexpected"]).result(10)
    assert "a secret of the service" in caplog.text
    assert batcher.submit("predict", {}, ["C"]).result(10) == ["predict C"]


def test_a_canceled_request_is_not_computed(batcher, worker):
    hold(batcher, worker)
    canceled, other = (batcher.submit("predict", {}, [text]) for text in ("x", "y"))
    assert canceled.cancel()
    worker.go.set()
    assert other.result(10) == ["predict y"]
    assert worker.batches == [["first"], ["y"]]
    assert batcher.waiting == 0


def test_closing_answers_every_request(batcher, worker):
    first = hold(batcher, worker)
    waiting = batcher.submit("predict", {}, ["C"])
    batcher.close()
    assert first.result(10) == ["predict first"]
    with pytest.raises(WorkerLostError, match="ending"):
        waiting.result(10)
    with pytest.raises(WorkerLostError, match="ending"):
        batcher.submit("predict", {}, ["C"])


class MortalWorker(HeldWorker):
    """Is not running after `deadly` until it is started; its first starts fail with `errors`."""

    def __init__(self, *errors):
        super().__init__()
        self.errors, self.starts, self.is_alive = list(errors), 1, True
        self.again = threading.Event()
        self.go.set()

    def call(self, task, options, *, seconds, report=None):
        self.is_alive = self.is_alive and "deadly" not in options["smiles"]
        return super().call(task, options, seconds=seconds, report=report)

    def start(self):
        self.starts += 1
        if self.errors:
            raise self.errors.pop()
        self.is_alive = True
        self.again.set()


def test_a_worker_that_was_lost_is_started_again_without_a_request():
    worker = MortalWorker()
    batcher = Batcher([worker], Limits())
    with pytest.raises(WorkerLostError, match="has ended"):
        batcher.submit("predict", {}, ["deadly"]).result(10)
    assert worker.again.wait(2)  # before an idle worker is looked at
    assert (worker.is_alive, worker.starts) == (True, 2)
    batcher.close()
    assert worker.starts == 2


def test_an_idle_worker_that_was_killed_is_started_again(monkeypatch, caplog):
    monkeypatch.setattr(batching, "IDLE_SECONDS", 0.05)
    worker = MortalWorker(OSError("unexpected"), WorkerLostError("too many processes"))
    batcher = Batcher([worker], Limits())
    worker.is_alive = False
    assert worker.again.wait(10)
    assert worker.starts == 4  # and the failures did not end the thread
    assert caplog.messages[:1] == ["cannot start a worker process again: too many processes"]
    assert batcher.submit("predict", {}, ["C"]).result(10) == ["predict C"]
    batcher.close()


def test_a_worker_that_is_not_needed_yet_is_not_started(monkeypatch):
    monkeypatch.setattr(batching, "IDLE_SECONDS", 0.02)
    worker = MortalWorker()
    worker.starts, worker.is_alive = 0, False
    batcher = Batcher([worker], Limits())
    assert not worker.again.wait(0.3)
    batcher.close()
