"""The distance head equals its formula, is blind to padding, and exists in training only."""

from dataclasses import replace

import pytest
import torch

from molslice.model import AttentionChoice, build_model
from molslice.model.distance_head import DistanceHead
from molslice.model.gin_virtual import GinVirtualSpec
from molslice.model.graphormer import GraphormerSpec
from molslice.model.graphormer_pretraining import GraphormerPretrainingSpec
from molslice.tasks.molecule import distance_losses
from molslice.types import DataSpec, MolsliceError
from tests.model.molecules import random_batch
from tests.model.references import assert_equal_in_value_and_gradient

SIZES = {"num_layers": 2, "dim": 8, "ffn_dim": 16, "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
DATA = DataSpec(1, has_geometry=True)


def graphormer(attention="softmax", data=DATA):
    torch.manual_seed(0)
    return build_model(GraphormerSpec(**SIZES), AttentionChoice(attention), data).double()


def placed(batch, seed=0):
    """Return a batch with random coordinates at its atoms, NaN elsewhere."""
    positions = torch.randn(len(batch), 64, 3, generator=torch.Generator().manual_seed(seed)) * 3
    positions = positions[:, : batch.atoms.shape[1]].clone()
    positions[~batch.atom_mask] = torch.nan
    return replace(batch, coordinates=positions)


def test_equals_a_loop_over_pairs():
    torch.manual_seed(0)
    head = DistanceHead(6).double()
    atoms = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    result = head(atoms)
    states = head.atom(torch.nn.functional.layer_norm(atoms, (6,), head.norm.weight, head.norm.bias))
    expected = []
    for molecule in states:
        for i in range(4):
            for j in range(i + 1, 4):
                both = torch.cat([molecule[i] * molecule[j], (molecule[i] - molecule[j]).abs()])
                expected.append(head.pair.weight @ both + head.pair.bias)
    expected = torch.stack(expected).view(2, 6, -1)
    assert_equal_in_value_and_gradient(result, expected, (atoms, *head.parameters()))


@pytest.mark.parametrize("attention", ["softmax", "slice_sort", "flow", "singular"])
def test_padding_changes_neither_the_loss_nor_its_gradient(attention):
    results = []
    for options in ({}, {"pad_to": 11, "garbage": True}):
        model = graphormer(attention)
        batch = placed(random_batch([7, 4], **options))
        losses = distance_losses(model(batch).distances, batch.coordinates)
        losses.sum().backward()
        results.append((losses, [p.grad for p in model.parameters() if p.grad is not None]))
    assert (results[0][0] > 0).all()
    torch.testing.assert_close(*results)


def test_the_loss_is_a_mean_over_known_pairs_of_each_molecule():
    batch = placed(random_batch([5, 3, 1]))
    batch.coordinates[0, 2] = torch.nan
    logits = torch.randn(3, 10, 32, dtype=torch.float64)
    losses = distance_losses(logits, batch.coordinates)
    entropies = {0: [], 1: [], 2: []}
    pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
    for molecule in range(3):
        for place, (i, j) in enumerate(pairs):
            distance = (batch.coordinates[molecule, i] - batch.coordinates[molecule, j]).norm()
            if not distance.isnan():
                known = min(int(distance / 0.375), 31)
                entropies[molecule].append(-logits[molecule, place].log_softmax(0)[known])
    assert [len(values) for values in entropies.values()] == [6, 3, 0]
    expected = [torch.stack(values).mean() if values else torch.tensor(0.0) for values in entropies.values()]
    torch.testing.assert_close(losses, torch.stack([value.double() for value in expected]))


def test_predictions_need_no_geometry_and_do_not_change():
    torch.manual_seed(3)
    with_head, without = graphormer(), graphormer(data=DataSpec(1))
    without.load_state_dict({k: v for k, v in with_head.state_dict().items() if "distance_head" not in k})
    batch = random_batch([6, 3])
    with_head.eval()
    without.eval()
    assert with_head(placed(batch)).distances is None
    assert torch.equal(with_head(batch).prediction, without(batch).prediction)
    assert with_head.train()(batch).distances.shape == (2, 15, 32)


@pytest.mark.parametrize(
    "spec", [GinVirtualSpec(num_layers=2, dim=8), GraphormerPretrainingSpec(**SIZES)], ids=lambda s: s.name
)
def test_models_without_a_head_are_refused(spec):
    with pytest.raises(MolsliceError, match=r"does not learn distances, .* choices: graphormer$"):
        build_model(spec, AttentionChoice("softmax"), DATA)
