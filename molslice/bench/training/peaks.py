"""Peak arithmetic of GPUs, from NVIDIA's data sheets."""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["find_peak"]

TERA = 1e12
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
