"""Tables of the documentation from the results on a GPU; `result_tables.py` writes them."""

import statistics
from collections.abc import Mapping
from typing import Any

FORMS = {"torch": "torch's kernels", "kernels": "own kernels", "compiled": "own kernels, compiled"}


def bench_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: training steps of each attention, from `gpu_bench_train.json`."""
    header = ["", "parameters", "molecules/s", "waiting", "memory (GB)", "TFLOP/s", "of peak"]
    rows = [
        [
            f"`{row['model']}`, `{row['attention']}`",
            f"{row['parameters']:,}",
            f"{row['molecules_per_second']['median']:,.0f}",
            f"{row['waiting_share']['median']:.1%}",
            f"{row['peak_bytes']['median'] / 1e9:.1f}",
            f"{row['flops_per_second'] / 1e12:.0f}",
            f"{row['peak_share']:.1%}",
        ]
        for row in result["rows"]
    ]
    return header, rows


def rates_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: rates of training by attention and form, from `gpu_training.json`."""
    header = ["", "molecules/s", "range", "rounds", "memory (GB)"]
    rows = []
    for attention, form in dict.fromkeys((row["attention"], row["form"]) for row in result["rows"]):
        found = [row for row in result["rows"] if (row["attention"], row["form"]) == (attention, form)]
        rates = [row.get("molecules_per_second") or row["molecules"] / row["seconds"] for row in found]
        memory = max(row.get("peak_gb") or row["peak_bytes"] / 1e9 for row in found)
        rows.append(
            [
                f"`{attention}`, {FORMS[form]}",
                f"{statistics.median(rates):,.0f}",
                f"{min(rates):,.0f} to {max(rates):,.0f}",
                str(len(rates)),
                number(memory),
            ]
        )
    return header, rows


STEPS = {
    "collated": "before: any shape, launched by the host",
    "eager": "fixed shapes",
    "captured": "captured, `bf16`",
    "compiled": "captured, `bf16`, compiled layers",
    "weights": "captured, `bf16-weights`",
}


def steps_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: rates of training in each form, from `gpu_list.json`."""
    header = ["", "molecules", "steps", "molecules/s", "step (ms)", "TFLOP/s", "of peak", "memory (GB)"]
    rows = []
    for name, step in result["steps"].items():
        words = name.removeprefix("pcqm4m ").split()
        if len(words) != 3 or "molecules_per_second" not in step:
            continue
        model, attention, form = words
        rows.append(
            [
                f"`{model}`, `{attention}`",
                "PCQM4Mv2" if name.startswith("pcqm4m ") else "`gap_xtb`",
                STEPS[form],
                f"{step['molecules_per_second']:,.0f}",
                number(step["step_ms"]),
                f"{step['teraflops']:.0f}",
                f"{step['peak_share']:.0%}",
                number(step["peak_gigabytes"]),
            ]
        )
    return header, rows


def kernels_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: sorts, attention and layers on sequences, from `gpu_kernels.json`."""
    names = {
        "sort, torch form": "sort, torch (ms)",
        "sort": "sort, molslice (ms)",
        "scaled_dot_product_attention": "FlashAttention (ms)",
        "layer slice_sort": "layer `slice_sort` (ms)",
        "layer softmax": "layer `softmax` (ms)",
        "floor": "copy (ms)",
    }
    rows = [
        [f"{row['tokens']:,}", *(number(row["ms"][name]["median"]) for name in names)]
        for row in result["rows"]
        if set(names) <= set(row["ms"])
    ]
    return ["tokens", *names.values()], rows


def qm9_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: the small model on all of QM9, from `gpu_qm9.json`."""
    header = ["", "parameters", "epochs", "seconds", "rate", "valid MAE (eV)", "test MAE (eV)"]
    rows = [
        [
            f"`{row['attention']}`",
            f"{row['parameters']:,}",
            f"{row['epochs']:.0f}",
            f"{row['seconds']:.0f}",
            f"{row['rate']:g}",
            f"{row['valid_mae']:.3f}",
            f"{row['test_mae']:.3f}",
        ]
        for row in sorted(result["rows"], key=lambda row: row["test_mae"])
    ]
    return header, rows


def profile_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: what a step costs the device and the host, from `gpu_profile.json`."""
    header = ["", "tokens", "computing (ms)", "for 10,000 tokens (ms)", "attention (ms)", "launched kernels"]
    rows = [
        [
            f"`{row['attention']}`, {FORMS[row['form']]}",
            f"{row['tokens']:,.0f}",
            number(row["device_ms"]),
            number(10_000 * row["device_ms"] / row["tokens"]),
            number(row["attention_ms"]),
            f"{row['launches']:,.0f}",
        ]
        for row in result["rows"]
    ]
    return header, rows


def sort_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: torch's sort and the fastest tile by length, from `gpu_sort_tiles.json`."""
    header = ["tokens", "torch (ms)", "fastest tile (ms)", "columns x warps of it"]
    rows = []
    timed = [row for row in result["rows"] if row["dtype"] == "bfloat16" and row["ms"] is not None]
    for tokens in sorted({row["tokens"] for row in timed}):
        own = [row for row in timed if row["tokens"] == tokens]
        torch_ms = min(row["ms"] for row in own if row["columns"] is None)
        tiles = sorted((row["ms"], row["columns"], row["warps"]) for row in own if row["columns"])
        best = [f"{tiles[0][0]:.1f}", f"{tiles[0][1]} x {tiles[0][2]}"] if tiles else ["", ""]
        rows.append([f"{tokens:,}", f"{torch_ms:.1f}", *best])
    return header, rows


def number(value: float | None) -> str:
    """Return a number with one decimal; empty for None."""
    return "" if value is None else f"{value:.1f}"
