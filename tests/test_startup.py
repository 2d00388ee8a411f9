"""What the commands import, which decides about the time until they answer."""

import json
import subprocess
import sys

import pytest
import torch

from molslice.model.skeleton import without_memory
from tests.programs import ROOT, load_program

# each of them takes from a tenth of a second to two seconds
SLOW = ("pandas", "pyarrow", "sklearn", "lightning", "lightning_fabric", "scipy", "ogb", "torch_geometric")
SLOW = (*SLOW, "matplotlib", "fsspec", "torch._dynamo", "torch._inductor", "sympy", "torch.distributed.fsdp")


def imported(*words):
    """Return the modules that a command imports."""
    program = "import json, sys\nfrom molslice.cli import main\ntry:\n    main(sys.argv[1:])\n"
    program += "finally:\n    sys.stderr.write('modules ' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=ROOT)  # noqa: PLW1510
    return json.loads(done.stderr.rpartition("modules ")[2])


@pytest.mark.parametrize("words", [["--help"], ["predict", "--help"]])
def test_the_help_imports_neither_torch_nor_numpy(words):
    found = imported(*words)
    assert "molslice.cli.predict" in found
    heavy = ("torch", "numpy", "rdkit", "yaml", "jaxtyping", *SLOW)
    assert [name for name in heavy if name in found] == []


def test_a_prediction_imports_only_what_it_needs():
    found = imported("predict", "gap-xtb", "--smiles", "CCO")
    assert {"torch", "rdkit.Chem", "molslice.inference.network"} <= set(found)
    assert [name for name in SLOW if name in found] == []
    assert [name for name in found if name.startswith(("molslice.training", "molslice.serve"))] == []


def test_modules_without_memory_have_shapes_and_no_values():
    before = torch.random.get_rng_state()
    with without_memory():
        layer = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Embedding(7, 2), torch.nn.LSTM(2, 2))
        torch.nn.init.normal_(layer[0].weight)
        torch.nn.init.trunc_normal_(layer[0].weight)
        torch.nn.init.xavier_uniform_(layer[0].weight)
    assert {tensor.device.type for tensor in layer.state_dict().values()} == {"meta"}
    assert layer[0].weight.shape == (5, 3)
    assert torch.equal(torch.random.get_rng_state(), before)
    weight = torch.nn.init.normal_(torch.empty(4))
    assert weight.isfinite().all()
    assert weight.unique().numel() == 4


def test_the_benchmark_times_each_command(tmp_path, capsys):
    program = load_program("startup")
    program.COMMANDS = {name: program.COMMANDS[name] for name in ("python", "help")}
    program.main(["--rounds", "1", "--out", str(tmp_path)])
    results = json.loads((tmp_path / "startup.json").read_text())["results"]
    assert [one["command"] for one in results] == ["python", "help"]
    assert 0 < results[0]["processor_seconds"] < results[1]["processor_seconds"]
    assert results[1]["modules"] > 50
    assert "of processor time" in capsys.readouterr().out
