"""Graphormer with the heads of pretraining."""
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportArgumentType=false

from dataclasses import replace
from typing import Any

import pytest
import torch

from molslice.model import AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.model.graphormer import GraphormerSpec
from molslice.model.graphormer_pretraining import GraphormerPretrainingSpec
from molslice.types import DataSpec, MolsliceError
from tests.model.molecules import random_batch

SIZES: dict[str, Any] = {"num_layers": 2, "dim": 16, "ffn_dim": 16, "num_heads": 4}


def build(attention="softmax", atom_outputs=1, **options):
    spec = GraphormerPretrainingSpec(**SIZES, **options)
    return build_model(spec, AttentionChoice(attention), DataSpec(5, num_atom_outputs=atom_outputs)).eval()


def hiding(batch, seed=0):
    """The same batch with a third of the atoms and bonds hidden."""
    generator = torch.Generator().manual_seed(seed)
    atoms = batch.atom_mask & (torch.rand(batch.atom_mask.shape, generator=generator) < 0.3)
    bonds = torch.rand(len(batch.bond_index), generator=generator) < 0.3
    return replace(batch, hidden_atoms=atoms, hidden_bonds=bonds)


def outputs(model, batch):
    """All outputs at real atoms, as a list of tensors."""
    found = model(batch)
    details = found.pretraining
    charges, logits = details.atom_targets[batch.atom_mask], details.atom_logits[batch.atom_mask]
    return [found.prediction, charges, logits, details.bond_logits]


@pytest.mark.parametrize("readout", ["graph_token", "mean"])
def test_without_hiding_it_is_a_graphormer(readout):
    model = build(readout=readout)
    plain = build_model(GraphormerSpec(**SIZES, readout=readout), AttentionChoice(), DataSpec(5)).eval()
    own = model.state_dict()
    plain.load_state_dict({name: own[name] for name in plain.state_dict()})
    batch = random_batch([5, 9, 1])
    found = model(batch)
    states = plain.encode(batch).tokens
    assert torch.equal(found.prediction, plain.readout(plain.read_state(batch, states)))
    torch.testing.assert_close(found.prediction, plain(batch).prediction)
    assert found.pretraining.atom_logits is None
    assert found.pretraining.bond_logits is None


def test_outputs_have_the_sizes_of_the_features():
    batch = hiding(random_batch([5, 9, 4]))
    prediction, charges, atoms, bonds = outputs(build(atom_features=("hydrogens", "ring")), batch)
    assert prediction.shape == (3, 5)
    assert charges.shape == (18, 1)
    assert atoms.shape == (18, 10 + 2)
    assert bonds.shape == (len(batch.bond_index), 13)
    assert build(atom_outputs=0)(batch).pretraining.atom_targets is None


@pytest.mark.parametrize("attention", ["softmax", "slice_sort", "key_sort", "flow", "singular"])
def test_hidden_features_are_not_seen(attention):
    model, batch = build(attention), hiding(random_batch([5, 9, 4]))
    expected = outputs(model, batch)
    atoms, bonds = batch.atoms.clone(), batch.bond_features.clone()
    atoms[batch.hidden_atoms] = 1
    bonds[batch.hidden_bonds] = 1
    for one, other in zip(
        outputs(model, replace(batch, atoms=atoms, bond_features=bonds)), expected, strict=True
    ):
        assert torch.equal(one, other)
    for name, place in (
        ("atoms", ~batch.hidden_atoms & batch.atom_mask),
        ("bond_features", ~batch.hidden_bonds),
    ):
        changed = getattr(batch, name).clone()
        changed[place] = (changed[place] == 0).to(torch.uint8)
        assert not torch.allclose(model(replace(batch, **{name: changed})).prediction, expected[0], atol=1e-4)


def test_padding_and_batch_mates_do_not_matter():
    model, batch = build(), hiding(random_batch([5, 9, 4]))
    wide = random_batch([5, 9, 4], pad_to=14, garbage=True)
    wide = replace(
        wide,
        hidden_atoms=torch.nn.functional.pad(batch.hidden_atoms, (0, 5)),
        hidden_bonds=batch.hidden_bonds,
    )
    for one, other in zip(outputs(model, wide), outputs(model, batch), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_bond_has_no_direction():
    model, batch = build(), hiding(random_batch([6, 8]))
    turned = replace(batch, bond_index=batch.bond_index[:, [0, 2, 1]])
    torch.testing.assert_close(outputs(model, turned)[3], outputs(model, batch)[3], atol=1e-5, rtol=1e-5)


def test_every_parameter_learns():
    model = build().train()
    torch.manual_seed(0)
    torch.stack(
        [(part**2).sum() for part in outputs(model, hiding(random_batch([5, 9, 12])))]
    ).sum().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert still == []


def test_a_graphormer_has_no_embeddings_of_hidden_atoms():
    plain = build_model(GraphormerSpec(**SIZES), AttentionChoice(), DataSpec(5))
    assert not [name for name in plain.state_dict() if "hidden" in name]
    assert plain.state_dict().keys() < build().state_dict().keys()
    parts = parameters_by_part(build())
    heads = 16 + 4 + 17 + 17 * (119 + 12 + 10) + 33 * 13
    assert parts["pretraining"] == heads


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (("hydrogen",), "unknown feature 'hydrogen'; did you mean 'hydrogens'"),
        ((), "at least one"),
        (("ring", "ring"), "each feature once"),
    ],
)
def test_invalid_features_are_refused(features, message):
    with pytest.raises(MolsliceError, match=message):
        build(atom_features=features)
    with pytest.raises(MolsliceError, match="num_layers is missing"):
        GraphormerPretrainingSpec(dim=8)
