"""Measure one job: `python -m molslice.bench.data.worker` reads a `DataJob` as JSON on standard input.

It answers with a line of JSON, see `outcome_of`.
"""

import itertools
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch

from molslice.bench.job import Job, Numbers, answer_request, outcome_of
from molslice.bench.molecules import StoredMolecules, chunks_of, featurize, padding_share
from molslice.data.batching import TokenBudgetBatches
from molslice.data.molecules.store import MoleculeStore
from molslice.files.process_memory import ended_peak_bytes, peak_bytes
from molslice.types import MolsliceError

__all__ = ["DataJob", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataJob(Job):
    """A stage of the data path in one round.

    Attributes:
        stage: `featurize` converts SMILES to arrays, `read` copies the molecules of batches from a store, and
            `batches` collates them to padded batches.
        seconds: Time to measure, in seconds.
        seed: Seed of the order of the rows.
        smiles: File with one SMILES a line, for `featurize`.
        workers: Number of processes, for `featurize`; 0 converts in the process itself.
        store: Folder of the molecules, for the other stages.
        batch_size: Maximum number of molecules of a batch.
        token_budget: Maximum number of padded tokens of a batch.
    """

    program: ClassVar[str] = "molslice.bench.data.worker"

    stage: Literal["featurize", "read", "batches"]
    seconds: float
    seed: int
    smiles: str = ""
    workers: int = 0
    store: str = ""
    batch_size: int = 0
    token_budget: int = 0


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
    stages = {"featurize": _featurizing, "read": _reading, "batches": _collating}
    return outcome_of(lambda: {**_time(job, stages[job.stage](job)), **_padding(job)})


def _time(job: DataJob, done: Iterator[Done]) -> Numbers:
    """Time a stage until `seconds` have passed or nothing is left. The first results are a warm-up."""
    with closing(done):  # pyright: ignore[reportArgumentType]
        for _ in range(max(1, job.workers)):
            next(done, None)
        start, processor, total = time.perf_counter(), time.process_time(), Done(0, 0, 0)
        for one in done:
            total = Done(*map(sum, zip(total, one, strict=True)))
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
    }


def _featurizing(job: DataJob) -> Iterator[Done]:
    smiles = Path(job.smiles).read_text(encoding="utf-8").splitlines()
    for part in featurize(itertools.cycle(chunks_of(smiles)), job.workers):
        size = part.atoms.nbytes + part.bonds.nbytes
        yield Done(len(part), size, 0)


def _reading(job: DataJob) -> Iterator[Done]:
    dataset = StoredMolecules(MoleculeStore.open(job.store, verify=False))
    store = dataset.store
    offsets = {"atoms": store.atom_offsets, "bonds": store.bond_offsets}
    for rows in _batches(job, dataset):
        size = np.asarray(store.targets[rows]).nbytes
        for name, starts in offsets.items():
            values, ends = getattr(store, name), zip(starts[rows], starts[rows + 1], strict=True)
            size += np.concatenate([values[start:end] for start, end in ends]).nbytes
        yield Done(len(rows), size, 1)


def _collating(job: DataJob) -> Iterator[Done]:
    dataset = StoredMolecules(MoleculeStore.open(job.store, verify=False))
    for rows in _batches(job, dataset):
        batch = dataset.collate(rows)
        tensors = (batch.atoms, batch.atom_mask, batch.bond_index, batch.bond_features, batch.targets)
        yield Done(len(rows), sum(one.nbytes for one in tensors if one is not None), 1)


def _batches(job: DataJob, dataset: StoredMolecules) -> Iterator[np.ndarray]:
    """Yield the rows of training batches, epoch after epoch."""
    order = _order(job, dataset)
    for epoch in itertools.count():
        yield from order.epoch(epoch)


def _order(job: DataJob, dataset: StoredMolecules) -> TokenBudgetBatches:
    return TokenBudgetBatches(
        dataset.num_tokens,
        dataset.labeled_rows("train"),
        token_budget=job.token_budget,
        batch_size=job.batch_size,
        shuffle=True,
        seed=job.seed,
    )


def _padding(job: DataJob) -> Numbers:
    if job.stage != "batches":
        return {}
    dataset = StoredMolecules(MoleculeStore.open(job.store, verify=False))
    return {"padding_share": padding_share(dataset.num_tokens, _order(job, dataset).epoch(0))}


if __name__ == "__main__":
    answer_request(lambda line, report: report(measure(DataJob.from_json(line))))
