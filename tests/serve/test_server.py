"""The service as a program: signals, killed workers, slow clients."""

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from molslice.cli import main
from molslice.cli.serve import time_limit
from molslice.serve.limits import Limits
from molslice.serve.server import model_names
from molslice.types import MolsliceError
from tests.serve.running import Running, wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs the /proc of Linux")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """The folder for temporary files of `running`."""
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def running(model_folders, scratch):
    """A service that waits one second for slow clients. The last test ends it."""
    with Running(model_folders["first"], limits={"receive_seconds": 1.0}, scratch=scratch) as server:
        yield server


def ended(connection):
    """Return what the service still sends, and how long it takes to close the connection."""
    started, received = time.monotonic(), b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received, time.monotonic() - started


@pytest.mark.slow
def test_many_clients_at_once_all_get_their_answers(running):
    def ask(number):
        text = "C" * (number % 20 + 1)
        status, answer = running.predict(text)
        return status, answer["predictions"][0]["smiles"] == text and answer["predictions"][0][
            "error"
        ] is None

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(64)))
    assert answers == [(200, True)] * 64


def test_slow_heads_are_cut_off_while_others_are_served(running):
    with running.connect() as silent, running.connect() as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        assert running.predict("C")[0] == 200
        for connection in (silent, slow):
            received, seconds = ended(connection)
            assert received == b""
            assert seconds < 5


def test_a_slow_body_is_answered_with_408(running):
    with running.connect() as connection:
        connection.sendall(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 100\r\n\r\n{"
        )
        received, seconds = ended(connection)
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"not received in 1 s" in received
    assert seconds < 5


def test_a_body_beyond_the_limit_is_not_read_to_its_end(running):
    with running.connect() as connection:
        connection.sendall(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\ncontent-length: 999999999999\r\n\r\n"
        )
        received, _ = ended(connection)
    assert received.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01\x02\x00" * 20,
        b"GET\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["TLS", "short", "long"],
)
def test_what_is_no_http_is_refused(running, head):
    with running.connect() as connection:
        connection.sendall(head)
        connection.shutdown(socket.SHUT_WR)
        received, seconds = ended(connection)
    assert received == b"" or received.startswith(b"HTTP/1.1 400 ")
    assert seconds < 5
    assert running.predict("C")[0] == 200


def test_a_killed_worker_is_replaced_and_no_answer_is_lost(running):
    (worker,) = running.workers()
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(running.predict, ["CCO"] * 100) for _ in range(8)]
        time.sleep(0.05)
        os.kill(worker, signal.SIGKILL)
        statuses = [future.result()[0] for future in futures]
    assert set(statuses) <= {200, 503}
    assert statuses.count(503) <= 1  # a request that was computed alone
    assert running.predict("C")[0] == 200
    assert running.workers() != [worker]


def test_a_request_outlives_an_idle_worker(running):
    (worker,) = running.workers()
    os.kill(worker, signal.SIGSTOP)  # it still counts as running when the request is sent to it
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(running.predict, "C")
        time.sleep(0.2)
        os.kill(worker, signal.SIGKILL)
        assert future.result()[0] == 200
    assert running.workers() != [worker]


def test_an_idle_worker_that_was_killed_is_started_again(running):
    (worker,) = running.workers()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: running.workers() not in ([], [worker]))
    # its process is seen a moment before the service knows it
    wait_until(lambda: running.request("GET", "/health")[0] == 200)


def test_requests_under_way_are_answered_at_the_end(model_folders):
    with Running(model_folders["first"]) as server:
        answers = []
        client = threading.Thread(target=lambda: answers.append(server.predict(["CCO"] * 1_000)))
        client.start()
        idle = server.connect()
        time.sleep(0.1)
        code, errors = server.end(signal.SIGTERM)
        client.join()
        assert answers[0][0] == 200
        assert len(answers[0][1]["predictions"]) == 1_000
        assert ended(idle)[0] == b""
        assert code == 128 + signal.SIGTERM
        assert errors == ""
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_the_death_of_the_server_ends_its_workers(model_folders):
    with Running(model_folders["first"]) as server:
        status, _ = server.request("POST", "/files?name=a.csv", "smiles\n" + "C\n" * 100_000)
        assert status == 202
        wait_until(lambda: len(server.workers()) == 2)
        workers = server.workers()
        server.process.kill()
        server.process.communicate()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_models_are_named_by_their_folders(tmp_path):
    assert model_names(["gap-xtb", "runs/a", "runs/b/"]) == {
        "gap-xtb": "gap-xtb",
        "a": "runs/a",
        "b": "runs/b/",
    }
    with pytest.raises(MolsliceError, match="runs/a and other/a have the same name 'a'"):
        model_names(["other/a", "runs/a"])


def test_the_time_of_a_request_has_a_limit():
    assert time_limit("86400") == Limits(seconds=86_400).seconds == 86_400
    for seconds in (86_401, 0, float("nan")):
        with pytest.raises(MolsliceError, match="seconds must be above 0 and at most 86,400, got"):
            Limits(seconds=seconds)


def test_errors_of_the_command_are_one_line(capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "gap-xtb", "--port", port]) == 1
        assert f"cannot listen on 127.0.0.1, port {port}" in capsys.readouterr().err
    assert main(["serve", str(tmp_path), "--port", "0"]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert main(["serve", "gap-xtb", "--port", "70000"]) == 2
    capsys.readouterr()
    for seconds in ("86401", "inf", "0", "nan"):
        assert main(["serve", "gap-xtb", "--timeout", seconds]) == 2
        expected = f"'{seconds}' is not a number of seconds above 0 and at most 86,400"
        assert expected in capsys.readouterr().err


def test_ctrl_c_ends_the_service_and_deletes_the_files(running, scratch):
    status, _ = running.request("POST", "/files?name=a.csv", "smiles\nC\n")
    assert status == 202
    assert list(scratch.glob("molslice-serve-*"))
    code, errors = running.end(signal.SIGINT)
    assert code == 130
    assert "Traceback" not in errors
    assert errors.splitlines()[-1] == "molslice: interrupted"
    assert list(scratch.glob("molslice-*")) == []
