"""The two formats of an exported file: write a program as ONNX or .pt2, and run the file."""

import importlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from molslice.files.atomic import atomic_path
from molslice.types import MolsliceError

ENDINGS = (".onnx", ".pt2")
ONNX_METADATA = "molslice"  # key of the metadata of an ONNX file
PT2_METADATA = "molslice.json"  # name of the extra file in a .pt2 archive
LARGEST = 2_000_000_000  # bytes of weights in one ONNX file, a limit of protocol buffers


def write_program(program: ExportedProgram, path: Path, metadata: str) -> None:
    """Write a file with all weights and the metadata, JSON, atomically; `.onnx` or `.pt2`."""
    (_write_onnx if path.suffix == ".onnx" else _write_pt2)(program, path, metadata)


def run_file(path: Path, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Predict with an exported file from its inputs by name."""
    if path.suffix == ".onnx":
        session = _need("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
        return session.run(None, dict(arrays))[0]
    with quiet_torch(), torch.no_grad():
        program = torch.export.load(path).module()
        return program(**{name: torch.from_numpy(array) for name, array in arrays.items()}).numpy()


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Suppress warnings from torch's exporters until the block ends; errors are still raised."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _need(name: str) -> ModuleType:
    """Import a package of the extra `export`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MolsliceError(f"an ONNX file needs {name}: pip install 'molslice[export]'") from error


def need_packages() -> None:
    """Check that all packages of the extra `export` are installed."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        _need(name)


def _write_onnx(program: ExportedProgram, path: Path, metadata: str) -> None:
    size = sum(tensor.numel() * tensor.element_size() for tensor in program.state_dict.values())
    if size > LARGEST:
        raise MolsliceError(f"{size:,} bytes of weights are too many for an ONNX file; choose a .pt2 file")
    with quiet_torch():
        written = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            external_data=False,
            output_names=["prediction"],
            custom_translation_table={torch.ops.aten.sort.stable: _stable_sort()},
        )
    if written is None:
        raise AssertionError("torch.onnx.export returns a program without a path")
    model = written.model
    shapes: dict[str | None, Any] = {value.name: value.shape for value in model.graph.inputs}
    written.rename_axes({shapes["atoms"][0]: "B", shapes["atoms"][1]: "A", shapes["bonds"][1]: "M"})
    model.metadata_props[ONNX_METADATA] = metadata
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


def _write_pt2(program: ExportedProgram, path: Path, metadata: str) -> None:
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop("stack_trace", None)  # paths of the machine that exported it
    buffer = io.BytesIO()  # torch's writer aborts the process if it cannot write to a file
    torch.export.save(program, buffer, extra_files={PT2_METADATA: metadata})
    with atomic_path(path) as partial:
        partial.write_bytes(buffer.getbuffer())
