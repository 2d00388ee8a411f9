"""Checks of an attention inside a model: a `Graphormer` with a pair bias, else a `SequenceClassifier`.

Each takes a `Subject` and raises AssertionError.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from molslice.attention import ATTENTIONS, Attention
from molslice.model import AttentionChoice
from molslice.model.graphormer import Graphormer, GraphormerSpec
from molslice.model.sequences.sequence import SequenceClassifier, SequenceSpec
from molslice.testing import checks
from molslice.testing.checks import close, refusal
from molslice.testing.subjects import LONGEST, Inputs, Subject
from molslice.types import AttentionSpec, DataSpec, MoleculeBatch, SequenceBatch

LENGTHS = (6, 3, 1)
SIZES = {"num_layers": 2, "dim": 8, "ffn_dim": 8, "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
UNDER_TEST = "attention_under_test"


def check_padding_in_a_model(subject: Subject) -> None:
    """Check that a prediction does not depend on padding or on other rows of the batch."""
    if not _fits_a_model(subject):
        return
    model = _build_model(subject, subject.make).double().eval()
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    make = _molecules if isinstance(model, Graphormer) else _sequences
    expected = model(make(LENGTHS)).prediction
    close(model(make(LENGTHS, padding=3)).prediction, expected, "a prediction with more padding")
    for b, length in enumerate(LENGTHS):
        alone = model(make((length,))).prediction[0]
        close(alone, expected[b], f"the prediction of row {b} without the others")


def check_initialization_in_a_model(subject: Subject) -> None:
    """Check that a model does not change the initial weights of the attention, and that they are finite."""
    if not _fits_a_model(subject):
        return
    initial: dict[Attention, dict[str, Tensor]] = {}

    def make(spec: AttentionSpec) -> Attention:
        attention = subject.make(spec)
        reset = attention.reset_parameters

        def record() -> None:
            initial[attention] = {k: v.detach().clone() for k, v in attention.named_parameters()}

        def reset_and_record() -> None:
            reset()
            record()

        record()
        attention.reset_parameters = reset_and_record
        return attention

    _build_model(subject, make)
    assert len(initial) == SIZES["num_layers"], "the model was built without the attention"
    for attention, weights in initial.items():
        for name, parameter in attention.named_parameters():
            assert torch.equal(parameter, weights[name]), f"the model changed the initial value of {name}"
            assert torch.isfinite(parameter).all(), f"the initial value of {name} is not finite"


def check_qkv_bias(subject: Subject) -> None:
    """Check that `qkv_bias: false` removes biases only, and that zero tokens then have zero values.

    The output for zero tokens then does not depend on any matrix. A model has the same parameters.
    """
    attention = subject.attention(qkv_bias=False)
    names = {name for name, _ in attention.named_parameters()}
    missing = {name for name, _ in subject.attention().named_parameters()} ^ names
    assert all(name.endswith("bias") for name in missing), f"{missing} depend on qkv_bias"
    _check_values_of_zero(attention)
    if _fits_a_model(subject) and subject.spec.pair_bias_mode == "none":
        for layer in _attentions(_build_model(subject, subject.make, qkv_bias=False)):
            assert {name for name, _ in layer.named_parameters()} == names, "the model ignores qkv_bias"


def check_head_dim(subject: Subject) -> None:
    """Check that heads of another width than D / H have larger maps and the same results, in a model too.

    Without the trait, a spec with such heads is refused.
    """
    wide = subject.with_spec(channels_per_head=subject.spec.head_dim + 1)
    plain = subject.attention()
    if not plain.traits.head_dim:
        with refusal("head_dim"):
            wide.attention()
        return
    shapes = {name: p.shape for name, p in plain.named_parameters()}
    attention = wide.attention()
    assert any(p.shape != shapes.get(name) for name, p in attention.named_parameters()), (
        "traits.head_dim is true, but heads of another width have the same parameters"
    )
    for check in (
        checks.check_reference,
        checks.check_padding,
        checks.check_padding_gradient,
        checks.check_every_parameter_trained,
        checks.check_steps,
        check_padding_in_a_model,
    ):
        check(wide)
    if _fits_a_model(wide):
        for layer in _attentions(_build_model(wide, wide.make)):
            actual = {name: p.shape for name, p in layer.named_parameters()}
            assert actual == {name: p.shape for name, p in attention.named_parameters()}, (
                "the model ignores head_dim"
            )


def _check_values_of_zero(attention: Attention) -> None:
    tokens, context, _ = Inputs.draw(4, spec=attention.spec).batch(attention.spec)
    memory = None if context.memory is None else torch.zeros_like(context.memory)
    output = attention(torch.zeros_like(tokens), replace(context, memory=memory)).tokens
    matrices = {name: p for name, p in attention.named_parameters() if p.ndim > 1}
    if not output.requires_grad:
        return
    gradients = torch.autograd.grad(
        output.square().sum(), list(matrices.values()), allow_unused=True, materialize_grads=True
    )
    for name, gradient in zip(matrices, gradients, strict=True):
        assert not gradient.any(), f"without qkv_bias, zero tokens give a gradient of {name}"


def _fits_a_model(subject: Subject) -> bool:
    """Return whether one of the two models supports such a spec; molecules have no maximum length."""
    spec = subject.spec
    if spec.pair_bias_mode == "none":
        return not spec.cross
    return not spec.causal and not subject.attention().traits.fixed_length


def _build_model(
    subject: Subject, make: Callable[[AttentionSpec], Attention], qkv_bias: bool = True
) -> nn.Module:
    torch.manual_seed(0)
    spec = subject.spec
    with _registered(make, subject):
        if spec.pair_bias_mode != "none":
            return Graphormer(
                GraphormerSpec(**SIZES, head_dim=spec.channels_per_head),
                AttentionChoice(UNDER_TEST, spec.pair_bias_mode),
                DataSpec(2),
            )
        sizes = SequenceSpec(**SIZES, head_dim=spec.channels_per_head, causal=spec.causal, qkv_bias=qkv_bias)
        data = DataSpec(2, "ids", vocabulary_size=11, max_tokens=LONGEST)
        return SequenceClassifier(sizes, AttentionChoice(UNDER_TEST), data)


@contextmanager
def _registered(make: Callable[[AttentionSpec], Attention], subject: Subject) -> Iterator[None]:
    """Register `UNDER_TEST` as the attention that `make` returns."""

    def build(cls: type, spec: AttentionSpec) -> Attention:
        return make(spec)

    traits = subject.attention().traits
    ATTENTIONS.add(UNDER_TEST, type("UnderTest", (Attention,), {"__new__": build, "traits": traits}))
    try:
        yield
    finally:
        ATTENTIONS.remove(UNDER_TEST)


def _attentions(model: nn.Module) -> list[Attention]:
    return [module for module in model.modules() if isinstance(module, Attention)]


def _positions(lengths: tuple[int, ...], padding: int) -> tuple[Tensor, Tensor]:
    positions = torch.arange(max(lengths) + padding)
    return positions, positions < torch.tensor(lengths)[:, None]


def _sequences(lengths: tuple[int, ...], padding: int = 0) -> SequenceBatch:
    """Return sequences of token ids, with ids outside of the vocabulary at padding."""
    positions, mask = _positions(lengths, padding)
    tokens = (positions * 7 + 1 + torch.tensor(lengths)[:, None]) % 11
    return SequenceBatch(torch.where(mask, tokens, -9 if padding else 0), mask)


def _molecules(lengths: tuple[int, ...], padding: int = 0) -> MoleculeBatch:
    """Return chains of atoms, with arbitrary values at padding."""
    positions, mask = _positions(lengths, padding)
    features = (positions[:, None] + torch.arange(9)) % 2
    atoms = torch.where(mask[..., None], features, 201 if padding else 0).to(torch.uint8)
    bonds = [(b, i, i + 1) for b, length in enumerate(lengths) for i in range(length - 1)]
    index = torch.tensor(bonds, dtype=torch.long).reshape(-1, 3)
    kinds = (index[:, 1:2] + torch.arange(3)) % 2
    return MoleculeBatch(atoms, mask, index, kinds.to(torch.uint8))


CHECKS = [value for name, value in list(vars().items()) if name.startswith("check_")]
