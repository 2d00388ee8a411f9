"""Each result that a command prints as JSON in a test is checked against docs/json.schema.json."""

import argparse
import functools
import json
import sys
from pathlib import Path

from molslice.cli import console
from molslice.inference.json_text import to_json

SCHEMA = json.loads((Path(__file__).parents[1] / "docs" / "json.schema.json").read_text(encoding="utf-8"))


def check(command, value):
    """Check a result of a command.

    Raises:
        AssertionError: It does not fit the schema, or has a key at the top that the schema does not describe.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    schema = {**SCHEMA, "$ref": f"#/$defs/{command}"}
    error = best_match(Draft202012Validator(schema).iter_errors(value))
    assert error is None, f"{command} --json does not fit docs/json.schema.json: {error.message}"
    if isinstance(value, dict) and not SCHEMA["$defs"][command].get("additionalProperties"):
        unknown = value.keys() - described_keys(SCHEMA["$defs"][command])
        assert not unknown, f"docs/json.schema.json does not describe {sorted(unknown)} of {command} --json"


def described_keys(schema):
    """Return the keys of a result, in any of its forms."""
    schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return {*schema.get("properties", ())}.union(*map(described_keys, schema.get("anyOf", ())))


def install():
    """Make the commands check their results before they print them."""
    write_json = console.write_json

    @functools.wraps(write_json)
    def write_checked_json(value):
        args = sys._getframe(1).f_locals.get("args")
        if isinstance(args, argparse.Namespace) and "verb" in args:
            words = [args.verb, getattr(args, "action", None)]
            check(" ".join(filter(None, words)), json.loads(to_json(value)))
        write_json(value)

    console.write_json = write_checked_json
