"""Change one value of a nested description."""

from collections.abc import Callable, Sequence
from typing import Any


def put(path: Sequence[str | int], value: Any) -> Callable[[Any], None]:  # noqa: ANN401
    """Return a function that sets the value at a path of keys in nested mappings and lists."""

    def change(about: Any) -> None:  # noqa: ANN401
        *places, last = path
        for place in places:
            about = about[place]
        about[last] = value

    return change
