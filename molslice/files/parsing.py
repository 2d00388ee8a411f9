"""Parse YAML and JSON to plain values in bounded time and memory."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from molslice.errors import MolsliceError
from molslice.files.received import check_received

MAX_DEPTH = 50  # levels of lists and mappings
MAX_VALUES = 100_000  # values, with aliases expanded
MAX_BYTES = 1 << 24  # of a JSON file
MAX_BITS = 64  # bits of an integer; Python refuses to print much larger ones
TAG = "tag:yaml.org,2002:"
TYPES = ("null", "bool", "int", "float", "str", "seq", "map")


def parse_yaml(text: str, source: str) -> Any:  # noqa: ANN401
    """Parse one YAML document of mappings, lists, text, numbers, true, false and null, named `source`.

    Dates are text. Anchors, aliases and merge keys (`<<: *anchor`) are expanded.

    Raises:
        MolsliceError: The text is not YAML, a key occurs twice, a value has another type, or the document
            has more than 50 levels, more than 100,000 values or an integer of more than 64 bits.
    """
    try:
        return yaml.load(text, Loader=_BoundedLoader)  # noqa: S506
    except yaml.YAMLError as error:
        raise MolsliceError(f"cannot read {source} as YAML: {_reason(error)}") from error
    except ValueError as error:  # Python refuses a number
        raise MolsliceError(f"cannot read {source} as YAML: {error}") from error


def _reason(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem}, line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(error).split())


def parse_json(text: str | bytes, source: str) -> Any:  # noqa: ANN401
    """Parse one JSON document, in which bytes are UTF-8; messages name `source`.

    Raises:
        MolsliceError: The text is not JSON, a name occurs twice in an object, or there are more than 50
            levels.
    """
    try:
        return _decode(text)
    except (ValueError, RecursionError) as error:
        raise MolsliceError(f"cannot read {source} as JSON: {error}") from error


def read_json_object(file: Path, most: int = MAX_BYTES) -> dict[str, Any]:
    """Read a file of at most `most` bytes that holds one JSON object.

    Raises:
        MolsliceError: The file cannot be read, is a link out of its folder, is not JSON, is too large, has
            more than 50 levels or a name twice in an object, or is not an object.
    """
    check_received(file)
    try:
        if (size := file.stat().st_size) > most:
            raise ValueError(f"{size:,} bytes are more than {most:,}")
        content = _decode(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise MolsliceError(f"cannot read {file}: {error}") from error
    if not isinstance(content, dict):
        raise MolsliceError(f"cannot read {file}: it does not hold a JSON object")
    return content


def load_json(
    text: str | bytes,
    constant: Callable[[str], Any] | None = None,
    number: Callable[[str], Any] | None = None,
) -> Any:  # noqa: ANN401
    """Decode one JSON document.

    Args:
        text: The document.
        constant: Returns the value of `NaN`, `Infinity` or `-Infinity`, which JSON does not have; None for
            the number.
        number: Returns the value of a number with a decimal point or an exponent; None for the number.

    Raises:
        ValueError: The text is not JSON, or a name occurs twice in an object; `json.loads` keeps the last.
        RecursionError: There are too many levels.
    """
    return json.loads(text, object_pairs_hook=_as_object, parse_constant=constant, parse_float=number)


def _as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:40]!r} occurs twice in an object")
    return content


def _decode(text: str | bytes) -> Any:  # noqa: ANN401
    value = load_json(text)
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in _items(item)]
    if level:
        raise ValueError(f"more than {MAX_DEPTH} levels")
    return value


def _items(value: Any) -> Iterable[Any]:  # noqa: ANN401
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class _BoundedLoader(yaml.SafeLoader):
    """A YAML loader with unique keys and limits on the size of expanded aliases.

    The size of a node is counted when it is composed, before a value is built from it.
    """

    yaml_constructors = {
        None: yaml.SafeLoader.yaml_constructors[None],
        **{TAG + name: yaml.SafeLoader.yaml_constructors[TAG + name] for name in TYPES},
    }
    yaml_implicit_resolvers = {
        mark: [(tag, pattern) for tag, pattern in resolvers if tag not in (TAG + "timestamp", TAG + "value")]
        for mark, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._level = 0
        self._sizes: dict[yaml.Node, tuple[int, int]] = {}  # values and levels of each composed node

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401
        """Compose one node; refuse one that is too large, too deep, or inside itself."""
        is_alias = self.check_event(yaml.AliasEvent)
        self._level += 1
        self._check(self._level, MAX_DEPTH, "levels", self.peek_event())
        node = super().compose_node(parent, index)
        self._level -= 1
        if node is None or node in self._sizes:
            return node
        if is_alias:
            raise ComposerError(None, None, "an alias refers to a value that contains it", node.start_mark)
        values, levels = 1, 1
        for child in _children(node):
            values += self._sizes[child][0]
            levels = max(levels, 1 + self._sizes[child][1])
        self._check(values, MAX_VALUES, "values", node)
        self._check(levels, MAX_DEPTH, "levels", node)
        self._sizes[node] = values, levels
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401
        """Compose a mapping; refuse a key that is given twice."""
        node = super().compose_mapping_node(anchor)
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != TAG + "merge":
                if key.value in keys:
                    raise ComposerError(None, None, f"key {key.value!r} is given twice", key.start_mark)
                keys.add(key.value)
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Build a whole number of at most 64 bits."""
        value = super().construct_yaml_int(node)
        if value.bit_length() > MAX_BITS:
            raise ConstructorError(
                None, None, f"a whole number of more than {MAX_BITS} bits", node.start_mark
            )
        return value

    def _check(self, count: int, bound: int, unit: str, place: yaml.Node | yaml.Event) -> None:
        if count > bound:
            raise ComposerError(None, None, f"more than {bound:,} {unit}", place.start_mark)


_BoundedLoader.add_constructor(TAG + "int", _BoundedLoader.construct_yaml_int)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []
