"""The number of CPU threads of a training."""

import torch

# On 16 cores with an H100, training was 1.5 times as fast with 4 threads as with 16, which spin and take
# the time of the thread that starts kernels.
THREADS_WITH_GPU = 4


def default_threads(device: torch.device) -> int:
    """Return the number of CPU threads of a training: torch's default, fewer with a CUDA device."""
    threads = torch.get_num_threads()
    return min(THREADS_WITH_GPU, threads) if device.type == "cuda" else threads


def limit_threads(asked: int | None, device: torch.device) -> None:
    """Set the number of CPU threads of this process; None for `default_threads`."""
    torch.set_num_threads(default_threads(device) if asked is None else asked)
