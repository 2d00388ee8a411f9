"""The processes of one training: who starts them, and how they end together.

Processes are started by this program (`trainer.devices`), by `torchrun`, or by SLURM's `srun`. Lightning
Fabric finds out by whom. This module checks their number against the configuration. It makes the error of
one process an error of all, because an exception does not reach a process that waits for another.
"""

import atexit
import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import lightning.fabric
import torch
import torch.distributed
from lightning.fabric.plugins.environments.lightning import LightningEnvironment

from molslice.config import TrainerConfig
from molslice.files.processes import end_with_parent
from molslice.types import MolsliceError

logger = logging.getLogger(__name__)

FIRST_PROCESS = "MOLSLICE_FIRST_PROCESS"  # the ID of the process that started the others
RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
WAIT = timedelta(minutes=30)  # for the first process, which prepares the data; Fabric's default
POLL_SECONDS = 0.2
GRACE_SECONDS = 3.0  # for the other processes to end by themselves
PATIENCE_SECONDS = 30.0  # for the first process to notice that another one has ended
LOST = ("Connection closed", "Connection reset", "Broken pipe", "gloo", "NCCL", "Socket Timeout", "TCPStore")
UNUSED = "Expected to have finished reduction in the prior iteration"


class OtherProcessError(MolsliceError):
    """Error of another process of the training, which has reported it."""


def find_environment(config: TrainerConfig) -> list[LightningEnvironment]:
    """Check the number of processes that `torchrun` or SLURM has started, and return plugins for Fabric.

    The only plugin is for a single process in the batch script of a SLURM job, which Fabric would take for
    one of several.
    """
    world = config.devices * config.num_nodes
    if torch.distributed.is_available() and torch.distributed.is_torchelastic_launched():
        total = int(os.environ["WORLD_SIZE"])
        per_node = int(os.environ.get("LOCAL_WORLD_SIZE", config.devices))
        _check_number("torchrun", config, total, per_node, max(1, total // per_node))
        return []
    if "SLURM_NTASKS" not in os.environ or os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        return []
    total, nodes = int(os.environ["SLURM_NTASKS"]), int(os.environ.get("SLURM_NNODES", config.num_nodes))
    started_by_srun = "SLURM_STEP_ID" in os.environ or os.environ.get("SLURM_PROCID", "0") != "0"
    if world == 1 and not started_by_srun:
        return [LightningEnvironment()]
    per_node = int(
        os.environ.get("SLURM_NTASKS_PER_NODE", config.devices if total == world else total // nodes)
    )
    _check_number("SLURM", config, total, per_node, nodes)
    if int(os.environ.get("SLURM_LOCALID", "0")) >= config.devices:
        raise MolsliceError(
            f"SLURM has started more tasks on one node than trainer.devices, {config.devices}; start it with "
            f"srun --ntasks-per-node={config.devices}"
        )
    os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(config.devices))  # Fabric refuses to run without it
    return []


def _check_number(by: str, config: TrainerConfig, total: int, per_node: int, nodes: int) -> None:
    if (total, per_node, nodes) == (config.devices * config.num_nodes, config.devices, config.num_nodes):
        return
    raise MolsliceError(
        f"{by} has started {total} processes (nodes: {nodes}, processes on each: {per_node}), but "
        f"trainer.devices is {config.devices} and trainer.num_nodes {config.num_nodes}; "
        f"set --trainer.devices {per_node} --trainer.num_nodes {nodes}, or start another number of processes"
    )


def was_restarted() -> bool:
    """Return whether `torchrun` or SLURM has started this process again after a failure."""
    return any(os.environ.get(name, "0") not in ("", "0") for name in RESTARTS)


def starts_processes(fabric: lightning.fabric.Fabric) -> bool:
    """Return whether `launch` starts the other processes, which are not running before."""
    launcher = fabric.strategy.launcher
    environment = getattr(launcher, "cluster_environment", None)
    return environment is not None and not environment.creates_processes_externally


@contextmanager
def launched(fabric: lightning.fabric.Fabric) -> Iterator[None]:
    """Start the other processes if nobody else has, connect all, and run a block that communicates.

    No process that this one has started is left behind when the block fails.

    Raises:
        MolsliceError: The processes cannot be connected, the connection to another one is lost, or a step
            does not use all weights.
    """
    children = _Children()
    try:
        _launch(fabric, children)
        yield
        if fabric.world_size > 1:  # after an error, the end of the connection would wait for other processes
            atexit.register(_disconnect)
    except BaseException as error:
        children.end()
        if fabric.world_size > 1 and isinstance(error, RuntimeError) and not isinstance(error, MolsliceError):
            _explain(error, fabric)
        raise
    finally:
        children.watched = False


def _launch(fabric: lightning.fabric.Fabric, children: "_Children") -> None:
    first = os.environ.get(FIRST_PROCESS)
    if first is not None and fabric.global_rank and hasattr(os, "fork"):
        end_with_parent()
        if os.getppid() != int(first):
            raise MolsliceError("the process that started this one has ended")
    if starts_processes(fabric):
        os.environ[FIRST_PROCESS] = str(os.getpid())
    try:
        if fabric.world_size > 1:
            _use_own_keys(fabric)
        fabric.launch()
    except (RuntimeError, OSError) as error:
        place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise MolsliceError(
            f"cannot connect {fabric.world_size} processes at {place} (MASTER_ADDR, MASTER_PORT): "
            f"{_first_line(error)}"
        ) from error
    finally:
        children.take(getattr(fabric.strategy.launcher, "procs", []))


def _disconnect() -> None:
    """End the threads of the connection while Python runs.

    Gloo's threads release tensors after the main thread has their results. If one of them does so while the
    interpreter shuts down, the process aborts, although its training is complete.
    """
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _use_own_keys(fabric: lightning.fabric.Fabric) -> None:
    """Connect restarted workers of one machine by other keys than the workers before.

    `torchrun` keeps its store for all restarts, with the addresses of workers that have ended. On several
    machines the counts of restarts differ, so the store cannot be divided by them.
    """
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if not shared or os.environ.get("GROUP_WORLD_SIZE") != "1" or torch.distributed.is_initialized():
        return
    from torch.distributed import PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage]

    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if fabric.device.type == "cuda":
        torch.cuda.set_device(fabric.device)
    torch.distributed.init_process_group(
        "nccl" if fabric.device.type == "cuda" else "gloo",
        store=PrefixStore(f"restart-{count}", store),
        rank=fabric.global_rank,
        world_size=fabric.world_size,
        timeout=WAIT,
    )


class _Children:
    """The processes that this one has started.

    Fabric kills this process within five seconds after one of them has ended with an error, even while it
    writes a checkpoint. This class lets it end by itself, and ends it only if it waits for a lost process.
    """

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.watched = True
        self._lock, self._reported = threading.Lock(), False

    def take(self, started: list[subprocess.Popen[bytes]]) -> None:
        """Take the processes over from Fabric."""
        self.processes = list(started)
        started.clear()
        if self.processes:
            threading.Thread(target=self._watch, name="watch-children", daemon=True).start()

    def end(self) -> None:
        """End the processes, at once where they do not end by themselves; name one that was killed."""
        if not self.processes:
            return
        deadline = time.monotonic() + 2 * POLL_SECONDS
        while not self._report_killed() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS / 10)
        for child in self.processes:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        for child in self.processes:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _report_killed(self) -> bool:
        """Name a process that was killed, once. Others report their errors."""
        with self._lock:
            for rank, child in enumerate(self.processes, start=1):
                if (child.poll() or 0) < 0 and not self._reported:
                    self._reported = True
                    logger.error(
                        "process %d (PID %d) was killed by signal %d", rank, child.pid, -child.returncode
                    )
        return self._reported

    def _watch(self) -> None:
        while self.watched and not any(child.poll() for child in self.processes):
            time.sleep(POLL_SECONDS)
        if not self.watched:
            return
        self._report_killed()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.watched and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if self.watched:
            logger.error(
                "process 0 is waiting for a process that has ended; run the command again with --resume to "
                "continue from the last checkpoint"
            )
            for child in self.processes:
                child.kill()
            os._exit(1)


@contextmanager
def agreed(fabric: lightning.fabric.Fabric) -> Iterator[None]:
    """Run a block without communication in every process; an error in one is an error in all.

    Raises:
        OtherProcessError: Another process has failed. The message is the first line of its error.
    """
    failure: Exception | None = None
    try:
        yield
    except Exception as error:  # noqa: BLE001 - raised again below
        failure = error
    if fabric.world_size > 1:
        rank = torch.tensor(-1 if failure is None else fabric.global_rank, device=fabric.device)
        failed = int(fabric.all_reduce(rank, reduce_op="max"))  # pyright: ignore[reportArgumentType]
        if failed >= 0:
            text = fabric.broadcast("" if failure is None else _first_line(failure), src=failed)
            if failure is None:
                raise OtherProcessError(f"process {failed} of {fabric.world_size}: {text}")
    if failure is not None:
        raise failure


def _explain(error: RuntimeError, fabric: lightning.fabric.Fabric) -> None:
    text = str(error)
    if UNUSED in text:
        raise unused_weights("some weights") from error
    if isinstance(error, torch.distributed.DistError) or any(words in text for words in LOST):
        raise MolsliceError(
            f"process {fabric.global_rank} of {fabric.world_size} has lost the connection to a process that "
            "has failed or was killed; run the command again with --resume to continue from the last "
            "checkpoint"
        ) from error


def unused_weights(which: str) -> MolsliceError:
    """Create the error for parameters without a gradient; DDP would wait for them forever."""
    return MolsliceError(
        f"a step does not use {which} of the model, but trainer.strategy ddp needs all; choose "
        "ddp_find_unused_parameters_true or fsdp"
    )


class StopRequests:
    """Signals to stop, on which all processes agree: `event`, set in one process, is a request to all."""

    def __init__(self, fabric: lightning.fabric.Fabric, event: threading.Event) -> None:
        self.event = event
        self._group = None
        self._is_shared = fabric.world_size > 1
        if self._is_shared and fabric.device.type != "cpu":
            # the devices need not wait for an exchange between the processors
            self._group = torch.distributed.new_group(backend="gloo")

    def exchange(self) -> bool:
        """Return whether any process was asked to stop. All processes must call it equally often."""
        if not self._is_shared:
            return self.event.is_set()
        asked = torch.tensor(int(self.event.is_set()))
        torch.distributed.all_reduce(asked, group=self._group)
        return bool(asked)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
