"""Tests of the measurement of the data path inside its process."""

import pytest

from molslice.bench.data import DataJob, measure
from tests.bench.training_jobs import store


def job(**changes):
    return DataJob(**{"stage": "batches", "seconds": 1e-6, "seed": 0, **changes})


def of_store(stage, chains, **changes):
    fields = {"store": str(chains.path), "batch_size": 4, "token_budget": 100}
    return measure(job(stage=stage, **{**fields, **changes}))


def test_batches_count_molecules_batches_bytes_and_padding(tmp_path):
    found = of_store("batches", store(tmp_path / "store", [2, 2, 2, 4, 0]))
    assert (found["outcome"], found["molecules"], found["batches"]) == ("ok", 4, 1)
    atoms, mask, bonds, target = 4 * 4 * 9, 4 * 4, 6 * (3 * 8 + 3), 4 * 4
    assert found["bytes"] == atoms + mask + bonds + target
    assert found["padding_share"] == pytest.approx(0.3)  # with the graph token: 3 + 3 + 3 + 5 of 20
    assert found["seconds"] > 0
    assert found["processor_seconds"] > 0
    assert found["peak_bytes"] > 50e6
    assert found["worker_peak_bytes"] is None


def test_a_device_gathers_batches_of_fixed_shapes(tmp_path):
    gathered = of_store("gather", store(tmp_path / "store", [4, 4, 4, 0]), batch_size=3)
    assert (gathered["outcome"], gathered["molecules"], gathered["batches"]) == ("ok", 3, 1)
    rows, width, most = 3, 4, 3  # molecules, atoms and bonds
    inputs = rows * width * (9 + 1 + width) + rows * most * (3 * 8 + 3)
    assert gathered["bytes"] == inputs + rows * (4 + 8)  # targets and row numbers
    assert gathered["padding_share"] == pytest.approx(0.0)


def test_reading_counts_the_bytes_of_molecules(tmp_path):
    found = of_store("read", store(tmp_path / "store", [2, 2, 2, 4]))
    assert (found["molecules"], found["batches"]) == (4, 1)
    assert found["bytes"] == 10 * 9 + 6 * 5 + 4 * 4
    assert "padding_share" not in found


def test_stages_go_on_for_the_seconds(tmp_path):
    found = of_store("batches", store(tmp_path / "store", [2, 4]), seconds=0.2)
    assert found["seconds"] >= 0.2
    assert found["molecules"] == 2 * found["batches"] > 2


@pytest.mark.parametrize("workers", [0, 2])
def test_smiles_are_converted(tmp_path, workers):
    (tmp_path / "a.smi").write_text("CCO\nfrog\nC\n")
    found = measure(job(stage="featurize", smiles=str(tmp_path / "a.smi"), workers=workers))
    assert (found["outcome"], found["molecules"], found["batches"]) == ("ok", 3, 0)
    assert found["bytes"] == 4 * 9 + 2 * 5
    assert (found["processor_seconds"] is None) == bool(workers)
    assert (found["worker_peak_bytes"] is None) == (not workers)
    assert found["worker_peak_bytes"] is None or found["worker_peak_bytes"] > 20e6


def test_a_failure_is_an_outcome(tmp_path):
    found = of_store("batches", store(tmp_path / "store", [2, 4]), token_budget=2)
    assert (found["outcome"], "token_budget" in found["reason"]) == ("failed", True)
