"""MkDocs hook that converts LaTeX between dollar signs to MathML, which browsers render without scripts."""

import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r"(?<![\\$`])\$([^$\n]+)\$")
PAGES = ("attentions/index.md",)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Convert the formulas of the pages in PAGES."""
    if page.file.src_uri not in PAGES:
        return markdown
    return FORMULA.sub(lambda found: convert(found[1]).replace("|", "&#124;"), markdown)
