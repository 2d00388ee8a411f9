import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from molslice import explain, load_model
from molslice.chem.featurize import molecule_arrays
from molslice.chem.saturated import saturated_hydrocarbon
from molslice.cli.explain import METHODS as CLI_METHODS
from molslice.explanation.explain import METHODS, Explainer
from molslice.explanation.result import AttentionView, Contributions, Headline
from molslice.folders.fitted import FINE_TUNED, FittedModel
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.maps import attention_maps
from molslice.learners.stacking import Stack
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from tests.explanation.models import masked, network
from tests.inference.models import CLASSES, FORMS, GAP, TWO, checkpoint_folder, embedded_smiles, untrained


def test_the_function_takes_a_name_a_folder_or_a_model(tmp_path):
    folder = checkpoint_folder(tmp_path / "run")
    found = explain(folder, "CCO")
    assert isinstance(found, Contributions)
    assert found.elements == ("C", "C", "O")
    assert np.array_equal(found.values, explain(str(folder), "CCO").values)
    assert np.array_equal(found.values, explain(load_model(folder), "CCO", method="gradients").values)
    assert explain("gap-xtb", "CCO").model == "gap-xtb"
    assert METHODS == CLI_METHODS


@pytest.mark.parametrize("method", METHODS)
def test_atoms_are_in_the_order_of_the_smiles(method, tmp_path):
    spellings = {
        "OC(=O)c1ccncc1": [0, 1, 2, 3, 4, 5, 6, 7, 8],
        "c1cnccc1C(O)=O": [7, 6, 8, 5, 0, 1, 2, 3, 4],
        "n1ccc(cc1)C(O)=O": [7, 6, 8, 3, 2, 1, 0, 5, 4],
    }
    explainer = Explainer(untrained(tmp_path), method=method)
    tables = []
    for smiles, order in spellings.items():
        found = explainer(smiles)
        assert "".join(found.elements[atom] for atom in order) == "OCOCCCNCC"
        values = found.values if isinstance(found, Contributions) else found.maps[0, 0, 1:]
        tables.append(values[order])
    symmetric = [tables[0], tables[0][[0, 1, 2, 3, 8, 7, 6, 5, 4]]]  # the ring may be mirrored
    for table in tables[1:]:
        assert any(np.allclose(table, one, atol=1e-5) for one in symmetric)
    carboxyl = tables[0][:3]
    assert len({round(float(value), 5) for value in carboxyl}) == 3


def test_the_order_of_the_model_may_be_that_of_the_smiles(tmp_path):
    predictor = untrained(tmp_path, data={"atom_order": "input"}, attention=FORMS["slice_sort"])
    found = Explainer(predictor)("OCC=C")
    assert found.prediction == pytest.approx(float(predictor.predict(["OCC=C"])[0]), abs=1e-6)
    assert np.flatnonzero(found.values).tolist() == [0, 2, 3]
    assert Explainer(predictor)("OCCC").values[1:].tolist() == [0, 0, 0]


def test_the_part_of_bonds_is_given_with_gradients(tmp_path):
    explainer = Explainer(untrained(tmp_path))
    found = explainer("C=C")  # both atoms differ from the baseline by features, too
    assert (found.of_bonds != 0).all()
    assert not np.allclose(found.of_bonds, found.values)
    assert found.to_dict()["atoms"][1]["of_bonds"] == found.of_bonds[1]
    assert explainer("OCF").of_bonds.tolist() == [0, 0, 0]  # single bonds are those of the baseline


def test_unreadable_smiles_are_named(tmp_path):
    explainer = Explainer(untrained(tmp_path))
    with pytest.raises(MolsliceError, match="cannot read the SMILES 'c1cc': not valid SMILES"):
        explainer("c1cc")
    with pytest.raises(MolsliceError, match=r"cannot read the SMILES 'x{60}' and more: not valid"):
        explainer("x" * 5000)
    with pytest.raises(MolsliceError, match="invalid method 'lime'; choices: gradients, shapley, attention"):
        explain("gap-xtb", "C", method="lime")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["softmax", "slice_sort", "flow", "singular"])
def test_the_view_holds_the_maps_and_what_the_attention_defines(name, tmp_path):
    predictor = untrained(tmp_path, attention=FORMS[name])
    view = Explainer(predictor, method="attention")("OC=CF")
    assert isinstance(view, AttentionView)
    assert view.maps.shape == (2, 5, 5)
    own = {
        "softmax": [],
        "slice_sort": ["share of channels sent to the graph token", "mean place after sorting"],
        "flow": ["competition", "allocation"],
        "singular": ["weight in its pseudo-token"],
    }
    assert list(view.by_atom) == [*own[name], "weight for the graph token"]
    assert np.allclose(view.by_atom["weight for the graph token"], view.maps[:, 0, 1:])
    if name == "softmax":  # the others depend on the order of the atoms
        maps = attention_maps(predictor.model, masked("OC=CF").copies(1))
        assert np.allclose(view.maps, np.stack([one.weights[0].mean(0).numpy() for one in maps]), atol=1e-6)
        assert np.allclose(view.maps.sum(-1), 1)
    assert all(values.shape == (2, 4) for values in view.by_atom.values())


PUSH_PULL = "CN(C)c1ccc(C=C(C#N)C#N)cc1"  # 13 atoms differ from the baseline


@pytest.fixture
def drawn(monkeypatch):
    """Return the arguments with which structures are drawn."""
    calls = []
    monkeypatch.setattr(
        "molslice.chem.colored_drawing.draw_colored", lambda *values, **named: calls.append(named)
    )
    return calls


def test_shapley_values_that_do_not_converge_say_so(drawn):
    found = explain("gap-xtb", PUSH_PULL, method="shapley", max_evaluations=300)
    assert found.evaluations <= 300
    largest, target = found.largest_standard_error, found.standard_error_target
    assert largest == found.standard_errors.max() > target
    warning = (
        f"not converged: standard error up to {largest:.2g} eV, target 0.015 eV; "
        "raise --max-evaluations from 300 to 8200"  # all coalitions are 8192
    )
    assert found.warning == warning
    fields = found.to_dict()
    assert (fields["warning"], fields["converged"], fields["standard_error_target"]) == (
        warning,
        False,
        target,
    )
    found.picture()
    assert drawn[0]["lines"] == [PUSH_PULL, warning]


def test_the_suggested_number_follows_the_standard_error():
    errors = np.array([0.0] + 30 * [0.03])
    found = Contributions(
        *("", "m", "y", "", "", "shapley", (), errors, None, errors, 0.0, 0.0, 0.0, 0.1),
        evaluations=7_777,
        headline=Headline("y", "", 0.0),
        standard_error_target=0.02,
        max_evaluations=8_192,
    )
    assert found.warning == (
        "not converged: standard error up to 0.03, target 0.02; raise --max-evaluations from 8192 to 19000"
    )
    assert replace(found, standard_error_target=0.03).warning == ""


def test_converged_explanations_have_no_warning(drawn, tmp_path):
    predictor = untrained(tmp_path)
    for method in ("gradients", "shapley"):
        found = Explainer(predictor, method=method)("OC=CF")
        fields = found.to_dict()
        assert (found.warning, fields["warning"], fields["converged"]) == ("", None, True)
        found.picture()
    assert [call["lines"] for call in drawn] == [["OC=CF"], ["OC=CF"]]
    assert Explainer(predictor, method="shapley")("CC").largest_standard_error == 0
    assert explain(predictor, "OC=CF").to_dict()["standard_error_target"] is None


def test_the_picture_has_the_prediction_and_the_name(drawn):
    values = np.array([1.0, -2.5])
    made = Contributions(
        *("CO", "m", "gap", "eV", "", "gradients", ("C", "O"), values, None, None),
        *(3.56789, 5.0, 0.0012, 0.1, 16),
        headline=Headline("gap", "eV", 3.56789),
    )
    made.picture()
    toxic = Headline("toxic, probability of class 1", "", 0.731)
    classes = replace(made, unit="log-odds", class_name="yes", headline=toxic, smiles="C" * 99)
    classes.picture(background="dark", largest=7.0)
    exact = replace(made, method="shapley", standard_errors=np.array([0.0, 0.012]), evaluations=4)
    replace(exact, note="the mean log-odds of 2 members").picture(name="methanol")
    assert drawn[0]["heading"] == "gap: 3.568 eV"
    assert drawn[0]["scale"] == "contribution of the atom to gap (eV)"
    assert drawn[0]["equation"] == "baseline 5 + atoms = 3.568 eV"
    assert drawn[1]["equation"] == "baseline 5 + atoms = 3.568 log-odds"
    assert drawn[0]["lines"] == ["CO"]  # steps and sums are in the JSON
    assert (drawn[0]["largest"], drawn[0]["background"]) == (None, "white")
    assert drawn[1]["heading"] == "toxic, probability of class 1: 0.731"
    assert drawn[1]["scale"] == "contribution of the atom to gap, class yes (log-odds)"
    assert drawn[1]["lines"] == ["C" * 79 + "…"]
    assert (drawn[1]["largest"], drawn[1]["background"]) == (7.0, "dark")
    assert drawn[2]["lines"] == ["methanol", "the mean log-odds of 2 members"]
    skeleton = "for the saturated hydrocarbon with this skeleton"
    assert made.equation == f"= 5 {skeleton} - 1.432 from the atoms"
    other = replace(classes, prediction=1.0, baseline=-0.25)
    assert other.equation == f"1 log-odds = -0.25 {skeleton} + 1.25 from the atoms"


@pytest.mark.parametrize(
    ("interval", "unit", "equation"),
    [
        ((-5.3, -2.4), "log mol/L", "baseline 1.2 + atoms = -3.9 log mol/L"),
        ((-3.87, -3.81), "log mol/L", "baseline 1.235 + atoms = -3.850 log mol/L"),
        ((-np.inf, -2.4), "log mol/L", "baseline 1.2 + atoms = -3.9 log mol/L"),
        ((-5.3, -2.4), "mol/L", "baseline 1.235 + atoms = -3.85 log mol/L"),  # not what is explained
    ],
)
def test_the_sum_in_the_picture_is_rounded_as_its_headline(drawn, interval, unit, equation):
    Contributions(
        *("CO", "m", "logS", "log mol/L", "", "shapley", ("C", "O"), np.array([1.0, -2.5]), None, None),
        *(-3.85001, 1.2346, 0.0012, 0.1, 16),
        headline=Headline("logS", unit, -3.85001, interval, 0.9),
    ).picture()
    assert drawn[0]["equation"] == equation


def test_a_picture_of_maps_says_what_is_drawn(drawn, tmp_path):
    view = Explainer(untrained(tmp_path), method="attention")("OC=CF")
    view.picture()
    words = "mean over 2 layers and their heads; not a contribution to the prediction"
    assert drawn[0]["lines"] == ["OC=CF", words]
    assert drawn[0]["heading"].endswith(": attention softmax")
    assert drawn[0]["scale"] == "weight for the graph token"
    assert np.allclose(drawn[0]["matrix"].values, view.maps.mean(0))
    assert list(drawn[0]["matrix"].labels) == ["graph", "O0", "C1", "C2", "F3"]
    replace(view, note="one, the first of 2 networks", maps=view.maps - 0.2).picture()
    assert drawn[1]["lines"][2:] == [
        "maps of one, the first of 2 networks",
        "negative weights of the map are drawn as zero",
    ]
    assert drawn[1]["matrix"].values.min() == 0


def test_maps_have_the_weight_of_a_column_in_a_row(tmp_path):
    predictor = untrained(tmp_path)
    view = Explainer(predictor, method="attention")("OC=CF")
    assert not np.allclose(view.maps, view.maps.transpose(0, 2, 1), atol=1e-6)
    with pytest.raises(MolsliceError, match="has no target 'gpa'"):
        Explainer(predictor, method="attention", target="gpa")


@pytest.mark.parametrize("method", ["gradients", "shapley"])
def test_a_score_that_is_not_finite_is_refused(method, tmp_path):
    predictor = untrained(tmp_path)
    with torch.no_grad():
        predictor.model.readout.bias.fill_(float("nan"))
    with pytest.raises(MolsliceError, match="not finite"):
        Explainer(predictor, method=method)("OC=CF")


def test_the_limit_of_evaluations_is_checked(tmp_path):
    predictor = untrained(tmp_path)
    for bad in (0, -1, 2.5, True):
        with pytest.raises(MolsliceError, match=f"invalid max_evaluations {bad}: give a number from 1"):
            Explainer(predictor, method="shapley", max_evaluations=bad)
    with pytest.raises(MolsliceError, match="max_evaluations=5 needs the method shapley, not gradients"):
        explain(predictor, "CC", max_evaluations=5)


def test_an_explanation_leaves_the_model_to_other_threads(tmp_path):
    predictor = untrained(tmp_path)
    smiles = embedded_smiles(6)
    expected = predictor.predict(smiles)
    same, stop = [], threading.Event()

    def predict():
        while not stop.is_set():
            same.append(np.array_equal(predictor.predict(smiles), expected))

    thread = threading.Thread(target=predict)
    thread.start()
    try:
        for method in METHODS:
            for text in smiles[:2]:
                Explainer(predictor, method=method)(text)
    finally:
        stop.set()
        thread.join()
    assert len(same) > 3
    assert all(same)
    assert all(parameter.grad is None for parameter in predictor.model.parameters())


def fitted(folder, targets, networks=2, weight=1.0, *, logarithmic=False, member=None):
    """Return a model of `molslice fit` whose learners are networks alone."""
    standard = member or (GAP if targets.kind == "regression" else CLASSES)
    members = [untrained(folder / str(k), targets=standard) for k in range(networks)]
    with torch.no_grad():
        for k, member in enumerate(members):
            member.model.readout.bias += k
    calibration = ((1.0, 0.0),) if targets.kind == "classification" else ()
    stack = Stack((FINE_TUNED,), (weight,), calibration, logarithmic)
    model = FittedModel(
        targets, ({},), (stack,), {"networks": networks, "options": {"members": networks}}, (None,)
    )
    return FittedPredictor(model, "solubility", folder, members[0] if members else None, members)


def test_gradients_show_the_networks_of_a_fitted_model(tmp_path):
    predictor = fitted(tmp_path, GAP)
    explanation = Explainer(predictor, method="gradients")("OC=CF")
    assert explanation.prediction == pytest.approx(float(predictor.predict(["OC=CF"])[0]), abs=1e-5)
    assert explanation.values.sum() == pytest.approx(explanation.prediction - explanation.baseline, abs=0.01)
    assert explanation.note == "the fine-tuned networks alone, which have the weight 1.00 in the prediction"
    view = Explainer(predictor, method="attention")("OC=CF")
    first = Explainer(predictor.networks[0], method="attention")("OC=CF")
    assert np.array_equal(view.maps, first.maps)
    assert (view.model, first.note) == ("solubility", "")
    assert view.note == f"{predictor.networks[0].name}, the first of 2 networks"
    logs = fitted(tmp_path / "logs", GAP, networks=1, logarithmic=True)
    explanation = Explainer(logs, method="gradients")("OC=CF")
    assert 10.0**explanation.prediction == pytest.approx(float(logs.predict(["OC=CF"])[0]), rel=1e-5)
    assert explanation.unit == f"log10({GAP.units[0]})"
    classes = fitted(tmp_path / "classes", CLASSES, networks=1)
    explanation = Explainer(classes, method="gradients")("OC=CF")
    probability = 1.0 / (1.0 + np.exp(-explanation.prediction))
    assert probability == pytest.approx(float(classes.predict(["OC=CF"])[0]), abs=1e-5)
    assert explanation.probability is None  # of the whole model


def test_gradients_of_networks_with_a_small_weight_are_refused(tmp_path):
    predictor = fitted(tmp_path, GAP, networks=1)
    stacks = {
        "0.15": Stack(("boosting", FINE_TUNED, "gaussian_process"), (0.6, 0.15, 0.25)),
        "0.09": Stack(("boosting", FINE_TUNED, "gaussian_process"), (0.6, 0.09, 0.31)),
        "0.00": Stack(("boosting", FINE_TUNED), (1.0, 0.0)),
    }
    for weight, stack in stacks.items():
        predictor.model = replace(predictor.model, stacks=(stack,))
        if weight == "0.15":
            note = f"the fine-tuned networks alone, which have the weight {weight} in the prediction"
            assert Explainer(predictor, method="gradients").score.note == note
            continue
        with pytest.raises(MolsliceError, match=f"weight {weight} in the prediction.*use the method shapley"):
            Explainer(predictor, method="gradients")
        assert Explainer(predictor, method="attention").method == "attention"


def test_the_scale_and_the_weight_are_those_of_the_chosen_target(tmp_path):
    predictor = fitted(tmp_path, TWO, networks=1, member=TWO)
    stacks = tuple(Stack(("boosting", FINE_TUNED), (1 - weight, weight)) for weight in (0.75, 0.25))
    predictor.model = replace(predictor.model, stacks=stacks)
    score = Explainer(predictor, target="logp", method="gradients").score
    assert (score.name, score.unit) == ("logp", "")
    assert "weight 0.25" in score.note
    factor, offset = 2.0, 1.0  # of logp
    assert score.scales == ((factor * factor, offset * factor + offset),)
    assert score.spread == factor * factor


def test_the_headline_has_the_chosen_target_beside_others_of_another_kind(tmp_path):
    parts = (CLASSES, GAP)
    networks = [untrained(tmp_path / one.kind, targets=one) for one in parts]
    stacks = (Stack((FINE_TUNED,), (1.0,), ((1.0, 0.0),)), Stack((FINE_TUNED,), (1.0,)))
    settings = {"networks": 1, "options": {"members": 1}}
    model = FittedModel(TargetInfo.mixed(parts), ({}, {}), stacks, settings, (None, None))
    predictor = FittedPredictor(model, "mixed", tmp_path, networks[0], networks)
    predicted = predictor.predict(["OC=CF"])[0]
    for target, value in zip(("toxic", "gap"), predicted, strict=True):
        for method in ("gradients", "shapley"):
            headline = Explainer(predictor, target=target, method=method)("OC=CF").headline
            assert headline.label.startswith(target)
            assert headline.value == value


@pytest.mark.parametrize("targets", [GAP, CLASSES], ids=["regression", "classes"])
def test_an_ensemble_is_explained_by_the_mean_of_its_members(targets, tmp_path):
    members = [untrained(tmp_path / str(k), targets=targets) for k in range(2)]
    with torch.no_grad():
        members[1].model.atom_embedding.features.weight *= 0.7
    ensemble = EnsemblePredictor(members, "two", tmp_path)
    view = Explainer(ensemble, method="attention")("OC=CF")
    assert np.array_equal(view.maps, Explainer(members[0], method="attention")("OC=CF").maps)
    assert view.to_dict()["note"] == f"{members[0].name}, the first of 2 networks"
    for method in ("gradients", "shapley"):
        found = Explainer(ensemble, method=method)("OC=CF")
        parts = [Explainer(member, method=method)("OC=CF") for member in members]
        assert np.allclose(found.values, np.mean([part.values for part in parts], axis=0), atol=1e-3)
        assert found.values.sum() == pytest.approx(found.prediction - found.baseline, abs=found.tolerance)
        if targets is GAP:
            assert found.prediction == pytest.approx(float(ensemble.predict(["OC=CF"])[0]), abs=1e-5)
            assert found.note == ""
        else:
            assert found.note == "the mean log-odds of 2 members"
            assert found.probability is None


def test_of_a_mixture_the_predicted_molecule_is_explained(tmp_path):
    predictor = untrained(tmp_path)
    salt = "[Na+].CC(=O)[O-]"
    whole = Explainer(predictor)(salt)
    assert whole.elements == ("Na", "C", "C", "O", "O")
    assert whole.values[0] != 0
    predictor.fragment = "largest"
    found = Explainer(predictor)(salt)
    assert (found.smiles, found.elements) == ("CC(=O)[O-]", ("C", "C", "O", "O"))
    assert found.prediction == pytest.approx(float(predictor.predict([salt])[0]), abs=1e-5)
    assert found.picture(".svg")
    predictor.fragment = "refuse"
    with pytest.raises(MolsliceError, match=r"cannot read the SMILES '\[Na\+\].*': mixture of 2 molecules"):
        Explainer(predictor)(salt)


def test_a_model_of_other_data_is_refused():
    folder = Path(__file__).parents[1] / "saved_models" / "series"
    for method in METHODS:
        with pytest.raises(MolsliceError, match="does not take molecules"):
            Explainer(load_model(folder), method=method)


def test_a_shipped_model_puts_the_number_of_nitro_groups_on_them():
    found = explain("encoder-small", "O=[N+]([O-])c1ccc(CCO)cc1", target="fr_nitro")
    assert found.prediction == pytest.approx(1, abs=0.2)
    assert found.values[:3].sum() > 0.8 * np.abs(found.values).sum()


def test_message_passing_is_explained_by_masking_only():
    predictor = network({"name": "gin_virtual", "num_layers": 2, "dim": 8})
    with pytest.raises(MolsliceError, match="is a gin_virtual; integrated gradients need a graphormer"):
        Explainer(predictor)
    with pytest.raises(MolsliceError, match="is a gin_virtual, which has no attention"):
        Explainer(predictor, method="attention")
    found = Explainer(predictor, method="shapley")("OC=CF")
    assert found.prediction == pytest.approx(float(predictor.predict(["OC=CF"])[0]), abs=1e-5)
    assert found.values.sum() == pytest.approx(found.prediction - found.baseline, abs=1e-5)
    assert np.abs(found.values).min() > 0


def test_a_saturated_hydrocarbon_has_the_arrays_of_one():
    pairs = {
        "O=C(O)c1ccccc1": "CC(C)C1CCCCC1",
        "C[N+](C)(C)C": "CC(C)(C)C",
        "C#C[C@H](F)/C=C/Cl": "CCC(C)CCC",
        "O": "C",
        "[Na+].[Cl-]": "C.C",
    }
    for smiles, hydrocarbon in pairs.items():
        found = saturated_hydrocarbon(molecule_arrays(smiles, atom_order="input"))
        expected = molecule_arrays(hydrocarbon, atom_order="input")
        assert np.array_equal(found.atoms, expected.atoms), smiles
        assert np.array_equal(found.bonds, expected.bonds), smiles
    crowded = saturated_hydrocarbon(molecule_arrays("FS(F)(F)(F)(F)F", atom_order="input"))
    assert crowded.atoms[1, [2, 4]].tolist() == [6, 0]
