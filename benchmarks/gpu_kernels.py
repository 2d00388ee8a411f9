"""Measure the kernels of `slice_sort` and `softmax` on a GPU against memory bandwidth and torch's kernels.

On sequences, the forward and backward passes of these are timed: the sort of [B, N, D] as molslice computes
it and with PyTorch operations only, `scaled_dot_product_attention` with the FlashAttention backend and 64
channels per head, and whole layers with their projections. On molecules, it is the sort fused with
softmax(S + E) V, and softmax attention with the bias S + E. Triton sorts up to 512 tokens, torch more.

The lower bound is the time to copy as many bytes as the sort must move. The forward pass reads the values and
writes the sorted values and the indices. The backward pass reads the gradient and the indices and writes the
gradient. Times are medians in milliseconds; in each round all candidates take turns.

    python benchmarks/gpu_kernels.py

Writes `benchmarks/results/NAME.json`. `--device cpu --small` only checks that the program runs.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from record import make_parser, median_and_range, record, take_turns
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from molslice.attention import build_attention
from molslice.ops import column_ops, kernel_choice
from molslice.ops.masked import pair_softmax
from molslice.ops.mixed_sort import mix_and_sort
from molslice.ops.packed_attention import packed_attention
from molslice.ops.sorting import sorted_columns
from molslice.types import AttentionSpec, TokenContext

CHANNELS = 64  # per head, on sequences
LENGTHS = (256, 1024, 4096, 16384)
Step = Callable[[], object]


def without_kernels(step: Step) -> Step:
    """Return the step without the kernels of molslice."""

    def run() -> None:
        with kernel_choice.torch_forms():
            step()

    return run


def draw(*shape: int, options: argparse.Namespace) -> Tensor:
    """Return normally distributed numbers that require a gradient."""
    return torch.randn(*shape, device=options.device, dtype=options.dtype, requires_grad=True)


def backward_of(make: Callable[[], Tensor], leaves: list[Tensor]) -> Step:
    """Return a step that runs `make` forward and backward, with a fixed upstream gradient."""
    upstream = torch.randn_like(make())
    return lambda: torch.autograd.grad(make(), leaves, upstream)


def sequence_steps(batch: int, length: int, width: int, options: argparse.Namespace) -> dict[str, Step]:
    """Return the steps to time on sequences."""
    mask = torch.ones(batch, length, dtype=torch.bool, device=options.device)
    values = draw(batch, length, width, options=options)
    query, key, value = (draw(batch, width // CHANNELS, length, CHANNELS, options=options) for _ in range(3))
    tokens, context = draw(batch, length, width, options=options), TokenContext(mask)
    index = column_ops.index_dtype(length).itemsize
    moved = torch.empty(
        (2 * values.itemsize + index) * values.numel(), dtype=torch.uint8, device=options.device
    )
    target = torch.empty_like(moved)

    def sort() -> Tensor:
        return sorted_columns(values.transpose(1, 2), mask)

    def attend() -> Tensor:
        backend = SDPBackend.FLASH_ATTENTION if options.device == "cuda" else SDPBackend.MATH
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(query, key, value)

    layers = {}
    for name in ("slice_sort", "softmax"):
        layer = build_attention(name, AttentionSpec(width, width // CHANNELS)).to(
            options.device, options.dtype
        )
        leaves = [tokens, *layer.parameters()]
        layers[f"layer {name}"] = backward_of(lambda layer=layer: layer(tokens, context).tokens, leaves)
    step = backward_of(sort, [values])
    return {
        # A copy reads and writes each byte, so it copies half of the bytes that the sort reads and writes.
        "floor": lambda: target.copy_(moved),
        "sort": step,
        "sort, torch form": without_kernels(step),
        "scaled_dot_product_attention": backward_of(attend, [query, key, value]),
        **layers,
    }


def molecule_steps(batch: int, length: int, width: int, options: argparse.Namespace) -> dict[str, Step]:
    """Return the steps to time on molecules, with 8 heads and a pair bias."""
    heads = 8
    shape = (batch, heads, length, width // heads)
    count = torch.randint(length // 2, length + 1, (batch, 1), device=options.device)
    mask = torch.arange(length, device=options.device) < count
    query, key, value = (draw(*shape, options=options) for _ in range(3))
    bias = draw(batch, heads, length, length, options=options)
    weights = pair_softmax(bias, mask).detach().requires_grad_()
    floor = torch.finfo(options.dtype).min / 2

    def attend() -> Tensor:
        masked = bias.masked_fill(~mask[:, None, None], floor)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=masked)

    def attend_by_kernel() -> Tensor:
        packed = torch.stack([tensor.transpose(1, 2) for tensor in (query, key, value)], 2)
        return packed_attention(packed, bias, mask)[0]

    by_token = value.transpose(1, 2)
    mixed = backward_of(lambda: mix_and_sort(by_token, weights, mask)[0], [value, weights])
    exchanged = backward_of(
        lambda: mix_and_sort(by_token, weights, mask, exchanges=True)[0], [value, weights]
    )
    steps = {
        "mix and sort": mixed,
        "mix and sort, torch form": without_kernels(mixed),
        "mix and exchange": exchanged,
        "mix and exchange, torch form": without_kernels(exchanged),
        "scaled_dot_product_attention with bias": backward_of(attend, [query, key, value, bias]),
    }
    if options.device == "cuda":  # the kernel has no other form
        steps["attention with bias"] = backward_of(attend_by_kernel, [query, key, value, bias])
    return steps


def milliseconds(step: Step, device: str, repeats: int) -> float:
    """Return the mean time of one step, in milliseconds."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(repeats):
            step()
        return 1000 * (time.perf_counter() - start) / repeats
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(repeats):
        step()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / repeats


def measure(steps: dict[str, Step], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return median, minimum and maximum time of each step. In each round the steps take turns."""
    for step in steps.values():
        milliseconds(step, options.device, 3)
    calls = {
        label: partial(milliseconds, step, options.device, options.repeats) for label, step in steps.items()
    }
    return {label: median_and_range(values) for label, values in take_turns(calls, options.rounds).items()}


def check_kernels(options: argparse.Namespace) -> None:
    """Check that the kernels give the same result as the PyTorch operations at the measured lengths."""
    for length in (24, *LENGTHS):
        values = draw(2, length, 64, options=options).detach().transpose(1, 2)
        mask = torch.arange(length, device=options.device) < torch.tensor([[length], [length - 7]]).to(
            values.device
        )
        result = sorted_columns(values, mask)
        with kernel_choice.torch_forms():
            expected = sorted_columns(values, mask)
        if not torch.equal(result, expected):
            raise AssertionError(f"the kernel and the PyTorch operations differ at {length} tokens")


def main() -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=1 << 17, help="tokens of a batch")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="small sizes, to check that the program runs")
    parser.add_argument("--name", default="gpu_kernels")
    options = parser.parse_args()
    options.dtype = getattr(torch, options.dtype)
    if options.small:
        options.width, options.tokens, options.rounds, options.repeats = 64, 4096, 2, 1
    check_kernels(options)
    rows = []
    for length in (64, 256) if options.small else LENGTHS:
        batch = max(1, options.tokens // length)
        steps = sequence_steps(batch, length, options.width, options)
        rows.append({"batch": batch, "tokens": length, "width": options.width, "ms": measure(steps, options)})
    batch = 8 if options.small else 4096
    steps = molecule_steps(batch, 24, 256, options)
    rows.append({"batch": batch, "tokens": 24, "width": 256, "ms": measure(steps, options)})
    for row in rows:
        size = f"{row['batch']} x {row['tokens']} x {row['width']}"
        base = row["ms"].get("sort", row["ms"].get("mix and sort"))["median"]
        for label, times in row["ms"].items():
            print(f"{size:18} {label:40} {times['median']:9.3f} ms, {times['median'] / base:.2f} x")
    payload: dict[str, Any] = {"dtype": str(options.dtype)[6:], "device": options.device, "rows": rows}
    print("wrote", record(options.name, payload, options.out))


if __name__ == "__main__":
    main()
