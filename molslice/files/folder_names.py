"""Replace the paths of folders in a text that others read, such as a page or the answer of a server."""

import re
from collections.abc import Mapping


def without_folders(text: str, names: Mapping[str, str]) -> str:
    """Replace paths of folders by names, also where they begin a longer path.

    Args:
        text: The text.
        names: The name of each path. `/a/b` is not replaced in `/a/bc` and `/a/b.csv`.
    """
    for folder in sorted(names, key=len, reverse=True):
        text = re.sub(rf"{re.escape(folder)}(?!\w|[.-]\w)", lambda _, name=names[folder]: name, text)
    return text
