"""Whether operations use kernels of numpy and Triton, and where the Triton kernels come from.

The environment variable MOLSLICE_KERNELS=0 selects the forms of torch, which are the references.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor
from torch.autograd import forward_ad

OLDEST_TRITON = 3, 5  # older ones lack operations of the kernels, or fail to compile them
ENABLED = os.environ.get("MOLSLICE_KERNELS", "1") != "0"


@contextmanager
def torch_forms() -> Iterator[None]:
    """Use operations of torch instead of the kernels."""
    global ENABLED
    before, ENABLED = ENABLED, False
    try:
        yield
    finally:
        ENABLED = before


def load_kernels(name: str) -> ModuleType | None:
    """Import a module of Triton kernels from this folder.

    It is called when the calling module is imported, because torch.compile cannot trace an import.

    Returns:
        The module; None if Triton is not installed or too old, or torch was not built for GPUs.
    """
    if not torch.backends.cuda.is_built():
        return None
    try:
        triton = import_module("triton")
        if tuple(map(int, triton.__version__.split(".")[:2])) < OLDEST_TRITON:
            return None
        return import_module(f"molslice.ops.{name}")
    except ImportError:
        return None


def are_usable(module: ModuleType | None, tensor: Tensor, *sizes: object) -> bool:
    """Return whether kernels that `load_kernels` returned are used for a tensor and sizes like these.

    Args:
        module: The kernels, whose `supports` decides by the sizes.
        tensor: A tensor on the device of the operation.
        sizes: The arguments of `supports`; none for the tensor itself.
    """
    if module is None or not ENABLED or not is_on_gpu(tensor) or is_transformed():
        return False
    return module.supports(*(sizes or (tensor,)))


def is_on_gpu(tensor: Tensor) -> bool:
    """Return whether a tensor is on a GPU."""
    return tensor.is_cuda


def is_transformed() -> bool:
    """Return whether a transform of `torch.func` or forward-mode differentiation is active."""
    if torch.compiler.is_compiling():
        return False
    stack = torch._C._functorch.peek_interpreter_stack()  # pyright: ignore[reportAttributeAccessIssue]
    return stack is not None or forward_ad._current_level >= 0
