"""An encoder on kernels equals the same encoder on torch's operations: interpreted on a CPU, or on a GPU."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from molslice.model.base import AttentionChoice
from molslice.model.encoder import Encoder, initialize_linear
from molslice.types import TokenContext
from tests.ops.triton_devices import each_device

# isort: split
from molslice.ops import (
    folded_attention,
    kernel_choice,
    layer_steps,
    mixed_sort,
    packed_attention,
    triton_attention,
    triton_flow,
    triton_folded,
    triton_layers,
    triton_mix,
)

HEADS = 4


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    """Use the kernels on every device."""
    monkeypatch.setattr(folded_attention, "_TRITON", triton_folded)
    kernels = {"softmax": triton_attention, "flow": triton_flow}
    monkeypatch.setattr(packed_attention, "_TRITON", kernels)
    monkeypatch.setattr(layer_steps, "_TRITON", triton_layers)
    monkeypatch.setattr(mixed_sort, "_TRITON", triton_mix)
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda tokens: True)


def build(name, device, dropout=0.0, head_dim=None, num_layers=2, **options):
    torch.manual_seed(0)
    sizes = {"dim": 32, "num_layers": num_layers, "num_heads": HEADS, "ffn_dim": 24, "uses_pair_bias": True}
    rates = {"dropout": dropout, "attention_dropout": dropout}
    name, _, order = name.partition(":")
    choice = AttentionChoice(name, options={"order": order} if order else {})
    encoder = Encoder(choice, **sizes, **rates, head_dim=head_dim, **options)
    initialize_linear(encoder)
    for parameter in encoder.parameters():
        if parameter.ndim == 1 or not parameter.any():  # such as the weights of a pair state
            torch.nn.init.normal_(parameter, std=0.3)
    return encoder.to(device)


def draw(device):
    """Return tokens, mask and bias; padding holds large numbers, and one row has no real token."""
    mask = torch.tensor([[True] * 6, [True] * 3 + [False] * 3, [False] * 6])
    tokens = torch.randn(3, 6, 32).masked_fill(~mask[..., None], 100.0)
    pairs = (mask[:, None] & mask[:, :, None])[:, None]
    bias = torch.randn(3, HEADS, 6, 6).masked_fill(~pairs, 50.0)
    return [one.to(device) for one in (tokens, mask, bias)]


def run(encoder, tokens, mask, bias, half, rows=None):
    tokens, bias = tokens.clone().requires_grad_(), bias.clone().requires_grad_()
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=half == "autocast"):
        encoded, penalty, *_ = encoder(tokens, mask, bias, num_queries=rows if half else None)
    assert encoded.dtype == torch.float32
    assert not (half and rows) or encoded.shape[1] == rows
    encoded, mask = encoded[:, :rows], mask[:, :rows]
    loss = (
        encoded.masked_fill(~mask[..., None], 0.0) * torch.linspace(-1, 2, 32, device=tokens.device)
    ).sum()
    if penalty is not None:
        loss = loss + 10 * penalty
    loss.backward()
    weights = dict(encoder.named_parameters())
    named = {"tokens": tokens.grad, "bias": bias.grad} | {name: one.grad for name, one in weights.items()}
    return encoded[mask].detach(), {name: grad.float() for name, grad in named.items()}


@each_device
@pytest.mark.parametrize("half", ["autocast", "weights"])
@pytest.mark.parametrize("rows", [None, 1, 2])
@pytest.mark.parametrize(
    ("name", "head_dim"),
    [("softmax", None), ("slice_sort", None), ("flow", None), ("singular", None)]
    + [("softmax", 12), ("slice_sort", 12), ("flow", 12), ("singular", 12)]
    + [("slice_sort:max_exchange", None), ("slice_sort:descending", 12)],
)
def test_values_and_gradients(name, head_dim, rows, half, device, monkeypatch):
    calls = []
    add_and_norm_into = triton_layers.add_and_norm_into
    monkeypatch.setattr(
        triton_layers, "add_and_norm_into", lambda *args: [calls.append(1), add_and_norm_into(*args)]
    )
    encoder, inputs = build(name, device, head_dim=head_dim), draw(device)
    with kernel_choice.torch_forms():
        expected, slopes = run(copy.deepcopy(encoder), *inputs, None, rows)
    assert not calls
    if half == "weights":
        encoder.layers.bfloat16()
    encoded, gradients = run(encoder, *inputs, half, rows)
    assert len(calls) == 5
    assert (encoded - expected).norm() < 0.02 * expected.norm()
    for key, slope in slopes.items():
        assert gradients[key].isfinite().all(), key
        # where a sort exchanges two values that differ by rounding, their gradients are exchanged
        bound = 0.4 if name.startswith("slice_sort") else 0.05
        assert (gradients[key] - slope).norm() <= bound * slope.norm() + 0.02, key
    assert not gradients["tokens"][~inputs[1]].any()


@each_device
@pytest.mark.parametrize("name", ["softmax", "slice_sort", "slice_sort:max_exchange", "flow", "singular"])
def test_which_attentions_have_kernels(name, device):
    attention = build(name, device).layers[0].attention
    tokens, mask, bias = draw(device)
    context = TokenContext(mask, bias)
    assert attention.ignores_padding(tokens.bfloat16(), context)
    with kernel_choice.torch_forms():
        assert not attention.ignores_padding(tokens.bfloat16(), context)


@each_device
@pytest.mark.parametrize("name", ["softmax", "slice_sort", "slice_sort:max_exchange", "flow", "singular"])
def test_each_layer_has_its_own_pair_state(name, device):
    encoder, inputs = build(name, device, num_layers=3, pair_state=True), draw(device)
    with kernel_choice.torch_forms():
        expected, slopes = run(copy.deepcopy(encoder), *inputs, None)
    encoded, gradients = run(encoder, *inputs, "autocast")
    assert (encoded - expected).norm() < 0.03 * expected.norm()
    for key, slope in slopes.items():
        if key.startswith("pair_updates"):
            assert (gradients[key] - slope).norm() <= 0.4 * slope.norm() + 0.02, key


@each_device
@pytest.mark.parametrize("name", ["softmax", "slice_sort", "flow", "singular"])
def test_the_only_layer_computes_the_first_row(name, device):
    encoder, inputs = build(name, device, num_layers=1), draw(device)
    with kernel_choice.torch_forms():
        expected, slopes = run(copy.deepcopy(encoder), *inputs, None, 1)
    encoded, gradients = run(encoder, *inputs, "autocast", 1)
    assert (encoded - expected).norm() < 0.02 * expected.norm()
    assert (gradients["bias"] - slopes["bias"]).norm() <= 0.05 * slopes["bias"].norm() + 0.02
    assert not gradients["tokens"][~inputs[1]].any()


@each_device
@pytest.mark.parametrize("name", ["softmax", "slice_sort", "flow", "singular"])
def test_dropout_depends_on_the_seed_alone(name, device):
    encoder, inputs = build(name, device, 0.3), draw(device)
    encoder.layers.bfloat16()

    def encode(seed):
        torch.manual_seed(seed)
        return run(encoder, *inputs, "weights")[0]

    first = encode(1)
    assert torch.equal(first, encode(1))
    assert not torch.equal(first, encode(2))
    assert torch.equal(encoder.eval()(*inputs).tokens, encoder(*inputs).tokens)


@each_device
@pytest.mark.parametrize("name", ["softmax", "slice_sort"])
def test_seeds_are_drawn_by_one_operation_and_differ(name, device, monkeypatch):
    encoder, inputs, seeds = build(name, device, 0.3), draw(device), []
    encoder.layers.bfloat16()
    kept = layer_steps.draw_seed
    for module in (packed_attention, layer_steps, mixed_sort):
        monkeypatch.setattr(module, "draw_seed", lambda *args: seeds.append(kept(*args)) or seeds[-1])
    with Calls() as calls:
        encoder(*inputs)
    assert calls.names.count("aten::randint") == 1
    assert len(seeds) == 9
    assert len({int(seed) for seed in seeds}) == 9
    assert all(seed.shape == (1,) and seed.data_ptr() % 16 == 0 for seed in seeds)
    assert layer_steps._DRAWN.get() is layer_steps._NO_SEEDS


class Calls(TorchDispatchMode):
    """Notes the names of operators."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


@each_device
def test_layers_with_hooks_are_called(device):
    encoder, inputs, calls = build("softmax", device).eval(), draw(device), []
    encoder.layers[1].register_forward_hook(lambda *args: calls.append(args))
    with torch.autocast(device, torch.bfloat16):
        encoder(*inputs)
    assert len(calls) == 1


@each_device
@pytest.mark.parametrize("name", ["slice_sort", "slice_sort:max_exchange"])
def test_rows_of_an_exact_map_where_the_kernel_mixes_and_sorts(name, device):
    attention = build(name, device).eval().layers[0].attention
    tokens, mask, bias = draw(device)
    context = TokenContext(mask, bias)
    assert attention.ignores_padding(tokens, context)
    rows = torch.tensor([0, 4])
    map_rows = attention.exact_rows(tokens, context, rows)
    torch.testing.assert_close(map_rows, attention.exact_map(tokens, context).weights[:, :, rows])
