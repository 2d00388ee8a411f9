import numpy as np
import pytest
import torch

from molslice.chem.descriptors import descriptor_names
from molslice.explanation.explain import Explainer
from molslice.explanation.gradients import TOLERANCE, integrated_gradients
from molslice.explanation.score import find_score
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from tests.explanation.models import ODD, masked, network
from tests.inference.models import CLASSES, FORMS, TWO, embedded_smiles, untrained

CONTINUOUS = [name for name in FORMS if name != "slice_sort aligned"]
LARGE = (
    "C[N+](C)(C)CC(=O)N1CCN(CC1)c1ccc(cc1)" + "OCC(F)(F)c1ccc(cc1)" * 3 + "CCCCCCS(=O)(=O)[O-]"
)  # 62 atoms
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


MODELS = [*((name, {}) for name in CONTINUOUS), (CONTINUOUS[0], {"local": "gine", "pair_state": True})]


@pytest.mark.parametrize(("name", "model"), MODELS)
def test_contributions_add_up(name, model, tmp_path):
    predictor = untrained(tmp_path, wildcards="keep", attention=FORMS[name], model=model)
    explainer = Explainer(predictor)
    for smiles in (*embedded_smiles(6), *ODD, LARGE):
        found = explainer(smiles)
        assert found.tolerance == pytest.approx(TOLERANCE * 1.5)
        assert abs(found.values.sum() - (found.prediction - found.baseline)) <= found.tolerance
        assert found.sum_error == pytest.approx(found.values.sum() - (found.prediction - found.baseline))
        assert found.prediction == pytest.approx(float(predictor.predict([smiles])[0]), abs=1e-5)
        assert found.unit == "eV"


def reference(score, smiles, steps=120):
    """Integrate by the midpoint rule in float64, with the gradient of every embedding of atoms and bonds."""
    model, molecule = score.networks[0].model.double(), masked(smiles)
    one, base = molecule.copies(1), molecule.baseline
    of_bonds = [model.graph_bias, *model.encoder.messages]
    tables = (model.atom_embedding.features, *(layer.bond_embedding for layer in of_bonds))
    ends = [
        (tables[0](base.atoms), tables[0](one.atoms)),
        *((table(base.bond_features), table(one.bond_features)) for table in tables[1:]),
    ]
    widths = molecule.num_atoms, *[molecule.num_bonds] * len(of_bonds)
    parts = [torch.zeros(width, dtype=torch.float64) for width in widths]
    for t in (np.arange(steps) + 0.5) / steps:
        at = [(x0 + t * (x1 - x0)).detach().requires_grad_() for x0, x1 in ends]
        handles = [
            table.register_forward_hook(lambda module, args, output, x=x: x)
            for table, x in zip(tables, at, strict=True)
        ]
        gradients = torch.autograd.grad(score(one).sum(), at)
        for handle in handles:
            handle.remove()
        for part, gradient, (x0, x1) in zip(parts, gradients, ends, strict=True):
            part += (gradient * (x1 - x0)).detach().reshape(len(part), -1).sum(1) / steps
    atoms, bonds = parts[0].numpy(), torch.stack(parts[1:]).sum(0).numpy()
    for (begin, end), value in zip(molecule.bond_ends, bonds, strict=True):
        atoms[begin] += value / 2
        atoms[end] += value / 2
    model.float()
    return atoms


@pytest.mark.parametrize(("name", "model"), MODELS)
def test_contributions_agree_with_a_slow_reference(name, model, tmp_path):
    score = find_score(untrained(tmp_path, attention=FORMS[name], model=model))
    contributions, of_bonds, _ = integrated_gradients(score, masked(ASPIRIN), 1e-5)
    expected = reference(score, ASPIRIN, steps=500 if model else 120)
    assert np.abs(contributions - expected).max() < 3e-3 * np.abs(expected).max()
    assert np.abs(of_bonds).max() > 0
    assert not all(np.isclose(contributions, of_bonds))


def test_steps_are_added_until_the_sum_is_right(tmp_path):
    score = find_score(untrained(tmp_path, attention=FORMS["slice_sort"]))
    molecule = masked(ASPIRIN)
    ends = score.of_masked(molecule, np.array([[False], [True]]).repeat(molecule.num_atoms, 1))
    errors, steps = [], []
    for tolerance in (1.0, 1e-4, 1e-5):
        contributions, _, count = integrated_gradients(score, molecule, tolerance)
        errors.append(abs(contributions.sum() - (ends[1] - ends[0])))
        steps.append(count)
        assert errors[-1] <= tolerance * score.spread
    assert steps[0] == 16 < steps[1] < steps[2]


def test_a_model_that_jumps_is_refused(tmp_path):
    explainer = Explainer(untrained(tmp_path, attention=FORMS["slice_sort aligned"]))
    with pytest.raises(
        MolsliceError, match=r"do not add up: after \d+ steps .* jumps .* Use the method shapley"
    ):
        explainer(ASPIRIN)


def test_classes_are_explained_in_log_odds(tmp_path):
    predictor = untrained(tmp_path, targets=CLASSES)
    found = Explainer(predictor)(ASPIRIN)
    assert found.unit == "log-odds"
    assert found.probability == pytest.approx(float(predictor.predict([ASPIRIN])[0]), abs=1e-6)
    assert found.values.sum() == pytest.approx(found.prediction - found.baseline, abs=1e-3)


def test_a_target_is_chosen_by_name(tmp_path):
    predictor = untrained(tmp_path, targets=TWO)
    values = predictor.predict([ASPIRIN])[0]
    for index, name in enumerate(("gap", "logp")):
        found = Explainer(predictor, target=name)(ASPIRIN)
        assert (found.target, found.unit) == (name, ("eV", "")[index])
        assert found.prediction == pytest.approx(values[index], abs=1e-5)
    assert Explainer(predictor, target="gap_eV").score.name == "gap"
    units = TargetInfo(("a", "b"), ("m", "s"), "regression", (0.0, 1.0), (1.0, 2.0))
    score = Explainer(untrained(tmp_path / "units", targets=units), target="b_s").score
    assert (score.name, score.unit, score.column, score.spread) == ("b", "s", 1, 2.0)
    with pytest.raises(MolsliceError, match="has several targets; name one of gap, logp"):
        Explainer(predictor)
    with pytest.raises(MolsliceError, match=r"has no target 'gpa'; did you mean 'gap'\?"):
        Explainer(predictor, target="gpa")
    with pytest.raises(MolsliceError, match="has no target 'mass'; choices: gap, logp"):
        Explainer(predictor, target="mass")


def test_descriptors_stay_those_of_the_molecule(tmp_path):
    predictor = network(descriptors=len(descriptor_names()))
    found = Explainer(predictor)("CCO")
    assert found.prediction == pytest.approx(float(predictor.predict(["CCO"])[0]), abs=1e-6)
    assert found.values.sum() == pytest.approx(found.prediction - found.baseline, abs=1e-3)
    assert found.baseline != pytest.approx(float(predictor.predict(["CCC"])[0]), abs=1e-4)
