"""The Triton kernels of paths and of the pair bias: interpreted on a CPU, compiled on a GPU.

See `triton_devices.py`.
"""

import pytest
import torch

from tests.ops.triton_devices import HAS_CUDA, each_device

# isort: split
from molslice.ops import kernel_choice, triton_path_bias, triton_path_codes
from molslice.ops import path_bias as bias_module
from molslice.ops import path_codes as codes_module
from molslice.ops.path_bias import path_bias
from molslice.ops.path_codes import CODE_BITS, bond_codes, code_adjacency, path_codes
from molslice.ops.paths import MAX_HOPS
from molslice.types import PathCodes
from tests.ops.test_path_codes import ODD, batch_of


@each_device
@pytest.mark.parametrize("width", [1, 9, 16, 17, 64])
def test_codes_equal_those_of_torch(width, device):
    graphs = [graph for graph in ODD if graph[0] <= width]
    bond_index, features, batch, atoms = batch_of(graphs, width)
    adjacency = code_adjacency(bond_index, bond_codes(features), batch, atoms)
    expected = path_codes(adjacency)
    distance = torch.full(adjacency.shape, 7, dtype=torch.int16, device=device)
    bonds = torch.full(adjacency.shape, 7, dtype=torch.int32, device=device)
    triton_path_codes.codes_into(adjacency.to(device), distance, bonds, MAX_HOPS, CODE_BITS)
    assert torch.equal(distance.cpu(), expected.distance)
    assert torch.equal(bonds.cpu(), expected.bonds)


def test_longer_molecules_take_the_form_of_torch():
    assert triton_path_codes.supports(torch.zeros(2, 64, 64, dtype=torch.uint8))
    assert not triton_path_codes.supports(torch.zeros(2, 65, 65, dtype=torch.uint8))
    assert not triton_path_codes.supports(torch.zeros(0, 8, 8, dtype=torch.uint8))
    assert triton_path_bias.supports(torch.zeros(53, 8))
    assert not triton_path_bias.supports(torch.zeros(513, 8))


@pytest.fixture
def _kernels(monkeypatch):
    monkeypatch.setattr(codes_module, "_TRITON", triton_path_codes)
    monkeypatch.setattr(bias_module, "_TRITON", triton_path_bias)
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda table: table.dtype == torch.float32)


@each_device
@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize(("batch", "atoms", "heads"), [(3, 5, 3), (2, 17, 32), (1, 1, 8), (2, 12, 40)])
def test_values_and_gradients_equal_float64(batch, atoms, heads, device):
    distance = torch.randint(-1, 55, (batch, atoms, atoms), dtype=torch.int16)
    bonds = torch.randint(2**30, (batch, atoms, atoms), dtype=torch.int32)
    codes = PathCodes(distance, bonds, distance.long()[..., 0]).to(device)
    spatial, hops = torch.randn(53, heads, device=device), torch.randn(5, 64, heads, device=device)
    hops[:, 0] = 0.0
    leaves = [spatial.requires_grad_(), hops.requires_grad_()]
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    fast, slow = path_bias(codes, *leaves), path_bias(codes, *wide)
    torch.testing.assert_close(fast.double(), slow, rtol=0, atol=1e-5)
    weight = torch.randn(slow.shape, device=device)
    fast_gradients = torch.autograd.grad((fast * weight).sum(), leaves)
    slow_gradients = torch.autograd.grad((slow * weight).sum(), wide)
    torch.testing.assert_close(fast_gradients[0].double(), slow_gradients[0], rtol=0, atol=1e-4)
    # nothing is learned from the gradient of the code of no bond
    torch.testing.assert_close(fast_gradients[1][:, 1:].double(), slow_gradients[1][:, 1:], rtol=0, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no GPU")
@pytest.mark.usefixtures("_kernels")
def test_sizes_of_molecules_on_a_gpu():
    test_values_and_gradients_equal_float64(200, 30, 32, "cuda")
