import pytest

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
