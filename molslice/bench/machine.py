"""The machine of a measurement. Two numbers are comparable only if it is the same."""

import platform
from pathlib import Path

import torch

from molslice.types import MolsliceError


def check_device(name: str) -> None:
    """Check that a device can be measured, without starting anything on the device.

    Raises:
        MolsliceError: The device is neither the CPU nor an available CUDA device.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise MolsliceError(
            f"device {name!r} is unknown; choices: cpu, cuda, or a GPU such as cuda:0"
        ) from error
    if device.type == "cpu":
        return
    if device.type != "cuda":
        raise MolsliceError(f"cannot measure device {name!r}; choices: cpu, cuda, or a GPU such as cuda:0")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= count:
        raise MolsliceError(f"device {name!r} is not available: torch finds {count} CUDA devices")


def describe_machine(device: str) -> dict[str, str]:
    """Return the name of the device and of the CPU, and the versions that speed depends on."""
    target = torch.device(device)
    name = torch.cuda.get_device_name(target) if target.type == "cuda" else _processor()
    return {
        "device": name,
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
