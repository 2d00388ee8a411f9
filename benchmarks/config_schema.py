"""Write docs/config.schema.json, the JSON schema of a configuration.

Editors use it for completion and validation. The schema is generated from the dataclasses in
`molslice.config` and the registries of data sets, attentions and models. A test compares the file with the
code.
"""

import dataclasses
import json
import os
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from molslice.attention import ATTENTIONS
from molslice.config import DataConfig, RunConfig
from molslice.data import DATASETS
from molslice.model import DEFAULT_MODEL, MODELS, AttentionChoice, ModelSpec
from molslice.registry import Registry

FILE = Path(__file__).resolve().parents[1] / "docs" / "config.schema.json"
Schema = dict[str, Any]
PLAIN = {int: "integer", float: "number", bool: "boolean", str: "string", type(None): "null", dict: "object"}
FORMS = {tuple: "array", Sequence: "array", Mapping: "object", dict: "object", os.PathLike: "string"}


def make_schema() -> Schema:
    """Return the schema of a `RunConfig`."""
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "molslice configuration"}
    schema = _fields(RunConfig)
    schema["required"].remove("model")  # `start` has one
    schema["anyOf"] = [{"required": ["model"]}, {"required": ["start"]}]
    return {**head, **schema}


def _fields(cls: type, **first: Schema) -> Schema:
    hints = typing.get_type_hints(cls)
    found = {f.name: f for f in dataclasses.fields(cls) if f.name not in {*first, "options"}}
    properties = {name: _with_default(_type(hints[name]), found[name].default) for name in found}
    return _mapping({**first, **properties}, [name for name in found if _is_required(found[name])])


def _is_required(one: dataclasses.Field[Any]) -> bool:
    return one.default is one.default_factory is dataclasses.MISSING


def _options(registry: Registry[Any], name: str, own: type) -> Schema:
    """Return the schema of one data set or attention: the fields of `own` and the member's options."""
    hints, options = registry.hints(name), registry.options(name)
    given = {key: _with_default(_type(hints.get(key, Any)), one.default) for key, one in options.items()}
    needed = [key for key, one in options.items() if one.default is one.empty]
    fields = _fields(own, name={"const": name})["properties"]
    return _mapping({**fields, **given}, ["name", *needed])


def _mapping(properties: Schema, required: list[str]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _by_name(members: dict[str, Schema], default: str | None) -> Schema:
    """Return the schema of a mapping in which `name` determines the other keys."""
    cases = [
        {"if": {"properties": {"name": {"const": name}}, "required": ["name"]}, "then": member}
        for name, member in members.items()
    ]
    if default is not None:
        cases.append({"if": {"not": {"required": ["name"]}}, "then": members[default]})
    named = {"type": "object", "properties": {"name": {"enum": list(members)}}, "allOf": cases}
    return named if default is not None else {**named, "required": ["name"]}


def _type(hint: Any) -> Schema:  # noqa: ANN401
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is ModelSpec:
        specs = {name: MODELS.find(name) for name in MODELS.names()}
        return _by_name({n: _fields(spec, name={"const": n}) for n, spec in specs.items()}, DEFAULT_MODEL)
    if hint in (DataConfig, AttentionChoice):
        registry: Registry[Any] = DATASETS if hint is DataConfig else ATTENTIONS
        members = {name: _options(registry, name, hint) for name in registry.names()}
        return {"anyOf": [_by_name(members, None), {"enum": registry.names()}]}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _fields(hint)
    if origin is Literal:
        return {"enum": [*arguments, *(int(one) for one in arguments if str(one).isdecimal())]}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type(argument) for argument in arguments]}
    kind = PLAIN.get(hint) or FORMS.get(origin)
    if kind == "array":
        return {"type": kind, "items": _type(arguments[0])}
    return {"type": kind} if kind else {}


def _with_default(schema: Schema, default: object) -> Schema:
    plain = isinstance(default, int | float | str | tuple)
    return {**schema, "default": default} if plain else schema


def make_text() -> str:
    """Return the content of the file."""
    return json.dumps(make_schema(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(make_text(), encoding="utf-8")
