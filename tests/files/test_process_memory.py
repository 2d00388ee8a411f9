import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no glibc")
FAULTS = """
import resource
import numpy as np
from molslice.files.process_memory import keep_freed_memory

keep_freed_memory()

def allocate():
    for _ in range(8):
        kept = [np.ones(1 << 20) for _ in range(4)]  # 8 MiB each

allocate()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
allocate()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def count_faults(**settings):
    """Return the page faults of a process that allocates the same 32 MiB eight times more."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))
    }
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, env=environment | settings, check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_freed_memory_is_allocated_again_without_page_faults():
    assert count_faults() < 1000


def test_settings_of_the_environment_stay():
    assert count_faults(MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072") > 10_000
