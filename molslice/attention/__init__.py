"""The zoo: one file = one attention = one name in a configuration.

What lives here: `base.py`, the contract, and one file for each attention, with its formula as the
docstring of its class and a `reference`, the slow and obvious float64 form that the fast one must equal.
May import: `molslice.ops`, `molslice.types`, `molslice.registry`, torch, numpy. No attention imports another.
To add one: write `my_name.py` with a class `MyName(Attention)`; the contract tests run for it by
themselves. Why so: a reader looks up an attention by its file name and finds all of it in one place.
"""

from molslice.attention.base import Attention
from molslice.registry import Registry
from molslice.types import AttentionSpec, Options

__all__ = ["ATTENTIONS", "Attention", "build_attention"]

ATTENTIONS = Registry("molslice.attention", Attention, "attention")


def build_attention(name: str, spec: AttentionSpec, options: Options | None = None) -> Attention:
    """Construct the attention `name` for one layer.

    Raises:
        MolsliceError: unknown name, unknown option, or a spec that the attention cannot serve.
    """
    return ATTENTIONS.build(name, spec, options=dict(options or {}))
