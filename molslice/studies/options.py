"""Options of a study: names, types and help from its constructor."""

import inspect
import typing
from dataclasses import dataclass
from typing import Any

from molslice.types import MolsliceError

__all__ = ["Option", "constructor_options", "require"]


@dataclass(frozen=True, slots=True)
class Option:
    """A keyword-only parameter written `name: Annotated[type, "help"] = default`.

    Attributes:
        name: Name of the parameter.
        type: Its type, without `Annotated`.
        help: Its line of help.
        default: Its default value.
    """

    name: str
    type: Any
    help: str
    default: Any


def constructor_options(study: type) -> dict[str, Option]:
    """Return the options of a study by name, in the order of its constructor."""
    hints = typing.get_type_hints(study.__init__, include_extras=True)
    options = {}
    for name, parameter in inspect.signature(study.__init__).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            kind, *remarks = typing.get_args(hints[name])
            options[name] = Option(name, kind, str(remarks[0]), parameter.default)
    return options


def require(holds: bool, name: str, value: object, expected: str) -> None:
    """Check a value.

    Args:
        holds: Whether the value is valid.
        name: Name of the option.
        value: The value, for the message.
        expected: What is valid, for the message.

    Raises:
        MolsliceError: `holds` is false.
    """
    if not holds:
        raise MolsliceError(f"{name} is {value!r}, expected {expected}")
