"""The JSON schema agrees with the code and with the configurations in the repository."""

import importlib.util
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("config_schema", ROOT / "benchmarks" / "config_schema.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def schema(program):
    return program.make_schema()


def unknown_keys(schema, value, path=""):
    """Return the keys of `value` that the schema does not allow; supports the keywords of the generator."""
    if "anyOf" in schema and "type" in schema:
        chosen = [one for one in schema["anyOf"] if value.keys() >= set(one["required"])]
        wrong = unknown_keys({key: schema[key] for key in schema if key != "anyOf"}, value, path)
        return wrong if chosen else [*wrong, path]
    if "anyOf" in schema:
        return min((unknown_keys(one, value, path) for one in schema["anyOf"]), key=len)
    if not isinstance(value, dict):
        fits = value in schema["enum"] if "enum" in schema else schema.get("type") != "object"
        return [] if fits else [path]
    if "enum" in schema:
        return [path]
    for case in schema.get("allOf", ()):
        named = "name" in value
        chosen = case["if"].get("properties", {}).get("name", {}).get("const") if named else None
        if named and chosen == value["name"] or not named and "not" in case["if"]:
            return unknown_keys(case["then"], value, path)
    if "allOf" in schema:
        return [f"{path}.name"]
    properties = schema.get("properties")
    if properties is None:
        return []
    wrong = [f"{path}.{key}" for key in (*value, *schema.get("required", ())) if key not in properties]
    wrong += [f"{path}.{key}" for key in schema.get("required", ()) if key not in value]
    for key in value.keys() & properties.keys():
        wrong += unknown_keys(properties[key], value[key], f"{path}.{key}")
    return wrong


def test_the_file_is_that_of_the_code(program):
    hint = "run python benchmarks/config_schema.py"
    assert program.FILE.read_text(encoding="utf-8") == program.make_text(), hint


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_a_configuration_stays_within_the_schema(schema, file):
    assert unknown_keys(schema, yaml.safe_load(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"optimiser": {}}, [".optimiser"]),
        ({"optimizer": {"lrr": 1}}, [".optimizer.lrr"]),
        ({"attention": {"name": "slice_sort", "ordr": "half"}}, [".attention.ordr"]),
        ({"attention": {"name": "sotfmax"}}, [".attention.name"]),
        ({"attention": {"fused": False}}, []),
        ({"attention": {"order": "half"}}, [".attention.order"]),
        ({"attention": "softmax", "model": {"preset": "slim"}}, []),
        ({"model": {"name": "sequence", "preset": "slim"}}, [".model.preset"]),
        ({"data": {"name": "csv", "path": "a.csv"}}, [".data.target_columns"]),
    ],
)
def test_a_key_outside_of_the_schema_is_found(schema, change, found):
    mapping = {"data": "listops", "model": {"preset": "slim"}, **change}
    assert set(found) <= set(unknown_keys(schema, mapping))
    assert bool(found) == bool(unknown_keys(schema, mapping))


@pytest.mark.parametrize(("given", "fits"), [({}, False), ({"start": {"model": "encoder-small"}}, True)])
def test_a_configuration_without_a_model_needs_a_start(schema, given, fits):
    assert (unknown_keys(schema, {"data": "listops", **given}) == []) is fits
