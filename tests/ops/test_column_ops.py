"""Tests of the operators on columns: kernels against PyTorch operations, gradients, transforms, threads."""

import multiprocessing
import os
import subprocess
import sys

import pytest
import torch

from molslice.ops import column_ops, kernel_choice
from molslice.ops.column_ops import index_dtype, permute_by_torch, sort_by_torch
from molslice.ops.sorting import permute_groups, permute_tokens, sort_columns, sorted_columns
from tests.ops.test_sorting import some_columns

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def some_groups(batch, groups, columns, length, dtype, layout="BGCN"):
    """Return columns [B, G, C, N] in a layout, with ties, 0.0, -0.0 and infinities, and their masks."""
    keys, mask = some_columns(length, dtype, batch, groups * columns)
    keys = keys.unflatten(1, (groups, columns))
    keys[:, :, :, :1] = torch.inf
    out = column_ops.empty_columns(keys, layout, dtype)
    out.copy_(keys)
    return out, mask


LAYOUTS = ["BNGC", "BGNC", "BGCN"]
# Widths and lengths on both sides of every way in which blocks are cut
SHAPES = [(3, 2, 5, 17), (2, 1, 3, 1), (40, 8, 4, 24), (2, 3, 20, 700), (1, 1, 2, 40_000), (1, 1, 1, 70_000)]
# Every dtype in every layout for the first shape; each dtype and each layout for the others
CASES = [
    (shape, dtype, layout)
    for s, shape in enumerate(SHAPES)
    for d, dtype in enumerate(DTYPES)
    for k, layout in enumerate(LAYOUTS)
    if s == 0 or k == (s + d) % 3
]


@pytest.mark.parametrize(
    ("shape", "dtype", "layout"),
    CASES,
    ids=["-".join(["x".join(map(str, shape)), str(dtype), layout]) for shape, dtype, layout in CASES],
)
def test_kernels_equal_the_torch_forms(shape, dtype, layout, two_threads):
    values, mask = some_groups(*shape, dtype, layout)
    descending = (torch.arange(shape[1] * shape[2]) % 3 == 1).view(shape[1:3])
    for packed, flags, to_front in [
        (False, None, False),
        (True, descending, False),
        (False, descending, True),
    ]:
        mask = torch.arange(shape[3]) < mask.sum(1, keepdim=True) if packed else mask
        expected, expected_order = sort_by_torch(
            values, mask, None if flags is None else flags[None], to_front
        )
        found, order = sort_columns(values, mask, flags, to_front)
        assert order.dtype == index_dtype(shape[3])
        assert torch.equal(order.long(), expected_order)
        assert torch.equal(found, expected)
        assert torch.equal(sorted_columns(values, mask, flags, to_front), expected)
        assert found.flatten(1, 2).transpose(1, 2).is_contiguous()
        assert torch.equal(values.gather(-1, order.long()), found)
        for inverse in (False, True):
            moved = column_ops.permute_op(values, order, inverse, layout)
            assert torch.equal(moved, permute_by_torch(values, order, inverse))
            assert column_ops.layout_of(moved) == column_ops.layout_of(values)


def test_the_result_does_not_depend_on_threads(two_threads):
    values, mask = some_groups(7, 3, 9, 1300, torch.float32)
    many = sort_columns(values, mask)
    torch.set_num_threads(5)
    more = sort_columns(values, mask)
    torch.set_num_threads(1)
    one = sort_columns(values, mask)
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(one, many, more, strict=True))


def _sort_in_child(values, mask, results):
    torch.set_num_threads(2)
    # numpy's sum: torch's own threads do not survive a fork.
    results.put(float(sort_columns(values, mask)[0].numpy().sum()))


def test_threads_survive_a_fork(two_threads):
    values, mask = torch.rand(7, 3, 9, 500), torch.rand(7, 500) > 0.3
    expected = float(sort_columns(values, mask)[0].numpy().sum())
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_sort_in_child, args=(values, mask, results))
    child.start()
    assert results.get(timeout=60) == expected
    child.join(timeout=60)
    assert child.exitcode == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", ["BNGC", "BGNC", "BGCN"])
def test_gradients_return_to_their_tokens(dtype, layout):
    values, mask = some_groups(3, 2, 4, 21, dtype, layout)
    values = values.clamp(-9, 9).requires_grad_()
    descending = torch.tensor([[True, False, False, True], [False, True, False, False]])
    weight = torch.randn_like(values)
    for flags, to_front in [(None, False), (descending, False), (descending, True)]:
        batched = None if flags is None else flags[None]
        order = sort_by_torch(values, mask, batched, to_front)[1]
        (expected,) = torch.autograd.grad((values.gather(-1, order) * weight).sum(), values)
        found = sort_columns(values, mask, flags, to_front)[0], sorted_columns(values, mask, flags, to_front)
        for each in found:
            (by_values,) = torch.autograd.grad((each * weight).sum(), values)
            assert torch.equal(by_values, expected)


def test_second_derivatives():
    values = torch.randn(2, 1, 2, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, True], [True, False, True]])
    order = torch.stack([torch.randperm(3) for _ in range(2)]).view(2, 1, 3).to(torch.uint8)

    def cubes(values):
        ranked, order_of = sort_columns(values, mask)
        moved = permute_groups(ranked.sin(), order, inverse=True)
        return (moved**3).sum(), (permute_tokens(moved[:, 0], order_of[:, 0]) ** 3).sum()

    assert torch.autograd.gradcheck(cubes, values)
    assert torch.autograd.gradgradcheck(cubes, values)


def test_transforms_of_functions():
    values, mask = some_groups(3, 2, 4, 9, torch.float32)
    values = torch.randn(5, *values.shape)
    descending = torch.tensor([[True, False, False, True], [False, True, False, False]])

    def loss(values, mask):
        total = (sort_columns(values, mask, descending)[0] ** 3).sum()
        return total + (sorted_columns(values, mask, descending).cos() * torch.arange(9)).sum()

    found = torch.func.vmap(torch.func.grad(loss), (0, None))(values, mask)
    expected = torch.stack([torch.func.grad(loss)(x, mask) for x in values])
    assert torch.equal(found, expected)
    leaf = values.clone().requires_grad_()
    torch.func.vmap(loss, (0, None))(leaf, mask).sum().backward()
    assert torch.equal(leaf.grad, expected)
    flags = torch.stack([descending, ~descending])
    found = torch.func.vmap(lambda flags: sort_columns(values[0], mask, flags)[0])(flags)
    assert torch.equal(found[1], sort_columns(values[0], mask, ~descending)[0])


def test_compiled_transforms_and_the_operator_without_gradients():
    """Runs in a separate process, because the shape checks of the tests cannot be compiled."""
    program = """
import torch
from molslice.ops.sorting import sorted_columns

values, mask = torch.randn(2, 3, 7), torch.rand(2, 7) > 0.2
weighted = lambda values: (sorted_columns(values, mask) * torch.arange(7)).sum()
expected = torch.func.grad(weighted)(values)
for transform in (torch.func.grad, torch.func.jacrev):
    compiled = torch.compile(transform(weighted), backend="eager", fullgraph=True)
    assert torch.equal(compiled(values), expected)
    with torch.no_grad():
        assert torch.equal(compiled(values), expected)

class Sorted(torch.nn.Module):
    def forward(self, values, mask):
        return sorted_columns(values, mask)

operator = torch.ops.molslice.sorted_columns.default
for strict in (False, True):
    with torch.no_grad():
        program = torch.export.export(Sorted(), (values, mask), strict=strict)
    assert operator in [node.target for node in program.graph.nodes]
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_torch_forms_can_be_forced(monkeypatch):
    values, mask = some_groups(3, 2, 4, 9, torch.float32)
    expected = sort_columns(values, mask)
    monkeypatch.setattr(kernel_choice, "ENABLED", False)
    monkeypatch.setattr(column_ops.numpy_sort, "sort_blocks", None)
    found = sort_columns(values, mask)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert torch.equal(
        permute_tokens(values[:, 0], found[1][:, 0]), values[:, 0].gather(-1, found[1][:, 0].long())
    )


def test_nothing_to_sort():
    for shape in [(0, 1, 4, 3), (2, 1, 0, 3), (2, 1, 4, 0)]:
        values, mask = torch.zeros(shape), torch.ones(shape[0], shape[3], dtype=torch.bool)
        ranked, order = sort_columns(values, mask)
        assert ranked.shape == order.shape == sorted_columns(values, mask).shape == shape
        assert permute_groups(values, torch.zeros(*shape[:2], shape[3], dtype=torch.uint8)).shape == shape
