"""Trainings whose N x N tensors do not fit into memory are refused before they start."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from molslice.attention import build_attention
from molslice.config import config_from_mapping
from molslice.data.batching import TokenBudgetBatches
from molslice.training import memory_check
from molslice.training.memory_check import GIB, check_pair_memory
from molslice.types import AttentionSpec, MolsliceError

CPU = torch.device("cpu")


def config(precision="32", **model):
    sequence = {"name": "sequence", "num_layers": 2, "dim": 32, "ffn_dim": 32, "num_heads": 2, **model}
    sections = {"data": {"name": "listops"}, "model": sequence, "task": "sequence"}
    return config_from_mapping({**sections, "trainer": {"precision": precision}})


def layers(name, number=2, options=None, **spec):
    spec = {"dropout": 0.1, "num_layers": number, **spec}
    built = [build_attention(name, AttentionSpec(32, 2, layer=k, **spec), options) for k in range(number)]
    return nn.ModuleList(built)


def batches(length=16_384, rows=8, accumulate=1, paired=False):
    order = TokenBudgetBatches(
        np.full(rows, length),
        np.arange(rows),
        token_budget=rows * length,
        batch_size=rows,
        shuffle=True,
        seed=0,
    )
    dataset = SimpleNamespace(spec=SimpleNamespace(paired=paired))
    return SimpleNamespace(order=order, world=1, accumulate=accumulate, dataset=dataset)


@pytest.fixture
def memory(monkeypatch):
    def put(gib):
        monkeypatch.setattr(memory_check, "available_bytes", lambda swap: int(gib * GIB))

    put(20)
    return put


def needed(model, given, settings=None):
    with pytest.raises(MolsliceError, match="training needs at least") as refused:
        check_pair_memory(model, given, settings or config(), CPU)
    text = str(refused.value)
    return float(text.split("at least ")[1].split(" GiB")[0].replace(",", "")), text


def test_softmax_on_long_sequences_says_what_it_needs(memory):
    gib, text = needed(layers("softmax"), batches())
    # of a head, weights, weights with dropout, and which ones were dropped: 4 bytes each
    assert gib == pytest.approx(2 * 8 * 2 * 16_384**2 * 12 / GIB, rel=0.02)
    assert "attention 'softmax' (sequences: 8 of 16,384 tokens, heads: 2, layers: 2)" in text
    assert "but 20.0 GiB are available on cpu" in text
    for advice in (
        "training.batch_size",
        "accumulate",
        "activation_checkpointing",
        "attention_dropout: 0",
        "flow",
    ):
        assert advice in text


@pytest.mark.parametrize(
    ("model", "given", "settings"),
    [
        (layers("softmax", dropout=0.0), batches(), config()),  # a kernel without N x N tensors
        (layers("softmax"), batches(rows=1), config()),
        (layers("softmax"), batches(accumulate=8), config()),
        (layers("flow"), batches(), config()),
        (layers("local"), batches(), config()),
        (layers("slice_sort"), batches(), config()),
        (nn.Linear(2, 2), batches(), config()),
    ],
    ids=["no dropout", "one row", "parts", "flow", "local", "slice_sort", "no attention"],
)
def test_what_fits_is_not_refused(memory, model, given, settings):
    check_pair_memory(model, given, settings, CPU)


def test_the_estimate_follows_rows_layers_and_precision(memory):
    memory(1)
    gib, _ = needed(layers("softmax"), batches())
    model = layers("softmax")
    recomputed, text = needed(model, batches(), config(activation_checkpointing=True))
    assert recomputed == pytest.approx(gib / 2, rel=0.02)
    assert "checkpointing" not in text
    assert needed(model, batches(accumulate=4))[0] == pytest.approx(gib / 4, rel=0.02)
    assert needed(model, batches(paired=True))[0] == pytest.approx(gib / 2, rel=0.02)
    assert needed(model, batches(), config("bf16"))[0] == pytest.approx(gib / 2, rel=0.02)
    unfused = layers("softmax", options={"fused": False}, dropout=0.0)
    gib, text = needed(unfused, batches())
    assert gib >= 2 * 8 * 2 * 16_384**2 * 4 / GIB
    assert "attention_dropout" not in text


def test_a_pair_bias_counts_once(memory):
    gib, _ = needed(layers("flow", pair_bias_mode="mix"), batches(length=32_768))
    assert gib == pytest.approx(8 * 2 * 32_768**2 * 4 / GIB, rel=0.01)


def test_stages_count_the_first(memory):
    stages = [*layers("softmax", 1, max_tokens=16_384), *layers("softmax", 3, max_tokens=4_096)]
    assert "layers: 1)" in needed(nn.ModuleList(stages), batches())[1]


def test_the_check_draws_no_random_numbers(memory):
    memory(1)
    model, state = layers("softmax"), torch.get_rng_state()
    needed(model, batches())
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_an_unknown_memory_refuses_nothing(monkeypatch):
    monkeypatch.setattr(memory_check, "available_bytes", lambda swap: None)
    check_pair_memory(layers("softmax"), batches(), config(), CPU)
    monkeypatch.undo()
    check_pair_memory(layers("softmax"), batches(), config(), torch.device("meta"))
