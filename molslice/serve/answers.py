"""Answers in JSON."""

import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

__all__ = ["JsonAnswer", "refusal"]


class JsonAnswer(JSONResponse):
    """JSON in ASCII, which can hold any text of a request, also unpaired surrogates."""

    def render(self, content: Any) -> bytes:  # noqa: ANN401
        """Return the document."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def refusal(error: HTTPException) -> JsonAnswer:
    """Return the answer to a refused request."""
    return JsonAnswer({"detail": error.detail}, error.status_code, error.headers)
