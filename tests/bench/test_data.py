"""Tests of the stages, the result and the table of the data path."""

import json

import pytest

from molslice.bench import rounds
from molslice.bench.data import DataResult, run_data_bench
from molslice.bench.molecules import Molecules
from molslice.types import MolsliceError
from tests.bench.training_jobs import store

RESULT = DataResult.FILE


def answer(**changes):
    numbers = {"molecules": 100, "bytes": 5_000_000, "batches": 10, "seconds": 2.0, "processor_seconds": 1.0}
    return {"outcome": "ok", **numbers, "peak_bytes": 2_000_000_000, **changes}


@pytest.fixture
def worker(monkeypatch):
    """Answer instead of a process, and record the requests."""
    asked = []
    monkeypatch.setattr(rounds, "run_job", lambda job: asked.append(job) or answer())
    return asked


def test_stages_of_a_store_take_turns(worker, tmp_path):
    source = Molecules(store=store(tmp_path / "store", [2, 3, 0, 7]).path)
    result = run_data_bench(source, rounds=2)
    stages = ["read the store", "batches of 64", "batches of 1,024"]
    assert result.entries == [row.key[0] for row in result.rows()] == stages
    assert [(job.stage, job.batch_size, job.token_budget, job.seed) for job in worker] == [
        ("read", 1024, 65536, 0),
        ("batches", 64, 2048, 0),
        ("batches", 1024, 65536, 0),
        ("read", 1024, 65536, 1),
        ("batches", 64, 2048, 1),
        ("batches", 1024, 65536, 1),
    ]
    assert result.atoms == pytest.approx({"mean": 4, "median": 3, "percentile_95": 6.6, "max": 7})
    assert result.bytes_per_molecule == (12 * 9 + 9 * 5) / 4


def test_a_device_gathers_batches_too(worker, tmp_path):
    source = Molecules(store=store(tmp_path / "store", [2, 3, 0, 7]).path)
    result = run_data_bench(source, batches=((8, 80),), device="cpu", rounds=1)
    assert result.entries == ["read the store", "batches of 8", "batches of 8, fixed shapes on cpu"]
    assert [(job.stage, job.device) for job in worker] == [
        ("read", "cpu"),
        ("batches", "cpu"),
        ("gather", "cpu"),
    ]
    with pytest.raises(MolsliceError, match="device 'gpu' is unknown"):
        run_data_bench(source, device="gpu")


def test_files_are_converted_with_and_without_workers(worker, tmp_path):
    (tmp_path / "a.csv").write_text("smiles,name\nCCO,x\nC,y\n")
    result = run_data_bench(Molecules(files=[tmp_path / "a.csv"]), workers=3, batches=((8, 80),), rounds=1)
    assert [(job.stage, job.workers) for job in worker] == [
        ("featurize", 0),
        ("featurize", 3),
        ("read", 0),
        ("batches", 0),
    ]
    assert result.conditions["source"] == str(tmp_path / "a.csv")
    run_data_bench(Molecules(files=[tmp_path / "a.csv"]), workers=1, batches=((8, 80),), rounds=1)
    assert [job.stage for job in worker[4:]] == ["featurize", "read", "batches"]


def test_other_molecules_in_the_same_file_are_not_the_measured_ones(worker, tmp_path):
    table = Molecules(files=[tmp_path / "a.csv"])
    (tmp_path / "a.csv").write_text("smiles\nCCO\nC\n")
    run_data_bench(table, tmp_path / "out", workers=1, batches=((8, 80),), rounds=1)
    (tmp_path / "a.csv").write_text("smiles\nCCO\nCCCCCCCC\n")
    with pytest.raises(MolsliceError, match="sizes"):
        run_data_bench(table, tmp_path / "out", workers=1, batches=((8, 80),), rounds=1)


def summary(*answers):
    """Return the numbers of the row of a stage with these answers."""
    rounds_ = [rounds.Measurement(("read",), number, "ok", None, one) for number, one in enumerate(answers)]
    result = DataResult(
        conditions={}, machine={}, entries=["read"], atoms={}, bytes_per_molecule=1.0, measurements=rounds_
    )
    return result.rows()[0].numbers


def test_a_row_has_medians_over_the_rounds():
    numbers = summary(*(answer(seconds=seconds) for seconds in (1, 2, 5)))
    names = ("molecules_per_second", "bytes_per_second", "batches_per_second")
    assert [numbers[name].median for name in names] == [50.0, 2_500_000.0, 5.0]
    assert numbers["molecules_per_processor_second"].median == 100.0
    numbers = summary(answer(processor_seconds=None, batches=0))
    assert numbers["molecules_per_processor_second"] is None
    assert numbers["batches_per_second"] is None


def test_files_of_a_result_and_continuation(worker, tmp_path):
    source = Molecules(store=store(tmp_path / "store", [2, 3]).path)
    result = run_data_bench(source, tmp_path / "out", rounds=1)
    assert json.loads((tmp_path / "out" / RESULT).read_text()) == json.loads(json.dumps(result.to_mapping()))
    table = (tmp_path / "out" / "table.md").read_text()
    assert table == result.to_markdown()
    assert "| read the store   |          50 |         5 |  2.5 |" in table
    run_data_bench(source, tmp_path / "out", rounds=2)
    assert len(worker) == 6
    with pytest.raises(MolsliceError, match="seconds"):
        run_data_bench(source, tmp_path / "out", seconds=7.0)


def test_a_stage_that_fails_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(rounds, "run_job", lambda job: {"outcome": "failed", "reason": "a fault"})
    result = run_data_bench(Molecules(store=store(tmp_path / "store", [2]).path), batches=((8, 80),))
    assert result.failures() == {"read the store": "with a fault", "batches of 8": "with a fault"}
    assert "- batches of 8 failed with a fault" in result.to_markdown()
