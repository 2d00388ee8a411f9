"""Tests of the program that measures how many mutants the tests catch."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "mutate.py"
CODE = b'''"""Not 1 of 2 numbers in a docstring: \xc3\xa9."""


def largest(values: tuple[int, 4], text="\xc3\xa9", floor=0):
    if not values and floor < 3:
        raise ValueError(1 + 2)
    values.sort()
    assert len(values) == 1
    return max(values, floor)
'''


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("mutate_under_test", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_mutants_of_a_function(script):
    mutants = script.find_mutants(CODE, "largest.py")
    assert {(m.line, m.before, m.after) for m in mutants} == {
        (4, "0", "1"),
        (4, "0", "(-1)"),
        (5, "not values and floor < 3", "False"),
        (5, "not values and floor < 3", "(not values or floor < 3)"),
        (5, "not values", "(values)"),
        (5, "floor < 3", "(floor <= 3)"),
        (5, "3", "4"),
        (5, "3", "(2)"),
        (7, "values.sort()", "pass"),
        (9, "max(values, floor)", "values"),
    }
    for mutant in mutants:
        changed = mutant.apply(CODE)
        compile(changed, "largest.py", "exec")
        assert changed != CODE


def test_a_sample_is_drawn_by_its_seed(script):
    def draw(seed, count=20):
        return script.sample_mutants(ROOT, ["molslice/ops", "molslice/chem"], count, seed)

    assert draw(0) == draw(0)
    assert draw(0) != draw(1)
    places = [(mutant.file, mutant.line) for mutant in draw(0)]
    assert len(set(places)) == 20
    assert {Path(file).parts[1] for file, _ in places} == {"ops", "chem"}


def test_the_tests_of_a_file(script):
    own, naming, rest = script.stages_of(ROOT, "molslice/training/trainer.py")
    assert own == ["tests/training/test_trainer.py"]
    assert "tests/training/test_resume.py" in naming
    assert "tests/training/test_optimizer.py" in rest
    assert script.stages_of(ROOT, "molslice/data/molecules/store.py")[0] == [
        "tests/data/molecules/test_store.py"
    ]


@pytest.fixture
def project(tmp_path):
    """Write a package of one file in a git repository without commits."""
    import subprocess

    (tmp_path / "molslice" / "ops").mkdir(parents=True)
    (tmp_path / "tests" / "ops").mkdir(parents=True)
    (tmp_path / "molslice" / "ops" / "sizes.py").write_text("def is_small(size):\n    return size < 3\n")
    (tmp_path / "tests" / "ops" / "test_sizes.py").write_text(
        "import runpy\n\n\ndef test_small():\n"
        "    is_small = runpy.run_path('molslice/ops/sizes.py')['is_small']\n"
        "    assert is_small(1)\n    assert not is_small(3)\n"
    )
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def test_mutants_that_no_test_notices_survive(script, project):
    """The tests distinguish `size < 3` from `size <= 3` and `size < 4`, but not from `size < 2`."""
    content = (project / "molslice" / "ops" / "sizes.py").read_bytes()
    mutants = script.find_mutants(content, "molslice/ops/sizes.py")
    found = script.measure(project, mutants, 60.0)
    verdicts = {result["after"]: result["caught_by"] for result in found}
    own = "tests/ops/test_sizes.py"
    assert verdicts == {"(size <= 3)": own, "4": own, "(2)": None}
    assert (project / "molslice" / "ops" / "sizes.py").read_bytes() == content


@pytest.mark.slow
def test_mutants_of_a_small_file_are_caught(script, tmp_path, capsys):
    out = tmp_path / "mutants.json"
    script.main(["molslice/ops/masked.py", "--sample", "6", "--out", str(out)])
    report = json.loads(out.read_text())
    assert report["mutants"] == 6
    assert report["caught"] >= 5, report["survivors"]
    assert capsys.readouterr().out == f"{report['caught']} of 6 mutants caught\n"
