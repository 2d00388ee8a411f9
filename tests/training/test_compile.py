"""What `training.compile` compiles."""

import pytest
from torch import nn

from molslice.model import build_model
from molslice.model.base import AttentionChoice
from molslice.model.encoder import EncoderLayer
from molslice.model.graphormer import GraphormerSpec
from molslice.training.stepper import compile_layers
from molslice.types import DataSpec


@pytest.fixture
def compiled(monkeypatch):
    """Return the modules that are compiled, in order."""
    found = []
    monkeypatch.setattr(nn.Module, "compile", lambda module, **options: found.append((module, options)))
    return found


def test_each_layer_of_an_encoder(compiled):
    spec = GraphormerSpec(num_layers=3, dim=8, ffn_dim=8, num_heads=2)
    model = build_model(spec, AttentionChoice("softmax"), DataSpec(num_outputs=1))
    compile_layers(model)
    assert [module for module, _ in compiled] == list(model.encoder.layers)
    assert all(
        isinstance(module, EncoderLayer) and options == {"dynamic": True} for module, options in compiled
    )


def test_a_model_without_such_layers(compiled):
    model = nn.Linear(2, 2)
    compile_layers(model)
    assert compiled == [(model, {"dynamic": True})]
