"""Workers and child programs end with their parent; a killed worker gives a one-line error."""

import multiprocessing.connection
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from molslice.files import processes
from molslice.files.processes import WorkerPool
from molslice.types import MolsliceError

DEADLINE_SECONDS = 60  # only a failing test waits so long

SLOW = """
import sys, time
from molslice.data.molecules import prepare
from molslice.inference import smiles_reader

def slow(*arguments):
    time.sleep(600)

prepare.featurize_chunk = smiles_reader.read_smiles = slow
from molslice.cli import main
sys.exit(main(sys.argv[1:]))
"""


def written(folder, number, seconds=0.0):
    time.sleep(seconds)
    (folder / str(number)).touch()
    return number


def test_calls_go_on_while_nobody_waits(tmp_path):
    with WorkerPool(1, "tests") as pool:
        results = pool.begin(written, [(tmp_path, number) for number in range(3)])
        wait_until(lambda: len(list(tmp_path.iterdir())) == 3)
        assert list(results) == [0, 1, 2]
    with WorkerPool(0, "tests") as pool:
        results = pool.begin(written, [(tmp_path, 3), (tmp_path, 4)])
        assert len(list(tmp_path.iterdir())) == 3
        assert list(results) == [3, 4]


def test_closing_begins_no_further_call_and_waits(tmp_path):
    with WorkerPool(1, "tests") as pool:
        results = pool.begin(written, [(tmp_path, number, 0.5 * (number > 0)) for number in range(9)])
        assert next(results) == 0
        results.close()
        assert {path.name for path in tmp_path.iterdir()} <= {"0", "1"}
        assert list(pool.begin(written, [(tmp_path, 9)])) == [9]
        assert {path.name for path in tmp_path.iterdir()} <= {"0", "1", "9"}


def test_an_error_of_the_block_ends_the_calls(tmp_path, caplog):
    with pytest.raises(KeyError), WorkerPool(1, "tests") as pool:  # noqa: PT012
        pool.begin(written, [(tmp_path, number, 0.2) for number in range(5)])
        wait_until(lambda: (tmp_path / "0").exists())
        raise KeyError
    assert len(list(tmp_path.iterdir())) < 3
    with WorkerPool(1, "tests") as pool:
        pool.begin(written, [(tmp_path, number, 0.2) for number in range(5, 9)])
    assert not caplog.records


def test_a_call_that_fails_is_the_last_one(tmp_path):
    with WorkerPool(1, "tests") as pool:
        results = pool.begin(written, [(tmp_path, 0), (tmp_path / "missing", 1), (tmp_path, 2)])
        assert next(results) == 0
        with pytest.raises(FileNotFoundError):
            next(results)
        assert not (tmp_path / "2").exists()


def running(pid):
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text().split()]
    return found


def wait_until(condition):
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@pytest.fixture
def start():
    started = []

    def start(*command, cwd=None):
        process = subprocess.Popen(
            command,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
USED = """
import time
from molslice.files.processes import WorkerPool
with WorkerPool(2, "waits") as pool:
    list(pool.map(time.sleep, [(600,)] * 3))
"""
AFTER_A_GPU = """
import signal
import torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background ignores
torch.cuda.is_initialized = lambda: True  # as in a process that has used a GPU
"""


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(start, number):
    parent = start(sys.executable, "-c", USED)
    wait_until(lambda: len(children(parent.pid)) == 2)
    workers = children(parent.pid)
    parent.send_signal(number)
    wait_until(lambda: not any(map(running, [parent.pid, *workers])))


@needs_proc
def test_workers_of_a_server_end_with_their_parent(start):
    parent = start(sys.executable, "-c", AFTER_A_GPU + USED)

    def workers():
        return [worker for child in children(parent.pid) for worker in children(child)]

    wait_until(lambda: len(workers()) == 2)
    started = [*children(parent.pid), *workers()]
    parent.kill()
    wait_until(lambda: not any(map(running, [parent.pid, *started])))


def test_workers_after_a_gpu_are_not_forked_and_the_program_needs_no_guard(start, tmp_path):
    """A fork of a process that has used a GPU may hang. A program without a guard must not run twice."""
    program = tmp_path / "program.py"
    program.write_text(
        AFTER_A_GPU
        + """
import multiprocessing, os
from molslice.files.processes import WorkerPool
print("runs")
with WorkerPool(2, "work") as pool:
    parents = set(pool.map(os.getppid, [()] * 4))
    print(os.getpid() in parents, list(pool.map(pow, [(2, 3), (3, 2)])))
"""
    )
    parent = start(sys.executable, str(program))
    assert parent.communicate(timeout=DEADLINE_SECONDS) == ("runs\nFalse [8, 9]\n", "")


@needs_proc
def test_ctrl_c_does_not_reach_workers_of_a_server(start):
    parent = start(sys.executable, "-c", AFTER_A_GPU + USED)
    wait_until(lambda: children(parent.pid))  # they may still be starting
    for process in [*children(parent.pid), parent.pid]:
        os.kill(process, signal.SIGINT)
    said = parent.communicate(timeout=DEADLINE_SECONDS)[1]
    assert said.count("Traceback") == 1
    assert said.splitlines()[-1] == "KeyboardInterrupt"


SIGNALED_IN_FORK = """
import os, signal, time
from molslice.files.processes import WorkerPool

def end(number, frame):
    raise SystemExit(9)

signal.signal(signal.SIGTERM, end)
os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGTERM))
with WorkerPool(1, "waits") as pool:
    list(pool.map(time.sleep, [(1,)]))
"""


def test_a_signal_during_the_start_of_workers_is_not_lost(start):
    """Python ignores an exception that is raised between the fork and its return."""
    parent = start(sys.executable, "-c", SIGNALED_IN_FORK)
    assert parent.communicate(timeout=DEADLINE_SECONDS)[1] == ""
    assert parent.returncode == 9


def words(tmp_path, verb):
    table = tmp_path / "in.csv"
    table.write_text("smiles,gap\n" + "CCO,1.0\n" * 10)
    return {
        "predict": (
            "predict",
            "gap-xtb",
            "--input",
            table,
            "--output",
            tmp_path / "out.csv",
            "--workers",
            "2",
        ),
        "bench": ("bench", "--attention", "softmax", "--lengths", "64", "--seconds", "600", "--quiet"),
    }[verb]


@needs_proc
@pytest.mark.parametrize(
    ("verb", "count", "number"),
    [("predict", 2, signal.SIGHUP), ("bench", 1, signal.SIGKILL)],
)
def test_a_verb_that_is_ended_leaves_no_process(start, tmp_path, verb, count, number):
    parent = start(sys.executable, "-c", SLOW, *map(str, words(tmp_path, verb)))
    wait_until(lambda: len(children(parent.pid)) == count)
    workers = children(parent.pid)
    parent.send_signal(number)
    wait_until(lambda: not any(map(running, [parent.pid, *workers])))
    if number != signal.SIGKILL:
        assert parent.wait() == 128 + number
        assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@needs_proc
def test_a_killed_worker_is_one_line(start, tmp_path):
    parent = start(sys.executable, "-c", SLOW, *map(str, words(tmp_path, "predict")))
    wait_until(lambda: len(children(parent.pid)) == 2)
    workers = children(parent.pid)
    os.kill(workers[0], signal.SIGKILL)
    _, said = parent.communicate(timeout=DEADLINE_SECONDS)
    assert parent.returncode == 1
    assert "error: one of 2 worker processes that predicts molecules was killed" in said.splitlines()[-1]
    assert "Traceback" not in said
    assert not any(map(running, workers))
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def die(number):
    os.kill(os.getpid(), number)


def test_a_pool_says_what_to_try_and_ends():
    def use():
        with WorkerPool(2, "compute") as pool:
            list(pool.map(die, [(signal.SIGKILL,)] * 10))

    with pytest.raises(MolsliceError, match=r"compute was killed, .*memory.*; try again with fewer workers"):
        use()


def send_half_and_die():
    def send(self, data):
        os.write(self.fileno(), bytes(data)[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    multiprocessing.connection.Connection._send = send
    return b"x" * 1000


def test_a_worker_killed_while_it_sends_a_result_is_noticed(monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE_SECONDS", 0.2)

    def use():
        with WorkerPool(2, "compute") as pool:
            list(pool.map(send_half_and_die, [()] * 10))

    with pytest.raises(MolsliceError, match="compute was killed"):
        use()


def test_an_exception_while_a_result_is_half_sent_ends():
    def use():
        with WorkerPool(1, "compute") as pool:
            pool._pool.submit(send_half_and_die)
            time.sleep(0.3)
            raise KeyError

    with pytest.raises(KeyError):
        use()


def time_out():
    raise TimeoutError("mine")


def test_the_error_of_a_function_is_not_a_missing_result():
    def use():
        with WorkerPool(2, "compute") as pool:
            list(pool.map(time_out, [()]))

    with pytest.raises(TimeoutError, match="mine"):
        use()


def fail(value):
    raise ValueError(value)


def test_an_exception_ends_workers_that_are_busy():
    def use():
        with WorkerPool(2, "compute") as pool:
            for _ in pool.map(time.sleep, [(0,), (600,), (600,), (600,)]):
                raise KeyError

    with pytest.raises(KeyError):
        use()  # and does not wait for the tasks


@pytest.mark.parametrize("workers", [0, 2])
def test_results_come_in_order_and_arguments_are_read_as_needed(workers):
    drawn = []

    def arguments():
        for number in range(40):
            drawn.append(number)
            yield (number, 2)

    with WorkerPool(workers, "compute") as pool:
        results = pool.map(pow, arguments())
        assert next(results) == 0
        assert len(drawn) <= 5
        assert list(results) == [number**2 for number in range(1, 40)]
        with pytest.raises(ValueError, match="mine"):
            list(pool.map(fail, [("mine",)]))
