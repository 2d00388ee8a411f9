"""Map a function over items with Ray Data: on all cores of this machine, or on a cluster.

The cluster is the one to which the program is connected, or else the one at the environment variable
`RAY_ADDRESS`. Without either, a local one is started, which ends with this process. Workers are actors: each
keeps what the function has loaded. An item whose worker is killed goes to another one. The results have the
order of the items.
"""

import contextlib
import logging
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from molslice.errors import MolsliceError
from molslice.files.processes import count_cores

Work = Callable[[Any], Any]
Split = Callable[[Any], Iterable[Any]]

RETRIES = 3  # of an item whose worker is killed, and of a reader
WAITING_BYTES = 32 << 20  # of items and results in the object store for each worker
LEAST_WAITING_BYTES = 256 << 20


def ray_map(
    items: Iterable[Any],
    work: Work,
    *,
    split: Split | None = None,
    workers: int | None = None,
    gpus: int = 0,
) -> Iterator[Any]:
    """Yield the results of a function in the order of its items.

    While it is being iterated, standard output goes to standard error, because Ray writes messages there.

    Args:
        items: The items. They, the functions and the results must be picklable.
        work: The function. Each worker has a copy, which may keep what it loads for the first item.
        split: Divides an item into the items of `work`; by default each item is one. It runs in a process of
            its own, for one item at a time, and is not far ahead of the workers.
        workers: Number of workers; by default as many as the cluster has cores (or GPUs, if each takes one),
            and more if the cluster grows.
        gpus: Number of GPUs for each worker.

    Raises:
        MolsliceError: Ray is not installed or does not start, a function raised a `MolsliceError` or an
            `OSError`, or the workers of one item were killed several times.
    """
    ray = _import_ray()
    from ray.data import ActorPoolStrategy, TaskPoolStrategy

    rows = [{"item": pickle.dumps(item)} for item in items]
    with ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(_connection(ray, workers))
        available = int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1)) // max(gpus, 1)
        growing = ActorPoolStrategy(min_size=1, initial_size=max(available, 1))
        pool = ActorPoolStrategy(size=workers) if workers else growing
        stack.enter_context(_settings(workers or available))
        where = os.getcwd()
        data: Any = ray.data.from_items(rows, override_num_blocks=len(rows))
        if split is not None:
            data = data.map_batches(
                _Stage(split, where), batch_size=1, num_cpus=0, compute=TaskPoolStrategy(size=1)
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # there is no other way yet to bound the retries
            data = data.map_batches(
                _Stage,
                fn_constructor_args=(partial(_single, work), where),
                batch_size=1,
                compute=pool,
                num_cpus=1,
                num_gpus=gpus or None,
                max_task_retries=RETRIES,
            )
        try:
            for row in data.iter_rows():
                yield _result(row["item"])
        except ray.exceptions.RayError as error:
            if isinstance(error, ray.exceptions.RayTaskError):
                raise
            raise MolsliceError(
                f"the workers of one part were killed {RETRIES + 1} times, usually because memory ran out; "
                "try again with fewer workers"
            ) from error


class _Stage:
    """Calls a function that yields results, in a worker. A failure is a result, which a later stage hands on.

    Args:
        function: The function.
        where: The working folder of the process that iterates, so that relative paths mean the same.
    """

    def __init__(self, function: Split, where: str) -> None:
        self.function, self.where = function, where

    def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(OSError):  # this machine may not have the folder
            os.chdir(self.where)
        (content,) = batch["item"]
        item = pickle.loads(content)
        if isinstance(item, _Failure):
            yield _row(item)
            return
        try:
            for result in self.function(item):
                yield _row(result)
        except (MolsliceError, OSError) as error:
            yield _row(_Failure(error))


def _single(work: Work, item: Any) -> list[Any]:  # noqa: ANN401
    return [work(item)]


class _Failure:
    """An error on its way to the process that iterates."""

    def __init__(self, error: Exception) -> None:
        self.error = error if isinstance(error, MolsliceError) else OSError(*error.args)
        self.text = str(error)


def _row(value: object) -> dict[str, Any]:
    import numpy as np

    cells = np.empty(1, object)
    cells[0] = pickle.dumps(value)
    return {"item": cells}


def _result(content: bytes) -> Any:  # noqa: ANN401
    value = pickle.loads(content)
    if isinstance(value, _Failure):
        raise value.error if isinstance(value.error, MolsliceError) else MolsliceError(value.text)
    return value


def _import_ray() -> Any:  # noqa: ANN401
    # read when Ray is imported and when a cluster starts
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MolsliceError("--engine ray needs the extra ray: pip install 'molslice[ray]'") from error
    return ray


@contextmanager
def _connection(ray: Any, workers: int | None) -> Iterator[None]:  # noqa: ANN401
    """Connect to a cluster, or start one on this machine; leave a connection that exists already."""
    if ray.is_initialized():
        yield
        return
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
    if not os.environ.get("RAY_ADDRESS"):
        options |= {"num_cpus": max(workers or 0, count_cores()), "include_dashboard": False}
    try:
        with _muted():
            ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        hint = "; a cluster with tokens needs RAY_AUTH_MODE=token" if "RAY_ADDRESS" in os.environ else ""
        raise MolsliceError(f"cannot start Ray or connect to its cluster: {reason}{hint}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _muted() -> Iterator[None]:
    """Discard what is written to standard error, also by compiled code; errors of Ray are exceptions."""
    sys.stderr.flush()
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


@contextmanager
def _settings(workers: int) -> Iterator[None]:
    """Change the settings of Ray Data: results in order, each item a block of its own, no output."""
    from ray.data import DataContext, ExecutionResources

    context: Any = DataContext.get_current()
    wanted = {
        "enable_progress_bars": False,
        "print_on_execution_start": False,
        "target_max_block_size": 1,
    }
    former = {name: getattr(context, name) for name in wanted if hasattr(context, name)}
    options = context.execution_options
    order, limits = options.preserve_order, options.resource_limits
    for name in former:
        setattr(context, name, wanted[name])
    options.preserve_order = True
    options.resource_limits = ExecutionResources(
        object_store_memory=max(LEAST_WAITING_BYTES, workers * WAITING_BYTES)
    )
    try:
        yield
    finally:
        for name, value in former.items():
            setattr(context, name, value)
        options.preserve_order, options.resource_limits = order, limits
