"""Where SMILES are read: in this process, or in workers if the input is large."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from molslice.files.processes import WorkerPool, count_cores, start_method
from molslice.inference import base, network
from molslice.inference.embedding import Embedder
from molslice.inference.load import load_model
from molslice.inference.network import NetworkPredictor
from molslice.inference.options import PLAIN
from molslice.inference.precision import bounded_threads
from molslice.inference.smiles_reader import default_workers
from molslice.inference.tables import table
from molslice.inference.tables.table import predict_table
from molslice.serve.worker import TASKS
from tests.inference.models import checkpoint_folder, embedded_smiles

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SMILES = embedded_smiles(30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint_folder(tmp_path_factory.mktemp("model"))


class OnDevice(NetworkPredictor):
    """A network that says that it computes on a GPU, and computes here."""

    @property
    def device(self):
        return CUDA

    @device.setter
    def device(self, device):
        pass

    def predict_molecules(self, molecules, options):
        return NetworkPredictor.predict_molecules(self.computing, molecules, options)

    def embed_store(self, store):
        return NetworkPredictor.embed_store(self.computing, store)


@pytest.fixture
def on_device(folder):
    model, computing = load_model(folder), load_model(folder)
    model.__class__, model.computing = OnDevice, computing
    return model


def test_many_rows_are_read_by_all_cores(monkeypatch):
    monkeypatch.setattr("molslice.inference.smiles_reader.count_cores", lambda: 16)
    rows = [0, 1, 9_999, 10_000, 24_999, 25_000, 10**9]
    assert [default_workers(CUDA, count) for count in rows] == [0, 0, 0, 16, 16, 16, 16]
    assert [default_workers(CPU, count) for count in rows] == [0, 0, 0, 0, 0, 16, 16]
    assert count_cores() >= 1


@pytest.mark.parametrize("rows", [9, 30])
def test_a_device_has_workers_by_default(folder, on_device, tmp_path, monkeypatch, rows):
    monkeypatch.setattr("molslice.inference.smiles_reader.DEVICE_PARALLEL_ROWS", 20)
    monkeypatch.setattr(table, "ROW_BYTES", 1 + np.mean([len(text) for text in SMILES]))
    monkeypatch.setattr("molslice.inference.smiles_reader.count_cores", lambda: 5)
    expected, numbers, read = load_model(folder).predict(SMILES[:rows]), [], NetworkPredictor.reader

    def reader(self, workers=0, **options):
        numbers.append(workers)
        return read(self, **options)

    monkeypatch.setattr(OnDevice, "reader", reader)
    source = tmp_path / "in.csv"
    source.write_text("smiles\n" + "".join(f"{text}\n" for text in SMILES[:rows]))
    for model in (on_device, Embedder(on_device)):
        numbers.clear()
        predict_table(model, source, tmp_path / "out.csv")
        model.predict(SMILES[:rows])
        predict_table(model, source, tmp_path / "out.csv", workers=2)
        model.predict(SMILES[:rows], workers=0)
        assert numbers == [5 * (rows == 30), 5 * (rows == 30), 2, 0]
    assert np.array_equal(on_device.predict(SMILES[:rows], workers=0), expected)


def test_the_service_reads_a_large_file_with_all_cores_beside_a_gpu(on_device, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.inference.smiles_reader.DEVICE_PARALLEL_ROWS", 20)
    monkeypatch.setattr("molslice.inference.smiles_reader.count_cores", lambda: 2)
    monkeypatch.setattr(table, "ROW_BYTES", 1)
    numbers, read = [], NetworkPredictor.reader

    def reader(self, workers=0, **options):
        numbers.append(workers)
        return read(self, **options)

    monkeypatch.setattr(OnDevice, "reader", reader)
    served = SimpleNamespace(
        plain=on_device, options=lambda *_, **__: PLAIN, describe=lambda: {"targets": []}
    )
    source = tmp_path / "in.csv"
    source.write_text("smiles\n" + "".join(f"{text}\n" for text in SMILES))
    names = {"model": "m", "target": str(tmp_path / "out.csv"), "shown": str(tmp_path / "shown"), "name": "x"}
    answer = TASKS["predict_file"]({"m": served}, print, source=str(source), max_rows=1_000, **names)
    assert answer["rows"] == len(SMILES)
    assert numbers == [2]


def test_python_on_a_cpu_starts_no_process_unasked(folder, monkeypatch):
    model = load_model(folder)
    monkeypatch.setattr("molslice.inference.smiles_reader.PARALLEL_ROWS", 1)
    monkeypatch.setattr(base, "WorkerPool", None)
    assert np.isfinite(model.predict(SMILES)).all()


def test_few_threads_beside_a_device(folder, monkeypatch):
    before = torch.get_num_threads()
    try:
        for threads, expected in ((16, 4), (2, 2)):
            torch.set_num_threads(threads)
            with bounded_threads(CUDA):
                assert torch.get_num_threads() == expected
            assert torch.get_num_threads() == threads
            with bounded_threads(CPU):
                assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    model, devices = load_model(folder), []
    monkeypatch.setattr(network, "bounded_threads", lambda device: devices.append(device) or nullcontext())
    model.predict(SMILES)
    assert devices == [CPU]


def test_workers_after_a_gpu_predict_the_same(folder, on_device, monkeypatch):
    """They are not forked, so that the model travels to those that predict on a CPU."""
    model = load_model(folder)
    expected = model.predict(SMILES)
    assert start_method() == "fork"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert start_method() == "forkserver"
    with WorkerPool(1, "tests") as pool:
        modules = next(pool.map(eval, [("sorted(__import__('sys').modules)",)]))
    assert "rdkit.Chem" in modules
    assert "torch" not in modules
    monkeypatch.setattr(model, "chunk_rows", 10)
    monkeypatch.setattr(on_device, "chunk_rows", 10)
    np.testing.assert_allclose(model.predict(SMILES, workers=2), expected, atol=1e-5)
    np.testing.assert_allclose(on_device.predict(SMILES, workers=2), expected, atol=1e-5)
