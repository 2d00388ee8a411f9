"""The precision of inference: float32, independent of the caller's settings and of the training.

Validation during training, `evaluate`, `predict`, `rollout` and `generate` all use `float32_inference`. The
numbers in `summary.json` are therefore what `molslice evaluate` prints, also after training in bf16 or
float16, which affects only the training steps. In float32 the other rows of a batch change a prediction by
rounding errors only (in bf16 by about 1e-2), and predictions on CPU and GPU agree.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from molslice.folders.run import float32_defaults

DEVICE_THREADS = 4  # of this process while a device computes; more of them wait for each other


@contextmanager
def float32_inference(device: torch.device | str, *, gradients: bool = False) -> Iterator[None]:
    """Compute on `device` in float32; restore the caller's settings afterwards.

    Covers the default dtype, the default device, autocast, gradients, and reduced-precision float32 matrix
    products.
    """
    device = torch.device(device)
    with ExitStack() as stack:
        stack.enter_context(float32_defaults())
        stack.enter_context(torch.enable_grad() if gradients else torch.inference_mode())
        for kind in {"cpu", device.type}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        if (products := torch.get_float32_matmul_precision()) != "highest":
            torch.set_float32_matmul_precision("highest")
            stack.callback(torch.set_float32_matmul_precision, products)
        yield


@contextmanager
def bounded_threads(device: torch.device) -> Iterator[None]:
    """Use at most four threads of PyTorch beside a device; a CPU has all. Restores the number afterwards."""
    before = torch.get_num_threads()
    if device.type != "cpu":
        torch.set_num_threads(min(before, DEVICE_THREADS))
    try:
        yield
    finally:
        torch.set_num_threads(before)
