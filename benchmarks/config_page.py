"""Write docs/guides/configuration.md, the reference of all keys of a configuration.

The page shows the schema of `config_schema.py`. A test compares the page with the code.
"""

import json
import re
from collections.abc import Iterable

from config_schema import Schema, make_schema
from tables import ROOT, left_aligned

FILE = ROOT / "docs" / "guides" / "configuration.md"
MAX_CHOICES = 12  # more are listed in their own section
PLURALS = {"array": "lists", "integer": "integers", "number": "numbers", "string": "texts"}
SECTIONS = ("optimizer", "training", "trainer", "start")
HEAD = """# Configuration keys

All keys that a configuration of `molslice train` and `molslice compare` can have. The page is generated from
the code.

- Each key of a section can be set on the command line: `--optimizer.lr 3e-4`, `--data.split scaffold`.
  Another `--data.name` or `--attention.name` removes the options in the file for the previous one, and
  `--model.preset` removes the sizes in the file.
- A key without a default must be given. An unknown key is an error that names similar keys.
- `null` in YAML is `None` in a description. A path in YAML is relative to the current folder.
- `data: csv` and `attention: flow` are short for `data: {name: csv}` and `attention: {name: flow}`.
- Each run folder has a `config.yaml` with every key and its value.

## Sections

A configuration with `start` needs no `model`: the model of the run to start from is used.
"""
MODELS = """## model

`name` selects the model (default `graphormer`), and determines the other keys.
"""
ATTENTIONS = """## attention

`name` selects one of the [attentions](../attentions/index.md) (default `softmax`), and determines the other
keys. All have `pair_bias`: `none`, `logits`, `mix`, or `null` for the mode that the attention prefers. Those
that are not in the table have no other keys.
"""
DATA = """## data

`name` selects the data set, and determines the other keys.
"""


def make_page() -> str:
    """Return the page."""
    sections = make_schema()["properties"]
    parts = [HEAD, table(sections)]
    for name in SECTIONS:
        parts += [f"## {name}\n", *described(fields_of(sections[name]))]
    parts.append(MODELS)
    for name, member in members(sections["model"]):
        parts += [f"### model: {name}\n", *described(member)]
    parts += [ATTENTIONS, attention_table(members(sections["attention"])), DATA]
    for name, member in members(sections["data"]):
        parts += [f"### data: {name}\n", *described(member)]
    return "\n".join(parts)


def fields_of(section: Schema) -> Schema:
    """Return the form of a section that has keys, without the form that is null."""
    return next(form for form in section.get("anyOf", [section]) if "properties" in form)


def members(section: Schema) -> list[tuple[str, Schema]]:
    """Return name and schema of each model, attention or data set."""
    named = next(form for form in section.get("anyOf", [section]) if "allOf" in form)
    cases = [case["then"] for case in named["allOf"] if "properties" in case["if"]]
    return [(case["properties"]["name"]["const"], case) for case in cases]


def described(mapping: Schema) -> tuple[str, str]:
    """Return the text of a section and the table of its keys."""
    text = re.sub(r" (See|The options are the same as for) `\w+`[^.]*\.", "", mapping["description"])
    return text.replace("The spec of ", "Options of ", 1) + "\n", table(
        mapping["properties"], mapping.get("required", ())
    )


def table(properties: Schema, required: Iterable[str] = ("data", "model")) -> str:
    """Return the table of keys."""
    rows = [cells(key, schema, required) for key, schema in properties.items() if "const" not in schema]
    return left_aligned(["key", "value", "default", "description"], rows) + "\n"


def attention_table(attentions: list[tuple[str, Schema]]) -> str:
    """Return the table of the options of all attentions."""
    rows = [
        [f"`{name}`", *cells(key, schema, member.get("required", ()))]
        for name, member in attentions
        for key, schema in member["properties"].items()
        if "const" not in schema and key != "pair_bias"
    ]
    return left_aligned(["attention", "key", "value", "default", "description"], rows) + "\n"


def cells(key: str, schema: Schema, required: Iterable[str]) -> list[str]:
    """Return key, type, default and description."""
    default = "" if key in required else code(schema["default"]) if "default" in schema else ""
    if not default and key not in required and "null" in kind(schema):
        default = "`null`"
    text = schema["description"].replace("\n\n", " ").replace("\n", "<br>").replace("|", "&#124;")
    text = text.replace("see `ImageDataset`", "see [`ImageDataset`](../api/data.md)")
    return [f"`{key}`", kind(schema), default, text]


def kind(schema: Schema) -> str:
    """Return the type in words, or the choices."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(form) for form in schema["anyOf"]))
    if "allOf" in schema:
        return "mapping"
    if "enum" in schema:
        choices = list(dict.fromkeys(code(choice) for choice in schema["enum"]))
        return ", ".join(choices) if len(choices) <= MAX_CHOICES else "name"
    if schema.get("type") == "array":
        items = schema["items"].get("anyOf", [schema["items"]])
        return f"list of {' and '.join(PLURALS[item['type']] for item in items)}"
    words = {"object": "mapping", "null": "`null`", "string": "text", "boolean": "`true`, `false`"}
    name = str(schema.get("type", "any"))
    return words.get(name, name)


def code(value: object) -> str:
    """Return a value as it is written in YAML."""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


if __name__ == "__main__":
    FILE.write_text(make_page(), encoding="utf-8")
