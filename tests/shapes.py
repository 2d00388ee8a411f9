"""Runtime checks of the tensor dtypes and shapes in every signature.

Other annotations are not checked: beartype would reject a wrong option before the package does, and the
messages of the package are tested.
"""

from typing import get_args

from beartype import beartype
from jaxtyping import AbstractArray


def check_tensors(function):
    """Apply beartype to the annotations of tensors with shapes."""
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if _names_a_tensor(hint)}
    return beartype(function)


def _names_a_tensor(hint):
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_names_a_tensor(part) for part in get_args(hint))
