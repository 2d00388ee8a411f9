"""The answers of a worker: lines of JSON on its standard output."""

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from molslice.files.processes import end_with_input

__all__ = ["answer_request", "is_out_of_memory", "outcome_of"]

OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "bad alloc",
    "alloc_failed",
)

Numbers = dict[str, Any]


def answer_request(answer: Callable[[str, Callable[[Numbers], None]], None]) -> None:
    """Read one line of standard input, and write answers to standard output.

    What libraries write to standard output goes to standard error.

    Args:
        answer: Gets the line, and a function that writes an answer.
    """
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def report(numbers: Numbers) -> None:
        channel.write(json.dumps(numbers) + "\n")
        channel.flush()

    request = sys.stdin.readline()
    end_with_input()
    answer(request, report)


def outcome_of(error: BaseException) -> Numbers:
    """Return the outcome of a job that raised an error: `OOM` or `failed`, with the reason."""
    outcome = "OOM" if is_out_of_memory(error) else "failed"
    text = re.sub(r"\[enforce fail [^]]*\] [^.]*\. ", "", " ".join(str(error).split()))
    return {"outcome": outcome, "reason": f"{type(error).__name__}: {text}"[:500]}


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocator of Python, C++, torch, or CUDA has raised the error."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(words in text for words in OUT_OF_MEMORY)
