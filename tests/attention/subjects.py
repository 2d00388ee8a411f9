"""Attentions under test: every registered one, in every option, pair bias and direction that it promises."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product

import torch

from molslice.attention import ATTENTIONS, Attention, build_attention
from molslice.types import AttentionSpec, PairBiasMode, TokenContext

# Options that deserve a contract of their own; an attention that is not named here is tested as it comes.
OPTIONS = {
    "slice_sort": [
        {"order": order, "form": form, "placement": placement}
        for order, form, placement in product(
            ["ascending", "descending", "half", "interleave", "max_exchange", "multi_permutation", "shuffle"],
            ["sort_of_mix", "mix_plus_sort"],
            ["index", "aligned"],
        )
    ],
    "flow": [{}, {"clamp": 1.0}],
    "singular": [{}, {"rank": 3}],
}
# Parameters that a softmax cancels: a key's bias adds the same number to all scores of a query. They stand in
# the published counts, so they stay.
CANCELLED = {("softmax", "key.bias"), ("singular", "key.bias")}

SPEC = AttentionSpec(dim=8, num_heads=2, layer=1, num_layers=4)


@dataclass(frozen=True)
class Subject:
    """A way to build an attention, and the spec to build it for."""

    label: str
    make: Callable[[AttentionSpec], Attention]
    spec: AttentionSpec = SPEC
    cancelled: frozenset[str] = field(default_factory=frozenset)

    def attention(self, dtype: torch.dtype = torch.float64, **changes) -> Attention:
        """The attention in evaluation, with weights that make it far from uniform."""
        torch.manual_seed(3)
        attention = self.make(replace(self.spec, **changes)).to(dtype).eval()
        with torch.no_grad():
            for parameter in attention.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.7)
        return attention

    def with_spec(self, **changes) -> "Subject":
        return replace(self, spec=replace(self.spec, **changes))


def all_subjects() -> list[Subject]:
    subjects = []
    for name in ATTENTIONS.names():
        traits = ATTENTIONS.find(name).traits
        cancelled = frozenset(parameter for owner, parameter in CANCELLED if owner == name)
        for options in OPTIONS.get(name, [{}]):
            for mode, causal in product(traits.pair_bias, [False, True][: 1 + traits.causal]):
                words = [name, *map(str, options.values()), mode, *(["causal"] if causal else [])]
                subjects.append(
                    Subject(
                        "-".join(words),
                        lambda spec, name=name, options=options: build_attention(name, spec, options),
                        replace(SPEC, pair_bias=mode, causal=causal),
                        cancelled,
                    )
                )
    return subjects


@dataclass(frozen=True)
class Inputs:
    """Sequences of several lengths, each without padding, and the ways to put them into one batch."""

    tokens: list[torch.Tensor]  # [n, D] each
    biases: list[torch.Tensor]  # [H, n, n] each

    @classmethod
    def draw(cls, *lengths: int, spec: AttentionSpec = SPEC, seed: int = 0) -> "Inputs":
        generator = torch.Generator().manual_seed(seed)
        return cls(
            [torch.randn(n, spec.dim, dtype=torch.float64, generator=generator) for n in lengths],
            [torch.randn(spec.num_heads, n, n, dtype=torch.float64, generator=generator) for n in lengths],
        )

    def batch(
        self,
        pair_bias: PairBiasMode,
        length: int | None = None,
        garbage: float = 0.0,
        scattered: bool = False,
    ) -> tuple[torch.Tensor, TokenContext, list[torch.Tensor]]:
        """Tokens, context, and where the real tokens of each sequence stand.

        Padding stands behind the tokens or, `scattered`, between them, and is filled with `garbage`.
        """
        sizes = [len(tokens) for tokens in self.tokens]
        length = length or max(sizes)
        generator = torch.Generator().manual_seed(length)
        places = [
            torch.randperm(length, generator=generator)[:n].sort().values if scattered else torch.arange(n)
            for n in sizes
        ]
        dim, heads = self.tokens[0].shape[1], self.biases[0].shape[0]
        tokens = torch.full((len(sizes), length, dim), garbage, dtype=torch.float64)
        bias = torch.full((len(sizes), heads, length, length), garbage, dtype=torch.float64)
        mask = torch.zeros(len(sizes), length, dtype=torch.bool)
        for b, place in enumerate(places):
            tokens[b, place] = self.tokens[b]
            bias[b, :, place[:, None], place] = self.biases[b]
            mask[b, place] = True
        return tokens, TokenContext(mask, bias if pair_bias != "none" else None), places
