"""All Triton kernels compile for GPUs of several kinds, without a GPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
LAUNCH = re.compile(r"^ +(\w+)\[(?:grid|\().*\(\s*$|^ +(\w+)\[.*\]\(", re.MULTILINE)


# minutes, without the cache of Triton
@pytest.mark.parametrize(
    "capability", [pytest.param(80, marks=pytest.mark.exhaustive), pytest.param(90, marks=pytest.mark.slow)]
)
def test_each_kernel_that_is_launched_compiles(capability):
    launched = set()
    for path in (ROOT / "molslice" / "ops").glob("triton_*.py"):
        names = {first or second for first, second in LAUNCH.findall(path.read_text())}
        launched |= {f"{path.stem}.{name}" for name in names}
    assert len(launched) >= 20
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    program = [sys.executable, "-m", "tests.ops.compile_kernels", str(capability)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == launched
