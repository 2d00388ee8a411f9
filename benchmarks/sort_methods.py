"""Compare methods to sort many columns on a CPU, forward and backward, with torch.sort.

The methods in `sort_candidates.py` have input and output of shape [B, N, K], so the times include changes of
the layout. Times are in nanoseconds per entry: medians over rounds in which the methods take turns, on one
thread (for molslice also on two). Every result must equal that of torch.sort(stable=True), bit by bit.

    python benchmarks/sort_methods.py

Writes `benchmarks/results/NAME.json`. Keys of 32 bits for float32 are not measured, because they cannot be
exact: value and token together need more bits, and dropping bits of the value changes the order. molslice
uses such keys for bfloat16 and float16.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sort_candidates as ways
import torch
from record import record
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
CASES = ((256, 24, 256), (96, 64, 256), (8, 512, 256), (8, 1024, 256), (2, 4096, 256))  # B, N, K
NO_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL"


def on_threads(method: Callable, threads: int) -> Callable:
    """Return the method with this number of threads."""

    def run(*args: Tensor) -> Any:  # noqa: ANN401
        torch.set_num_threads(threads)
        result = method(*args)
        torch.set_num_threads(1)
        return result

    return run


def methods_for(length: int) -> dict[str, dict[str, Callable]]:
    """Return the methods of each pass that support columns of this length, baseline first."""
    forward = {
        "torch.sort": ways.by_torch,
        "torch.sort packed": ways.by_torch_packed,
        "numpy argsort": ways.by_argsort,
    }
    forward |= {"numpy packed": ways.by_numpy_packed}
    back = {"torch scatter": ways.back_by_torch, "torch scatter by token": ways.back_by_tokens}
    back |= {"numpy put_along_axis": ways.back_by_numpy}
    if length <= 64:
        forward["network"], back["network"] = ways.by_network, ways.back_by_network
    elif length % ways.BLOCK == 0 and length.bit_count() == 1:
        forward["merged blocks"] = ways.by_merged_blocks
    forward |= {"molslice": ways.by_molslice, "molslice, 2 threads": on_threads(ways.by_molslice, 2)}
    values = {"torch.sort": ways.values_by_torch, "molslice": ways.values_by_molslice}
    back |= {"molslice": ways.back_by_molslice, "molslice, 2 threads": on_threads(ways.back_by_molslice, 2)}
    return {"sort": forward, "sort without order": values, "backward": back}


def check(expected: Any, found: Any, label: str) -> None:  # noqa: ANN401
    """Check that all values are equal; 0.0 equals -0.0."""
    pairs = zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]
    if not all(torch.equal(one, other) for one, other in pairs):
        raise AssertionError(f"{label} differs from the baseline")


def measure_case(case: tuple[int, int, int], dtype: torch.dtype, rounds: int) -> list[dict[str, Any]]:
    """Return the time of every method in nanoseconds per entry. In each round the methods take turns."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(case, generator=generator).mul(1024).round().div(1024).to(dtype)  # has ties
    grad, order = torch.randn(case, generator=generator).to(dtype), ways.by_torch(tokens)[1]
    rows = []
    for stage, methods in methods_for(case[1]).items():
        if dtype != torch.float32:  # the others support only float32
            methods = {
                name: f for name, f in methods.items() if name in ("torch.sort", "torch scatter", "molslice")
            }
        args = (grad, order) if stage == "backward" else (tokens,)
        expected = next(iter(methods.values()))(*args)
        for name, method in methods.items():
            check(expected, method(*args), f"{stage} by {name} at {case}")
        seconds: dict[str, list[float]] = {name: [] for name in methods}
        for _ in range(rounds):
            for name, method in methods.items():
                start = time.perf_counter()
                method(*args)
                seconds[name].append(time.perf_counter() - start)
        baseline = statistics.median(next(iter(seconds.values())))
        for name, values in seconds.items():
            median, unit = statistics.median(values), 1e9 / tokens.numel()
            row = {"batch": case[0], "tokens": case[1], "width": case[2], "dtype": str(dtype)[6:]}
            row |= {"pass": stage, "method": name, "ns_per_entry": round(median * unit, 3)}
            row |= {"fastest": round(min(values) * unit, 3), "times_baseline": round(baseline / median, 2)}
            rows.append(row)
            print(
                f"{case!s:18} {row['dtype']:9} {stage:19} {name:24} {row['ns_per_entry']:8.2f} ns", flush=True
            )
    return rows


def measure_numpy(rounds: int) -> dict[str, float]:
    """Return the time of numpy's sort of 64-bit integers for some lengths, in nanoseconds per entry."""
    found = {}
    for length in (24, 64, 256, 512, 1024, 4096):
        keys = np.random.default_rng(0).integers(-(2**62), 2**62, ((1 << 15) // length, length))
        seconds = []
        for _ in range(rounds):
            copy = keys.copy()
            start = time.perf_counter()
            copy.sort(axis=-1)
            seconds.append(time.perf_counter() - start)
        found[str(length)] = round(statistics.median(seconds) * 1e9 / keys.size, 3)
    return found


def compare_instructions(rounds: int) -> dict[str, dict[str, float]]:
    """Run `measure_numpy` in separate processes with and without AVX-512.

    On some processors (AMD Zen 4), an AVX-512 instruction that numpy uses to sort more than 256 integers is
    slow. There the environment variable NPY_DISABLE_CPU_FEATURES makes the sort of long columns several times
    faster.
    """
    found = {}
    for label, disabled in (("as it comes", ""), ("without AVX-512", NO_AVX512)):
        environment = os.environ | ({"NPY_DISABLE_CPU_FEATURES": disabled} if disabled else {})
        command = [sys.executable, __file__, "--numpy-only", "--rounds", str(rounds)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        pairs = (line.split() for line in result.stdout.splitlines())
        found[label] = {length: float(value) for length, value in pairs}
        print(f"numpy's sort alone, {label}: {found[label]} ns", flush=True)
    return found


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--name", default="sort_methods")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--numpy-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.numpy_only:
        for length, value in measure_numpy(options.rounds).items():
            print(length, value)
        return
    torch.set_num_threads(1)
    rows = []
    for case in CASES:
        for dtype in (torch.float32, torch.bfloat16):
            rows += measure_case(case, dtype, options.rounds)
    payload = {
        "rounds": options.rounds,
        "rows": rows,
        "numpy_sort_int64": compare_instructions(options.rounds),
    }
    print("wrote", record(options.name, payload, options.out))


if __name__ == "__main__":
    main()
