"""Whether operations use kernels of numpy and Triton, and where the Triton kernels come from.

The environment variable MOLSLICE_KERNELS=0 selects the forms of torch, which are the references.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

import torch
from torch.autograd import forward_ad

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
        The module; None if Triton is not installed, or torch was not built for GPUs.
    """
    if not torch.backends.cuda.is_built():
        return None
    try:
        return import_module(f"molslice.ops.{name}")
    except ImportError:
        return None


def is_transformed() -> bool:
    """Return whether a transform of `torch.func` or forward-mode differentiation is active."""
    if torch.compiler.is_compiling():
        return False
    stack = torch._C._functorch.peek_interpreter_stack()  # pyright: ignore[reportAttributeAccessIssue]
    return stack is not None or forward_ad._current_level >= 0
