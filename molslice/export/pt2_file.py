"""Write a program of `torch.export` as a .pt2 file, and run it."""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from molslice.export.quiet import quiet_torch
from molslice.files.atomic import atomic_path

__all__ = ["METADATA", "run_pt2", "write_pt2"]

METADATA = "molslice.json"  # name of the extra file in the archive


def write_pt2(program: ExportedProgram, path: Path, about: str) -> None:
    """Write a .pt2 file atomically.

    Args:
        program: The program.
        path: The file.
        about: The metadata, JSON.

    Raises:
        MolsliceError: The file cannot be written.
    """
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop("stack_trace", None)  # paths of the machine that exported it
    buffer = io.BytesIO()  # torch's writer aborts the process if it cannot write to a file
    torch.export.save(program, buffer, extra_files={METADATA: about})
    with atomic_path(path) as partial:
        partial.write_bytes(buffer.getbuffer())


def run_pt2(path: Path, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Predict with a .pt2 file.

    Args:
        path: The file.
        arrays: The inputs by name.
    """
    with quiet_torch(), torch.no_grad():
        program = torch.export.load(path).module()
        return program(**{name: torch.from_numpy(array) for name, array in arrays.items()}).numpy()
