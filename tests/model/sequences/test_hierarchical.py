"""Tests of the hierarchical image model."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from molslice.attention import ATTENTIONS
from molslice.model import AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.model.sequences.hierarchical import HierarchicalSpec, merged_squares
from molslice.types import DataSpec, MolsliceError, SequenceBatch

DATA = DataSpec(3, "values", channels=5, max_tokens=32, grid=(4, 8))
SIZES = {"dims": (8, 12), "depths": (2, 1), "num_heads": 2}


def build(name="softmax", data=DATA, **changes):
    torch.manual_seed(0)
    spec = HierarchicalSpec(**{**SIZES, **changes})
    model = build_model(spec, AttentionChoice(name), data).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


def batch_of(rows=3, data=DATA):
    torch.manual_seed(1)
    return SequenceBatch(torch.randn(rows, data.max_tokens, data.channels, dtype=torch.float64))


@pytest.mark.parametrize("dims", [(8, 12), (8, 12, 4)])
def test_it_is_convolutions_and_layers_written_out(dims):
    """Convolutions of 2 x 2 with stride 2 between stages, as in the released code."""
    model, batch = build(ffn_scale=0.3, dims=dims, depths=(2, 1, 1)[: len(dims)]), batch_of()
    tokens = model.embedding.linear(batch.tokens) + model.embedding.positions
    for stage, (rows, columns) in enumerate([(4, 8), (2, 4), (1, 2)][: len(dims)]):
        if stage:
            merge, before = model.merges[stage - 1], dims[stage - 1]
            picture = tokens.reshape(3, 2 * rows, 2 * columns, before).permute(0, 3, 1, 2)
            kernel = merge.weight.reshape(dims[stage], 2, 2, before).permute(0, 3, 1, 2)
            tokens = functional.conv2d(picture, kernel, merge.bias, stride=2).flatten(2).transpose(1, 2)
        assert tokens.shape[1] == rows * columns
        for layer in model.stages[stage].layers:
            attention, ffn = layer.attention, layer.ffn
            x = layer.attention_norm(tokens)
            heads = [
                part(x).unflatten(-1, (2, -1)).transpose(1, 2)
                for part in (attention.query, attention.key, attention.value)
            ]
            scores = heads[0] @ heads[1].transpose(2, 3) / heads[0].shape[-1] ** 0.5
            tokens = tokens + attention.output((scores.softmax(-1) @ heads[2]).transpose(1, 2).flatten(2))
            change = ffn.outer(functional.gelu(ffn.inner(layer.ffn_norm(tokens))))
            tokens = tokens + layer.ffn_scale * change
    expected = model.readout(model.norm(tokens).mean(1))
    torch.testing.assert_close(model(batch).prediction, expected)


def test_squares_are_merged_not_columns():
    grid = torch.arange(32.0).reshape(1, 32, 1)
    merged = merged_squares(grid, 4, 8)
    assert merged.shape == (1, 8, 4)
    assert merged[0, 0].tolist() == [0, 1, 8, 9]
    assert merged[0, 5].tolist() == [18, 19, 26, 27]


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_every_attention_serves_it_and_all_parameters_learn(name):
    model, batch = build(name).train(), batch_of()
    output = model(batch)
    loss = output.prediction.square().sum() + (0 if output.penalty is None else output.penalty)
    loss.backward()
    assert output.prediction.shape == (3, 3)
    for key, parameter in model.named_parameters():
        if ATTENTIONS.find(name).__name__ != "Reformer":  # hashing has no gradient for its buckets
            assert parameter.grad is not None, key
            assert torch.isfinite(parameter.grad).all(), key


def test_images_do_not_see_each_other():
    model, batch = build("flow"), batch_of()
    alone = torch.cat([model(SequenceBatch(row[None])).prediction for row in batch.tokens])
    torch.testing.assert_close(model(batch).prediction, alone)


def test_rates_of_stochastic_depth_grow_over_all_stages():
    model = build(drop_path=0.4, depths=(3, 2))
    rates = [layer.drop_path for stage in model.stages for layer in stage.layers]
    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    ("changes", "data", "reason"),
    [
        ({"dims": (8,)}, DATA, "one number per stage"),
        ({"depths": (1, 0)}, DATA, "depths must be at least 1"),
        ({"drop_path": 1.0}, DATA, "drop_path must be in"),
        ({"num_heads": 5}, DATA, "multiple of num_heads=5"),
        ({}, replace(DATA, grid=None), "cut into patches"),
        ({"dims": (8, 8, 8, 8), "depths": (1, 1, 1, 1)}, DATA, "at most 3 stages fit"),
        ({}, replace(DATA, tokens="ids", vocabulary_size=3), "does not take these data"),
    ],
)
def test_what_does_not_fit_is_refused(changes, data, reason):
    with pytest.raises(MolsliceError, match=reason):
        build(data=data, **changes)


def test_padding_and_other_sizes_are_refused():
    model, batch = build(), batch_of()
    with pytest.raises(MolsliceError, match="4 x 8 patches, got 31"):
        model(SequenceBatch(batch.tokens[:, 1:]))
    with pytest.raises(MolsliceError, match="with padding"):
        model(replace(batch, token_mask=torch.ones(3, 32, dtype=torch.bool)))


def test_the_parts_are_counted():
    counts = parameters_by_part(build())
    assert counts["embedding"] == 5 * 8 + 8 + 32 * 8
    assert counts["readout"] == 12 * 3 + 3
    assert counts["total"] - counts["without embeddings"] == 32 * 8
