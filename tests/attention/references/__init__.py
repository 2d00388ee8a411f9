"""The references of the attentions of the package: slow float64 forms that the fast ones must equal.

To add one: write `my_name.py` with `reference_sequence(attention, tokens, memory, pair_bias, carry)`, a
`molslice.testing.Reference`. A test requires one for each attention of the package.
"""

import importlib

from molslice.testing import Reference


def find_reference(name: str) -> Reference:
    """Return the reference of the attention `name`."""
    return importlib.import_module(f"{__name__}.{name}").reference_sequence
