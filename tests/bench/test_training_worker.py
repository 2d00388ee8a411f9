"""Tests of the measurement of training inside its process."""

import numpy as np
import pytest
import torch

from molslice.bench import training_worker as worker
from molslice.bench.training_worker import Training, measure
from molslice.data.molecules.store import MoleculeStore
from tests.bench.training_jobs import chain, config, job, store


def test_a_job_counts_steps_molecules_padding_and_time(tmp_path):
    chains = store(tmp_path / "store", [2, 4] * 4)
    # pools of 64 batches are sorted by length, so both batches are without padding
    found = measure(job(chains, steps=3))
    assert found["outcome"] == "ok"
    assert (found["steps"], found["molecules"], found["padding_share"]) == (3, 12, 0.0)
    parts = [found[f"{part}_seconds"] for part in ("waiting", "forward", "backward", "optimizer")]
    assert min(parts) > 0
    assert 0.5 * found["seconds"] < sum(parts) <= found["seconds"]
    assert found["peak_bytes"] > 50e6


def test_padding_is_that_of_the_batches(tmp_path):
    chains = store(tmp_path / "store", [2, 2, 2, 4])  # with the graph token: 3 + 3 + 3 + 5 of 20
    assert measure(job(chains))["padding_share"] == pytest.approx(0.3)


def test_operations_of_a_layer_are_those_of_its_matrix_products(tmp_path):
    tokens, dim, ffn = 7, 8, 24
    chains = store(tmp_path / "store", [tokens - 1] * 4)
    found = [
        measure(job(chains, config(model={"num_layers": layers, "ffn_dim": ffn}), steps=5))["flops"]
        for layers in (1, 2)
    ]
    products = 4 * dim * dim + 2 * dim * ffn + 2 * tokens * dim  # multiply-adds for each token
    padded_tokens = 5 * 4 * tokens
    assert found[1] - found[0] == pytest.approx(3 * 2 * products * padded_tokens)


def test_operations_are_those_of_the_padded_batch(tmp_path, monkeypatch):
    chains = store(tmp_path / "store", [6] * 8)
    own = config(training={"batch_size": 8, "token_budget": 1000})
    whole = measure(job(chains, own))["flops"]
    monkeypatch.setattr(worker, "COUNTED_ROWS", 2)
    assert measure(job(chains, own))["flops"] == pytest.approx(whole, rel=0.02)


def test_operations_are_counted_only_where_asked(tmp_path):
    assert measure(job(store(tmp_path / "store", [3] * 4), counts_flops=False))["flops"] is None


def test_a_step_is_one_of_training(tmp_path):
    chains = store(tmp_path / "store", [2, 3, 4, 5])
    training = Training(config(optimizer={"ema_decay": 0.5}), chains)
    before = [one.detach().clone() for one in training.stepper.model.parameters()]
    stream = training.stream()
    training.step(next(stream))
    average = training.stepper.average
    assert average is not None
    assert training.step_number == 1
    changed = [
        not torch.equal(a, b) for a, b in zip(before, training.stepper.model.parameters(), strict=True)
    ]
    assert sum(changed) > len(changed) / 2
    assert any(not torch.equal(a, b) for a, b in zip(before, average.model.parameters(), strict=True))


def test_a_step_trains_the_variance_too(tmp_path):
    own = config(training={"loss": "gaussian"})
    training = Training(own, store(tmp_path / "store", [2, 3, 4, 5]))
    readout = training.stepper.model.variance_readout
    before = readout.weight.detach().clone()
    training.step(next(training.stream()))
    assert not torch.equal(readout.weight, before)


def test_a_step_learns_the_distances_of_a_store(tmp_path):
    molecules, positions = [chain(2), chain(3)], np.arange(15, dtype=np.float16).reshape(5, 3)
    part = MoleculeStore.in_memory(molecules, coordinates=positions)
    training = Training(config(), MoleculeStore.write(tmp_path / "store", [part], geometry=True))
    head = training.stepper.model.distance_head.pair
    before = head.weight.detach().clone()
    training.step(next(training.stream()))
    assert not torch.equal(head.weight, before)


def test_warming_up_ends_after_a_slow_step(tmp_path, monkeypatch):
    training = Training(config(), store(tmp_path / "store", [2, 3]))
    monkeypatch.setattr(worker, "SLOW_STEP_SECONDS", 0.0)
    worker._warm_up(training, training.stream())
    assert training.step_number == 2  # the first one is always slow


def test_without_steps_the_seconds_count(tmp_path):
    chains = store(tmp_path / "store", [2, 3])
    assert measure(job(chains, steps=None, seconds=1e-6))["steps"] == worker.MIN_STEPS
    assert measure(job(chains, steps=None, seconds=0.3))["seconds"] >= 0.3


def test_a_failure_is_an_outcome(tmp_path, monkeypatch):
    chains = store(tmp_path / "store", [2, 3])
    found = measure(job(chains, config(training={"token_budget": 2})))
    assert (found["outcome"], "token_budget" in found["reason"]) == ("failed", True)
    monkeypatch.setattr(worker, "_measure_steps", lambda *arguments: [].frob)
    with pytest.raises(AttributeError):
        measure(job(chains))
    monkeypatch.setattr(worker, "_measure_steps", lambda *arguments: (_ for _ in ()).throw(MemoryError("no")))
    assert measure(job(chains))["outcome"] == "OOM"
