"""Tests of the language model: causality, sizes, recurrent decoding."""

import math

import pytest
import torch

from molslice.attention import ATTENTIONS
from molslice.model import AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.model.sequences.language import LanguageModel, LanguageSpec
from molslice.model.sequences.sequence import SequenceSpec, sinusoidal_positions
from molslice.types import DataSpec, MolsliceError, SequenceBatch

SIZES = {"dim": 8, "num_layers": 2, "num_heads": 2, "ffn_dim": 16, "dropout": 0.0}
WORDS = DataSpec(11, "ids", vocabulary_size=11, max_tokens=12)
CAUSAL = [name for name in ATTENTIONS.names() if ATTENTIONS.find(name).traits.causal]
STEPPING = ("flow", "linear", "softmax")
TEXT = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5]])


def fresh(name="softmax", data=WORDS, **changes):
    return LanguageModel(LanguageSpec(**{**SIZES, **changes}), AttentionChoice(name), data)


def build(name="softmax", **changes):
    torch.manual_seed(0)
    model = fresh(name, **changes).double().eval()
    with torch.no_grad():  # far from the small start, so that a difference shows
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


@pytest.mark.parametrize("name", CAUSAL)
def test_a_token_sees_those_before_and_not_those_after(name):
    model = build(name)
    before = model(SequenceBatch(TEXT)).prediction
    assert before.shape == (2, 12, 11)
    changed = TEXT.clone()
    changed[:, 7] = 10
    after = model(SequenceBatch(changed)).prediction
    torch.testing.assert_close(after[:, :7], before[:, :7], rtol=1e-9, atol=1e-9)
    assert (after[:, 7:] - before[:, 7:]).abs().amax(-1)[:, 0].min() > 1e-4


@pytest.mark.parametrize("name", CAUSAL)
def test_every_causal_attention_trains_in_it(name):
    torch.manual_seed(0)
    model = fresh(name, positions="learned", tie=False)
    output = model(SequenceBatch(TEXT))
    loss = output.prediction.logsumexp(-1).sum() + (0 if output.penalty is None else output.penalty)
    loss.backward()
    for weight in (model.embedding.table.weight, model.embedding.positions, model.readout.weight):
        assert torch.isfinite(weight.grad).all()
        assert weight.grad.any()


@pytest.mark.parametrize("name", ["softmax", "flow", "linear"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
def test_padding_of_any_content_changes_nothing(name, positions):
    model = build(name, positions=positions)
    expected = model(SequenceBatch(TEXT[:, :7])).prediction
    mask = torch.zeros(2, 12, dtype=torch.bool)
    mask[0, :7] = True
    mask[1, 5:] = True  # in front
    padded = torch.full((2, 12), 99)
    padded[mask] = TEXT[:, :7].flatten()
    found = model(SequenceBatch(padded, mask)).prediction[mask].view(2, 7, 11)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", STEPPING)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post", "tie": False},
        {"positions": "learned", "dropout": 0.5, "attention_dropout": 0.5},
        {"positions": "none"},
    ],
)
def test_step_by_step_is_all_at_once(name, changes):
    model = build(name, **changes)
    expected = model(SequenceBatch(TEXT)).prediction
    state = model.init_state(2)
    sizes = []
    for place in range(12):
        found, state = model.step(TEXT[:, place], state)
        torch.testing.assert_close(found, expected[:, place], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found, model.following(TEXT[:, : place + 1]), rtol=1e-9, atol=1e-9)
        sizes.append(sum(part.numel() for layer in state.layers for part in layer))
    assert state.position == 12
    assert (len(set(sizes)) == 1) == (name != "softmax")
    with pytest.raises(MolsliceError, match=r"built for 12 tokens, got 13"):
        model.step(TEXT[:, 0], state)


def test_an_attention_without_steps_refuses_them():
    model = build("local")
    assert not model.has_steps
    with pytest.raises(MolsliceError, match="'local' has no steps"):
        model.init_state(1)


def test_tied_weights_are_the_table():
    model = build()
    encoded = model.encoder(model.embedding(TEXT)).tokens
    expected = encoded @ model.embedding.table.weight.T
    torch.testing.assert_close(model(SequenceBatch(TEXT)).prediction, expected, rtol=1e-9, atol=1e-9)
    apart = build(tie=False)
    expected = apart.encoder(apart.embedding(TEXT)).tokens @ apart.readout.weight.T
    torch.testing.assert_close(apart(SequenceBatch(TEXT)).prediction, expected, rtol=1e-9, atol=1e-9)


def test_tokens_and_logits_start_at_the_scale_of_one():
    torch.manual_seed(0)
    data = DataSpec(500, "ids", vocabulary_size=500, max_tokens=50)
    model = fresh(data=data, dim=64, positions="none")
    tokens = torch.randint(500, (8, 50))
    assert 0.8 < model.embedding(tokens).std() < 1.2
    logits = model(SequenceBatch(tokens)).prediction
    assert 0.7 < logits.std() < 1.3
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(500, (400,)))
    assert math.log(500) < loss < math.log(500) + 1


def test_positions_are_what_they_say():
    vectors = {kind: build(positions=kind) for kind in ("sinusoidal", "learned", "none")}
    plain = vectors["none"].embedding(TEXT)
    table = vectors["none"].embedding.table.weight
    torch.testing.assert_close(plain, table[TEXT] * 8**0.5)
    waves = vectors["sinusoidal"].embedding
    with torch.no_grad():
        waves.table.weight.zero_()
    torch.testing.assert_close(waves(TEXT)[0], sinusoidal_positions(12, 8).double())
    learned = vectors["learned"].embedding
    with torch.no_grad():
        learned.table.weight.zero_()
    torch.testing.assert_close(learned(TEXT)[1], learned.positions * 8**0.5)


def test_parameters():
    layer = 4 * (8 * 8 + 8) + (8 * 16 + 16) + (16 * 8 + 8) + 2 * 2 * 8
    parts = parameters_by_part(fresh())
    assert parts == {
        "embedding": 11 * 8,
        "layers": 2 * layer + 2 * 8,
        "total": 11 * 8 + 2 * layer + 2 * 8,
        "without embeddings": 2 * layer + 2 * 8,
    }
    apart = parameters_by_part(fresh(tie=False, positions="learned"))
    assert apart["readout"] == 8 * 11
    assert apart["embedding"] == (11 + 12) * 8


def test_a_configuration_builds_it():
    model = build_model(LanguageSpec(**SIZES, max_tokens=30), AttentionChoice("flow"), WORDS)
    assert isinstance(model, LanguageModel)
    assert model.embedding.max_tokens == 30
    assert not isinstance(build_model(SequenceSpec(**SIZES), AttentionChoice(), WORDS), LanguageModel)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "num_layers"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"dropout": 1.0}, "dropout"),
        ({"num_heads": 3}, "multiple"),
        ({"name": "slice_sort"}, "no causal form"),
        ({"data": DataSpec(2, "ids", vocabulary_size=11, max_tokens=12)}, "use sequence"),
        ({"data": DataSpec(11, "ids", vocabulary_size=11, max_tokens=12, paired=True)}, "use sequence"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(changes, message):
    with pytest.raises(MolsliceError, match=message):
        fresh(**changes)


def test_more_tokens_than_positions_are_refused():
    with pytest.raises(MolsliceError, match="built for 12 tokens, got 13"):
        build()(SequenceBatch(torch.ones(1, 13, dtype=torch.long)))
