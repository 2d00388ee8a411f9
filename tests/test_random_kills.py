"""Commands that are ended at random moments leave nothing behind, and their next run is complete.

A launcher imports the package once and forks one process for each command, so that the moments are spread
over the work of the command and not over its imports.
"""

import contextlib
import csv
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from molslice.config import config_from_mapping, config_to_yaml
from molslice.files.lock import LOCK
from molslice.folders.run import METRICS, MODEL, SUMMARY
from tests.inference.models import checkpoint_folder, embedded_smiles

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]

MOMENTS = 10
ROWS = 400
DEADLINE_SECONDS = 120  # for a command that hangs
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
TINY = {"num_layers": 2, "dim": 16, "ffn_dim": 16, "num_heads": 2, "dropout": 0.2}

# A forked process has a session of its own, in which its workers can be found after its end.
LAUNCHER = """
import gc, json, os, signal, sys
import torch, lightning.fabric, rdkit.Chem
from torch.utils import tensorboard
from molslice.cli import build_parser, main
from molslice.data.molecules import csv, prepare, prepare_files
from molslice.inference import load, smiles_reader
from molslice.inference.tables import table
from molslice.training import run

prepare.CHUNK_ROWS = load.NetworkPredictor.chunk_rows = 25  # many tasks for few molecules
prepare_files.SAVE_SECONDS = 0.0
os.fsync = lambda descriptor: None  # only a loss of power needs it
build_parser(), torch.optim.AdamW([torch.zeros(1)])  # these import more
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
gc.freeze()  # the end of a process is ten times faster
print("ready", flush=True)
for line in sys.stdin:
    words, output = json.loads(line)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        code = main(words)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the interpreter would print it while it ends
        sys.exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Command:
    """A forked process that runs one command."""

    def __init__(self, launcher, words, output):
        self.launcher, self.output = launcher, output
        launcher.stdin.write(json.dumps([[str(word) for word in words], str(output)]).encode() + b"\n")
        self.pid = int(launcher.stdout.readline())
        self.start = time.monotonic()

    def members(self):
        """Return the running processes of the session, without zombies."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.pid and fields[0] not in "ZX":
                    found.append(int(path.parent.name))
        return found

    def workers(self):
        return [pid for pid in self.members() if pid != self.pid]

    def wait(self):
        """Return the exit code and the output; check that no process is left a few seconds later."""
        answers, _, _ = select.select([self.launcher.stdout], [], [], DEADLINE_SECONDS)
        if not answers:
            send(self.pid, signal.SIGKILL)
            raise AssertionError(f"no end within {DEADLINE_SECONDS} s: {self.output.read_text()}")
        code = int(self.launcher.stdout.readline())
        end = time.monotonic() + 5
        while left := self.members():
            assert time.monotonic() < end, f"processes {left} are left"
            time.sleep(0.02)
        return code, self.output.read_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    output = tmp_path_factory.mktemp("output") / "output.txt"
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=environment,
    )
    assert launcher.stdout.readline() == b"ready\n"
    yield lambda *words: Command(launcher, words, output)
    launcher.communicate()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "molecules.csv"
    rows = "".join(f"{text},{len(text) / 10}\n" for text in embedded_smiles(ROWS))
    path.write_text("smiles,gap\n" + rows)
    return path


def moments(name):
    """Return pairs of a random part of a duration and a signal; each signal occurs early and late."""
    drawn = random.Random(name)
    return [((n + drawn.random()) / MOMENTS, SIGNALS[n % len(SIGNALS)]) for n in range(MOMENTS)]


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def end(command, moment, number, find=lambda command: command.pid):
    """Send a signal at a moment and return the exit code and the output of the command."""
    time.sleep(max(0.0, command.start + moment - time.monotonic()))
    target = find(command)
    if target is not None:
        send(target, number)
    code, said = command.wait()
    assert "Traceback" not in said, said
    return code, said


def a_worker(command):
    """Return a worker as soon as there is one; None if the command ends without."""
    while command.pid in command.members():
        if workers := command.workers():
            return workers[-1]
    return None


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_end_of_parent(code, number):
    """Check the exit code after a signal to the command itself; 0 if it had just finished."""
    ended = {-number, 128 + number, 130}
    assert code in ended | {0}
    return code in ended


def check_end_of_worker(code, said, number, reads):
    """Check the outcome after a signal to a worker, which ignores Ctrl-C and may have had no more to do."""
    if code == 0:
        return False
    assert number != signal.SIGINT
    assert code == 1
    assert len(said.splitlines()) == 1
    assert f"error: one of 2 worker processes that {reads} was killed" in said
    return True


class Durations(NamedTuple):
    """Seconds from the start of a command to the start and end of its workers, and to its own end."""

    first: float
    last: float
    whole: float


def complete(command, former=None):
    """Let a command end by itself; return `former` if it needs no workers, as with a complete store."""
    while command.pid in command.members() and not command.workers():
        time.sleep(0.01)
    first = time.monotonic() - command.start
    needed = bool(command.workers())
    while command.workers():
        time.sleep(0.01)
    last = time.monotonic() - command.start
    code, said = command.wait()
    assert code == 0, said
    return former if former and not needed else Durations(first, last, time.monotonic() - command.start)


def check_table_or_store(run, name, words, folder, reads, reset, resume=list):
    """End a command that has two workers, itself or one of them, and compare the next run with the first.

    `resume` returns the words that the next run needs in addition.
    """
    lasted = complete(run(*words))  # measured again each time, because the load of the machine may change
    whole = content(folder)
    ended = 0
    for part, number in moments(name):
        reset()
        code, _ = end(run(*words), part * lasted.whole, number)
        ended += check_end_of_parent(code, number)
        lasted = complete(run(*words, *resume()), lasted) if code else lasted
        assert content(folder) == whole
    assert ended >= MOMENTS // 3
    ended = 0
    for part, number in moments(f"{name}, a worker"):
        reset()
        moment = lasted.first + part * (lasted.last - lasted.first)
        code, said = end(run(*words), moment, number, a_worker)
        ended += check_end_of_worker(code, said, number, reads)
        lasted = complete(run(*words, *resume()), lasted) if code else lasted
        assert content(folder) == whole
    assert ended >= MOMENTS // 4


def test_predict(run, table, tmp_path):
    model = checkpoint_folder(tmp_path / "model")
    folder = tmp_path / "out"
    folder.mkdir()
    words = ["predict", model, "--input", table, "--output", folder / "out.csv", "--workers", 2, "--quiet"]

    def reset():
        (folder / "out.csv").unlink()

    def resume():
        return ["--resume"] if (folder / "out.csv.partial").exists() else []

    check_table_or_store(run, "predict", words, folder, "predicts molecules", reset, resume)


def data(table, cache):
    return {
        "name": "csv",
        "path": str(table),
        "target_columns": ["gap"],
        "units": ["eV"],
        "cache_dir": str(cache),
    }


def test_prepare(run, table, tmp_path):
    folder = tmp_path / "cache"
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps(
            {"data": data(table, folder), "model": TINY, "attention": "softmax", "training": {"max_steps": 1}}
        )
    )
    words = ["prepare", "--config", config, "--workers", 2]

    def reset():
        for store in folder.iterdir():
            shutil.rmtree(store)

    check_table_or_store(run, "prepare", words, folder, "reads molecules", reset)


def test_prepare_files(run, table, tmp_path):
    folder = tmp_path / "out"
    words = ["prepare", table, "--out", folder / "store", "--target", "gap", "--workers", 2, "--quiet"]

    def reset():
        shutil.rmtree(folder / "store")

    check_table_or_store(run, "prepare files", words, folder, "reads molecules", reset)


def outcome(folder):
    """Return the weights, metrics and errors of a run, without times."""
    timed = ("seconds", "rows_per_second")
    with (folder / METRICS).open() as file:
        rows = [
            {key: value for key, value in row.items() if key not in timed} for row in csv.DictReader(file)
        ]
    summary = json.loads((folder / SUMMARY).read_text())
    return (folder / MODEL).read_bytes(), rows, [summary[split] for split in ("train", "valid", "test")]


def test_train(run, table, tmp_path):
    few = tmp_path / "few.csv"
    few.write_text("".join(table.read_text().splitlines(keepends=True)[:151]))
    config = tmp_path / "config.yaml"
    config.write_text(
        config_to_yaml(
            config_from_mapping(
                {
                    "data": data(few, tmp_path / "cache"),
                    "model": TINY,
                    "attention": {"name": "softmax"},
                    "optimizer": {"lr": 2e-3, "ema_decay": 0.9},
                    "training": {
                        "max_epochs": 3,
                        "batch_size": 16,
                        "token_budget": 1024,
                        "checkpoint_every_steps": 3,
                    },
                    "trainer": {"accelerator": "cpu", "num_threads": 1},
                    "seed": 5,
                }
            )
        )
    )

    def words(folder, *more):
        return ["train", "--config", config, "--out", folder, "--quiet", *more]

    whole = tmp_path / "whole"
    command = run(*words(whole))
    assert command.wait()[0] == 0, command.output.read_text()
    seconds = time.monotonic() - command.start
    ended = 0
    for place, (part, number) in enumerate(moments("train")):
        folder = tmp_path / f"run{place}"
        code, _ = end(run(*words(folder)), part * seconds, number)
        ended += check_end_of_parent(code, number)
        code, said = run(*words(folder, "--resume")).wait()
        assert code == 0, said
        assert outcome(folder) == outcome(whole)
        assert not [*folder.rglob("*.partial"), *folder.rglob(LOCK)]
    assert ended >= MOMENTS // 3
    assert not list(tmp_path.rglob("*.partial"))
