"""The example attention of the guide passes the contract tests."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest

from molslice.testing import CHECKS
from molslice.testing.subjects import SPEC, Subject

GUIDE = Path(__file__).parents[2] / "docs/guides/adding-an-attention.md"


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Return the class and its reference."""
    section = GUIDE.read_text(encoding="utf-8")
    files = re.findall(r"`(?:molslice|tests)/attention/([\w/]+)\.py`:\n\n```python\n(.*?)```", section, re.S)
    folder = tmp_path_factory.mktemp("example")
    modules = []
    for number, (_, code) in enumerate(files):
        path = folder / f"example_{number}.py"
        path.write_text(code, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        modules.append(module)
    name = files[0][0].replace("_", "")
    return next(v for k, v in vars(modules[0]).items() if k.lower() == name), modules[1].reference_sequence


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__[6:])
@pytest.mark.parametrize("mode", ["none", "mix"])
def test_the_example_keeps_the_contract(example, mode, check):
    kind, reference = example
    assert mode in kind.traits.pair_bias
    check(Subject("example", kind, replace(SPEC, pair_bias_mode=mode), reference=reference))
