"""Attentions exported by `torch.export` as a part of another module compute what they compute otherwise."""

import pytest
import torch
from torch import nn

from molslice.attention import build_attention
from molslice.types import AttentionSpec, TokenContext


class Layer(nn.Module):
    """An attention as a function of plain tensors."""

    def __init__(self, name, **settings):
        super().__init__()
        self.attention = build_attention(name, AttentionSpec(16, 2, **settings)).eval()

    def forward(self, tokens, mask, pair_bias, memory, memory_mask):
        context = TokenContext(mask, pair_bias, memory=memory, memory_mask=memory_mask)
        return self.attention(tokens, context).tokens


@pytest.mark.parametrize(
    ("name", "mode", "cross"),
    [
        ("key_sort", "none", False),
        ("key_sort", "mix", False),
        ("key_sort", "none", True),
        ("soft_sort", "none", False),
        ("soft_sort", "mix", False),
    ],
)
def test_an_exported_sort_runs_and_equals_the_attention(name, mode, cross):
    layer = Layer(name, pair_bias_mode=mode, cross=cross)
    mask = torch.tensor([[True] * 7, [True, False, True, True, True, False, False]])
    bias = torch.randn(2, 2, 7, 7) if mode == "mix" else None
    memory = (torch.randn(2, 5, 16), mask[:, :5]) if cross else (None, None)
    given = torch.randn(2, 7, 16), mask, bias, *memory
    exported = torch.export.export(layer, given, strict=False).module()(*given)
    torch.testing.assert_close(exported, layer(*given))
