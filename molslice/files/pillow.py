"""Pillow, which the extra `images` brings: what opens image files and changes images."""

import struct
from typing import Any

from molslice.types import MolsliceError

__all__ = ["damages", "import_pillow"]


def import_pillow() -> Any:  # noqa: ANN401 - a module that need not be there
    """The module `PIL.Image`.

    Raises:
        MolsliceError: it is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MolsliceError("images need Pillow: pip install 'molslice[images]'") from error
    return Image


def damages() -> tuple[type[Exception], ...]:
    """What Pillow raises for files that are damaged, too large or no images."""
    too_large = import_pillow().DecompressionBombError
    return OSError, SyntaxError, ValueError, EOFError, struct.error, too_large  # SyntaxError: a broken PNG
