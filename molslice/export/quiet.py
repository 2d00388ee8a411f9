"""Hide what torch's exporters say about their own code."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet_torch"]


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Hide warnings of this process until the block ends; errors are still raised."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
