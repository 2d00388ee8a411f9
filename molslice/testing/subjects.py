"""Attentions under test, and their batches."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import torch
from torch import Tensor

from molslice.attention import ATTENTIONS, Attention, build_attention
from molslice.attention.base import Traits
from molslice.testing.reference import Reference
from molslice.types import AttentionSpec, MolsliceError, Options, TokenContext

SPEC = AttentionSpec(dim=8, num_heads=2, layer=1, num_layers=4)
LONGEST = 18  # maximum number of tokens or memory tokens with padding, except where cost is measured


@dataclass(frozen=True)
class Subject:
    """An attention under test.

    Attributes:
        label: The name in the test report.
        make: Builds the attention for a spec.
        spec: The spec of the attention.
        canceled: Names of parameters without a gradient, such as a bias that a softmax cancels.
        reference: The float64 form for comparison; None skips the comparison.
        is_local: Whether the causal form uses only a window of past tokens, or a selection of them.
    """

    label: str
    make: Callable[[AttentionSpec], Attention]
    spec: AttentionSpec = SPEC
    canceled: Collection[str] = frozenset()
    reference: Reference | None = None
    is_local: bool = False

    def attention(self, dtype: torch.dtype = torch.float64, **changes: Any) -> Attention:  # noqa: ANN401
        """Build the attention in evaluation mode, with weights that make it far from uniform.

        `changes` are of fields of the spec.
        """
        torch.default_generator.manual_seed(3)
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
    canceled: Collection[str] = frozenset(),
    reference: Reference | None = None,
    is_local: bool = False,
) -> list[Subject]:
    """List the registered attention `name` with each pair bias mode and direction that it supports.

    The traits of its class say which; options that exclude some of them leave these out.

    Args:
        name: The configuration name; register a class from elsewhere with `ATTENTIONS.add`.
        options: The options of the attention; None for the defaults.
        canceled: See `Subject`.
        reference: See `Subject`.
        is_local: See `Subject`.

    Raises:
        MolsliceError: Unknown attention, or options that cannot be built in any form.
    """
    given = dict(options or {})
    traits = ATTENTIONS.find(name).traits
    # A causal form may need max_tokens even if the full form does not.
    bound = LONGEST if traits.fixed_length or traits.causal else None
    subjects, refusals = [], []
    for changes in supported_settings(traits):
        spec = replace(SPEC, **changes, max_tokens=bound)
        try:
            build_attention(name, spec, given)
        except MolsliceError as error:
            if not given:
                raise
            refusals.append(error)
            continue
        words = [name, *map(str, given.values()), changes["pair_bias_mode"]]
        words += [direction for direction in ("causal", "cross") if changes.get(direction)]
        subjects.append(
            Subject(
                "-".join(words),
                lambda spec: build_attention(name, spec, given),
                spec,
                canceled,
                reference,
                is_local,
            )
        )
    if not subjects:
        raise refusals[0]
    return subjects


def supported_settings(traits: Traits) -> list[dict[str, Any]]:
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
        tokens: Tokens [n, D] of each sequence.
        biases: Pair bias [H, n, n] of each sequence.
        memories: Memory [m, D] of each sequence, with m = n + 2, or m = 0 if n = 0.
    """

    tokens: list[Tensor]
    biases: list[Tensor]
    memories: list[Tensor]

    @classmethod
    def draw(cls, *lengths: int, spec: AttentionSpec = SPEC, seed: int = 0) -> Self:
        """Draw random sequences of the given lengths."""
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
        """Combine the sequences to a padded batch, with a pair bias or a memory if the spec asks for it.

        Args:
            spec: The spec of the attention.
            length: Number of tokens with padding; None for the longest sequence. A memory has as much
                padding.
            garbage: Value at padding.
            scattered: Whether padding is between the tokens instead of after them.

        Returns:
            Tokens, their context, and the positions of the real tokens of each sequence.
        """
        longest = max(len(tokens) for tokens in self.tokens)
        length = length or longest
        tokens, mask, positions = _pad(self.tokens, length, garbage, scattered)
        heads = self.biases[0].shape[0]
        bias = torch.full((len(tokens), heads, length, length), garbage, dtype=torch.float64)
        for b, position in enumerate(positions):
            bias[b, :, position[:, None], position] = self.biases[b]
        context = TokenContext(mask, bias if spec.pair_bias_mode != "none" else None)
        if spec.cross:
            most = max(len(memory) for memory in self.memories)
            memory, memory_mask, _ = _pad(self.memories, most + length - longest, garbage, scattered)
            context = replace(context, memory=memory, memory_mask=memory_mask)
        return tokens, context, positions


def _pad(
    sequences: list[Tensor], length: int, garbage: float, scattered: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(length)
    positions = [
        torch.randperm(length, generator=generator)[: len(x)].sort().values
        if scattered
        else torch.arange(len(x))
        for x in sequences
    ]
    padded = torch.full((len(sequences), length, sequences[0].shape[1]), garbage, dtype=torch.float64)
    mask = torch.zeros(len(sequences), length, dtype=torch.bool)
    for b, position in enumerate(positions):
        padded[b, position] = sequences[b]
        mask[b, position] = True
    return padded, mask, positions
