"""Import of programs that are not part of the package, and runs of the program in a shell."""

import importlib.util
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def load_program(name, folder="benchmarks"):
    """Import `FOLDER/NAME.py` with its folder on the import path."""
    with _importable(ROOT / folder):
        spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def run_in_shell(words, folder):
    """Run `molslice WORDS` in a shell in a folder; `words` may redirect its streams or pipe its output."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m molslice {words}"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@contextmanager
def _importable(folder):
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
