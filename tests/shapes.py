"""The check that the tests put on every signature: dtypes and shapes of tensors, and nothing else.

Beartype on every annotation would refuse a wrong option before the package can, with a message of its own;
what a person sees for a wrong option is the package's matter, and tested.
"""

from typing import get_args

from beartype import beartype
from jaxtyping import AbstractArray


def check_tensors(function):
    """Beartype on the annotations that name a tensor with its shape."""
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if _names_a_tensor(hint)}
    return beartype(function)


def _names_a_tensor(hint):
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_names_a_tensor(part) for part in get_args(hint))
