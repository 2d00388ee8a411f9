"""The example attention of the guide passes the contract tests and the commands of the guide."""

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from molslice.testing import CHECKS
from molslice.testing.subjects import SPEC, Subject

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/adding-an-attention.md").read_text(encoding="utf-8")
FILES = re.findall(r"`((?:molslice|tests)/attention/[\w/]+\.py)`:\n\n```python\n(.*?)```", GUIDE, re.S)


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Return the class and its reference."""
    folder = tmp_path_factory.mktemp("example")
    modules = []
    for number, (_, code) in enumerate(FILES):
        path = folder / f"example_{number}.py"
        path.write_text(code, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        modules.append(module)
    name = Path(FILES[0][0]).stem.replace("_", "")
    return next(v for k, v in vars(modules[0]).items() if k.lower() == name), modules[1].reference_sequence


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__[6:])
@pytest.mark.parametrize("mode", ["none", "mix"])
def test_the_example_keeps_the_contract(example, mode, check):
    kind, reference = example
    assert mode in kind.traits.pair_bias
    check(Subject("example", kind, replace(SPEC, pair_bias_mode=mode), reference=reference))


@pytest.mark.slow
def test_the_commands_of_the_guide_pass(tmp_path):
    for name in ("molslice", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("docs", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    for path, code in FILES:
        (tmp_path / path).write_text(code, encoding="utf-8")
    commands = re.findall(r"`(?:python -m )?(tests\.attention\.\w+|pytest [^`]+)`", GUIDE)
    assert commands == ["tests.attention.snapshots", "pytest tests/attention -k gated_mean"]
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", *command.split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
