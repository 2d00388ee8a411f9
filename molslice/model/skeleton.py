"""Models without memory for their tensors, to compare a description with weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

DRAWS = frozenset(
    f"{name}_" for name in ("normal", "trunc_normal", "uniform", "kaiming_uniform", "xavier_uniform")
)


@contextmanager
def without_memory() -> Iterator[None]:
    """Build modules whose tensors have shapes but no values, on the device `meta`."""
    with torch.device("meta"), _WithoutValues():
        yield


class _WithoutValues(TorchFunctionMode):
    """Leaves out the random initial values of tensors without memory.

    torch draws them in Python code whose import takes longer than a prediction.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],  # noqa: ARG002
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        named = dict(kwargs or {})
        tensor = args[0] if args else named.get("tensor")
        if isinstance(tensor, Tensor) and tensor.is_meta and getattr(func, "__name__", "") in DRAWS:
            return tensor
        return func(*args, **named)
