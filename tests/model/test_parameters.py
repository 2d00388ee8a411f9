"""Parameter counts equal the published ones."""

import pytest

from molslice.attention import Attention
from molslice.model import MODELS, AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.model.gin_virtual import GinVirtualSpec
from molslice.model.graphormer import GraphormerSpec
from molslice.model.graphormer_pretraining import GraphormerPretrainingSpec
from molslice.model.sequences.decision import DecisionSpec
from molslice.model.sequences.hierarchical import HierarchicalSpec
from molslice.model.sequences.language import LanguageSpec
from molslice.model.sequences.sequence import SequenceSpec
from molslice.types import DataSpec, MolsliceError


@pytest.mark.parametrize(
    ("preset", "attention", "published"),
    [
        ("base", "softmax", 47_085_377),  # Graphormer-base
        ("base", "slice_sort", 32_911_169),  # Sliceformer's form of it
        ("small", "softmax", 12_550_721),  # Graphormer-small
    ],
)
def test_legacy_vocabulary_counts_equal_the_published_ones(preset, attention, published):
    model = build_model(
        GraphormerSpec(preset=preset, legacy_vocab=True), AttentionChoice(attention), DataSpec(1)
    )
    assert parameters_by_part(model)["total"] == published


@pytest.mark.parametrize("head_dim", [None, 4, 5])
def test_the_width_of_heads_is_that_of_each_model_with_an_encoder(head_dim):
    sizes = {"num_layers": 2, "dim": 8, "ffn_dim": 8, "num_heads": 2, "head_dim": head_dim}
    stages = {"dims": (8, 8), "depths": (1, 1), "num_heads": 2, "head_dim": head_dim}
    ids = DataSpec(5, "ids", vocabulary_size=5, max_tokens=6)
    models = {
        "graphormer": (GraphormerSpec(**sizes), DataSpec(1)),
        "graphormer_pretraining": (GraphormerPretrainingSpec(**sizes), DataSpec(1)),
        "sequence": (SequenceSpec(**sizes), ids),
        "language": (LanguageSpec(**sizes), ids),
        "decision": (DecisionSpec(**sizes), DataSpec(3, "steps", channels=2, max_tokens=6, timesteps=9)),
        "hierarchical": (
            HierarchicalSpec(**stages),
            DataSpec(3, "values", channels=4, max_tokens=4, grid=(2, 2)),
        ),
    }
    assert set(models) == {name for name in MODELS.names() if MODELS.find(name).uses_attention}
    inner = 2 * (head_dim or 4)
    for spec, data in models.values():
        model = build_model(spec, AttentionChoice(), data)
        (first, second) = [part for part in model.modules() if isinstance(part, Attention)]
        for attention in (first, second):
            shapes = {name: tuple(p.shape) for name, p in attention.named_parameters() if p.ndim == 2}
            maps = dict.fromkeys(("query.weight", "key.weight", "value.weight"), (inner, 8))
            assert shapes == {**maps, "output.weight": (8, inner)}
    with pytest.raises(MolsliceError, match="model.head_dim must be at least 1"):
        SequenceSpec(**{**sizes, "head_dim": 0})


def test_the_layers_of_the_base_preset():
    parts = parameters_by_part(build_model(GraphormerSpec(preset="base"), AttentionChoice(), DataSpec(1)))
    last_norm = 2 * 768
    assert parts["layers"] == 12 * 3_546_624 + last_norm


def test_exact_vocabularies_drop_only_rows_that_nothing_reaches():
    specs = {legacy: GraphormerSpec(preset="slim", legacy_vocab=legacy) for legacy in (False, True)}
    counts = {
        legacy: parameters_by_part(build_model(spec, AttentionChoice(), DataSpec(1)))
        for legacy, spec in specs.items()
    }
    assert counts[False]["layers"] == counts[True]["layers"]
    assert counts[False]["total"] < counts[True]["total"]


def test_gin_virtual_has_the_size_of_ogbs_baseline():
    spec = GinVirtualSpec(num_layers=5, dim=600)
    total = parameters_by_part(build_model(spec, AttentionChoice(), DataSpec(1)))["total"]
    assert total == 6_657_006  # "6.7 M" in the table of OGB-LSC


def test_parts_add_up():
    parts = parameters_by_part(build_model(GraphormerSpec(preset="slim"), AttentionChoice(), DataSpec(3)))
    named = {k: v for k, v in parts.items() if k not in ("total", "without embeddings")}
    assert sum(named.values()) == parts["total"] > parts["without embeddings"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "bse"}, "base"),
        ({"dim": 8}, "num_layers is missing"),
        ({"preset": "slim", "dim": 0}, "at least 1"),
        ({"preset": "slim", "num_layers": 10**9}, "num_layers must be at least 1 and at most 10,000"),
        ({"preset": "slim", "dropout": 1.0}, "dropout"),
    ],
)
def test_a_bad_spec_is_refused_by_name(options, message):
    with pytest.raises(MolsliceError, match=message):
        GraphormerSpec(**options)


def test_sizes_given_win_over_the_preset():
    assert GraphormerSpec(preset="base", num_layers=3).num_layers == 3
