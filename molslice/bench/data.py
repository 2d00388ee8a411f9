"""The measurement of the data path, from SMILES to padded batches without a model: jobs, run and result.

`python -m molslice.bench.data` measures one job: it reads a `DataJob` on standard input and answers with a
line of JSON, see `outcome_of`. Each stage has its own process, so that its peak memory belongs to this stage.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch

from molslice.bench.job import Job, Numbers, answer_request, outcome_of
from molslice.bench.machine import check_device, describe_machine
from molslice.bench.molecules import (
    Molecules,
    StoredMolecules,
    describe_store,
    featurize,
    open_store,
)
from molslice.bench.rounds import (
    GIGA,
    Column,
    Key,
    Measurement,
    Result,
    Spread,
    Task,
    number_text,
    row_table,
    run_rounds,
    spread_of,
)
from molslice.data.base import RowNumbers
from molslice.data.batching import FixedShapeBatches, TokenBudgetBatches
from molslice.data.molecules.store import MoleculeStore
from molslice.files.process_memory import ended_peak_bytes, peak_bytes
from molslice.types import MolsliceError

# batch size and budget of tokens, as in `molslice bench train` on a CPU and on a GPU
BATCHES = ((64, 2048), (1024, 65536))
MEGA = 1e6
COLUMNS = (
    Column("molecules/s", "molecules_per_second", number_text()),
    Column("batches/s", "batches_per_second", number_text()),
    Column("MB/s", "bytes_per_second", number_text(MEGA)),
    Column("padding", "padding_share", "{:.1%}".format),
    Column("memory (GB)", "peak_bytes", number_text(GIGA)),
    Column("memory of a worker (GB)", "worker_peak_bytes", number_text(GIGA)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataJob(Job):
    """A stage of the data path in one round.

    Attributes:
        stage: `featurize` converts SMILES to arrays, `read` copies the molecules of batches from a store,
            `batches` collates them to padded batches, and `gather` collates them to batches of fixed shapes
            on a device that holds the store.
        seed: Seed of the order of the rows.
        smiles: File with one SMILES a line, for `featurize`.
        workers: Number of processes, for `featurize`; 0 converts in the process itself.
        store: Folder of the molecules, for the other stages.
        batch_size: Maximum number of molecules of a batch.
        token_budget: Maximum number of padded tokens of a batch.
        device: The device, for `gather`.
    """

    program: ClassVar[str] = "molslice.bench.data"

    stage: Literal["featurize", "read", "batches", "gather"]
    seed: int
    smiles: str = ""
    workers: int = 0
    store: str = ""
    batch_size: int = 0
    token_budget: int = 0
    device: str = "cpu"


@dataclass(kw_only=True)
class DataResult(Result):
    """All measurements of the data path, with their conditions.

    A measurement has the number of molecules, the bytes of the arrays that the stage returned, the number of
    batches (0 for a stage without batches), the time of all of them, the processor time of the process (None
    with workers), the share of padding in the tokens of the batches (None for other stages), and the largest
    resident sets of the process and of a worker (None if they are not available).

    Attributes:
        entries: Names of the stages.
        atoms: Number of atoms of a molecule: `mean`, `median`, `percentile_95` and `max`.
        bytes_per_molecule: Bytes of a molecule with its targets in the store, without offsets.
    """

    FILE: ClassVar = "bench_data.json"
    KEY: ClassVar = {"stage": str}
    NUMBERS: ClassVar = (
        "molecules",
        "bytes",
        "batches",
        "seconds",
        "processor_seconds",
        "padding_share",
        "peak_bytes",
        "worker_peak_bytes",
    )
    FAILURES: ClassVar = ("OOM", "failed")

    entries: list[str]
    atoms: dict[str, float]
    bytes_per_molecule: float

    def keys(self) -> list[Key]:
        """Return the key of each stage."""
        return [(stage,) for stage in self.entries]

    def summarize(self, key: Key, rounds: Sequence[Measurement]) -> dict[str, Any]:
        """Return molecules, batches and bytes per second, the share of padding, and peak memory in bytes."""

        def rate(quantity: str, seconds: str = "seconds") -> Spread | None:
            return Spread.over([measurement.ratio(quantity, seconds) or None for measurement in rounds])

        return {
            "molecules_per_second": rate("molecules"),
            "molecules_per_processor_second": rate("molecules", "processor_seconds"),
            "bytes_per_second": rate("bytes"),
            "batches_per_second": rate("batches"),
            "padding_share": rounds[0].numbers.get("padding_share") if rounds else None,
            "peak_bytes": spread_of(rounds, "peak_bytes"),
            "worker_peak_bytes": spread_of(rounds, "worker_peak_bytes"),
        }

    def to_markdown(self) -> str:
        """Return the table, the conditions of the measurement, and the reasons for missing numbers."""
        had, atoms = self.conditions, self.atoms
        machine = (self.machine["processor"], self.machine["device"])
        lines = [
            f"{had['molecules']:,} molecules of {had['source']}: {atoms['median']:g} atoms in the median, "
            f"{atoms['percentile_95']:g} at 95%, at most {atoms['max']:g}; "
            f"{self.bytes_per_molecule:.0f} bytes each. {' and '.join(dict.fromkeys(machine))}, "
            "one thread. Median over rounds, each in a fresh process.\n",
            row_table(self.KEY, COLUMNS, self.rows(), hides_empty=False),
            *(f"- {stage} failed {reason}" for stage, reason in self.failures().items()),
        ]
        if self.interrupted:
            lines.append("Interrupted: rows with `...` are not measured yet.")
        return "\n".join(lines).rstrip() + "\n"


def run_data_bench(
    source: Molecules,
    out: Path | str | None = None,
    *,
    workers: int = 2,
    batches: tuple[tuple[int, int], ...] = BATCHES,
    device: str | None = None,
    rounds: int = 3,
    seconds: float = 3.0,
    tell: Callable[[str], None] = lambda message: None,
    quiet: bool = False,
) -> DataResult:
    """Measure every stage, with a new process for each round; see `run_rounds`.

    Args:
        source: The molecules. The conversion of SMILES is not measured for a store.
        out: Folder of `bench_data.json` and `table.md`. None writes no files.
        workers: Number of processes of the second measurement of the conversion.
        batches: Sizes of batches: maximum number of molecules and of padded tokens.
        device: The device on which batches of fixed shapes are gathered too, as in a training on a GPU; None
            measures none.
        rounds: Measurements of each stage.
        seconds: Time of each measurement, in seconds.
        tell: See `run_rounds`.
        quiet: See `run_rounds`.

    Raises:
        MolsliceError: The molecules cannot be read; see also `run_rounds`.
    """
    if device is not None:
        check_device(device)
    with ExitStack() as exits:
        store = exits.enter_context(open_store(source, workers))
        scratch = Path(exits.enter_context(TemporaryDirectory()))
        stages = _stages(source, str(store.path), scratch, workers, batches, device)
        atoms = store.num_atoms[store.num_atoms > 0]
        spread = {
            "mean": float(atoms.mean()),
            "median": float(np.median(atoms)),
            "percentile_95": float(np.percentile(atoms, 95)),
            "max": float(atoms.max()),
        }
        size = store.atoms.nbytes + store.bonds.nbytes + store.targets.nbytes
        conditions = {"workers": workers, "batches": [list(sizes) for sizes in batches], "seconds": seconds}
        result = DataResult(
            conditions={**conditions, **describe_store(store)},
            machine=describe_machine(device or "cpu"),
            entries=list(stages),
            atoms=spread,
            bytes_per_molecule=size / max(1, len(store)),
        )
        tasks = [
            Task((name,), number, DataJob(seconds=seconds, seed=number, **settings), name)
            for number in range(rounds)
            for name, settings in stages.items()
        ]
        run_rounds(result, tasks, out, tell=tell, quiet=quiet)
    return result


def _stages(
    source: Molecules,
    store: str,
    scratch: Path,
    workers: int,
    batches: tuple[tuple[int, int], ...],
    device: str | None,
) -> dict[str, dict[str, Any]]:
    """Return the fields of the job of each stage, by its name."""
    stages: dict[str, dict[str, Any]] = {}
    _, smiles = source.smiles()
    if smiles:
        file = scratch / "molecules.smi"
        file.write_text("".join(f"{text}\n" for text in smiles), encoding="utf-8")
        stages["convert SMILES, 1 process"] = {"stage": "featurize", "smiles": str(file)}
        if workers > 1:
            one_process = stages["convert SMILES, 1 process"]
            stages[f"convert SMILES, {workers} processes"] = {**one_process, "workers": workers}
    sizes = [{"store": store, "batch_size": size, "token_budget": tokens} for size, tokens in batches]
    stages["read the store"] = {"stage": "read", **sizes[-1]}
    for size in sizes:
        stages[f"batches of {size['batch_size']:,}"] = {"stage": "batches", **size}
    if device is not None:
        for size in sizes:
            name = f"batches of {size['batch_size']:,}, fixed shapes on {device}"
            stages[name] = {"stage": "gather", "device": device, **size}
    return stages


class Done(NamedTuple):
    """What a stage did since the last one.

    Attributes:
        molecules: Number of molecules.
        bytes: Bytes of their arrays and targets.
        batches: Number of batches.
    """

    molecules: int
    bytes: int
    batches: int


def measure(job: DataJob) -> Numbers:
    """Measure a job.

    Returns:
        The `outcome` with the numbers of `DataResult`. Without numbers, the `reason` for their absence.
    """
    torch.set_num_threads(1)
    stages = {"featurize": _featurizing, "read": _reading, "batches": _collating, "gather": _gathering}
    return outcome_of(lambda: _time(job, stages[job.stage](job)))


def _time(job: DataJob, done: Iterator[Done]) -> Numbers:
    """Time a stage until `seconds` have passed or nothing is left. The first results are a warm-up."""
    with closing(done):  # pyright: ignore[reportArgumentType]
        for _ in range(max(1, job.workers)):
            next(done, None)
        start, processor, total = time.perf_counter(), time.process_time(), Done(0, 0, 0)
        for result in done:
            total = Done(*map(sum, zip(total, result, strict=True)))
            if time.perf_counter() - start >= job.seconds:
                break
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
    if not total.molecules:
        raise MolsliceError("too few molecules to measure")
    return {
        **total._asdict(),
        "seconds": seconds,
        "processor_seconds": None if job.workers else processor,
        "peak_bytes": peak_bytes(),
        "worker_peak_bytes": ended_peak_bytes() if job.workers else None,
        **_padding(job),
    }


def _featurizing(job: DataJob) -> Iterator[Done]:
    smiles = Path(job.smiles).read_text(encoding="utf-8").splitlines()
    for arrays in featurize(smiles, job.workers, endless=True):
        yield Done(len(arrays), arrays.atoms.nbytes + arrays.bonds.nbytes, 0)


def _reading(job: DataJob) -> Iterator[Done]:
    dataset = StoredMolecules(MoleculeStore.open(job.store, verify=False))
    store = dataset.store
    offsets = {"atoms": store.atom_offsets, "bonds": store.bond_offsets}
    for rows in itertools.chain.from_iterable(map(_order(job, dataset).epoch, itertools.count())):
        size = np.asarray(store.targets[rows]).nbytes
        for name, starts in offsets.items():
            values, ends = getattr(store, name), zip(starts[rows], starts[rows + 1], strict=True)
            size += np.concatenate([values[start:end] for start, end in ends]).nbytes
        yield Done(len(rows), size, 1)


def _collating(job: DataJob) -> Iterator[Done]:
    dataset = StoredMolecules(MoleculeStore.open(job.store, verify=False))
    for rows in itertools.chain.from_iterable(map(_order(job, dataset).epoch, itertools.count())):
        batch = dataset.collate(rows)
        tensors = (batch.atoms, batch.atom_mask, batch.bond_index, batch.bond_features, batch.targets)
        yield Done(len(rows), sum(tensor.nbytes for tensor in tensors if tensor is not None), 1)


def _gathering(job: DataJob) -> Iterator[Done]:
    """Gather batches one by one; a training has the next ones in the queue of the device meanwhile."""
    dataset, device = StoredMolecules(MoleculeStore.open(job.store, verify=False)), torch.device(job.device)
    stored, order = dataset.rows_on(device), _order(job, dataset)
    if stored is None:
        raise MolsliceError("the rows would take too much of the memory of the device")
    for rows in itertools.chain.from_iterable(map(order.epoch, itertools.count())):
        shape = order.shape_of(rows)
        batch = stored.gather(RowNumbers.filled(rows, shape.rows, shape.width).to(device))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        yield Done(len(rows), sum(tensor.nbytes for tensor in batch.tensors.values()), 1)


def _order(job: DataJob, dataset: StoredMolecules) -> TokenBudgetBatches:
    rows = dataset.num_tokens, dataset.labeled_rows("train")
    limits: dict[str, Any] = {"token_budget": job.token_budget, "batch_size": job.batch_size}
    if job.stage == "gather":
        return FixedShapeBatches(*rows, **limits, seed=job.seed)
    return TokenBudgetBatches(*rows, **limits, shuffle=True, seed=job.seed)


def _padding(job: DataJob) -> Numbers:
    if job.stage not in ("batches", "gather"):
        return {}
    dataset = StoredMolecules(MoleculeStore.open(job.store, verify=False))
    order = _order(job, dataset)
    shapes = map(order.shape_of, order.epoch(0))
    padded = sum(shape.width * shape.rows for shape in shapes)
    return {"padding_share": 1.0 - int(order.tokens.sum()) / padded}


if __name__ == "__main__":
    answer_request(lambda line, report: report(measure(DataJob.from_json(line))))
