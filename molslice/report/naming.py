"""Names of a model on its page, which may be sent to others, without the folders above it."""

import os

from molslice.files.folder_names import without_folders
from molslice.inference.base import SmilesPredictor

__all__ = ["short_name", "with_short_name"]


def short_name(predictor: SmilesPredictor) -> str:
    """Return the last part of the name of a model; for `.`, the name of that folder."""
    return os.path.basename(os.path.abspath(predictor.name))


def with_short_name(text: str, predictor: SmilesPredictor) -> str:
    """Replace the absolute path of the folder of a model in a text by its last part."""
    if not os.path.isabs(predictor.name):
        return text
    return without_folders(text, {os.path.normpath(predictor.name): short_name(predictor)})
