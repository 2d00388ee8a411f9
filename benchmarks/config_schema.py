"""Write docs/config.schema.json, the JSON schema of a configuration.

Editors use it for completion, validation and the description of a key. The schema is generated from the
dataclasses in `molslice.config`, the registries of data sets, attentions and models, and their docstrings. A
test compares the file with the code.
"""

import dataclasses
import functools
import inspect
import json
import os
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import griffe

from molslice.attention import ATTENTIONS
from molslice.config import DataConfig, RunConfig
from molslice.data import DATASETS
from molslice.model import DEFAULT_MODEL, MODELS, AttentionChoice, ModelSpec
from molslice.registry import Registry
from molslice.tasks import TASKS

FILE = Path(__file__).resolve().parents[1] / "docs" / "config.schema.json"
Schema = dict[str, Any]
PLAIN = {int: "integer", float: "number", bool: "boolean", str: "string", type(None): "null", dict: "object"}
FORMS = {tuple: "array", Sequence: "array", Mapping: "object", dict: "object", os.PathLike: "string"}


def make_schema() -> Schema:
    """Return the schema of a `RunConfig`."""
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "molslice configuration"}
    schema = _fields(RunConfig)
    schema["required"].remove("model")  # `start` has one
    schema["properties"]["task"] = {"enum": TASKS.names(), **schema["properties"]["task"]}
    schema["anyOf"] = [{"required": ["model"]}, {"required": ["start"]}]
    return {**head, **schema}


def _fields(cls: type, **first: Schema) -> Schema:
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.name not in {*first, "options"}}
    properties = {name: _with_default(_type(hints[name]), field.default) for name, field in fields.items()}
    required = [name for name, field in fields.items() if _is_required(field)]
    return _mapping({**first, **properties}, required, cls)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _options(registry: Registry[Any], name: str, section: type) -> Schema:
    """Return the schema of one data set or attention: the fields of the section and the member's options."""
    hints, options = registry.hints(name), registry.options(name)
    given = {
        key: _with_default(_type(hints.get(key, Any)), parameter.default)
        for key, parameter in options.items()
    }
    needed = [key for key, parameter in options.items() if parameter.default is parameter.empty]
    fields = _fields(section, name={"const": name})["properties"]
    return _mapping({**fields, **given}, needed, registry.find(name))


def _mapping(properties: Schema, required: list[str], documented: type) -> Schema:
    about, texts = _docstring(documented)
    return {
        "type": "object",
        "description": about,
        "properties": {
            key: {"description": texts[key], **schema} if key in texts and "const" not in schema else schema
            for key, schema in properties.items()
        },
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


@functools.cache
def _docstring(cls: type) -> tuple[str, dict[str, str]]:
    """Return the text of a class before its arguments, and the description of each argument or attribute.

    A base class describes the arguments that the class does not.
    """
    texts: list[str] = []
    arguments: dict[str, str] = {}
    for base in cls.__mro__:
        sections = _sections(base)
        if base is cls and sections and sections[0].kind.value == "text":
            texts = [_unwrapped(text) for text in sections[0].value.split("\n\n")]
        for section in sections:
            if section.kind.value in ("parameters", "attributes"):
                for item in section.value:
                    if not item.description.startswith("See `"):
                        arguments.setdefault(item.name, _unwrapped(item.description))
    return "\n\n".join(texts), arguments


def _sections(cls: type) -> list[Any]:
    text = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    return griffe.Docstring(text, parser="google").parse(warnings=False)


def _unwrapped(text: str) -> str:
    """Join the lines of each paragraph; each item of a list keeps its line."""
    lines: list[str] = []
    for line in text.splitlines():
        if not lines or line.startswith("- "):
            lines.append(line)
        else:
            lines[-1] = f"{lines[-1]} {line.strip()}".strip()
    return "\n".join(lines)


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
        default = None if hint is DataConfig else AttentionChoice().name
        return {"anyOf": [_by_name(members, default), {"enum": registry.names()}]}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _fields(hint)
    if origin is Literal:
        return {"enum": [*arguments, *(int(argument) for argument in arguments if str(argument).isdecimal())]}
    if origin in (typing.Union, types.UnionType):
        forms = [_type(argument) for argument in arguments]
        distinct = [form for place, form in enumerate(forms) if form not in forms[:place]]
        return {"anyOf": distinct} if len(distinct) > 1 else distinct[0]
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
