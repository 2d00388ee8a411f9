import csv
import json

import pytest

from molslice.cli import main
from molslice.explanation.overview import _familiar_first, find_effects
from molslice.explanation.score import PredictionScore, find_score
from molslice.files.progress import Progress
from molslice.inference.load import load_model
from molslice.types import MolsliceError
from tests.explanation.test_predictions import COUNTS, SAVED, SMILES, fit_to


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the model of the number of nitro groups, and its global view."""
    folder = tmp_path_factory.mktemp("overview")
    fit_to(folder / "nitro", COUNTS, kind="regression")
    words = ["explain", str(folder / "nitro/model"), "--global", "--out", str(folder / "view")]
    assert main([*words, "--quiet"]) == 0
    return folder


def test_the_counted_substructure_and_its_descriptor_come_first(folder):
    with (folder / "view/global.csv").open() as file:
        lines = list(csv.DictReader(file))
    features = [line for line in lines if line["kind"] == "feature"]
    groups = [line for line in lines if line["kind"] == "substructure"]
    assert any("fr_nitro" in f"{line['name']} {line['together']}".split() for line in features[:4])
    assert "[N+](=O)[O-]" in groups[0]["name"] or "O=[N+][O-]" in groups[0]["name"]
    assert float(groups[0]["effect"]) == pytest.approx(1, abs=0.3)
    by_name = {line["name"]: line for line in groups}
    assert abs(float(by_name["cCl"]["effect"])) < 0.2
    assert int(by_name["cCl"]["molecules"]) == 3  # benzene, pyridine and furan
    assert "fr_nitro" in (folder / "view/global.svg").read_text()


def test_rows_of_a_file_with_conditions_are_taken(tmp_path):
    predictor = load_model(SAVED / "fit_pairs")
    score = find_score(predictor, method="shapley")
    assert isinstance(score, PredictionScore)
    rows = predictor.conditioned(
        ["CCO", "CCN", "bad", *(f"{'C' * length}Cl" for length in range(1, 10))],
        lambda names: {
            "solvent": ["CCO", "O"] * 6,
            "temperature": [*range(290, 302)],
            "species": ["rat", "dog"] * 6,
        },
    )
    effects = find_effects(score, rows)
    assert {"temperature", "species", "solvent"} <= {effect.name for effect in effects}
    assert {effect.molecules for effect in effects if effect.kind == "feature"} == {11}
    with pytest.raises(MolsliceError, match="needs 10 readable molecules, got 2"):
        find_effects(score, rows[:3])


def test_an_earlier_view_is_replaced_and_other_files_stay(folder, tmp_path, capsys):
    rows = "".join(f"{smiles}\n" for smiles in ["smiles", *SMILES[:12]])
    (tmp_path / "in.csv").write_text(rows)
    for name in ("global.csv", "global.svg", "notes.txt"):
        (tmp_path / name).write_text("earlier")
    words = ["explain", str(folder / "nitro/model"), "--global", "--input", str(tmp_path / "in.csv")]
    assert main([*words, "--out", str(tmp_path), "--format", "png", "--quiet"]) == 0
    assert {file.name for file in tmp_path.iterdir()} == {"in.csv", "notes.txt", "global.csv", "global.png"}
    assert (tmp_path / "notes.txt").read_text() == "earlier"
    assert "earlier" not in (tmp_path / "global.csv").read_text()
    assert main([*words, "--out", str(folder / "nitro/model"), "--quiet"]) == 1
    assert "is the folder of a model" in capsys.readouterr().err


def test_json(folder, tmp_path, capsys):
    rows = "".join(f"{smiles}\n" for smiles in ["smiles", *SMILES[:12]])
    (tmp_path / "in.csv").write_text(rows)
    words = ["--global", "--input", str(tmp_path / "in.csv"), "--out", str(tmp_path / "view"), "--json"]
    assert main(["explain", str(folder / "nitro/model"), *words]) == 0
    effects = json.loads(capsys.readouterr().out)["effects"]
    assert effects[0]["molecules"] == 12
    assert {effect["standard_error"] is None for effect in effects} == {True, False}  # of one molecule


def test_the_progress_counts_predictions(folder, tmp_path, monkeypatch):
    bars = []

    def record(*given, **named):
        bars.append(Progress(*given, **named))
        return bars[-1]

    monkeypatch.setattr("molslice.explanation.overview.Progress", record)
    (tmp_path / "in.csv").write_text("\n".join(["smiles", *SMILES[:12], ""]))
    words = ["--global", "--input", str(tmp_path / "in.csv"), "--out", str(tmp_path / "view"), "--quiet"]
    assert main(["explain", str(folder / "nitro/model"), *words]) == 0
    assert [bar.unit for bar in bars] == ["predictions"]
    assert bars[0].done > 12


def test_wrong_usage(folder, tmp_path, capsys):
    model = str(folder / "nitro/model")
    for words, message in (
        (["--global"], "--global needs --out, a folder"),
        (["--global", "--smiles", "C", "--out", "o"], "--smiles: not with --global"),
        (["--global", "--strict", "--out", "o"], "--strict: not with --global"),
        ([], "one of the arguments --smiles --input --global is required"),
    ):
        assert main(["explain", model, *words]) == 2
        assert message in capsys.readouterr().err
    assert main(["explain", "gap-xtb", "--global", "--out", str(tmp_path / "o")]) == 1
    assert "--global needs a model of molslice fit" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_the_most_familiar_descriptor_names_its_group():
    names = ["Chi0", "MolMR", "HeavyAtomCount", "BertzCT"]
    assert _familiar_first(names) == ["HeavyAtomCount", "MolMR", "Chi0", "BertzCT"]
