"""The hooks change formulas and tables, and nothing else."""

from types import SimpleNamespace

import docs_hooks


def test_code_in_tables_breaks_at_spaces_only():
    row = "<td>a b <code>molslice fit --split x</code></td>"
    changed = "<td>a b <code>molslice <wbr>fit <wbr>--split <wbr>x</code></td>"
    outside = "<p><code>molslice fit</code></p><pre><code>a b</code></pre>"
    assert docs_hooks.on_page_content(html=outside + row + outside) == outside + changed + outside


def test_formulas_become_mathml_on_their_pages():
    pages = [
        SimpleNamespace(file=SimpleNamespace(src_uri=name)) for name in ("attentions/index.md", "index.md")
    ]
    math, same = (docs_hooks.on_page_markdown("a $x_1$ b", page=page) for page in pages)
    assert math.startswith("a <math")
    assert math.endswith("</math> b")
    assert same == "a $x_1$ b"
