"""The task of pretraining: its losses against a slow reference, what it hides, and what it reports."""
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportOptionalOperand=false

import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from molslice.model import AttentionChoice, build_model
from molslice.model.graphormer import GraphormerSpec
from molslice.model.graphormer_pretraining import GraphormerPretrainingSpec
from molslice.tasks import TASKS, TargetInfo
from molslice.tasks.base import MicroBatch
from molslice.types import DataSpec, ModelOutput, MolsliceError, PretrainingOutput
from tests.model.molecules import random_batch

NAN = math.nan
CHARGES = TargetInfo(("charge",), ("e",), "regression", (0.1,), (0.3,))
TARGETS = TargetInfo(
    ("a", "b", "gap", "dipole", "c"),
    ("", "", "eV", "D", ""),
    "regression",
    (1.0, -2.0, 5.0, 2.0, 300.0),
    (0.5, 3.0, 2.0, 1.0, 80.0),
    families=("descriptors", "descriptors", "quantum", "quantum", "descriptors"),
    atoms=CHARGES,
)
SIZES: dict[str, Any] = {"num_layers": 2, "dim": 16, "ffn_dim": 16, "num_heads": 4, "dropout": 0.0}
FAMILIES = ("descriptors", "quantum", "charges", "atoms", "bonds")


def build(targets=TARGETS, atom_outputs=1, **options) -> Any:
    torch.manual_seed(0)
    spec = GraphormerPretrainingSpec(**SIZES, attention_dropout=0.0)
    data = DataSpec(len(targets.names), num_atom_outputs=atom_outputs)
    model = build_model(spec, AttentionChoice(), data)
    return TASKS.build("pretraining", model, targets, options=options)


def labeled(sizes=(5, 9, 1, 7), pad_to=None, garbage=False):
    """A batch with targets, some of them missing; one molecule has no quantum labels and no charges."""
    batch = random_batch(list(sizes), pad_to=pad_to, garbage=garbage)
    rng = np.random.default_rng(1)
    targets = rng.normal(TARGETS.mean, TARGETS.std, (len(sizes), 5))
    targets[1, 2:4], targets[0, 0], targets[3] = NAN, NAN, NAN
    charges = np.full((len(sizes), batch.atoms.shape[1], 1), 1e9 if garbage else NAN)
    for row, size in enumerate(sizes):
        charges[row, :size, 0] = NAN if row == 1 else rng.normal(0.1, 0.3, size)
    charges[0, 2] = NAN
    return replace(
        batch,
        targets=torch.tensor(targets, dtype=torch.float32),
        atom_targets=torch.tensor(charges, dtype=torch.float32),
        rows=torch.arange(len(sizes)) * 7 + 3,
    )


def elementwise(loss, error):
    if loss == "mae":
        return error.abs()
    return error**2 if loss == "mse" else torch.where(error.abs() < 1, error**2 / 2, error.abs() - 0.5)


def mean(values):
    return sum(values) / len(values) if values else 0.0


def reference(output, batch, loss, weights, columns=(0, 3, 4)):
    """The loss of a batch in float64, molecule by molecule and label by label."""
    details, total = output.pretraining, torch.zeros((), dtype=torch.float64)
    atoms, bonds = batch.hidden_atoms.nonzero().tolist(), batch.hidden_bonds.nonzero()[:, 0].tolist()
    for m in range(len(batch)):
        for family in ("descriptors", "quantum"):
            places = [i for i, name in enumerate(TARGETS.families) if name == family]
            losses = [
                elementwise(
                    loss,
                    output.prediction[m, i]
                    - (batch.targets[m, i].double() - TARGETS.mean[i]) / TARGETS.std[i],
                )
                for i in places
                if not batch.targets[m, i].isnan()
            ]
            total = total + weights[family] * mean(losses)
        losses = [
            elementwise(
                loss, details.atom_targets[m, a, 0] - (batch.atom_targets[m, a, 0].double() - 0.1) / 0.3
            )
            for a in range(int(batch.atom_mask[m].sum()))
            if not batch.atom_targets[m, a, 0].isnan()
        ]
        total = total + weights["charges"] * mean(losses)
        losses = []
        for molecule, a in atoms:
            if molecule == m:
                losses.append(
                    entropy(details.atom_logits[m, a], batch.atoms[m, a, list(columns)], (119, 12, 10))
                )
        total = total + weights["atoms"] * mean(losses)
        losses = []
        for bond in bonds:
            if int(batch.bond_index[bond, 0]) == m:
                losses.append(entropy(details.bond_logits[bond], batch.bond_features[bond], (5, 6, 2)))
        total = total + weights["bonds"] * mean(losses)
    return total


def entropy(logits, features, sizes):
    """The mean over features of -log softmax."""
    start, parts = 0, []
    for feature, size in zip(features.tolist(), sizes, strict=True):
        part = logits[start : start + size]
        parts.append(torch.logsumexp(part, 0) - part[min(feature, size - 1)])
        start += size
    return mean(parts)


@pytest.mark.parametrize("loss", ["mae", "mse", "huber"])
def test_losses_and_gradients_are_those_of_the_reference(loss):
    weights = dict(zip(FAMILIES, (1.0, 0.5, 2.0, 0.25, 3.0), strict=True))
    task = build(loss=loss, label_weights=weights)
    batch = task.hide(labeled(), {"targets": 5, "atoms": 8, "bonds": 9})
    assert (batch.targets.isnan().sum() > labeled().targets.isnan().sum()).item()
    assert batch.hidden_atoms.sum() > 1
    assert batch.hidden_bonds.sum() > 1
    shapes = [(4, 5), (4, 9, 1), (4, 9, 141), (len(batch.bond_index), 13)]
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    wanted = reference(ModelOutput(given[0], pretraining=PretrainingOutput(*given[1:])), batch, loss, weights)
    expected = torch.autograd.grad(wanted, given)
    fast = [tensor.detach().float().requires_grad_() for tensor in given]
    found = task.output_loss_sum(ModelOutput(fast[0], pretraining=PretrainingOutput(*fast[1:])), batch)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)
    for one, other in zip(torch.autograd.grad(found, fast), expected, strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-4)


def loss_and_gradients(task, batch, rows=4):
    torch.manual_seed(3)
    task.zero_grad()
    loss = task.training_step(MicroBatch(batch, rows, 1))
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in task.named_parameters() if p.grad is not None}


def test_padding_does_not_matter():
    task = build(hidden_atoms=0.4, hidden_bonds=0.4)
    expected, gradients = loss_and_gradients(task, labeled())
    loss, found = loss_and_gradients(task, labeled(pad_to=15, garbage=True))
    assert loss == pytest.approx(expected, rel=1e-5)
    assert found.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


def test_the_parts_of_a_batch_add_up():
    task = build(hidden_targets=0.0, label_weights={"descriptors": 1, "quantum": 1, "charges": 1})
    whole, _ = loss_and_gradients(task, labeled((5, 9, 1, 7)))
    batch = labeled((5, 9, 1, 7))
    parts = []
    for rows in ([0, 2], [1, 3]):
        place = {row: number for number, row in enumerate(rows)}
        kept = [bond for bond, (molecule, *_) in enumerate(batch.bond_index.tolist()) if molecule in place]
        index = batch.bond_index[kept].clone()
        index[:, 0] = torch.tensor([place[int(molecule)] for molecule in index[:, 0]])
        part = replace(
            batch,
            **{
                name: getattr(batch, name)[rows]
                for name in ("atoms", "atom_mask", "targets", "atom_targets", "rows")
            },
            bond_index=index,
            bond_features=batch.bond_features[kept],
        )
        parts.append(loss_and_gradients(task, part)[0])
    assert sum(parts) == pytest.approx(whole, rel=1e-5)


def test_what_is_hidden_depends_on_step_and_molecule_alone():
    task = build(hidden_atoms=0.5, hidden_bonds=0.5, hidden_targets=0.5)
    salts = task.salts_of(11)
    assert task.salts_of(11) == salts
    assert set(salts) == {"targets", "atoms", "bonds"}
    batch = labeled()
    hidden = task.hide(batch, salts)
    on_device = task.hide(batch, task.salts_of(torch.tensor(11)))
    assert torch.equal(on_device.hidden_bonds, hidden.hidden_bonds)
    wide = task.hide(labeled(pad_to=20), salts)
    assert torch.equal(wide.hidden_atoms[:, :9], hidden.hidden_atoms)
    assert not wide.hidden_atoms[~wide.atom_mask].any()
    other = replace(batch, rows=batch.rows + 1)
    assert not torch.equal(task.hide(other, salts).hidden_atoms, hidden.hidden_atoms)
    again = task.hide(batch, task.salts_of(12))
    assert not torch.equal(again.hidden_bonds, hidden.hidden_bonds)
    kept = ~hidden.targets.isnan()
    assert torch.equal(hidden.targets[kept], batch.targets[kept])
    assert hidden.atom_targets is batch.atom_targets


def test_shares_are_as_asked():
    task = build(hidden_atoms=0.15, hidden_bonds=0.3, hidden_targets=0.2)
    batch = replace(labeled([30] * 60), targets=torch.zeros(60, 5))
    hidden = task.hide(batch, {"targets": 1, "atoms": 2, "bonds": 3})
    assert hidden.hidden_atoms.float().mean().item() == pytest.approx(0.15, abs=0.03)
    assert hidden.hidden_bonds.float().mean().item() == pytest.approx(0.3, abs=0.05)
    assert hidden.targets.isnan().float().mean().item() == pytest.approx(0.2, abs=0.07)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_that_is_off_draws_nothing_and_learns_nothing(family):
    weights = {name: 1.0 for name in FAMILIES if name != family}
    task = build(label_weights=weights)
    expected = {"targets", "atoms", "bonds"} - {family}
    assert set(task.salts_of(0)) == expected
    batch = task.hide(labeled(), task.salts_of(0))
    assert family not in task.family_losses(task.model(batch), batch)
    assert family not in {measure.name for measure in task.measures}
    only = build(label_weights={family: 1.0}, hidden_targets=0.0)
    salts = only.salts_of(0)
    assert set(salts) == {family} & {"atoms", "bonds"}
    batch = only.hide(labeled(), salts)
    assert set(only.family_losses(only.model(batch), batch)) == {family}


def evaluated(task, batch):
    with torch.inference_mode():
        return task.evaluate_batch(task.model.eval(), batch).numpy()


def test_validation_is_the_same_every_time_and_of_whole_molecules():
    task, batch = build(hidden_atoms=0.4), labeled()
    results = evaluated(task, batch)
    assert results.shape == (4, task.num_results) == (4, 11)
    torch.manual_seed(99)
    np.testing.assert_array_equal(evaluated(task, batch), results)
    np.testing.assert_allclose(evaluated(task, labeled(pad_to=14)), results, atol=1e-4)
    predicted = TARGETS.to_unit(task.model(batch).prediction).detach().numpy()
    np.testing.assert_allclose(results[:, :5], predicted, rtol=1e-6)
    charges = task.model(batch).pretraining.atom_targets.detach() * 0.3 + 0.1
    known = ~batch.atom_targets.isnan()
    errors = (charges - batch.atom_targets).abs().where(known, torch.tensor(0.0)).sum((1, 2))
    np.testing.assert_allclose(results[:, 5], errors, rtol=1e-4)
    assert results[:, 6].tolist() == [4, 0, 1, 7]
    hidden = task.hide(batch, {"atoms": 1, "bonds": 2})
    assert results[:, 8].tolist() == hidden.hidden_atoms.sum(1).tolist()
    assert results[:, 10].sum() == hidden.hidden_bonds.sum()
    assert (results[:, 7] <= results[:, 8]).all()


def test_measures_are_in_their_units():
    task = build()
    assert [measure.column for measure in task.measures] == [
        "valid_mae_descriptors",
        "valid_mae_gap_eV",
        "valid_mae_dipole_D",
        "valid_mae_charges_e",
        "valid_accuracy_atoms",
        "valid_accuracy_bonds",
    ]
    truth = np.array([[1.0, 0.0, 5.0, NAN, 300.0], [NAN, 3.0, NAN, NAN, 380.0]])
    results = np.array([[1.5, 3.0, 5.5, 0, 300, 0.6, 3, 1, 2, 0, 0], [0, 3, 0, 0, 300, 0.2, 1, 3, 3, 0, 0]])
    metrics = task.metrics(results, truth)
    assert metrics["descriptors"] == pytest.approx((0.5 / 0.5 + 1.5 / 3.0 + 40 / 80) / 3)
    assert metrics["gap"] == pytest.approx(0.5)
    assert math.isnan(metrics["dipole"])
    assert metrics["charges"] == pytest.approx(0.8 / 4)
    assert metrics["atoms"] == pytest.approx(4 / 5)
    assert math.isnan(metrics["bonds"])
    expected = (metrics["descriptors"] + 0.5 / 2.0 + 0.2 / 0.3 + 1 / 5) / 4
    assert task.score(metrics) == pytest.approx(expected)
    assert math.isnan(task.score(dict.fromkeys(metrics, NAN)))


def test_labels_that_the_data_lack_are_left_out(caplog):
    targets = replace(TARGETS, families=("descriptors",) * 5, atoms=None)
    with caplog.at_level(logging.WARNING):
        task = build(targets, atom_outputs=0)
    assert "no labels of the family quantum" in caplog.text
    assert "no labels of the family charges" in caplog.text
    assert [measure.name for measure in task.measures] == ["descriptors", "atoms", "bonds"]
    with pytest.raises(MolsliceError, match="no family in training.label_weights has labels in these data"):
        build(targets, atom_outputs=0, label_weights={"quantum": 1})


@pytest.mark.parametrize("families", [("atoms",), ("bonds",), ("atoms", "bonds")])
def test_nothing_is_learned_from_atoms_and_bonds_of_which_none_is_hidden(caplog, families):
    with caplog.at_level(logging.WARNING):
        task = build(**{f"hidden_{family}": 0.0 for family in families})
    for family in ("atoms", "bonds"):
        warning = f"the family {family} has no labels, because hidden_{family} is 0"
        assert (warning in caplog.text) == (family in families)
    loss, gradients = loss_and_gradients(task, labeled())
    assert loss > 0
    assert ("model.atom_head.weight" in gradients) == ("atoms" not in families)
    results = evaluated(task, labeled())
    metrics = task.metrics(results, labeled().targets.numpy())
    assert not metrics.keys() & set(families)
    assert metrics.keys() == {measure.name for measure in task.measures}
    assert math.isfinite(task.score(metrics))
    with pytest.raises(MolsliceError, match="no family in training.label_weights has labels in these data"):
        build(hidden_atoms=0.0, label_weights={"atoms": 1})


def test_any_model_learns_targets_of_molecules():
    plain = build_model(GraphormerSpec(**SIZES), AttentionChoice(), DataSpec(5))
    with pytest.raises(MolsliceError, match=r"charges, atoms, bonds needs model.name graphormer_pretraining"):
        TASKS.build("pretraining", plain, TARGETS)
    task = TASKS.build(
        "pretraining", plain, TARGETS, options={"label_weights": {"descriptors": 1, "quantum": 1}}
    )
    loss, gradients = loss_and_gradients(task, labeled())
    assert loss > 0
    assert "model.readout.weight" in gradients
    assert evaluated(task, labeled()).shape == (4, 11)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"descriptor": 1}, "unknown family 'descriptor'; did you mean 'descriptors'"),
        ({"atoms": -1}, "label_weights.atoms is -1, expected zero or more"),
        ({"atoms": math.inf}, "label_weights.atoms is inf"),
        ({"atoms": True}, "label_weights.atoms is True"),
        ({"atoms": 0}, "are all zero"),
        ({}, "are all zero"),
    ],
)
def test_invalid_weights_are_refused(weights, message):
    with pytest.raises(MolsliceError, match=message):
        build(label_weights=weights)


def test_other_targets_are_refused():
    kind = TargetInfo(("a",), ("",), "classification", (0.0,), (1.0,))
    with pytest.raises(MolsliceError, match="needs targets of kind regression, got classification"):
        build(kind)
    with pytest.raises(MolsliceError, match="unknown loss 'l1'"):
        build(loss="l1")
    with pytest.raises(MolsliceError, match="as many names as families"):
        replace(TARGETS, families=("descriptors",))
