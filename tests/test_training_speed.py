"""The program that compares the speed of training, on a few molecules."""

import gzip
import json
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from molslice.chem.featurize import molecule_arrays
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.model.gin_virtual import GinVirtual, GinVirtualSpec
from molslice.types import DataSpec
from tests.programs import load_program

SMILES = ("CCO", "c1ccccc1", "CC(C)N", "CCCCCC", "O=C=O", "CCl", "C1CC1", "CN")
CHEMPROP = """
import json, sys
about = {"start_seconds": 2.0, "prepare_seconds": 0.8, "chemprop": "0.0", "parameters": 7}
print(json.dumps(about), flush=True)
for line in sys.stdin:
    print(json.dumps({"seconds": 1e6}), flush=True)
"""


@pytest.fixture
def sides(monkeypatch):
    found = load_program("training_sides")
    monkeypatch.setattr(found, "GIN_BATCH", 4)
    return found


def molecules(sides):
    return sides.Molecules(SMILES, [len(molecule_arrays(text).atoms) for text in SMILES])


def test_gin_from_batches_of_pyg_is_the_model_of_molslice(sides):
    torch.manual_seed(0)
    model = GinVirtual(GinVirtualSpec(num_layers=2, dim=8, dropout=0.0), DataSpec(1)).eval()
    batch = Batch.from_data_list(
        [
            Data(
                x=torch.from_numpy(graph["node_feat"]),
                edge_index=torch.from_numpy(graph["edge_index"]),
                edge_attr=torch.from_numpy(graph["edge_feat"]),
            )
            for graph in sides.ogb_graphs(molecules(sides))
        ]
    )
    store = MoleculeStore.in_memory([molecule_arrays(text) for text in SMILES])
    expected = model(collate(store, np.arange(len(SMILES)))).prediction[:, 0]
    torch.testing.assert_close(sides.predict_pyg(model, batch), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["gin", "graphormer"])
def test_sides_learn_the_number_of_atoms(sides, name):
    side = (
        sides.PygGin(molecules(sides))
        if name == "gin"
        else sides.GraphormerPipeline("quickstart", molecules(sides))
    )
    for group in side.optimizer.param_groups:
        group["lr"] = 1e-3

    def error():
        pairs = [pair for _ in range(2) for pair in side.predictions()]
        return float(torch.cat([(a - b).abs().detach() for a, b in pairs]).mean())

    before = error()
    seconds = [side.train_epoch() for _ in range(30)]
    assert min(seconds) > 0
    assert error() < 0.8 * before
    assert side.parameters == {"gin": 6_657_006, "graphormer": 486_225}[name]


def test_all_sides_are_recorded(tmp_path, monkeypatch):
    program = load_program("training_speed")
    file = tmp_path / program.SETS["qm9"]
    file.parent.mkdir(parents=True)
    with gzip.open(file, "wt") as table:
        table.write("\n".join(["smiles", *SMILES]) + "\n")
    fake = tmp_path / "python"
    (tmp_path / "chemprop.py").write_text(CHEMPROP)
    fake.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path / 'chemprop.py'}\n")
    fake.chmod(0o755)
    for side in (program.Molslice, program.PygGin, program.GraphormerPipeline):
        monkeypatch.setattr(side, "imports", "pass")
    sizes = [
        "--rows",
        "8",
        "--slow-rows",
        "4",
        "--rounds",
        "1",
        "--models",
        "quickstart",
        "--attentions",
        "flow",
    ]
    program.main([*sizes, "--data", str(tmp_path), "--chemprop-python", str(fake), "--out", str(tmp_path)])
    found = json.loads((tmp_path / "training_speed.json").read_text())
    (one,) = found["sets"]
    assert (one["name"], one["rows"], one["median_atoms"]) == ("qm9", 8, 3.0)
    by_name = {side["name"]: side for side in one["sides"]}
    assert list(by_name) == [
        "molslice quickstart flow",
        "molslice qm9 softmax",
        "PyG GIN-virtual 5 x 600",
        "Graphormer rewrite quickstart",
        "chemprop 0.0",
    ]
    chemprop, ours = by_name["chemprop 0.0"], by_name["molslice quickstart flow"]
    assert (chemprop["microseconds"], chemprop["prepare_microseconds"]) == (1e12 / 8, 1e5)
    assert chemprop["example_seconds"] == pytest.approx(2.0 + 10_000 * (0.1 + 20 * 1e6 / 8))
    assert ours["times_as_fast_as"]["chemprop 0.0"] == pytest.approx(1e12 / 8 / ours["microseconds"])
    assert by_name["PyG GIN-virtual 5 x 600"]["rows"] == 4


def test_a_folder_without_molecules_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        load_program("training_speed").main(["--data", str(tmp_path)])
    assert "has none of" in capsys.readouterr().err
