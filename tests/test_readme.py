"""The README's numbers are those of `benchmarks/results/`, and its commands those of the program."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def load_program(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_measured_tables_are_those_of_the_results():
    tables = load_program("readme_tables")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert tables.fill(text) == text, "run python benchmarks/readme_tables.py --write"


def test_headers_of_configurations_tell_what_was_measured():
    tables = load_program("readme_tables")
    found = tables.headers()
    assert len(found) >= 9
    for path, text in found.items():
        assert path.read_text(encoding="utf-8") == text, "run python benchmarks/readme_tables.py --write"


def test_a_changed_number_would_be_noticed():
    tables = load_program("readme_tables")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    number = re.search(r"\d\.\d{3} ± ", text).group()
    assert tables.fill(text.replace(number, "9.999 ± ")) == text


def test_every_file_that_the_readme_names_exists():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    folders, endings = "configs|scripts|benchmarks|data", "yaml|py|sh|md|json|png"
    named = set(re.findall(rf"\b(?:{folders})/[\w/.]*\w\.(?:{endings})", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
