"""The attentions: one file, one attention, one configuration name.

Contents: `base.py` defines the interface, and a base class for attentions with queries, keys and values. Each
attention has one file, with its formula as the class docstring.
Imports: `molslice.ops`, `molslice.types`, `molslice.registry`, torch, numpy. Attentions do not import each
other.
To add one: write `my_name.py` with a class `MyName(Attention)`. The contract tests then run for it, and
require a slow float64 form in `tests/attention/references/`.
Reason: a reader finds an attention by its file name, and all of it in one file.
"""

from molslice.attention.base import Attention, Projection
from molslice.registry import Registry
from molslice.types import AttentionSpec, Options

__all__ = ["ATTENTIONS", "Attention", "Projection", "build_attention"]

ATTENTIONS = Registry("molslice.attention", Attention, "attention")


def build_attention(name: str, spec: AttentionSpec, options: Options | None = None) -> Attention:
    """Construct the attention `name` for one layer. Without options it takes its defaults.

    Raises:
        MolsliceError: Unknown name, unknown option, or a spec that the attention does not support.
    """
    return ATTENTIONS.build(name, spec, options=dict(options or {}))
