"""Measure the stages of the data path in interleaved order."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from molslice.bench.data.result import DataResult, to_markdown
from molslice.bench.data.worker import DataJob
from molslice.bench.machine import describe_machine
from molslice.bench.molecules import Molecules, describe_store, open_store
from molslice.bench.rounds import Task, run_rounds
from molslice.data.molecules.store import MoleculeStore

__all__ = ["BATCHES", "run_data_bench"]

# batch size and budget of tokens, as in `molslice bench train` on a CPU and on a GPU
BATCHES = ((64, 2048), (1024, 65536))


def run_data_bench(
    source: Molecules,
    out: Path | str | None = None,
    *,
    workers: int = 2,
    batches: tuple[tuple[int, int], ...] = BATCHES,
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
        rounds: Measurements of each stage.
        seconds: Time of each measurement, in seconds.
        tell: Receives a line for each measurement without numbers.
        quiet: Whether to hide the progress bar.

    Returns:
        The measurements, also of earlier calls.

    Raises:
        MolsliceError: The molecules cannot be read, `out` holds measurements of another machine or under
            other conditions, or a file cannot be read or written.
    """
    with ExitStack() as exits:
        folder = exits.enter_context(open_store(source, workers))
        stages = _stages(source, folder, Path(exits.enter_context(TemporaryDirectory())), workers, batches)
        conditions = {"workers": workers, "batches": [list(sizes) for sizes in batches], "seconds": seconds}
        result = _begin(list(stages), MoleculeStore.open(folder, verify=False), conditions)
        run_rounds(
            result,
            _tasks(stages, rounds, seconds),
            out,
            to_files=lambda: {"table.md": to_markdown(result)},
            tell=tell,
            quiet=quiet,
        )
    return result


def _stages(
    source: Molecules, store: Path, scratch: Path, workers: int, batches: tuple[tuple[int, int], ...]
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
    sizes = [{"store": str(store), "batch_size": size, "token_budget": tokens} for size, tokens in batches]
    stages["read the store"] = {"stage": "read", **sizes[-1]}
    for one in sizes:
        stages[f"batches of {one['batch_size']:,}"] = {"stage": "batches", **one}
    return stages


def _tasks(stages: Mapping[str, dict[str, Any]], rounds: int, seconds: float) -> Iterator[Task]:
    for number in range(rounds):
        for name, settings in stages.items():
            yield Task((name,), number, DataJob(seconds=seconds, seed=number, **settings), name)


def _begin(stages: list[str], store: MoleculeStore, conditions: dict[str, Any]) -> DataResult:
    atoms = store.num_atoms[store.num_atoms > 0]
    size = store.atoms.nbytes + store.bonds.nbytes + store.targets.nbytes
    spread = {
        "mean": float(atoms.mean()),
        "median": float(np.median(atoms)),
        "percentile_95": float(np.percentile(atoms, 95)),
        "max": float(atoms.max()),
    }
    return DataResult(
        conditions={**conditions, **describe_store(store)},
        machine=describe_machine("cpu"),
        entries=stages,
        atoms=spread,
        bytes_per_molecule=size / max(1, len(store)),
    )
