"""Compile all Triton kernels for a GPU that need not exist, and print their names.

Run by `test_kernels_compile.py` as a program, because the other tests interpret the kernels in their process.
The operators are called with tensors in host memory, whose contents no kernel sees.
"""

import contextlib
import sys

import torch

CAPABILITY = int(sys.argv[1])  # such as 90
torch.backends.cuda.is_built = lambda: True  # read by `load_kernels`
torch.cuda.device_of = lambda tensor: contextlib.nullcontext()

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

from molslice.ops import column_ops, kernel_choice  # noqa: E402
from molslice.ops.folded_attention import FoldingMaps, folded_attention  # noqa: E402
from molslice.ops.layer_steps import add_and_norm, gelu_and_drop  # noqa: E402
from molslice.ops.mixed_sort import mix_and_sort  # noqa: E402
from molslice.ops.packed_attention import packed_attention  # noqa: E402
from molslice.ops.path_bias import path_bias  # noqa: E402
from molslice.ops.path_codes import path_codes  # noqa: E402
from molslice.ops.sorting import permute_tokens, sort_columns, sorted_columns  # noqa: E402
from molslice.ops.table_sums import table_sums  # noqa: E402
from molslice.types import PathCodes  # noqa: E402

HALF = torch.bfloat16
HEADS = 4
MIDDLE = 22  # tokens, no multiple of 8
SMALLEST_SHARED = 99 * 1024  # bytes of shared memory of a program, on GPUs of capability 8.6 and 8.9
compiled = set()
launch = JITFunction.run


class Device:
    """The driver of a GPU of this compute capability."""

    def get_current_target(self):
        return GPUTarget("cuda", CAPABILITY, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=0):
        return 0

    def is_active(self):
        return True


def compile_only(self, *args, grid, warmup, **settings):
    compiled.add(f"{self.fn.__module__.rpartition('.')[2]}.{self.fn.__name__}")
    kernel = launch(self, *args, grid=grid, warmup=True, **settings)
    assert kernel.asm["cubin"]
    assert kernel.metadata.shared <= SMALLEST_SHARED, self.fn.__name__
    return kernel


def leaf(*shape, dtype=HALF):
    return torch.zeros(shape, dtype=dtype).requires_grad_()


def compile_heads(length, channels):
    """Compile the kernels of attentions for a length and a number of channels per head."""
    mask = torch.ones(2, length, dtype=torch.bool)
    packed, added = leaf(2, length, 3, HEADS, channels), leaf(3 * HEADS * channels)
    bias, carry = leaf(2, HEADS, length, length), leaf(2, HEADS, channels, channels)
    for kind, dropout in (("softmax", 0.1), ("softmax", 0.0), ("flow", 0.0)):
        heads, handed_on = packed_attention(packed, bias, mask, dropout, added, kind)
        following, _ = packed_attention(packed, handed_on, mask, dropout, added, kind)
        (heads.sum() + following.sum()).backward()
    maps = FoldingMaps(leaf(2, channels, length), leaf(2, channels, length), leaf(2, length, channels))
    for dropout in (0.1, 0.0):
        _, scores, squares = folded_attention(packed, added, maps, bias, None, mask, dropout)
        heads, scores, squares = folded_attention(packed, added, maps, bias, scores + carry, mask, dropout)
        (heads.sum() + scores.sum() + squares.sum()).backward()
    flags = torch.ones(HEADS, channels, dtype=torch.bool)
    for dtype in (HALF, torch.float32) if length == MIDDLE else (HALF,):
        values, weights = leaf(2, length, HEADS, channels, dtype=dtype), leaf(2, HEADS, length, length)
        for options in ((None, 0.1), (flags, 0.0), (None, 0.0, None, True)):
            columns, handed_on = mix_and_sort(values, weights.to(dtype), mask, *options)
            following, _ = mix_and_sort(values, handed_on, mask, *options)
            (columns.sum() + following.sum()).backward()


def compile_layer_steps(width):
    """Compile the kernels between the products of a layer."""
    tokens, change, bias = leaf(6, width), leaf(6, width), leaf(width)
    norm = torch.nn.LayerNorm(width).to(HALF)
    for dropout in (0.1, 0.0):
        for given in (tokens, None):
            total, normed = add_and_norm(given, change, bias, norm, dropout, HALF, torch.float32)
            (total.sum() + normed.sum()).backward()
        gelu_and_drop(change, bias, dropout).sum().backward()


def compile_graphs(atoms):
    """Compile the kernels of paths, of the pair bias and of sums of embeddings."""
    codes = path_codes(torch.zeros(2, atoms, atoms, dtype=torch.uint8))
    empty = [torch.zeros_like(one) for one in (codes.distance, codes.bonds, codes.degree)]
    for dtype in (torch.float32, HALF):
        path_bias(
            PathCodes(*empty), leaf(53, HEADS, dtype=dtype), leaf(5, 64, HEADS, dtype=dtype)
        ).sum().backward()
        table_sums(leaf(60, 48, dtype=dtype), torch.zeros(2, atoms, 9, dtype=torch.uint8)).sum().backward()


def compile_sorts(length):
    """Compile the sorts and permutations of columns."""
    mask = torch.ones(2, length, dtype=torch.bool)
    for dtype in (torch.float32, HALF):
        columns = leaf(2, HEADS, length, dtype=dtype)
        ranked, order = sort_columns(columns, mask)
        (ranked.sum() + sorted_columns(columns, mask, torch.ones(HEADS, dtype=torch.bool)).sum()).backward()
        permute_tokens(columns, torch.zeros_like(order)).sum().backward()


def main():
    triton.runtime.driver.set_active(Device())
    JITFunction.run = compile_only
    kernel_choice.is_on_gpu = lambda tensor: True
    column_ops._triton_for = lambda columns: column_ops._TRITON
    column_ops._NUMPY_SORTS = ()
    for length in (16, MIDDLE, 64):
        compile_heads(length, 24)
    compile_heads(9, 10)
    for width in (80, 512, 768):
        compile_layer_steps(width)
    for atoms in (15, 53):
        compile_graphs(atoms)
    for length in (22, 200):
        compile_sorts(length)
    sys.stdout.write(" ".join(sorted(compiled)))


if __name__ == "__main__":
    main()
