"""Tests of counted operations against formulas."""

import json
from pathlib import Path

import pytest

from molslice.attention import ATTENTIONS
from molslice.attention.softmax import Softmax
from molslice.bench.flops import count_operations
from molslice.cli import main
from molslice.config import load_config
from molslice.config.entries import describe_data
from molslice.model import AttentionChoice
from molslice.model.sequences.behavior_cloning import BehaviorCloningSpec
from molslice.model.sequences.decision import DecisionSpec
from molslice.model.sequences.language import LanguageSpec
from molslice.model.sequences.sequence import SequenceSpec
from molslice.types import DataSpec, MolsliceError

CONFIGS = Path(__file__).parents[2] / "configs"
SIZES = {"num_layers": 2, "dim": 16, "ffn_dim": 24, "num_heads": 4}
LAYER = 4 * 16 * 16 + 2 * 16 * 24  # multiply-adds of a token in the linear maps of a layer


def test_softmax_has_the_linear_maps_and_two_products_of_n_by_n():
    series = DataSpec(3, "values", channels=5, max_tokens=10)
    counted = count_operations(SequenceSpec(**SIZES), AttentionChoice("softmax"), series)
    layers = 2 * (10 * LAYER + 2 * 10 * 10 * 16)
    assert counted.multiply_adds == layers + 10 * 5 * 16 + 16 * 3
    assert (counted.tokens, counted.flops) == (10, 2 * counted.multiply_adds)


def test_both_sequences_of_a_pair_count():
    words = {"vocabulary_size": 7, "max_tokens": 10}
    pair = count_operations(
        SequenceSpec(**SIZES), AttentionChoice("flow"), DataSpec(3, "ids", paired=True, **words)
    )
    one = count_operations(SequenceSpec(**SIZES), AttentionChoice("flow"), DataSpec(3, "ids", **words))
    assert one.multiply_adds == 2 * (10 * LAYER + 2 * 10 * 16 * 4) + 16 * 3
    assert (pair.tokens, pair.multiply_adds) == (20, 2 * (one.multiply_adds - 16 * 3) + 4 * 16 * 3)


def test_language_models_and_policies_are_counted():
    text = DataSpec(7, "ids", vocabulary_size=7, max_tokens=10)
    counted = count_operations(LanguageSpec(**SIZES), AttentionChoice("softmax"), text)
    assert counted.multiply_adds == 2 * (10 * LAYER + 2 * 10 * 10 * 16) + 10 * 16 * 7
    steps = DataSpec(2, "steps", channels=3, max_tokens=12, timesteps=30)
    counted = count_operations(DecisionSpec(**SIZES), AttentionChoice("softmax"), steps)
    ends = 4 * (1 + 3 + 2) * 16 + 4 * 16 * 2
    assert counted.multiply_adds == 2 * (12 * LAYER + 2 * 12 * 12 * 16) + ends
    counted = count_operations(BehaviorCloningSpec(2, 16), AttentionChoice(), steps)
    assert counted.multiply_adds == 4 * (3 * 16 + 16 * 16 + 16 * 2)


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_every_attention_is_counted(name):
    text = DataSpec(3, "ids", vocabulary_size=7, max_tokens=64)
    counted = count_operations(SequenceSpec(**SIZES), AttentionChoice(name), text)
    assert counted.multiply_adds >= 2 * 64 * 2 * 16 * 24


def test_an_attention_that_needs_values_is_named(monkeypatch):
    monkeypatch.setattr(Softmax, "mix", lambda self, tokens, context: tokens.sum().item())
    text = DataSpec(3, "ids", vocabulary_size=7, max_tokens=64)
    with pytest.raises(MolsliceError, match="the operations of softmax depend on values"):
        count_operations(SequenceSpec(**SIZES), AttentionChoice("softmax"), text)


def test_the_imagenet_model_of_flowformer_has_the_published_size():
    config = load_config(CONFIGS / "vision" / "flowformer_imagenet.yaml")
    counted = count_operations(config.model, config.attention, describe_data(config))
    dims, depths = (96, 192, 384, 768), (3, 3, 10, 3)
    tokens = [3136, 784, 196, 49]
    maps = 3136 * 48 * 96 + 768 * 1000
    maps += sum(n * depth * 12 * d * d for n, depth, d in zip(tokens, depths, dims, strict=True))
    maps += sum(n * 4 * d * 2 * d for n, d in zip(tokens[1:], dims[:3], strict=True))
    mixing = sum(n * depth * 2 * d * (d // 16) for n, depth, d in zip(tokens, depths, dims, strict=True))
    assert (maps, counted.multiply_adds) == (6_778_140_672, maps + mixing)
    assert counted.parameters == 43_311_304
    # the table of the paper: 41 and 6.3
    assert (round(counted.parameters / 2**20), round(maps / 2**30, 1)) == (41, 6.3)
    header = (CONFIGS / "vision" / "flowformer_imagenet.yaml").read_text()
    assert f"{counted.multiply_adds:,}" in header
    assert f"{maps:,}" in header


def test_the_command(capsys):
    words = ["bench", "flops", "--config", str(CONFIGS / "lra" / "text.yaml"), "--attention.name", "flow"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "sequence, flow" in out
    assert "multiply-adds" in out
    assert main([*words, "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert counted["flops"] == 2 * counted["multiply_adds"] > 0
    assert f"{counted['parameters']:,}" in out
    assert main(["bench", "flops", "--config", str(CONFIGS / "molecule" / "quickstart.yaml")]) == 1
    assert "see molslice bench train" in capsys.readouterr().err
