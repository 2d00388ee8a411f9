"""The frame of a report, and HTML of text, tables and cards. All text is escaped here."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import NewType

from molslice.number_text import counted

Html = NewType("Html", str)

FEW = 20  # molecules; a group of fewer has a count instead of a percentage

# Nothing is loaded: no script, no font, no image from outside.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --soft: #5b6670; --back: #ffffff; --card: #f4f6f8;
  --edge: #d5dbe1; --mark: #0072b2; --shadow: rgb(20 40 45 / 35%); }
@media (prefers-color-scheme: dark) { :root { --text: #e6eaee; --soft: #9aa7b3; --back: #14181c;
  --card: #1d2329; --edge: #36404a; --mark: #4aa8e0;
  --shadow: rgb(0 0 0 / 75%); } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--edge); padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .6rem; }
p { margin: .4rem 0 .8rem; max-width: 46rem; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1rem; font-size: .9rem; }
a { color: var(--mark); }
.soft { color: var(--soft); }
.verdict { border-left: 4px solid var(--mark); padding: .1rem 0 .1rem .8rem; margin: .8rem 0; }
.verdict p { font-size: 1.05rem; max-width: 52rem; overflow-wrap: anywhere; }
/* a shadow at each side towards which there is more */
.wide { overflow-x: auto; margin: 0 0 1.2rem; background:
  linear-gradient(to right, var(--back), var(--back)) left / 1.5rem 100% no-repeat local,
  linear-gradient(to left, var(--back), var(--back)) right / 1.5rem 100% no-repeat local,
  linear-gradient(to right, var(--shadow), transparent) left / 1rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shadow), transparent) right / 1rem 100% no-repeat scroll; }
.side { display: flex; flex-wrap: wrap; gap: 0 3rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
th, td { padding: .25rem .8rem .25rem 0; text-align: right; white-space: nowrap; vertical-align: top; }
tbody th, thead th:first-child { text-align: left; }
thead th { border-bottom: 1px solid var(--edge); font-weight: 600; white-space: normal;
  vertical-align: bottom; }
tbody th { font-weight: 400; }
.bar { display: inline-block; width: 8rem; height: .7rem; background: var(--card); border-radius: 2px; }
.bar > span { display: block; height: 100%; background: var(--mark); border-radius: 2px; }
.grid { display: grid; gap: 1rem; margin-bottom: 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); }
.chart { width: 100%; max-width: 30rem; height: auto; }
figure { margin: 0; }
figcaption { font-size: .9rem; color: var(--soft); overflow-wrap: anywhere; }
.molecule { border: 1px solid var(--edge); border-radius: 6px; overflow: hidden; background: var(--card); }
.molecule svg { display: block; width: 100%; height: auto; }
.molecule .dark { display: none; }
@media screen and (prefers-color-scheme: dark) { .molecule .light { display: none; }
  .molecule .dark { display: block; } }
.pair .grid { grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); }
.pair .molecule { display: flex; flex-wrap: wrap; }
.pair .molecule > div { width: 50%; }
.pair .molecule figcaption { flex: 1 0 100%; }
.molecule figcaption { padding: .5rem .7rem; color: var(--text); }
pre { background: var(--card); border: 1px solid var(--edge); border-radius: 6px; padding: .7rem;
  white-space: pre-wrap; overflow-wrap: anywhere; font: .85rem/1.4 ui-monospace, Menlo, Consolas, monospace; }
summary { cursor: pointer; color: var(--mark); }
@media (max-width: 40rem) { th, td { padding-right: .5rem; }
  tbody th, thead th:first-child { position: sticky; left: 0; background: var(--back); white-space: normal;
    min-width: 5.5rem; max-width: 9rem; overflow-wrap: anywhere; }
  .bar { width: 3.5rem; } }
@media print { nav { display: none; } details { display: block; } }
"""


def page(title: str, lead: str, sections: Sequence[tuple[str, Html]], verdict: Sequence[str] = ()) -> str:
    """Return a whole page: a title, a verdict, a sentence, and the title and content of each section."""
    sentences = "".join(f"<p>{escape(line)}</p>" for line in verdict)
    box = f'<div class="verdict">{sentences}</div>\n' * bool(verdict)
    links = "".join(f'<a href="#{_anchor(name)}">{escape(name)}</a>' for name, _ in sections)
    body = "".join(
        f'<section id="{_anchor(name)}"><h2>{escape(name)}</h2>{content}</section>\n'
        for name, content in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n{box}<p>{escape(lead)}</p>\n<nav aria-label="Sections">{links}</nav>\n'
        f"{body}</main>\n</body>\n</html>\n"
    )


def section(*parts: Html) -> Html:
    """Join the parts of a section."""
    return Html("\n".join(parts))


def heading(text: str) -> Html:
    """Return a heading within a section."""
    return Html(f"<h3>{escape(text)}</h3>")


def code(text: str) -> Html:
    """Return a command or a file as it is."""
    return Html(f"<pre>{escape(text)}</pre>")


def side_by_side(*parts: Html) -> Html:
    """Place tables beside each other where the page is wide enough."""
    return Html(f'<div class="side">{"".join(parts)}</div>')


def paragraph(text: str, *, soft: bool = False) -> Html:
    """Return a paragraph; a soft one is a note."""
    start = '<p class="soft">' if soft else "<p>"
    return Html(f"{start}{escape(text)}</p>")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> Html:
    """Return a table whose first column names the rows; rows of one name after each other share it."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    lines = []
    for first, group in groupby(rows, key=lambda row: row[0]):
        same = list(group)
        kind = f'scope="rowgroup" rowspan="{len(same)}"' if len(same) > 1 else 'scope="row"'
        start = f"<th {kind}>{escape(first)}</th>"
        for _, *rest in same:
            lines.append(f"<tr>{start}{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>")
            start = ""
    return _framed(head, "".join(lines), caption)


def bars(header: Sequence[str], rows: Sequence[tuple[Sequence[str], float]]) -> Html:
    """Return a table whose rows end with a bar.

    Args:
        header: Names of the columns; the bar has none.
        rows: The cells of each row and the length of its bar from 0 to 1; NaN for no bar.
    """
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header) + "<td></td>"
    lines = []
    for (first, *rest), length in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        width = f"{100 * min(max(length, 0.0), 1.0):.1f}%" if length == length else "0"  # noqa: PLR0124
        bar = f'<td><span class="bar" aria-hidden="true"><span style="width:{width}"></span></span></td>'
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{cells}{bar}</tr>')
    return _framed(head, "".join(lines))


def limits_text(count: int) -> str:
    """Return how many of some rows have a limit, to stand after their number; "" if none has."""
    return f" ({counted(count, 'limit')})" if count else ""


def share_text(part: int, count: int) -> str:
    """Return a share of `count` molecules as a percentage, or as `3 of 4` if they are fewer than `FEW`."""
    if not count:
        return "-"
    return f"{part / count:.1%}" if count >= FEW else f"{part:,} of {count:,}"


def figures(charts: Sequence[tuple[str, str]]) -> Html:
    """Return charts, each an SVG with a caption, side by side."""
    drawn = "".join(
        f'<figure role="img" aria-label="{escape(caption)}">{svg}<figcaption>{escape(caption)}</figcaption>'
        "</figure>"
        for svg, caption in charts
    )
    return Html(f'<div class="grid">{drawn}</div>')


def cards(title: str, molecules: Sequence[tuple[Html, Sequence[str]]]) -> Html:
    """Return molecules, each a drawing with lines of text, below a title."""
    drawn = "".join(
        f'<figure class="molecule">{drawing}<figcaption>{"<br>".join(map(escape, lines))}</figcaption>'
        "</figure>"
        for drawing, lines in molecules
    )
    return Html(f'{heading(title)}<div class="grid">{drawn}</div>')


def in_both_schemes(light: str, dark: str) -> Html:
    """Return the SVG of a drawing for light pages and for dark ones, of which the browser shows one."""
    return Html(f'<div class="light">{light}</div><div class="dark">{dark}</div>')


def pair_cards(title: str, pairs: Sequence[tuple[tuple[Html, Html], Sequence[str]]]) -> Html:
    """Return pairs of molecules, two drawings side by side with lines of text, below a title."""
    drawn = cards(title, [(Html("".join(drawings)), lines) for drawings, lines in pairs])
    return Html(f'<div class="pair">{drawn}</div>')


def details(summary: str, text: str) -> Html:
    """Return text that opens with a click."""
    return Html(f"<details><summary>{escape(summary)}</summary>{code(text)}</details>")


def _framed(head: str, lines: str, caption: str = "") -> Html:
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return Html(
        f'<div class="wide"><table>{above}<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def _anchor(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())
