"""Tests of the molecular model with every attention."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from molslice.attention import ATTENTIONS
from molslice.model import AttentionChoice, build_model
from molslice.model.gin_virtual import GinVirtualSpec
from molslice.model.graphormer import GraphormerSpec
from molslice.model.graphormer_pretraining import GraphormerPretrainingSpec
from molslice.ops import kernel_choice
from molslice.types import DataSpec, MolsliceError
from tests.attention.subjects import OPTIONS
from tests.model.molecules import random_batch

SIZES = [1, 2, 5, 17, 24]
SIZE = {"num_layers": 3, "dim": 24, "ffn_dim": 32, "num_heads": 4, "max_tokens": 31}
SPEC = GraphormerSpec(**SIZE, dropout=0.0, attention_dropout=0.0)
PRETRAINING = GraphormerPretrainingSpec(**SIZE, dropout=0.0, attention_dropout=0.0)


def lively(model):
    """Enlarge the weights so that every part of the model affects the prediction."""
    torch.manual_seed(5)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def options_of(name):
    """Return options for windows and blocks smaller than a molecule."""
    return OPTIONS.get(name, [{}])[0]


def choices():
    """List attentions of every symmetry and cost, one with a carry; the contract puts each into a model."""
    found = []
    for name in ("softmax", "slice_sort", "flow", "singular", "realformer", "mean", "local"):
        for mode in ATTENTIONS.find(name).traits.pair_bias:
            found.append(AttentionChoice(name, mode, options_of(name)))
    return found


@pytest.mark.parametrize("choice", choices(), ids=lambda c: f"{c.name}-{c.pair_bias}")
def test_padding_and_batch_mates_do_not_matter(choice):
    model = lively(build_model(SPEC, choice, DataSpec(2)))
    together = model(random_batch(SIZES, pad_to=30, garbage=True)).prediction
    tight = model(random_batch(SIZES)).prediction
    torch.testing.assert_close(together, tight, rtol=0, atol=1e-10)
    batch = random_batch(SIZES)
    for molecule, size in enumerate(SIZES):
        mine = batch.bond_index[:, 0] == molecule
        alone = replace(
            batch,
            atoms=batch.atoms[molecule : molecule + 1, :size],
            atom_mask=batch.atom_mask[molecule : molecule + 1, :size],
            bond_index=batch.bond_index[mine] * torch.tensor([0, 1, 1]),
            bond_features=batch.bond_features[mine],
        )
        torch.testing.assert_close(model(alone).prediction[0], tight[molecule], rtol=0, atol=1e-10)


SPECS = {"graphormer": SPEC, "gin_virtual": GinVirtualSpec(num_layers=3, dim=24, dropout=0.0)}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_variance_does_not_see_padding_and_changes_no_prediction(spec):
    def build(data):
        torch.manual_seed(1)
        return build_model(spec, AttentionChoice(), data).eval()

    plain, model = build(DataSpec(2)), build(DataSpec(2, predicts_variance=True))
    new = {"variance_readout.weight", "variance_readout.bias"}
    assert model.state_dict().keys() - plain.state_dict().keys() == new
    tight, padded = (model(random_batch(SIZES, **pad)) for pad in ({}, {"pad_to": 30, "garbage": True}))
    assert plain(random_batch(SIZES)).log_variance is None
    torch.testing.assert_close(plain(random_batch(SIZES)).prediction, tight.prediction, rtol=0, atol=0)
    assert tight.log_variance.shape == (len(SIZES), 2)
    assert tight.log_variance.std(0).min() > 0
    torch.testing.assert_close(padded.log_variance, tight.log_variance, rtol=0, atol=1e-5)


def test_models_without_a_variance_are_refused():
    data = DataSpec(2, predicts_variance=True)
    with pytest.raises(MolsliceError, match="graphormer_pretraining.*choices: gin_virtual, graphormer$"):
        build_model(GraphormerPretrainingSpec(**SIZE), AttentionChoice(), data)


def test_gin_does_not_see_padding_or_batch_mates():
    model = lively(build_model(GinVirtualSpec(num_layers=3, dim=16), AttentionChoice(), DataSpec(1)))
    model.double().eval()
    padded = model(random_batch(SIZES, pad_to=30, garbage=True)).prediction
    torch.testing.assert_close(padded, model(random_batch(SIZES)).prediction, rtol=0, atol=1e-8)


def trees(permutations=None):
    """Return trees, which have one path per pair, so that no tie depends on the order of the atoms."""
    batch = random_batch(SIZES, seed=3, permutations=permutations)
    rng = np.random.default_rng(0)
    index, features = [], []
    for molecule, size in enumerate(SIZES):
        place = np.argsort(np.arange(size) if permutations is None else permutations[molecule])
        for j in range(1, size):
            i = int(rng.integers(0, j))
            index.append([molecule, int(place[i]), int(place[j])])
            features.append([j % 4, 0, j % 2])
    return replace(
        batch,
        bond_index=torch.tensor(index),
        bond_features=torch.tensor(features, dtype=torch.uint8),
    )


@pytest.mark.parametrize("choice", choices(), ids=lambda c: f"{c.name}-{c.pair_bias}")
def test_the_order_of_atoms_matters_exactly_where_the_traits_say(choice):
    model = lively(build_model(SPEC, choice, DataSpec(1)))
    rng = np.random.default_rng(1)
    plain = model(trees()).prediction
    moved = model(trees([rng.permutation(size) for size in SIZES])).prediction
    change = (plain - moved).abs()
    if model.encoder.layers[0].attention.traits.symmetry == "equivariant":
        assert change.max() < 1e-9
    else:
        assert change[3:].max() > 1e-6


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_every_parameter_is_trained(name):
    torch.manual_seed(0)
    # the mean of the atoms: what is read out of one token alone leaves others untouched in the last layer
    spec = replace(SPEC, max_tokens=25, readout="mean")
    model = build_model(spec, AttentionChoice(name, None, options_of(name)), DataSpec(1))
    output = model(random_batch([24] * 40, seed=4))
    loss = output.prediction.square().sum() + (0 if output.penalty is None else output.penalty)
    loss.backward()
    tables = ("distance_embedding", "features.weight", "bond_embedding", "degree")
    for label, parameter in model.named_parameters():
        assert parameter.grad is not None, label
        if not any(table in label for table in tables):  # tables have rows that no molecule here reaches
            assert parameter.grad.abs().sum() > 0, label


@pytest.mark.parametrize(
    "option", [{"norm": "post"}, {"readout": "mean"}, {"activation_checkpointing": True}]
)
def test_options_of_the_spec_work(option):
    torch.manual_seed(0)
    model = build_model(replace(SPEC, **option), AttentionChoice(), DataSpec(1))
    prediction = model(random_batch(SIZES, garbage=True, pad_to=29)).prediction
    assert prediction.shape == (len(SIZES), 1)
    prediction.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_checkpointing_changes_no_gradient():
    gradients = []
    for flag in (False, True):
        torch.manual_seed(0)
        model = build_model(
            replace(SPEC, activation_checkpointing=flag), AttentionChoice("singular"), DataSpec(1)
        )
        output = model(random_batch(SIZES))
        (output.prediction.sum() + output.penalty).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for plain, saved in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, saved)


def test_paths_computed_ahead_change_nothing():
    batch = random_batch(SIZES, pad_to=30, garbage=True)
    for name in ("softmax", "slice_sort"):
        model = lively(build_model(SPEC, AttentionChoice(name), DataSpec(2)))
        prepared = model.prepare(batch)
        assert prepared.levels is not None
        assert torch.equal(model(prepared).prediction, model(batch).prediction)
        assert torch.equal(model(prepared.to("cpu")).prediction, model(batch).prediction)
        moved = prepared._change_tensors(lambda tensor: tensor.clone())  # every tensor, also of the paths
        assert moved.levels.place is not prepared.levels.place
    without = build_model(SPEC, AttentionChoice("softmax", "none"), DataSpec(2))
    assert without.prepare(batch).levels is None


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize(
    "spec", [SPEC, replace(SPEC, local="gine"), PRETRAINING], ids=["plain", "local", "pretraining"]
)
def test_codes_of_a_gpu_predict_the_same(spec, hidden, monkeypatch):
    batch = random_batch(SIZES, pad_to=30, garbage=True)
    if hidden:
        batch = replace(
            batch,
            hidden_atoms=torch.rand(batch.atom_mask.shape) < 0.3,
            hidden_bonds=torch.rand(len(batch.bond_index)) < 0.3,
        )
    model = lively(build_model(spec, AttentionChoice("softmax"), DataSpec(2)))
    expected = model.encode(batch).tokens
    monkeypatch.setattr(kernel_choice, "ENABLED", False)
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda tensor: True)  # noqa: ARG005
    prepared = model.prepare(batch)
    assert prepared.levels is None
    assert prepared.adjacency is not None
    mask = torch.nn.functional.pad(batch.atom_mask, (1, 0), value=True)
    for tokens in (model.encode(batch).tokens, model.encode(prepared).tokens):
        torch.testing.assert_close(tokens[mask], expected[mask], rtol=0, atol=1e-10)


def test_the_masked_bias_is_computed_once(monkeypatch):
    from molslice.attention import softmax
    from molslice.model import encoder

    calls = []
    plain = encoder.masked_pair_bias
    for module in (encoder, softmax):
        monkeypatch.setattr(module, "masked_pair_bias", lambda *a: calls.append(1) or plain(*a))
    build_model(SPEC, AttentionChoice("softmax"), DataSpec(1))(random_batch(SIZES))
    assert len(calls) == 1


def test_shared_softmax_of_the_bias_is_computed_once(monkeypatch):
    from molslice.model import encoder

    calls = []
    plain = encoder.pair_softmax
    monkeypatch.setattr(encoder, "pair_softmax", lambda *a: calls.append(1) or plain(*a))
    model = build_model(SPEC, AttentionChoice("slice_sort"), DataSpec(1))
    shapes = []
    softmax = torch.Tensor.softmax
    monkeypatch.setattr(
        torch.Tensor, "softmax", lambda t, *a, **k: shapes.append(t.shape) or softmax(t, *a, **k)
    )
    model(random_batch(SIZES))
    assert len(calls) == 1
    assert len(shapes) <= 1


@pytest.mark.parametrize("atoms", [1, 6])
def test_gin_virtual_trains_on_a_batch_of_one_molecule(atoms):
    model = build_model(SPECS["gin_virtual"], AttentionChoice("softmax"), DataSpec(1)).train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model(random_batch([atoms])).prediction.sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())
    moved = {name for name, buffer in model.named_buffers() if not torch.equal(buffer, before[name])}
    assert not any(name.startswith("virtual_updates") for name in moved)
