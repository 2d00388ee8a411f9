"""The depth of parameters: which layers are frozen, and how the rates decrease."""

import pytest

from molslice.model import AttentionChoice, build_model
from molslice.model.gin_virtual import GinVirtualSpec
from molslice.model.graphormer import GraphormerSpec
from molslice.model.graphormer_pretraining import GraphormerPretrainingSpec
from molslice.model.layer_depth import freeze_layers, layer_factors, parameter_depths
from molslice.model.sequences.sequence import SequenceSpec
from molslice.types import DataSpec, MolsliceError


def graphormer(spec=GraphormerSpec, layers=3):
    return build_model(spec(num_layers=layers, dim=8, ffn_dim=8, num_heads=2), AttentionChoice(), DataSpec(2))


def by_depth(model):
    depths, layers = parameter_depths(model)
    assert depths.keys() == dict(model.named_parameters()).keys()
    found = {}
    for name, depth in depths.items():
        found.setdefault(depth, set()).add(".".join(name.split(".")[: 3 if "layers" in name else 2]))
    return found, layers


def test_depths_of_a_graphormer():
    found, layers = by_depth(graphormer())
    assert layers == 3
    assert found == {
        0: {
            "atom_embedding.graph_token",
            "atom_embedding.features",
            "atom_embedding.degree",
            "graph_bias.hop_weight",
            "graph_bias.graph_token_distance",
            "graph_bias.bond_embedding",
            "graph_bias.distance_embedding",
        },
        1: {"encoder.layers.0"},
        2: {"encoder.layers.1"},
        3: {"encoder.layers.2"},
        4: {"encoder.last_norm"},
        5: {"readout.weight", "readout.bias"},
    }


def test_depths_of_other_models():
    found, _ = by_depth(graphormer(GraphormerPretrainingSpec))
    assert {"hidden_atom", "hidden_bond"} <= found[0]
    assert {"atom_head.weight", "bond_head.weight", "readout.weight"} <= found[5]
    spec = SequenceSpec(num_layers=2, dim=8, ffn_dim=8, num_heads=2)
    found, layers = by_depth(
        build_model(spec, AttentionChoice(), DataSpec(3, "ids", vocabulary_size=5, max_tokens=4))
    )
    assert layers == 2
    assert all(name.startswith("embedding") for name in found[0])
    assert {"readout.weight", "readout.bias"} <= found[4]


def test_rates_decrease_from_layer_to_layer():
    factors = layer_factors(graphormer(), 0.5)
    assert factors["readout.weight"] == factors["encoder.last_norm.weight"] == 1.0
    rates = [factors[f"encoder.layers.{layer}.ffn.inner.weight"] for layer in range(3)]
    assert rates == [0.125, 0.25, 0.5]
    assert factors["atom_embedding.features.weight"] == factors["graph_bias.hop_weight"] == 0.0625
    assert set(layer_factors(graphormer(), 1.0).values()) == {1.0}


@pytest.mark.parametrize(("frozen", "last"), [(0, -1), (1, 1), (3, 3), ("all", 4)])
def test_frozen_layers_count_from_the_input(frozen, last):
    model = graphormer()
    freeze_layers(model, frozen)
    depths, _ = parameter_depths(model)
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (depths[name] > last), name


def test_what_cannot_be_frozen_is_refused():
    with pytest.raises(MolsliceError, match="frozen_layers is 4, but the model has 3 layers"):
        freeze_layers(graphormer(), 4)
    gin = build_model(GinVirtualSpec(num_layers=2, dim=8), AttentionChoice(), DataSpec(1))
    for call in (lambda: freeze_layers(gin, "all"), lambda: layer_factors(gin, 0.5)):
        with pytest.raises(MolsliceError, match="GinVirtual has no numbered layers"):
            call()
    freeze_layers(gin, 0)


def test_pair_state_and_messages_have_the_depth_of_their_layer():
    spec = GraphormerSpec(num_layers=3, dim=8, ffn_dim=8, num_heads=2, pair_state=True, local="gine")
    depths, _ = parameter_depths(build_model(spec, AttentionChoice(), DataSpec(2)))
    for layer in range(3):
        for part in ("layers", "pair_updates", "messages"):
            of_part = {depth for name, depth in depths.items() if name.startswith(f"encoder.{part}.{layer}.")}
            assert of_part == {layer + 1}
