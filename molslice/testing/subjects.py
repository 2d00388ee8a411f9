"""Attentions under test, and their batches."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import torch
from torch import Tensor

from molslice.attention import ATTENTIONS, Attention, build_attention
from molslice.attention.references import Reference
from molslice.types import AttentionSpec, Options, TokenContext, Traits

SPEC = AttentionSpec(dim=8, num_heads=2, layer=1, num_layers=4)
LONGEST = 18  # most tokens, also of a memory, with padding, in all batches except for those that measure cost


@dataclass(frozen=True)
class Subject:
    """An attention under test.

    Attributes:
        label: the name in the test report.
        make: builds the attention for a spec.
        spec: the spec of the attention.
        cancelled: names of parameters without a gradient, such as a bias that a softmax cancels.
        reference: the float64 form for comparison, see `molslice.attention.references`; None skips it.
        is_local: whether the causal form uses only a window of past tokens, or a selection of them.
    """

    label: str
    make: Callable[[AttentionSpec], Attention]
    spec: AttentionSpec = SPEC
    cancelled: Collection[str] = frozenset()
    reference: Reference | None = None
    is_local: bool = False

    def attention(self, dtype: torch.dtype = torch.float64, **changes: Any) -> Attention:  # noqa: ANN401
        """Build the attention in evaluation mode, with weights that make it far from uniform."""
        torch.manual_seed(3)
        attention = self.make(replace(self.spec, **changes)).to(dtype).eval()
        with torch.no_grad():
            for parameter in attention.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.7)
        return attention

    def with_spec(self, **changes: Any) -> "Subject":  # noqa: ANN401
        """Return the same subject with changes to its spec."""
        return replace(self, spec=replace(self.spec, **changes))


def subjects_of(
    name: str,
    options: Options | None = None,
    *,
    cancelled: Collection[str] = frozenset(),
    reference: Reference | None = None,
    is_local: bool = False,
) -> list[Subject]:
    """List the registered attention `name` with each pair bias mode and direction that its traits support.

    Args:
        name: the configuration name; register a class from elsewhere with `ATTENTIONS.add`.
        options: the options of the attention.
        cancelled: see `Subject`.
        reference: see `Subject`.
        is_local: see `Subject`.

    Returns:
        One subject per combination.

    Raises:
        MolsliceError: unknown attention.
    """
    given = dict(options or {})
    traits = ATTENTIONS.find(name).traits
    # A causal form may need max_tokens even if the full form does not.
    bound = LONGEST if traits.fixed_length or traits.causal else None
    subjects = []
    for changes in promised(traits):
        words = [name, *map(str, given.values()), changes["pair_bias_mode"]]
        words += [direction for direction in ("causal", "cross") if changes.get(direction)]
        subjects.append(
            Subject(
                "-".join(words),
                lambda spec: build_attention(name, spec, given),
                replace(SPEC, **changes, max_tokens=bound),
                cancelled,
                reference,
                is_local,
            )
        )
    return subjects


def promised(traits: Traits) -> list[dict[str, Any]]:
    """List the supported combinations: each pair bias mode, with and without causal, and cross attention."""
    asked: list[dict[str, Any]] = [
        {"pair_bias_mode": mode, "causal": causal}
        for mode, causal in product(traits.pair_bias, [False, True][: 1 + traits.causal])
    ]
    return asked + ([{"pair_bias_mode": "none", "cross": True}] if traits.cross else [])


@dataclass(frozen=True)
class Inputs:
    """Sequences of several lengths without padding, which `batch` combines to one batch.

    Attributes:
        tokens: tokens [n, D] of each sequence.
        biases: pair bias [H, n, n] of each sequence.
        memories: memory [m, D] of each sequence, with m = n + 2, or m = 0 if n = 0.
    """

    tokens: list[Tensor]
    biases: list[Tensor]
    memories: list[Tensor]

    @classmethod
    def draw(cls, *lengths: int, spec: AttentionSpec = SPEC, seed: int = 0) -> Self:
        """Draw random sequences of these lengths."""
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        tokens = [draw(n, spec.dim) for n in lengths]
        biases = [draw(spec.num_heads, n, n) for n in lengths]
        return cls(tokens, biases, [draw(n + 2 if n else 0, spec.dim) for n in lengths])

    def only(self, b: int) -> "Inputs":
        """Return only sequence b."""
        return Inputs(self.tokens[b : b + 1], self.biases[b : b + 1], self.memories[b : b + 1])

    def batch(
        self, spec: AttentionSpec, length: int | None = None, garbage: float = 0.0, scattered: bool = False
    ) -> tuple[Tensor, TokenContext, list[Tensor]]:
        """Return tokens, context, and the places of the real tokens of each sequence.

        Padding is after the tokens or, with `scattered`, between them, and is filled with `garbage`. A memory
        has as much padding.
        """
        longest = max(len(tokens) for tokens in self.tokens)
        length = length or longest
        tokens, mask, places = _pad(self.tokens, length, garbage, scattered)
        heads = self.biases[0].shape[0]
        bias = torch.full((len(tokens), heads, length, length), garbage, dtype=torch.float64)
        for b, place in enumerate(places):
            bias[b, :, place[:, None], place] = self.biases[b]
        context = TokenContext(mask, bias if spec.pair_bias_mode != "none" else None)
        if spec.cross:
            most = max(len(memory) for memory in self.memories)
            memory, memory_mask, _ = _pad(self.memories, most + length - longest, garbage, scattered)
            context = replace(context, memory=memory, memory_mask=memory_mask)
        return tokens, context, places


def _pad(
    sequences: list[Tensor], length: int, garbage: float, scattered: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(length)
    places = [
        torch.randperm(length, generator=generator)[: len(x)].sort().values
        if scattered
        else torch.arange(len(x))
        for x in sequences
    ]
    padded = torch.full((len(sequences), length, sequences[0].shape[1]), garbage, dtype=torch.float64)
    mask = torch.zeros(len(sequences), length, dtype=torch.bool)
    for b, place in enumerate(places):
        padded[b, place] = sequences[b]
        mask[b, place] = True
    return padded, mask, places
