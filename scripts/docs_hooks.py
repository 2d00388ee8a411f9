"""MkDocs hooks: LaTeX between dollar signs becomes MathML, and commands in tables break at spaces only."""

import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r"(?<![\\$`])\$([^$\n]+)\$")
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
CODE = re.compile(r"<code>[^<]*</code>")
PAGES = ("attentions/index.md",)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Convert the formulas of the pages in PAGES."""
    if page.file.src_uri not in PAGES:
        return markdown
    return FORMULA.sub(lambda match: convert(match[1]).replace("|", "&#124;"), markdown)


def on_page_content(html: str, **_: Any) -> str:  # noqa: ANN401
    """Allow a break after each space of code in tables, which the style sheet does not break elsewhere."""
    return CELL.sub(lambda cell: CODE.sub(lambda code: code[0].replace(" ", " <wbr>"), cell[0]), html)
