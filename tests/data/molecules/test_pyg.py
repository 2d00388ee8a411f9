"""Tests of stores as data sets of PyTorch Geometric: their graphs are those of OGB."""

import functools
import gzip
import pickle

import numpy as np
import pytest
import torch
from ogb import lsc
from ogb.utils import smiles2graph
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_add_pool

from molslice.data.molecules.store import MoleculeStore
from molslice.types import MolsliceError
from tests.data.molecules.builders import SMILES, memory_store, molecules
from tests.real_data import embedded_smiles

READABLE = [*(text for text in SMILES if text != "XXX"), "[Na+]", "[2H]O", "*C", *embedded_smiles()[::400]]


@functools.cache
def gaps():
    return np.linspace(1, 9, len(READABLE)).astype(np.float32)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of readable molecules, in the order of their SMILES, in two shards."""
    folder = tmp_path_factory.mktemp("pyg")
    half = len(READABLE) // 2
    for name, part in (("a", slice(0, half)), ("b", slice(half, None))):
        part = MoleculeStore.in_memory(molecules(READABLE[part], atom_order="input"), gaps()[part, None])
        MoleculeStore.write(folder / name, [part], target_names=["gap"], target_units=["eV"])
    return MoleculeStore.open(folder)


def test_graphs_are_those_of_smiles2graph(store):
    for row, smiles in enumerate(READABLE):
        graph, expected = store.to_pyg(row), smiles2graph(smiles)
        assert graph.num_nodes == expected["num_nodes"]
        pairs = (graph.x, "node_feat"), (graph.edge_index, "edge_index"), (graph.edge_attr, "edge_feat")
        for tensor, name in pairs:
            assert tensor.dtype == torch.int64
            assert tensor.shape == expected[name].shape
            assert np.array_equal(tensor, expected[name]), (smiles, name)
        assert graph.y.dtype == torch.float32
        assert graph.y.tolist() == [gaps()[row]]


def test_items_are_those_of_the_class_of_ogb(store, tmp_path, monkeypatch):
    folder = tmp_path / "pcqm4m-v2"
    (folder / "raw").mkdir(parents=True)
    (folder / "RELEASE_v1.txt").touch()
    rows = range(len(READABLE))
    with gzip.open(folder / "raw" / "data.csv.gz", "wt") as file:
        lines = (f"{row},{READABLE[row]},{float(gaps()[row])}\n" for row in rows)
        file.write("idx,smiles,homolumogap\n" + "".join(lines))
    splits = {"train": rows, "valid": [], "test-dev": [], "test-challenge": []}
    torch.save({name: np.array(part, np.int64) for name, part in splits.items()}, folder / "split_dict.pt")
    monkeypatch.setattr(torch, "load", functools.partial(torch.load, weights_only=False))
    expected = lsc.PygPCQM4Mv2Dataset(root=str(tmp_path))
    found = store.to_pyg()
    assert len(found) == len(expected) == len(READABLE)
    for one, other in zip(found, expected, strict=True):
        assert set(one.keys()) == set(other.keys())
        for name in other.keys():  # noqa: SIM118
            value = getattr(other, name)
            same = (
                torch.equal(getattr(one, name), value)
                if torch.is_tensor(value)
                else getattr(one, name) == value
            )
            assert same, name
            assert type(getattr(one, name)) is type(value)


class Gin(torch.nn.Module):
    """A model as a user of PyTorch Geometric writes it."""

    def __init__(self):
        super().__init__()
        self.atoms, self.bonds = torch.nn.Linear(9, 16), torch.nn.Linear(3, 16)
        self.conv = GINEConv(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()))
        self.out = torch.nn.Linear(16, 1)

    def forward(self, batch):
        atoms = self.conv(self.atoms(batch.x.float()), batch.edge_index, self.bonds(batch.edge_attr.float()))
        return self.out(global_add_pool(atoms, batch.batch)).squeeze(1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_model_of_pyg_trains_from_a_store(store, workers):
    loader = DataLoader(store.to_pyg(), batch_size=16, shuffle=True, num_workers=workers)
    model = Gin()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    losses = []
    for _ in range(1 if workers else 12):
        for batch in loader:
            assert batch.y.shape == (batch.num_graphs,)
            loss = torch.nn.functional.l1_loss(model(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    if not workers:
        assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])


def test_a_worker_opens_the_store_by_its_path(store):
    text = pickle.dumps(store.to_pyg())
    assert len(text) < 2500
    copy = pickle.loads(text)
    assert torch.equal(copy[5].x, store.to_pyg(5).x)
    assert copy.store.path == store.path


def test_several_targets_are_one_row():
    targets = np.array([[1, np.nan], [3, 4]], np.float32)
    both = MoleculeStore.in_memory(molecules(["C", "CC"]), targets, target_names=["a", "b"])
    assert both.to_pyg(0).y.shape == (1, 2)
    (batch,) = DataLoader(both.to_pyg(), batch_size=2)
    assert torch.equal(batch.y.nan_to_num(-1), torch.tensor([[1.0, -1.0], [3.0, 4.0]]))
    assert "y" not in MoleculeStore.in_memory(molecules(["C"])).to_pyg(0)


def test_a_row_without_a_molecule_is_refused():
    store = memory_store()
    dataset = store.to_pyg()
    assert len(dataset) == len(SMILES)
    with pytest.raises(
        MolsliceError, match="row 3 of memory has no molecule: not valid SMILES: .*; choose other"
    ):
        dataset[3]
    with pytest.raises(MolsliceError, match="row 10 is out of range"):
        store.to_pyg(10)
    kept = dataset[store.num_atoms > 0]
    assert [int(graph.y) for graph in kept] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
