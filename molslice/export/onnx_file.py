"""Write a program as an ONNX file, and run it."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from molslice.export.quiet import quiet_torch
from molslice.files.atomic import atomic_path
from molslice.types import MolsliceError

__all__ = ["METADATA", "need_packages", "run_onnx", "write_onnx"]

METADATA = "molslice"  # key of the metadata of the file
LARGEST = 2_000_000_000  # bytes of weights in one file, a limit of protocol buffers


def _need(name: str) -> ModuleType:
    """Import a package of the extra `export`.

    Raises:
        MolsliceError: The package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MolsliceError(f"an ONNX file needs {name}: pip install 'molslice[export]'") from error


def need_packages() -> None:
    """Check that all packages of the extra `export` are installed.

    Raises:
        MolsliceError: A package is missing.
    """
    for name in ("onnx", "onnxscript", "onnxruntime"):
        _need(name)


def write_onnx(program: ExportedProgram, path: Path, about: str, outputs: Sequence[str]) -> None:
    """Write an ONNX file with all weights in it, atomically.

    Args:
        program: The program.
        path: The file.
        about: The metadata, JSON.
        outputs: Names of the outputs.

    Raises:
        MolsliceError: A package is missing, the weights are too large for one file, or the file cannot be
            written.
    """
    need_packages()
    size = sum(tensor.numel() * tensor.element_size() for tensor in program.state_dict.values())
    if size > LARGEST:
        raise MolsliceError(f"{size:,} bytes of weights are too many for an ONNX file; choose a .pt2 file")
    with quiet_torch():
        written = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            external_data=False,
            output_names=list(outputs),
            custom_translation_table={torch.ops.aten.sort.stable: _stable_sort()},
        )
    if written is None:
        raise AssertionError("torch.onnx.export returns a program without a path")
    model = written.model
    model.metadata_props[METADATA] = about
    traversal = importlib.import_module("onnx_ir.traversal")
    for node in traversal.RecursiveGraphIterator(model.graph):  # paths of the machine that exported it
        node.metadata_props.clear()
    with atomic_path(path) as partial:
        written.save(partial, external_data=False)


def _stable_sort() -> Any:  # noqa: ANN401
    """Return the ONNX form of a stable sort: of equal values, `TopK` takes the one with the lower index."""
    op = _need("onnxscript").opset18

    def sort(self: Any, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:  # noqa: ANN401, ARG001
        length = op.Reshape(op.Gather(op.Shape(self), op.Constant(value_ints=[dim])), [1])
        return op.TopK(self, length, axis=dim, largest=int(descending), sorted=1)

    return sort


def run_onnx(path: Path, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Predict with an ONNX file.

    Args:
        path: The file.
        arrays: The inputs by name.

    Raises:
        MolsliceError: onnxruntime is not installed.
    """
    session = _need("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, dict(arrays))[0]
