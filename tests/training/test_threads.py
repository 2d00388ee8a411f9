"""The number of CPU threads beside a GPU."""

import pytest
import torch

from molslice.training.threads import THREADS_WITH_GPU, default_threads, limit_threads

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("threads", "device", "expected"), [(16, CPU, 16), (16, CUDA, THREADS_WITH_GPU), (2, CUDA, 2)]
)
def test_a_gpu_has_few_threads_beside_it(threads, device, expected):
    torch.set_num_threads(threads)
    assert default_threads(device) == expected
    limit_threads(None, device)
    assert torch.get_num_threads() == expected


def test_a_number_that_is_asked_for_is_taken():
    limit_threads(3, CUDA)
    assert torch.get_num_threads() == 3
