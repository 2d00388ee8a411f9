"""Conversion of plain values, from YAML or a command line, to the types of annotations."""

import contextlib
import math
import os
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from molslice.files.parsing import parse_yaml
from molslice.registry import near_names
from molslice.types import MolsliceError

PLAIN = (int, float, bool, str, dict)


def convert_text(text: str, hint: Any, where: str) -> Any:  # noqa: ANN401
    """Convert the text of the option `where` to the type of its annotation.

    Text and paths are taken literally, the items of a tuple are separated by commas, and everything else is
    parsed as YAML, like an override on the command line.

    Raises:
        MolsliceError: The text cannot be converted to the type.
    """
    kinds = typing.get_args(hint) or (hint,)
    if typing.get_origin(hint) is tuple:
        items = [item.strip() for item in text.split(",") if item.strip()]
        return tuple(convert_text(item, kinds[0], f"{where}[{place}]") for place, item in enumerate(items))
    value = text if str in kinds or Path in kinds else parse_yaml(text, where)
    return convert(value, hint, where)


def convert(value: Any, hint: Any, where: str) -> Any:  # noqa: ANN401, C901
    """Convert a plain value with the dotted name `where` to the type of an annotation.

    YAML 1.1 reads 1e-4 as text and 32 as a number; both are accepted where the annotation asks for the other.
    A value for an unsupported annotation is returned unchanged.

    Raises:
        MolsliceError: The value cannot be converted to the type.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return dict(value) if isinstance(value, Mapping) else value
    if (origin or hint) in (dict, Mapping) and isinstance(value, Mapping):
        kind = arguments[1] if arguments else Any
        return {str(key): convert(item, kind, f"{where}.{key}") for key, item in value.items()}
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        kinds = [argument for argument in arguments if argument is not type(None)]
        return _convert_to_one(value, kinds, where)
    if origin is Literal:
        for choice in arguments:
            if value == choice or (isinstance(choice, str) and str(value) == choice):
                return choice
        raise MolsliceError(f"{where} is {show(value)}; {near_names(str(value), map(str, arguments))}")
    if origin is tuple and isinstance(value, list | tuple):
        inner = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(inner) == len(value):
            return tuple(convert(value[i], inner[i], f"{where}[{i}]") for i in range(len(value)))
    if origin is Sequence and isinstance(value, list | tuple):
        return [convert(item, arguments[0], f"{where}[{i}]") for i, item in enumerate(value)]
    if origin is os.PathLike and isinstance(value, os.PathLike):
        return value
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and not isinstance(value, bool):
        return _finite(value, where)
    if hint is int and type(value) is int and not -(2**63) <= value < 2**63:
        raise MolsliceError(f"{where} is {show(value)}, expected a whole number of at most 63 bits")
    if hint in (int, bool, str) and type(value) is hint:
        return value
    if hint in PLAIN or origin in (*PLAIN, tuple, Sequence, Mapping, os.PathLike):
        raise MolsliceError(f"{where} is {show(value)}, expected {_say(hint)}")
    return value  # checked by the class itself


def _finite(value: Any, where: str) -> float:  # noqa: ANN401
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise MolsliceError(f"{where} is {show(value)}, expected {_say(float)}") from error
    if not math.isfinite(number):
        raise MolsliceError(f"{where} is {show(value)}, expected a finite number")
    return number


def _convert_to_one(value: Any, hints: Sequence[Any], where: str) -> Any:  # noqa: ANN401
    """Convert a value to the first type of a union that accepts it."""
    if len(hints) == 1:
        return convert(value, hints[0], where)
    for hint in hints:
        with contextlib.suppress(MolsliceError):
            return convert(value, hint, where)
    is_path = any(typing.get_origin(hint) is os.PathLike for hint in hints)
    expected = "a path" if is_path else " or ".join(map(_say, hints))
    raise MolsliceError(f"{where} is {show(value)}, expected {expected}")


def _say(hint: Any) -> str:  # noqa: ANN401
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    forms = {dict: "a mapping", Mapping: "a mapping", Sequence: "a list"}
    if typing.get_origin(hint) is Literal:
        return " or ".join(map(str, typing.get_args(hint)))
    return words.get(hint) or forms.get(typing.get_origin(hint) or hint) or str(hint).replace("typing.", "")


def show(value: Any) -> str:  # noqa: ANN401
    """Return the repr of a value for a message, at most 100 characters."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:89]} and more"
