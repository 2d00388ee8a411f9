"""Write the result of a benchmark as JSON, with date, commit, hardware and versions."""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from molslice.files.atomic import write_atomically

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("numpy", "torch", "rdkit", "scikit-learn", "lightning", "torch-geometric", "ogb")


def record(name: str, payload: dict[str, Any], out_dir: str | Path) -> Path:
    """Write `payload` with date, commit, hardware and versions to OUT_DIR/NAME.json, and return the path."""
    path = Path(out_dir) / f"{name}.json"
    content = {
        "name": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": find_commit(),
        "hardware": describe_hardware(),
        "versions": list_versions(),
        **payload,
    }
    write_json(path, content)
    return path


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Return the mean and the standard deviation (None for one value)."""
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else None}


def find_commit() -> str | None:
    """Return the checked-out commit, or None outside a git checkout."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def describe_hardware() -> dict[str, Any]:
    """Return the processor model, the number of cores, and the names of the GPUs if there are any."""
    import torch

    hardware: dict[str, Any] = {
        "cpu_model": find_cpu_model(),
        "cpu_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
    if torch.cuda.is_available():
        devices = range(torch.cuda.device_count())
        hardware["gpus"] = [torch.cuda.get_device_name(device) for device in devices]
    return hardware


def find_cpu_model() -> str:
    """Return the processor model that the system reports."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def list_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages in PACKAGES that are installed."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
