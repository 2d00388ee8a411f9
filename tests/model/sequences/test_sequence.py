"""Tests of the sequence classifier: padding, positions, readouts, and every attention."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from molslice.attention import ATTENTIONS
from molslice.model import AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.model.sequences.sequence import SequenceClassifier, SequenceSpec, sinusoidal_positions
from molslice.types import DataSpec, MolsliceError, SequenceBatch

SIZES = {"dim": 8, "num_layers": 2, "num_heads": 2, "ffn_dim": 16, "dropout": 0.0}
WORDS = DataSpec(3, "ids", vocabulary_size=11, max_tokens=12)
PAIRS = replace(WORDS, paired=True)
SERIES = DataSpec(3, "values", channels=4, max_tokens=12)


def fresh(name="softmax", data=WORDS, **changes):
    return SequenceClassifier(SequenceSpec(**{**SIZES, **changes}), AttentionChoice(name), data)


def build(name="softmax", data=WORDS, **changes):
    torch.manual_seed(0)
    model = fresh(name, data, **changes).double().eval()
    with torch.no_grad():  # far from the small start, so that a difference shows
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


def padded(rows, length, places=None, garbage=0):
    ids = torch.full((len(rows), length), garbage)
    mask = torch.zeros(len(rows), length, dtype=torch.bool)
    for b, row in enumerate(rows):
        place = torch.arange(len(row)) if places is None else torch.tensor(places[b])
        ids[b, place] = torch.tensor(row, dtype=torch.long)
        mask[b, place] = True
    return SequenceBatch(ids, mask)


ROWS = [[3, 1, 4, 1, 5], [9, 2], [6]]


@pytest.mark.parametrize("readout", ["mean", "max", "max_mean", "all", "cls", "cls_distilled"])
@pytest.mark.parametrize("name", ["softmax", "slice_sort", "flow"])
def test_padding_anywhere_and_of_any_content_changes_nothing(name, readout):
    model = build(name, readout=readout)
    expected = model(padded(ROWS, 5)).prediction
    places = [[1, 2, 5, 8, 9], [0, 11], [7]]
    for batch in (padded(ROWS, 9, garbage=-7), padded(ROWS, 12, places, garbage=99)):
        torch.testing.assert_close(model(batch).prediction, expected, rtol=1e-9, atol=1e-9)
    for b, row in enumerate(ROWS):
        alone = model(padded([row], len(row))).prediction[0]
        torch.testing.assert_close(alone, expected[b], rtol=1e-9, atol=1e-9)


def test_the_order_of_the_tokens_counts():
    model = build()
    one, other = (model(padded([row], 3)).prediction for row in ([1, 2, 3], [3, 2, 1]))
    assert (one - other).abs().max() > 1e-3


def test_the_readouts_are_what_they_say():
    batch = padded(ROWS[:2], 5)
    for readout in ("mean", "max", "max_mean", "cls"):
        model = build(readout=readout)
        states = model.encode(batch.tokens, batch.token_mask)
        assert states.shape[1] == 5 + (readout == "cls")
        real = [states[0], states[1, :2]]
        mean, highest = torch.stack([x.mean(0) for x in real]), torch.stack([x.amax(0) for x in real])
        vector = {
            "mean": mean,
            "max": highest,
            "max_mean": torch.cat([highest, mean], 1),
            "cls": states[:, 0],
        }[readout]
        found = model(batch).prediction
        torch.testing.assert_close(found, model.readout(vector), rtol=1e-9, atol=1e-9)


def test_all_tokens_side_by_side():
    batch, model = padded(ROWS[:2], 5), build(readout="all")
    states = torch.nn.functional.gelu(model.encode(batch.tokens, batch.token_mask))
    assert model.readout.weight.shape == (3, 12 * 8)
    for b, row in enumerate(ROWS[:2]):
        vector = torch.zeros(12, 8, dtype=torch.float64)
        vector[: len(row)] = states[b, : len(row)]
        expected = model.readout.weight @ vector.flatten() + model.readout.bias
        torch.testing.assert_close(model(batch).prediction[b], expected)


def test_a_distilled_model_has_two_tokens_and_two_maps():
    batch, model = padded(ROWS[:2], 5), build(readout="cls_distilled")
    states = model.encode(batch.tokens, batch.token_mask)
    assert states.shape[1] == 5 + 2
    output = model(batch)
    heads = model.readout(states[:, 0]), model.distilled_readout(states[:, 1])
    torch.testing.assert_close(output.heads, heads)
    torch.testing.assert_close(output.prediction, (heads[0] + heads[1]) / 2)
    assert (heads[0] - heads[1]).abs().max() > 1e-3
    assert build(readout="cls")(batch).heads is None
    for changes, reason in [
        ({"head": (4,)}, "not support model.head"),
        ({"causal": True}, "not support model.causal"),
    ]:
        with pytest.raises(MolsliceError, match=reason):
            fresh(readout="cls_distilled", **changes)
    with pytest.raises(MolsliceError, match="the data have two"):
        fresh(data=PAIRS, readout="cls_distilled")


def test_dense_layers_are_before_the_outputs():
    model = build(head=(6, 5))
    assert [tuple(dense.weight.shape) for dense in model.head] == [(6, 8), (5, 6)]
    batch = padded(ROWS, 5)
    vector = build().encode(batch.tokens, batch.token_mask)
    assert vector.shape == (3, 5, 8)
    assert model(batch).prediction.shape == (3, 3)


@pytest.mark.parametrize("changes", [{"head": (6,)}, {"readout": "all"}])
def test_what_is_read_out_is_dropped(changes):
    model = build(dropout=1.0 - 1e-9, **changes).train()
    assert torch.equal(model(padded(ROWS, 5)).prediction, model.readout.bias.expand(3, 3))


def test_values_take_a_linear_map_and_padding_may_be_nan():
    model = build(data=SERIES)
    values = torch.randn(2, 12, 4, dtype=torch.float64)
    mask = torch.arange(12) < torch.tensor([[12], [7]])
    expected = model(SequenceBatch(values, mask)).prediction
    spoilt = values.masked_fill(~mask[..., None], float("nan"))
    torch.testing.assert_close(model(SequenceBatch(spoilt, mask)).prediction, expected, rtol=0, atol=0)
    alone = model(SequenceBatch(values[1:, :7])).prediction
    torch.testing.assert_close(alone, expected[1:], rtol=1e-9, atol=1e-9)


def test_two_sequences_are_encoded_alone_and_compared():
    model = build(data=PAIRS)
    one, other = padded(ROWS, 5), padded(ROWS[::-1], 7)
    pair = replace(one, pair_tokens=other.tokens, pair_mask=other.token_mask)
    single = build()
    single.load_state_dict({k: v for k, v in model.state_dict().items() if "readout" not in k}, strict=False)
    u, v = (single._encode(part.tokens, part.token_mask)[0] for part in (one, other))
    expected = model.readout(torch.cat([u, v, u * v, u - v], 1))
    torch.testing.assert_close(model(pair).prediction, expected, rtol=1e-9, atol=1e-9)
    with pytest.raises(MolsliceError, match="compares two sequences"):
        model(one)
    singular = build("singular", PAIRS)
    alone = [build("singular")._encode(part.tokens, part.token_mask)[1] for part in (one, other)]
    assert singular(pair).penalty > max(alone)


def test_sinusoidal_positions_are_those_of_the_formula():
    table = sinusoidal_positions(5, 6)
    for p in range(5):
        for i in range(3):
            angle = p / 10000 ** (2 * i / 6)
            assert table[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    assert sinusoidal_positions(3, 5).shape == (3, 5)


def test_without_positions_the_order_does_not_count():
    model = build(positions="none")
    one, other = (model(padded([row], 3)).prediction for row in ([1, 2, 3], [3, 2, 1]))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    sinusoidal = build(positions="sinusoidal")
    one, other = (sinusoidal(padded([row], 3)).prediction for row in ([1, 2, 3], [3, 2, 1]))
    assert (one - other).abs().max() > 1e-3


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_every_attention_trains_in_it(name):
    torch.manual_seed(0)
    model = fresh(name)
    output = model(SequenceBatch(torch.randint(11, (4, 12)), torch.ones(4, 12, dtype=torch.bool)))
    assert output.prediction.shape == (4, 3)
    loss = output.prediction.logsumexp(1).sum() + (0 if output.penalty is None else output.penalty)
    loss.backward()
    for weight in (model.embedding.table.weight, model.embedding.positions, model.readout.weight):
        gradient = weight.grad
        assert torch.isfinite(gradient).all()
        assert gradient.any()


def test_the_penalty_of_the_layers_comes_out():
    batch = padded(ROWS, 5)
    assert build("singular")(batch).penalty > 0
    assert build("softmax")(batch).penalty is None


def test_a_sequence_without_tokens_is_finite():
    assert torch.isfinite(build()(padded([[1, 2], []], 2)).prediction).all()


def test_parameters():
    parts = parameters_by_part(fresh())
    layer = 4 * (8 * 8 + 8) + (8 * 16 + 16) + (16 * 8 + 8) + 2 * 2 * 8
    assert parts["embedding"] == (11 + 12) * 8
    assert parts["layers"] == 2 * layer + 2 * 8
    assert parts["readout"] == 8 * 3 + 3
    assert parts["total"] - parts["without embeddings"] == parts["embedding"]
    # a linear map of values is no table
    parts = parameters_by_part(fresh(data=SERIES, readout="cls", head=(6,)))
    assert parts["total"] - parts["without embeddings"] == 12 * 8
    assert parts["embedding"] == (4 * 8 + 8) + 12 * 8 + 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"readout": "cls", "causal": True}, "causal"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"num_layers": 0}, "num_layers"),
        ({"head": (4, 0)}, "head"),
        ({"embedding_std": 0.0}, "embedding_std"),
        ({"dropout": 1.0}, "dropout"),
        ({"num_heads": 3}, "multiple"),
    ],
)
def test_bad_sizes_are_refused_by_name(changes, message):
    with pytest.raises(MolsliceError, match=message):
        fresh(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_size": 0}, "vocabulary_size"),
        ({"max_tokens": None}, "max_tokens"),
        ({"num_outputs": 0}, "num_outputs"),
        ({"tokens": "values"}, "channels"),
    ],
)
def test_bad_data_are_refused_by_name(changes, message):
    with pytest.raises(MolsliceError, match=message):
        replace(WORDS, **changes)


def test_a_model_for_other_data_is_refused():
    with pytest.raises(MolsliceError, match="choices: gin_virtual, graphormer"):
        build_model(SequenceSpec(**SIZES), AttentionChoice(), DataSpec(1))


def test_more_tokens_than_positions_are_refused():
    with pytest.raises(MolsliceError, match="built for 12 tokens, got 13"):
        build()(padded([[1] * 13], 13))


def test_a_causal_form_that_is_not_there_is_refused():
    with pytest.raises(MolsliceError, match="no causal form"):
        build("slice_sort", causal=True)
    assert build("softmax", causal=True)(padded(ROWS, 5)).prediction.shape == (3, 3)


@pytest.mark.parametrize("readout", ["mean", "cls"])
@pytest.mark.parametrize("causal", [False, True])
def test_without_a_mask_every_token_is_real(readout, causal):
    if causal and readout == "cls":
        return
    model = build("softmax", readout=readout, causal=causal)
    ids = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    expected = model(SequenceBatch(ids, torch.ones_like(ids, dtype=torch.bool))).prediction
    torch.testing.assert_close(model(SequenceBatch(ids)).prediction, expected)


def test_positions_and_learned_tokens_may_start_at_a_spread_of_their_own():
    torch.manual_seed(0)
    long = replace(WORDS, max_tokens=4000)
    model = fresh(data=long, readout="cls", embedding_std=1.0, position_std=0.02, dim=64, num_heads=2)
    assert 0.9 < model.embedding.table.weight.std() < 1.1
    assert 0.019 < model.embedding.positions.std() < 0.021
    assert model.cls_token.std() < 0.03
    assert fresh(data=long, readout="cls", embedding_std=1.0).embedding.positions.std() > 0.9
    with pytest.raises(MolsliceError, match="position_std must be positive"):
        fresh(position_std=0.0)


def test_fewer_positions_than_the_data_need_are_refused():
    with pytest.raises(MolsliceError, match="model.max_tokens is 11, but the data have up to 12 tokens"):
        fresh(max_tokens=11)


@pytest.mark.parametrize("attention", ["softmax", "singular", "slice_sort", "longformer"])
def test_a_truncated_normal_start_of_all_maps(attention):
    sizes = {"num_layers": 2, "dim": 64, "ffn_dim": 64, "num_heads": 2, "head": (32,), "max_tokens": 8}
    data = DataSpec(3, "values", channels=16, max_tokens=8)
    models = {}
    for initialization in ("glorot", "truncated_normal"):
        torch.manual_seed(0)
        spec = SequenceSpec(**sizes, initialization=initialization)
        models[initialization] = build_model(spec, AttentionChoice(attention), data)
    model = models["truncated_normal"]
    maps = {name: part for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    assert {"embedding.linear", "head.0", "readout", "encoder.layers.0.ffn.inner"} < maps.keys()
    assert any(name.endswith("attention.value") for name in maps)
    for name, part in maps.items():
        assert part.weight.abs().max() <= 0.04, name
        # the spread of a normal distribution that is cut off at two standard deviations
        assert part.weight.std().item() == pytest.approx(0.88 * 0.02, rel=0.25), name
        assert part.bias is None or not part.bias.any()
    assert models["glorot"].head[0].weight.abs().max() > 0.1


def test_embedding_dropout_is_before_positions_and_alone():
    sizes = {"num_layers": 1, "dim": 256, "ffn_dim": 8, "num_heads": 2, "dropout": 0.0}
    data = DataSpec(3, "ids", vocabulary_size=5, max_tokens=40)
    model = build_model(SequenceSpec(**sizes, embedding_dropout=0.25), AttentionChoice(), data)
    with torch.no_grad():
        model.embedding.table.weight.fill_(3.0)
        model.embedding.positions.fill_(10.0)
    tokens = torch.zeros(8, 40, dtype=torch.long)
    embedded = model.train().embedding(tokens, None)
    assert sorted(embedded.unique().tolist()) == [10.0, 14.0]  # zero, or 3 / 0.75
    assert (embedded == 10.0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert model.encoder.dropout.p == 0.0
    assert (model.eval().embedding(tokens, None) == 13.0).all()
    plain = build_model(SequenceSpec(**{**sizes, "dropout": 0.3}), AttentionChoice(), data).train()
    assert (plain.embedding.dropout.p, plain.encoder.dropout.p) == (0.0, 0.3)
    both = SequenceSpec(**{**sizes, "dropout": 0.3}, embedding_dropout=0.2)
    model = build_model(both, AttentionChoice(), data)
    assert (model.embedding.dropout.p, model.encoder.dropout.p) == (0.2, 0.0)
    assert model.encoder.layers[0].dropout.p == 0.3
    with pytest.raises(MolsliceError, match=r"model.embedding_dropout must be in \[0, 1\), got 1.0"):
        SequenceSpec(**sizes, embedding_dropout=1.0)
