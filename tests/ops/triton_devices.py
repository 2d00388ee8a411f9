"""Where Triton kernels are tested: interpreted on a CPU, compiled on a GPU.

Import this before Triton. It skips the importing file if Triton is not installed.
`bash scripts/test.sh --all` installs it beside the environment.
"""

import os

import pytest
import torch

HAS_CUDA = torch.cuda.is_available()
if not HAS_CUDA:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read where Triton is imported
pytest.importorskip("triton")

INTERPRETED = pytest.param(
    "cpu", marks=[pytest.mark.slow, pytest.mark.skipif(HAS_CUDA, reason="compiled, not interpreted")]
)
COMPILED = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="no GPU")])
each_device = pytest.mark.parametrize("device", [INTERPRETED, COMPILED])
