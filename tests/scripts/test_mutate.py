"""Tests of the program that measures how many mutants the tests catch."""

import importlib.util
import json
import subprocess
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
    own, naming, rest = script.tests_of(ROOT, "molslice/training/trainer.py")
    assert own == ["tests/training/test_trainer.py"]
    assert "tests/training/test_resume.py" in naming
    assert "tests/training/test_optimizer.py" in rest
    assert "tests/data/test_batching.py" in script.tests_of(ROOT, "molslice/data/molecules/collate.py")[1]
    assert script.tests_of(ROOT, "molslice/data/molecules/store.py")[0] == [
        "tests/data/molecules/test_store.py"
    ]


SIZES = """def is_small(size):
    while size < 0:
        size += 2
    return size < 3
"""
TESTS = """import runpy


def is_small(size):
    return runpy.run_path('molslice/ops/sizes.py')['is_small'](size)


def test_small():
    assert is_small(1)
    assert is_small(-3)
    assert not is_small(3)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write a package of one file in a git repository without commits."""
    (tmp_path / "molslice" / "ops").mkdir(parents=True)
    (tmp_path / "tests" / "ops").mkdir(parents=True)
    (tmp_path / "molslice" / "ops" / "sizes.py").write_text(SIZES)
    (tmp_path / "tests" / "ops" / "test_sizes.py").write_text(TESTS)
    (tmp_path / "tests" / "ops" / "test_shapes.py").write_text("def test_nothing():\n    pass\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # importing the plugins takes seconds
    return tmp_path


def mutants_of(script, project, *texts):
    content = (project / "molslice" / "ops" / "sizes.py").read_bytes()
    return [m for m in script.find_mutants(content, "molslice/ops/sizes.py") if m.after in texts]


@pytest.mark.slow
def test_each_result_is_a_line_and_a_second_run_continues(script, project, capsys):
    out = project / "mutants.jsonl"
    mutants = mutants_of(script, project, "(2)", "4", "pass")
    script.measure(project, mutants[:1], 3.0, out)
    first = out.read_text()
    with out.open("a") as file:
        file.write('{"file": "molslice/ops/si')  # the process was killed while it wrote a line
    capsys.readouterr()
    lines = script.measure(project, mutants, 60.0, out)  # the mutant without an end is known
    assert [(line["after"], line["verdict"], line["test"]) for line in lines] == [
        ("pass", "timeout", None),
        ("(2)", "survived", None),
        ("4", "caught", "tests/ops/test_sizes.py::test_small"),
    ]
    assert len(capsys.readouterr().err.splitlines()) == 2  # the first was known
    assert out.read_text().startswith(first)
    assert [json.loads(line) for line in out.read_text().splitlines()] == lines
    assert (project / "molslice" / "ops" / "sizes.py").read_text() == SIZES


def test_equivalent_mutants_do_not_count(script):
    verdicts = ["caught", "caught", "survived", "survived", "timeout"]
    lines = [{"verdict": verdict} for verdict in verdicts]
    lines[2]["equivalent"] = "a reason"
    assert script.summarize(lines) == {
        "mutants": 5,
        "caught": 2,
        "survived": 1,
        "timeout": 1,
        "equivalent": 1,
        "rate": 0.5,
    }


@pytest.mark.slow
def test_a_test_that_fails_without_a_mutant_is_named(script, project):
    broken = TESTS.replace("test_small", "test_broken").replace("is_small(1)", "not is_small(1)")
    (project / "tests" / "ops" / "test_sizes.py").write_text(broken)
    with pytest.raises(RuntimeError, match=r"test_sizes.py::test_broken fails without a mutant"):
        script.measure(project, mutants_of(script, project, "4")[:1], 30.0, project / "out.jsonl")


def test_the_most_likely_tests_come_first(script, tmp_path):
    class Item:
        def __init__(self, nodeid):
            self.nodeid = nodeid

    items = [Item(f"tests/{name}") for name in ("a.py::x", "b.py::sort", "c.py::y", "d.py::z")]
    order = script._Order([["tests/d.py"], ["tests/c.py"], ["tests/a.py", "tests/b.py"]], "sort", tmp_path)
    order.pytest_collection_modifyitems(items)
    assert [item.nodeid[6] for item in items] == ["d", "c", "b", "a"]


@pytest.mark.exhaustive
def test_mutants_of_a_small_file_are_caught(script, tmp_path, capsys):
    out = tmp_path / "mutants.jsonl"
    script.main(["molslice/ops/masked.py", "--sample", "6", "--out", str(out)])
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(found) == 6
    assert sum(line["verdict"] == "caught" for line in found) >= 5, found
    assert capsys.readouterr().out.startswith(f"{script.summarize(found)['caught']} caught, ")
