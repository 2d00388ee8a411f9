"""Parameter counts equal the published ones."""

import pytest

from molslice.model import AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.model.gin_virtual import GinVirtualSpec
from molslice.model.graphormer import GraphormerSpec
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
