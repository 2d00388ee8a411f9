"""The program that measures how much there is to understand in the package."""

import ast

import pytest

from tests.programs import load_program


@pytest.fixture(scope="module")
def program():
    return load_program("code_measures", "scripts")


def test_nested_keys_of_a_schema_are_counted(program):
    inner = {"properties": {"c": {"type": "string"}}}
    schema = {"properties": {"a": {"anyOf": [inner, {"type": "null"}]}, "b": {}}}
    assert program.count_keys(schema) == 3


def test_vague_names_are_found_only_as_locals(program):
    tree = ast.parse(
        "found = 1\ndef f(own):\n    part, rows = own\n    def g():\n        each = rows.found\n"
    )
    assert sorted(program.local_names(tree)) == ["each", "part", "rows"]


def test_the_sources_are_measured(program):
    measures = program.measure_sources()
    assert measures["lines"] > measures["files"] > 300
    assert 0 <= measures["locals with a vague name (%)"] < 10
