"""Results as strict JSON."""

import json
import math
from typing import Any

import numpy as np


def to_json(value: Any) -> str:  # noqa: ANN401
    """Convert to a JSON document. NaN and infinity become null, and paths become text."""
    return json.dumps(_plain(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray) and value.ndim:
        return [_plain(item) for item in value]
    if getattr(value, "dtype", None) == np.float32:
        return _plain(float(str(value)))  # the shortest digits of the float32
    if hasattr(value, "item"):  # numpy scalars
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
