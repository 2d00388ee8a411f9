"""Import Pillow, the library for image files, which the extra `images` installs."""

import struct
from typing import Any

from molslice.errors import MolsliceError


def import_pillow() -> Any:  # noqa: ANN401 - a module that may be missing
    """Import `PIL.Image`.

    Raises:
        MolsliceError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MolsliceError("images need Pillow: pip install 'molslice[images]'") from error
    return Image


def damages() -> tuple[type[Exception], ...]:
    """Return the exceptions that Pillow raises for damaged, too large and other files.

    Raises:
        MolsliceError: Pillow is not installed.
    """
    too_large = import_pillow().DecompressionBombError
    return OSError, SyntaxError, ValueError, EOFError, struct.error, too_large  # SyntaxError: damaged PNG
