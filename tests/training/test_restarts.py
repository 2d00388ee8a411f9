"""A training of two processes that is killed or stopped continues, and leaves no process behind."""

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from molslice.folders.run import CONFIG, LAST_CHECKPOINT, METRICS, MODEL, SUMMARY
from molslice.training.state import load_checkpoint

# After 11 steps the process of rank `RANK` is interrupted by `EVENT`, unless the run was started before.
# Fabric's observer, which would kill the first process, and a slow disk would make a race of the end.
PROGRAM = """
import atexit, os, signal, sys, time
import torch
from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver
from molslice.cli import main
from molslice.training import processes, trainer
from molslice.training.trainer import Trainer
from molslice.types import MolsliceError

def report_connection():
    # in one piece, because both processes write to the same pipe
    os.write(2, f"connected at exit: {torch.distributed.is_initialized()}\\n".encode())
atexit.register(report_connection)
_ChildProcessObserver.__init__.__defaults__ = (0.05,)
processes.PATIENCE_SECONDS = 2.0
save_checkpoint = trainer.save_checkpoint
def save_slowly(*arguments):
    time.sleep(0.3)
    save_checkpoint(*arguments)
trainer.save_checkpoint = save_slowly
original = Trainer._record_step
def step(self, batch, loss):
    original(self, batch, loss)
    if self.progress.step == 11 and self.fabric.global_rank == RANK and started_once:
        EVENT
Trainer._record_step = step
started_once = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0" and "--resume" not in sys.argv
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
ONE_RUN = "sys.exit(main())\n"
# the second start of the workers also computes the run that is never interrupted
TWO_RUNS = """
code = main([*sys.argv[1:], "--out", OUT + "/run"])
os.environ["TORCHELASTIC_RESTART_COUNT"], started_once = "0", False
sys.exit(code or main([*sys.argv[1:], "--out", OUT + "/whole"]))
"""


@pytest.fixture
def write_run(build_config, write_config, tmp_path):
    """Write a program and a configuration, and return a command and an environment to run them."""

    def write(rank, event, end, strategy="ddp"):
        config = build_config(
            model={"dropout": 0.1},
            training={"max_steps": 20, "valid_every_steps": 10, "checkpoint_every_steps": 4},
        )
        trainer = dataclasses.replace(config.trainer, devices=2, strategy=strategy)
        path = write_config(dataclasses.replace(config, trainer=trainer), tmp_path / "config.yaml")
        program = tmp_path / "program.py"
        text = PROGRAM.replace("RANK", str(rank)).replace("EVENT", event)
        program.write_text(text + end.replace("OUT", repr(str(tmp_path))))
        left_out = ("LOCAL_RANK", "WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        paths = os.pathsep.join([str(Path(__file__).parents[2]), environment.get("PYTHONPATH", "")])
        words = ["train", "--config", str(path), "--quiet"]
        if "lo" in (name for _, name in socket.if_nameindex()):
            environment["GLOO_SOCKET_IFNAME"] = "lo"  # not the name of the machine, which may be unknown
        return [str(program), *words], {**environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}

    return write


def complete(command, environment, code):
    """Run a program to its end; end all its processes if it takes too long."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = subprocess.Popen([sys.executable, *command], env=environment, start_new_session=True, **pipes)
    try:
        output, errors = program.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        raise
    assert program.returncode == code, errors
    return subprocess.CompletedProcess(command, code, output, errors)


def processes_with(text):
    """Return the processes whose command line has a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in path.read_text(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.slow
def test_torchrun_starts_killed_workers_again(write_run, tmp_path):
    command, environment = write_run(1, KILL, TWO_RUNS, "fsdp")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    done = complete([*launcher, *command], environment, 0)
    # gloo's threads abort a process that exits before they have ended
    assert done.stderr.count("connected at exit: False") == 2
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert (run / MODEL).read_bytes() == (whole / MODEL).read_bytes()
    states = [load_checkpoint(folder / LAST_CHECKPOINT)[0] for folder in (run, whole)]
    for name, tensor in states[0]["model"].items():
        assert torch.equal(tensor, states[1]["model"][name]), name
    steps = [line.split(",")[0] for line in (run / METRICS).read_text().splitlines()]
    assert steps == ["step", "10", "20"]
    assert json.loads((run / SUMMARY).read_text())["steps"] == 20
    assert not processes_with(str(tmp_path))


@pytest.mark.exhaustive
def test_a_signal_to_the_program_stops_its_processes_and_resume_continues(write_run, tmp_path):
    command, environment = write_run(0, KILL.replace("KILL", "TERM"), ONE_RUN)
    command += ["--out", str(tmp_path / "run")]
    stopped = complete(command, environment, 130)
    assert stopped.stderr.count("stopped at step 11 of 20; the same command with --resume continues") == 1
    assert not processes_with(str(tmp_path))
    assert load_checkpoint(tmp_path / "run" / LAST_CHECKPOINT)[1].step == 11
    done = complete([*command, "--resume", "--json"], environment, 0)
    summary = json.loads(done.stdout)
    assert (summary["processes"], summary["steps"]) == (2, 20)
    assert (tmp_path / "run" / CONFIG).is_file()


@pytest.mark.parametrize(
    "rank", [pytest.param(0, marks=pytest.mark.exhaustive), pytest.param(1, marks=pytest.mark.slow)]
)
def test_when_one_process_is_killed_the_other_ends(write_run, tmp_path, rank):
    command, environment = write_run(rank, KILL, ONE_RUN)
    done = complete([*command, "--out", str(tmp_path / "run")], environment, -9 if rank == 0 else 1)
    assert f"process {1 - rank} of 2 has lost the connection" in done.stderr
    assert "run the command again with --resume to continue from the last checkpoint" in done.stderr
    if rank == 1:
        assert re.search(r"process 1 \(PID \d+\) was killed by signal 9", done.stderr)
    assert not processes_with(str(tmp_path))


@pytest.mark.exhaustive
def test_a_process_that_waits_for_a_killed_one_ends(write_run, tmp_path):
    command, environment = write_run(0, "time.sleep(600)", ONE_RUN)
    program = Path(command[0])
    other = "elif self.progress.step == 11:\n        " + KILL
    program.write_text(program.read_text().replace("time.sleep(600)", f"time.sleep(600)\n    {other}"))
    done = complete([*command, "--out", str(tmp_path / "run")], environment, 1)
    assert done.stderr.count("was killed by signal 9") == 1
    assert "is waiting for a process that has ended; run the command again with --resume" in done.stderr
    assert not processes_with(str(tmp_path))


@pytest.mark.exhaustive
@pytest.mark.parametrize("rank", [0, 1])
def test_when_one_process_fails_the_other_ends(write_run, tmp_path, rank):
    command, environment = write_run(rank, 'raise MolsliceError("row 7 is torn")', ONE_RUN)
    done = complete([*command, "--out", str(tmp_path / "run")], environment, 1)
    assert done.stderr.count("molslice: error: row 7 is torn") == 1
    assert not processes_with(str(tmp_path))
