"""A small store, jobs and answers for the tests."""

import numpy as np

from molslice.bench.training import TrainJob
from molslice.config import config_from_mapping, config_to_mapping
from molslice.data.molecules.store import MoleculeStore
from molslice.types import MoleculeArrays

TINY = {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}


def chain(atoms):
    """Return a chain of carbon atoms."""
    bonds = [[place, place + 1, 0, 0, 0] for place in range(atoms - 1)]
    return MoleculeArrays(np.full((atoms, 9), 1, np.uint8), np.array(bonds, np.uint8).reshape(len(bonds), 5))


def store(path, sizes, targets=None, names=()):
    """Write a store of chains; a size of 0 is a row without a molecule."""
    molecules = [chain(size) if size else "no molecule" for size in sizes]
    part = MoleculeStore.in_memory(molecules, targets)
    return MoleculeStore.write(path, [part], target_names=names, source="chains")


def config(**changes):
    """Return a configuration; `model` changes its sizes."""
    mapping = {
        "data": {"name": "pcqm4m", "root": "data/gap_xtb"},
        "model": {**TINY, **changes.pop("model", {})},
        "training": {"max_steps": 100, "batch_size": 4, "token_budget": 100, **changes.pop("training", {})},
        "trainer": {"accelerator": "cpu"},
        **changes,
    }
    return config_from_mapping(mapping)


def job(store, settings=None, **changes):
    fields = {"device": "cpu", "threads": 1, "steps": 2, "seconds": 1.0, "counts_flops": True}
    return TrainJob(
        config=config_to_mapping(settings or config()), store=str(store.path), **{**fields, **changes}
    )


def answer(seconds=2.0, **changes):
    """Return the answer of a worker to a successful job."""
    numbers = {
        "outcome": "ok",
        "steps": 10,
        "molecules": 100,
        "seconds": seconds,
        "processor_seconds": 2 * seconds,
        "waiting_seconds": 0.5,
        "forward_seconds": 0.6,
        "backward_seconds": 0.75,
        "optimizer_seconds": 0.15,
        "padding_share": 0.03,
        "peak_bytes": 3_000_000_000,
        "parameters": 1234,
        "flops": 5e9,
    }
    return {**numbers, **changes}
