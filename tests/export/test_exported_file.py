"""Exported files predict what the model predicts, without molslice."""

import json
import resource
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from molslice.chem.canonical import canonical_molecule
from molslice.chem.featurize import CHECKED_SMILES, molecule_arrays
from molslice.chem.naming import atom_vocabulary, bond_vocabulary
from molslice.cli import main
from molslice.export import exported_file
from molslice.export.exported_file import (
    ATTENTIONS,
    build_program,
    check_file,
    describe,
    export_model,
    padded_arrays,
    trace,
)
from molslice.export.formats import run_file, write_program
from molslice.export.program import MoleculeProgram
from molslice.folders.ensemble import write_ensemble
from molslice.inference.load import load_model
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from tests.inference.models import CLASSES, TWO, checkpoint_folder
from tests.programs import ROOT
from tests.real_data import embedded_smiles

PROGRAM = ROOT / "examples/onnx/predict_onnx.py"
SIZES = {"num_layers": 1, "dim": 16, "ffn_dim": 16, "num_heads": 4}
ODD = [  # atom maps, stereocenters that depend on each other, isotopes, charges, wildcards, metals, radicals
    "[CH3:1][OH:2]",
    "[H:1][C:2]([H:3])([H:4])[F:5]",
    "C[C@H](N)C(=O)N[C@@H](C)C(=O)O",
    "C[C@H]1CC[C@@H](C)CC1",
    "OC1C(O)C(O)C(O)C(O)C1O",
    "C[C@]12CC[C@H](C[C@H]1CC2)O",
    "F/C=C/C=C\\Cl",
    "[2H]OC([2H])([2H])[2H]",
    "[H]/N=C(/C)CC",
    "[2H]/C(C)=C/[13CH3]",
    "[H][H]",
    "[2H+].[Cl-]",
    "[NH4+].[Fe+2].[O-]S(=O)(=O)[O-]",
    "*CC*",
    "[CH3]",
    "C[S@](=O)c1ccccc1",
    "N->[Pt](<-N)(Cl)Cl",
]
BATCHES = [["C"], ["CC"], ["C", "O"], ["C" * 256, "CCO"], ["[Na+].[Cl-]"], embedded_smiles()[:40], ODD]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Trace a model once, and return it with its two files."""
    made = {}

    def export(attention, model=SIZES, **options):
        key = (attention, tuple(model.items()), tuple(options.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp("model")
            checkpoint_folder(folder, TWO, {"name": attention, **options}, model=model)
            model = load_model(folder, wildcards="keep")
            program = trace(model)
            files = folder / "model.onnx", folder / "model.pt2"
            for file in files:
                write_program(program, file, json.dumps(describe(model)))
                assert check_file(model, file) < 1e-5
            made[key] = model, *files
        return made[key]

    return export


def inputs(smiles, atom_order="canonical"):
    return padded_arrays([molecule_arrays(each, atom_order=atom_order) for each in smiles])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attention", "sizes"),
    [
        *((attention, SIZES) for attention in ATTENTIONS),
        ("softmax", {**SIZES, "num_layers": 2, "local": "gine"}),
        ("slice_sort", {**SIZES, "num_layers": 2, "local": "gine", "pair_state": True}),
    ],
)
def test_both_files_predict_what_the_model_predicts(attention, sizes, exported):
    model, onnx_file, pt2_file = exported(attention, sizes)
    session, program = onnxruntime.InferenceSession(onnx_file), torch.export.load(pt2_file).module()
    for smiles in BATCHES:
        arrays = inputs(smiles)
        expected = model.predict(smiles)
        np.testing.assert_allclose(session.run(["prediction"], arrays)[0], expected, atol=1e-5)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        np.testing.assert_allclose(program(**tensors).detach(), expected, atol=1e-5)


OPTIONS = [
    ("softmax", {"pair_bias": "none"}),
    ("softmax", {"pair_bias": "mix", "fused": False}),
    ("flow", {"pair_bias": "mix", "clamp": 1.0}),
    ("flow", {"pair_bias": "none"}),
    ("singular", {"pair_bias": "mix"}),
    ("slice_sort", {"pair_bias": "none"}),
    ("slice_sort", {"placement": "aligned", "form": "mix_plus_sort"}),
    *(
        ("slice_sort", {"order": order})
        for order in ("descending", "half", "interleave", "max_exchange", "shuffle")
    ),
]


def ensemble(folder, targets):
    """Write an ensemble whose members differ, and load it."""
    for index in range(2):
        member = checkpoint_folder(folder / "members" / str(index), targets, model=SIZES)
        weights = load_file(member / "model.safetensors")
        with safe_open(member / "model.safetensors", "numpy") as opened:
            about = opened.metadata()
        weights["readout.bias"] += index
        save_file(weights, member / "model.safetensors", metadata=about)
    write_ensemble(folder, 2)
    return load_model(folder, wildcards="keep")


@pytest.mark.parametrize("targets", [TWO, CLASSES], ids=["numbers", "classes"])
def test_an_ensemble_predicts_the_mean_of_its_members(targets, tmp_path):
    model = ensemble(tmp_path, targets)
    arrays = {name: torch.from_numpy(array) for name, array in inputs(ODD).items()}
    expected = model.predict_with_errors(ODD).values
    np.testing.assert_allclose(build_program(model)(**arrays).detach(), expected, atol=1e-6)
    assert not np.allclose(model.members[0].predict_with_errors(ODD).values, expected, atol=1e-3)


@pytest.mark.exhaustive
def test_an_ensemble_is_exported(tmp_path):
    model = ensemble(tmp_path, TWO)
    assert export_model(tmp_path, tmp_path / "a.onnx").largest_difference < 1e-5
    outputs = run_file(tmp_path / "a.onnx", inputs(ODD))
    np.testing.assert_allclose(outputs, model.predict_with_errors(ODD).values, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("attention", "options"), OPTIONS, ids=str)
def test_all_options_of_an_attention_can_be_exported(attention, options, exported):
    model, onnx_file, pt2_file = exported(attention, **options)
    for smiles in BATCHES:
        expected = model.predict(smiles)
        np.testing.assert_allclose(run_file(onnx_file, inputs(smiles)), expected, atol=1e-5)
        np.testing.assert_allclose(run_file(pt2_file, inputs(smiles)), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["softmax", "slice_sort"])
def test_heads_of_another_width_are_exported(attention, tmp_path):
    sizes = {**SIZES, "head_dim": 7}
    model = load_model(checkpoint_folder(tmp_path / "model", TWO, {"name": attention}, model=sizes))
    assert model.model.encoder.layers[0].attention.value.weight.shape == (28, 16)
    write_program(trace(model), file := tmp_path / "model.onnx", "{}")
    assert check_file(model, file) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fragment", "what"),
    [("largest", "predicts the largest molecule of a mixture"), ("refuse", "refuses mixtures")],
)
def test_a_model_of_single_molecules_says_what_the_file_does(fragment, what, tmp_path, capsys):
    data = {"name": "csv", "path": "a.csv", "target_columns": list(TWO.names), "fragment": fragment}
    folder, file = checkpoint_folder(tmp_path / "model", TWO, model=SIZES, data=data), tmp_path / "model.pt2"
    assert main(["export", str(folder), "--out", str(file), "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["fragment"] == fragment
    assert json.loads(out)["largest_difference"] < 1e-5
    assert err == f"molslice: warning: {folder} {what}, but {file} predicts a mixture as it is given\n"
    extra = {"molslice.json": ""}
    torch.export.load(file, extra_files=extra)
    assert json.loads(extra["molslice.json"])["fragment"] == fragment


def test_a_model_with_a_variance_is_exported_with_its_mean(tmp_path):
    training = {"loss": "gaussian", "max_steps": 1}
    folder = checkpoint_folder(tmp_path / "model", TWO, model=SIZES, training=training)
    report = export_model(folder, tmp_path / "model.pt2")
    assert report.largest_difference < 1e-5
    arrays = inputs(BATCHES[-1])
    assert run_file(tmp_path / "model.pt2", arrays).shape == (len(BATCHES[-1]), 2)


def test_values_at_padding_do_not_change_a_prediction(exported):
    _, file, _ = exported("slice_sort")
    arrays = inputs(["CCO", "Cc1ccccc1Cl"])
    arrays["atoms"][0, 3:] = 200
    np.testing.assert_allclose(run_file(file, arrays)[:1], run_file(file, inputs(["CCO"])), atol=1e-6)


@pytest.mark.parametrize("legacy_vocab", [False, True])
@pytest.mark.parametrize("readout", ["graph_token", "mean"])
@pytest.mark.parametrize("targets", [TWO, CLASSES], ids=["numbers", "classes"])
def test_a_program_is_in_the_units_of_the_targets(tmp_path, targets, readout, legacy_vocab):
    options = {**SIZES, "readout": readout, "legacy_vocab": legacy_vocab}
    model = load_model(checkpoint_folder(tmp_path, targets, model=options), wildcards="keep")
    arrays = {name: torch.from_numpy(array) for name, array in inputs(ODD).items()}
    values = MoleculeProgram([(model.model, model.targets)])(**arrays).detach().numpy()
    np.testing.assert_allclose(values, model.predict_with_errors(ODD).values, atol=1e-6)


# Importing molslice or torch fails in the subprocess, from wherever it might be imported.
ALONE = """
import runpy, sys
sys.modules.update({"molslice": None, "torch": None})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_alone(file, smiles):
    command = [sys.executable, "-c", ALONE, str(PROGRAM), str(file), *smiles]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=file.parent)
    assert done.returncode == 0, done.stderr
    return np.array([line.split() for line in done.stdout.splitlines()], np.float32)


@pytest.mark.parametrize("attention", ["softmax", "slice_sort"])
def test_a_program_of_fifty_lines_predicts_without_molslice_and_torch(attention, exported):
    model, file, _ = exported(attention)
    smiles = [*embedded_smiles()[:: len(embedded_smiles()) // 200][:200], *ODD]
    np.testing.assert_allclose(run_alone(file, smiles), model.predict(smiles), atol=1e-4)
    text = PROGRAM.read_text()
    assert len(text.splitlines()) <= 50
    assert "import molslice" not in text


# The session is replaced by one that prints the arrays.
ARRAYS_ALONE = """
import json, sys, types
from types import SimpleNamespace

def run(_, inputs):
    arrays = {name: [str(array.dtype), array[0].tolist()] for name, array in inputs.items()}
    print(json.dumps(arrays), file=sys.stderr)
    return [[[0.0]]]

about = SimpleNamespace(custom_metadata_map={"molslice": sys.argv[2]})
session = SimpleNamespace(run=run, get_modelmeta=lambda: about)
sys.modules["onnxruntime"] = SimpleNamespace(InferenceSession=lambda _: session)
"""


@pytest.mark.parametrize("atom_order", ["canonical", "input"])
def test_the_program_makes_the_arrays_of_the_featurizer(atom_order):
    smiles = [*ODD, *embedded_smiles()[::100]]
    about = json.dumps({"atom_order": atom_order, "atoms": atom_vocabulary(), "bonds": bond_vocabulary()})
    command = [sys.executable, "-c", ARRAYS_ALONE + ALONE, str(PROGRAM), about, *smiles]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert len(found) == len(smiles)
    for text, arrays in zip(smiles, found, strict=True):
        expected = inputs([text], atom_order)
        assert arrays == {name: [str(each.dtype), each[0].tolist()] for name, each in expected.items()}


def test_the_metadata_name_targets_units_version_and_vocabulary(exported):
    model, onnx_file, pt2_file = exported("softmax")
    about = json.loads(
        onnxruntime.InferenceSession(onnx_file).get_modelmeta().custom_metadata_map["molslice"]
    )
    assert about["targets"] == [{"name": "gap", "unit": "eV"}, {"name": "logp", "unit": ""}]
    assert about["columns"] == list(model.columns)
    assert about["atom_order"] == "canonical"
    assert about["atoms"] == atom_vocabulary()
    assert about["bonds"] == bond_vocabulary()
    assert about["molslice_version"]
    inputs = {value.name: value.shape for value in onnxruntime.InferenceSession(onnx_file).get_inputs()}
    assert inputs == {"atoms": ["B", "A", 9], "atom_mask": ["B", "A"], "bonds": ["B", "M", 5]}
    extra = {"molslice.json": ""}
    torch.export.load(pt2_file, extra_files=extra)
    assert json.loads(extra["molslice.json"]) == about


def test_the_vocabulary_gives_the_codes_of_the_featurizer():
    def codes(item, features):
        return [each["codes"].get(str(getattr(item, each["rdkit"])()), each["other"]) for each in features]

    for smiles in [*ODD, *embedded_smiles()[::2000]]:
        mol, expected = canonical_molecule(smiles).mol, molecule_arrays(smiles)
        assert [codes(atom, atom_vocabulary()) for atom in mol.GetAtoms()] == expected.atoms.tolist()
        assert [codes(bond, bond_vocabulary()) for bond in mol.GetBonds()] == expected.bonds[:, 2:].tolist()


def test_a_file_holds_no_paths_of_this_machine(exported):
    for file in exported("softmax")[1:]:
        content = file.read_bytes()
        assert str(ROOT).encode() not in content
        assert b"site-packages" not in content
    onnx.checker.check_model(exported("softmax")[1])


def test_models_that_cannot_be_exported_are_refused_with_what_can(tmp_path):
    take = "a graphormer on molecules, or an ensemble of them, with the attention softmax, slice_sort, flow"
    checkpoint_folder(tmp_path, TWO, {"name": "performer"}, model=SIZES)
    with pytest.raises(MolsliceError, match=f"its attention is performer; .*{take}"):
        export_model(tmp_path, tmp_path / "a.onnx")
    choice = {"name": "slice_sort", "order": "multi_permutation"}
    checkpoint_folder(tmp_path, TWO, choice, model=SIZES)
    with pytest.raises(MolsliceError, match=f"rounding errors of equal atoms .*{take}"):
        export_model(tmp_path, tmp_path / "a.onnx")
    checkpoint_folder(tmp_path, TWO, model={**SIZES, "name": "gin_virtual"})
    with pytest.raises(MolsliceError, match=f"its model is gin_virtual; .*{take}"):
        export_model(tmp_path, tmp_path / "a.onnx")
    with pytest.raises(MolsliceError, match=r"cannot write .*a\.tflite: .*\.onnx, \.pt2"):
        export_model(tmp_path, tmp_path / "a.tflite")
    with pytest.raises(MolsliceError, match=f"written by molslice fit; .*{take}"):
        export_model(ROOT / "tests" / "saved_models" / "fit_encoder", tmp_path / "a.onnx")
    assert not list(tmp_path.glob("*.onnx"))


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MolsliceError, match=r"needs onnxruntime: pip install 'molslice\[export\]'"):
        export_model("gap-xtb", tmp_path / "a.onnx")


def test_a_file_that_predicts_other_values_is_removed(tmp_path, monkeypatch):
    model = load_model(checkpoint_folder(tmp_path, TWO, model=SIZES))
    file = tmp_path / "a.pt2"
    for wrong in (np.zeros((15, 2)), np.full((15, 2), np.nan)):
        file.write_text("")
        monkeypatch.setattr(exported_file, "run_file", lambda *_, wrong=wrong: wrong)
        with pytest.raises(MolsliceError, match="differ from the model's by up to"):
            check_file(model, file)
        assert not file.exists()


@pytest.mark.parametrize(
    ("mean", "std", "off", "accepted"),
    [
        (1e-6, 1e-8, 1e-9, False),  # a tenth of the spread of a small target
        (1e-6, 1e-8, 1e-13, True),
        (0.0, 1e3, 0.05, True),
        (0.0, 1e3, 0.5, False),
        (3e5, 1.0, 0.03, True),  # one step of float32
        (3e5, 1.0, 1.0, False),
    ],
)
def test_a_file_may_differ_by_a_share_of_the_spread_of_each_target(
    mean, std, off, accepted, tmp_path, monkeypatch
):
    targets = TargetInfo(("a", "b"), ("m", "M"), "regression", (0.0, mean), (1e6, std))
    model = load_model(checkpoint_folder(tmp_path, targets, model=SIZES))
    exact = model.predict_with_errors(list(CHECKED_SMILES)).values.astype(np.float64)
    exact[3, 1] += off
    monkeypatch.setattr(exported_file, "run_file", lambda *_: exact)
    (tmp_path / "a.pt2").write_text("")
    if accepted:
        assert check_file(model, tmp_path / "a.pt2") == pytest.approx(off, rel=1e-3)
        return
    with pytest.raises(MolsliceError, match="differ from the model's by up to"):
        check_file(model, tmp_path / "a.pt2")


def test_the_command_reports_the_difference(tmp_path, capsys):
    checkpoint_folder(tmp_path, TWO, model=SIZES)
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "a.pt2"), "--json"]) == 0
    out, err = capsys.readouterr()
    written = json.loads(out)
    assert (written["fragment"], err) == ("keep", "")
    assert written["inputs"] == ["atoms", "atom_mask", "bonds"]
    assert written["largest_difference"] < 1e-5
    assert written["bytes"] == (tmp_path / "a.pt2").stat().st_size
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "a.txt")]) == 1


def test_a_pt2_file_that_cannot_be_written_is_an_error(tmp_path):
    """The writer of torch ends the process if it fails."""
    program = torch.export.export(torch.nn.Linear(64, 64), (torch.zeros(1, 64),))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="model.pt2"):
            write_program(program, tmp_path / "model.pt2", "{}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
