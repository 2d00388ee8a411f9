"""Mixing and sorting equals its definition: by torch, and by Triton kernels, interpreted or on a GPU."""

import pytest
import torch

from tests.ops.triton_devices import each_device

# isort: split
from molslice.ops import kernel_choice, mixed_sort, triton_mix
from molslice.ops.masked import pair_softmax
from molslice.ops.mixed_sort import has_kernels, mix_and_sort

FORMS = ("torch", "kernels")
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # of the largest entry


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    if request.param == "kernels":
        monkeypatch.setattr(mixed_sort, "_TRITON", triton_mix)
        monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda tokens: True)
    return request.param


def draw(shape, dtype, device):
    """Return values, weights and mask; the padding of the second sequence is in between."""
    batch, length, heads, channels = shape
    mask = torch.ones(batch, length, dtype=torch.bool)
    mask[-1, (length + 1) // 2 :] = False
    mask[-1] = mask[-1].roll(length // 3)
    values = torch.randn(shape).to(device, dtype).requires_grad_()
    weights = pair_softmax(torch.randn(batch, heads, length, length), mask)
    return values, weights.to(device, dtype).requires_grad_(), mask.to(device)


def define(values, weights, mask, descending, kept=1.0):
    """Sort the mixed values of each sequence and channel in float64, at the places of its real tokens."""
    mixed = torch.einsum("bhnm,bmhc->bnhc", weights.double() * kept, values.double())
    columns = torch.zeros_like(mixed)
    for b in range(len(mixed)):
        real = mask[b].nonzero()[:, 0]
        ascending = mixed[b, real].sort(0).values
        chosen = ascending if descending is None else torch.where(descending, ascending.flip(0), ascending)
        columns[b] = columns[b].index_copy(0, real, chosen)
    return columns


def define_exchange(values, weights, mask):
    """Exchange the largest mixed value of each sequence and channel with the first, in float64."""
    mixed = torch.einsum("bhnm,bmhc->bnhc", weights.double(), values.double())
    columns = torch.zeros_like(mixed)
    for b in range(len(mixed)):
        real = mask[b].nonzero()[:, 0]
        for h, c in torch.cartesian_prod(*map(torch.arange, mixed.shape[2:])):
            column = list(mixed[b, real, h, c])
            largest = max(range(len(column)), key=column.__getitem__)
            column[0], column[largest] = column[largest], column[0]
            columns[b, real, h, c] = torch.stack(column)
    return columns


def close(result, expected, dtype):
    return (result.double() - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max().clamp(min=1)


@each_device
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("flags", [False, True])
@pytest.mark.parametrize("shape", [(2, 7, 2, 5), (2, 16, 4, 24), (1, 24, 1, 20), (2, 1, 1, 3), (1, 33, 1, 4)])
def test_values_and_gradients(shape, flags, dtype, device, form):
    values, weights, mask = draw(shape, dtype, device)
    descending = (
        (torch.arange(shape[2] * shape[3], device=device) % 3 == 0).view(shape[2:]) if flags else None
    )
    columns, _ = mix_and_sort(values, weights, mask, descending)
    real = mask[:, :, None, None]
    assert columns.dtype == dtype
    assert close(columns.masked_fill(~real, 0.0), define(values, weights, mask, descending), dtype)
    if dtype != torch.float32:
        return  # the order of values that are equal after rounding is another
    slope = torch.randn(shape, device=device)
    gradients = torch.autograd.grad((columns * slope).masked_fill(~real, 0.0).sum(), [values, weights])
    expected = define(values, weights, mask, descending)
    defined = torch.autograd.grad((expected * slope).sum(), [values, weights])
    pairs = (mask[:, None] & mask[:, :, None])[:, None]
    assert close(gradients[0].masked_fill(~real, 0.0), defined[0].masked_fill(~real, 0.0), dtype)
    assert close(gradients[1].masked_fill(~pairs, 0.0), defined[1].masked_fill(~pairs, 0.0), dtype)


@each_device
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(2, 7, 2, 5), (2, 16, 1, 20), (2, 1, 1, 3), (2, 33, 1, 4)])
def test_values_and_gradients_of_an_exchange(shape, dtype, device, form):
    values, weights, mask = draw(shape, dtype, device)
    columns, _ = mix_and_sort(values, weights, mask, exchanges=True)
    real = mask[:, :, None, None]
    assert columns.dtype == dtype
    exchanged, expected = columns.masked_fill(~real, 0.0), define_exchange(values, weights, mask)
    if dtype != torch.float32:  # the largest of values that are equal after rounding is another
        assert close(exchanged[:, 0], expected[:, 0], dtype)
        assert close(exchanged.sort(1).values, expected.sort(1).values, dtype)
        return
    assert close(exchanged, expected, dtype)
    slope = torch.randn(shape, device=device)
    gradients = torch.autograd.grad((columns * slope).masked_fill(~real, 0.0).sum(), [values, weights])
    defined = torch.autograd.grad((expected * slope).sum(), [values, weights])
    pairs = (mask[:, None] & mask[:, :, None])[:, None]
    assert close(gradients[0].masked_fill(~real, 0.0), defined[0].masked_fill(~real, 0.0), dtype)
    assert close(gradients[1].masked_fill(~pairs, 0.0), defined[1].masked_fill(~pairs, 0.0), dtype)


@each_device
def test_the_first_of_equal_values_is_exchanged(device, monkeypatch):
    monkeypatch.setattr(mixed_sort, "_TRITON", triton_mix)
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda tokens: True)
    values = torch.tensor([[9.0, 0, 2, 2, 1, 9], [9, -1, -1, -2, -1, 9], [9, 9, 9, 9, 9, 9]], device=device)
    mask = torch.tensor([[False, True, True, True, True, False]] * 2 + [[False] * 6], device=device)
    weights = torch.eye(6, device=device).expand(3, 1, -1, -1).contiguous()
    columns, places = mixed_sort._mix_and_sort(values[..., None, None], weights, mask, None, None, 0.0, True)
    assert columns.flatten(1).tolist() == [[0, 2, 0, 2, 1, 0], [0, -1, -1, -2, -1, 0], [0] * 6]
    assert places.flatten(1).tolist() == [[0, 2, 1, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]


@each_device
@pytest.mark.parametrize("flags", [False, True])
@pytest.mark.parametrize("length", [2, 9, 15, 17, 19, 27, 32, 40])
def test_equal_values_keep_their_order(length, flags, device, monkeypatch):
    monkeypatch.setattr(mixed_sort, "_TRITON", triton_mix)
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda tokens: True)
    shape = (2, length, 1, 20)
    values = torch.randint(-2, 3, shape, device=device).to(torch.bfloat16)
    _, _, mask = draw(shape, torch.bfloat16, device)
    weights = torch.eye(length, device=device, dtype=torch.bfloat16).expand(2, 1, -1, -1).contiguous()
    descending = (torch.arange(20, device=device) % 2 == 0).view(1, 20) if flags else None
    columns, places = mixed_sort._mix_and_sort(values, weights, mask, descending, None, 0.0, False)
    for b in range(2):
        real = mask[b].nonzero()[:, 0]
        keys = values[b, real, 0].float()
        keys = keys if descending is None else torch.where(descending[0], -keys, keys)
        order = keys.argsort(stable=True, dim=0)
        assert torch.equal(columns[b, real, 0], values[b, real, 0].gather(0, order))
        assert torch.equal(places[b, real, 0].gather(0, order), real[:, None].expand(-1, 20).to(torch.uint8))
        padding = (~mask[b]).nonzero()[:, 0]
        assert not columns[b, padding].any()
        assert torch.equal(places[b, padding, 0].long(), padding[:, None].expand(-1, 20))


@each_device
@pytest.mark.parametrize("exchanges", [False, True])
def test_kernels_do_not_read_padding(device, monkeypatch, exchanges):
    monkeypatch.setattr(mixed_sort, "_TRITON", triton_mix)
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda tokens: True)
    values, weights, mask = draw((2, 8, 4, 6), torch.float32, device)
    real, pairs = mask[:, :, None, None], (mask[:, None] & mask[:, :, None])[:, None]
    slope = torch.randn(values.shape, device=device)
    results = []
    for filler in (0.0, torch.nan):
        leaves = [values.masked_fill(~real, filler).detach(), weights.masked_fill(~pairs, filler).detach()]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        columns, _ = mix_and_sort(*leaves, mask, exchanges=exchanges)
        gradients = torch.autograd.grad(columns, leaves, slope.masked_fill(~real, filler))
        results.append((columns, *gradients))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    assert not results[0][0].masked_fill(real, 0.0).any()
    assert not results[0][1].masked_fill(real, 0.0).any()


@each_device
def test_gradients_of_the_weights_are_added_along_the_layers(device, form):
    values, weights, mask = draw((2, 6, 4, 4), torch.float32, device)
    handed_on, columns, defined = weights, [], []
    for factor in (1.0, 0.5, -1.0):
        result, handed_on = mix_and_sort(values * factor, handed_on, mask)
        columns.append(result.masked_fill(~mask[:, :, None, None], 0.0))
        defined.append(define(values * factor, weights, mask, None))
    slopes = [torch.randn(one.shape, device=device) for one in columns]
    (by_weights,) = torch.autograd.grad(columns, [weights], slopes)
    (expected,) = torch.autograd.grad(defined, [weights], [slope.double() for slope in slopes])
    pairs = (mask[:, None] & mask[:, :, None])[:, None]
    assert close(by_weights.masked_fill(~pairs, 0.0), expected.masked_fill(~pairs, 0.0), torch.float32)


@each_device
def test_dropout_is_that_of_the_weights(device, form):
    length = 13
    _, weights, mask = draw((2, length, 4, 1), torch.float32, device)
    mask = torch.ones_like(mask)
    # one value is not zero, so that its weight is the only value of a column that is not zero
    values = torch.zeros(2, length, 4, length, device=device)
    values[:, torch.arange(length), :, torch.arange(length)] = 1.0
    values.requires_grad_()
    weights = (weights + 0.1).detach().requires_grad_()

    def run(seed):
        torch.manual_seed(seed)
        return mix_and_sort(values, weights, mask, None, 0.25)[0]

    columns = run(3)
    assert torch.equal(columns, run(3))
    assert not torch.equal(columns, run(4))
    kept = (columns != 0).float().mean()  # of all weights, because a column holds those of one token
    assert 0.65 < kept < 0.85
    (by_weights,) = torch.autograd.grad(columns.sum(), [weights])
    assert by_weights.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert (by_weights != 0).float().mean() == pytest.approx(float(kept), abs=1e-6)
    total = (weights * by_weights).sum()
    torch.testing.assert_close(columns.sum(), total, rtol=1e-4, atol=1e-4)


def test_what_the_kernels_serve(monkeypatch):
    monkeypatch.setattr(mixed_sort, "_TRITON", triton_mix)
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda tokens: True)

    def serves(length, channels, dtype=torch.bfloat16):
        return has_kernels(torch.zeros(1, length, 2 * channels), channels, dtype)

    assert serves(64, 128)
    assert serves(1, 1, torch.float32)
    assert not serves(65, 8)
    assert not serves(8, 129)
    assert not serves(8, 8, torch.float64)
    assert not serves(0, 8)
    with kernel_choice.torch_forms():
        assert not serves(8, 8)


def test_kernels_are_off_within_torch_forms():
    before = kernel_choice.ENABLED
    with kernel_choice.torch_forms():
        assert not kernel_choice.ENABLED
    assert kernel_choice.ENABLED is before
