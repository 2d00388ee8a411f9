"""Measure the training of all entries of a plan."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import torch

from molslice.bench.machine import describe_machine
from molslice.bench.molecules import Molecules, describe_store, open_store
from molslice.bench.rounds import run_rounds
from molslice.bench.training.plan import TrainPlan
from molslice.bench.training.result import TERA, TrainResult, to_markdown
from molslice.data.molecules.store import MoleculeStore

__all__ = ["find_peak", "run_training_bench"]

# Words that the name of the device contains, and its dense TFLOP/s. Where a data sheet states the rate "with
# sparsity", this is half of it. The first match counts.
# Source: data sheets "NVIDIA H100 Tensor Core GPU" (SXM, PCIe and NVL), "NVIDIA H200 Tensor Core GPU" (SXM
# and NVL) and "NVIDIA A100 Tensor Core GPU" (equal for SXM and PCIe).
PEAKS: tuple[tuple[tuple[str, ...], Mapping[str, float]], ...] = (
    (("H200", "NVL"), MappingProxyType({"bf16": 835.5, "tf32": 417.5, "fp32": 60.0})),
    (("H200",), MappingProxyType({"bf16": 989.5, "tf32": 494.5, "fp32": 67.0})),
    (("H100", "NVL"), MappingProxyType({"bf16": 835.5, "tf32": 417.5, "fp32": 60.0})),
    (("H100", "PCIe"), MappingProxyType({"bf16": 756.5, "tf32": 378.0, "fp32": 51.0})),
    (("H100",), MappingProxyType({"bf16": 989.5, "tf32": 494.5, "fp32": 67.0})),
    (("A100",), MappingProxyType({"bf16": 312.0, "tf32": 156.0, "fp32": 19.5})),
)


def run_training_bench(
    plan: TrainPlan,
    source: Molecules,
    out: Path | str | None = None,
    *,
    tell: Callable[[str], None] = lambda message: None,
    quiet: bool = False,
) -> TrainResult:
    """Measure the training of every entry, with a new process for each round; see `run_rounds`.

    Args:
        plan: What to measure.
        source: The molecules.
        out: Folder of `bench_train.json` and `table.md`. None writes no files.
        tell: Receives a line for each measurement without numbers.
        quiet: Whether to hide the progress bar.

    Returns:
        The measurements, also of earlier calls.

    Raises:
        MolsliceError: The molecules cannot be read, `out` holds measurements of another machine or under
            other conditions, or a file cannot be read or written.
    """
    with open_store(source) as store:
        conditions = {**plan.conditions(), **describe_store(MoleculeStore.open(store, verify=False))}
        machine = describe_machine(plan.device)
        entries = [entry.key for entry in plan.entries]
        peaks = {precision: _peak_of(machine, plan.device, precision) for *_, precision in entries}
        result = TrainResult(conditions=conditions, machine=machine, entries=entries, peaks=peaks)
        run_rounds(
            result,
            plan.tasks(store),
            out,
            to_files=lambda: {"table.md": to_markdown(result)},
            tell=tell,
            quiet=quiet,
        )
    return result


def _peak_of(machine: Mapping[str, str], device: str, precision: str) -> float | None:
    if device != "cuda":
        return None
    if precision != "32":
        return find_peak(machine["device"], "bf16")
    is_plain = torch.get_float32_matmul_precision() == "highest"
    return find_peak(machine["device"], "fp32" if is_plain else "tf32")


def find_peak(device_name: str, arithmetic: str) -> float | None:
    """Find the peak of a device without sparsity.

    Args:
        device_name: The name that the driver reports, such as `NVIDIA H100 80GB HBM3`.
        arithmetic: `bf16` (also for float16), `tf32`, or `fp32` without tensor cores.

    Returns:
        Floating-point operations per second; None for an unknown device.
    """
    name = device_name.lower()
    for words, peaks in PEAKS:
        if all(word.lower() in name for word in words):
            return peaks[arithmetic] * TERA
    return None
