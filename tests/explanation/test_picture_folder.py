import gc
import json
from functools import partial

import pytest

from molslice.cli import main
from molslice.explanation.explain import Explainer
from molslice.explanation.picture_folder import explain_to_folder, read_rows
from molslice.explanation.result import AttentionView
from molslice.types import MolsliceError
from tests.inference.models import TWO, checkpoint_folder, untrained


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return checkpoint_folder(tmp_path_factory.mktemp("run"))


@pytest.fixture
def explain(capsys, run):
    """Run `molslice explain` on the run and return its exit code, standard output and standard error."""

    def call(*words):
        code = main(["explain", str(run), *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_each_row_has_a_line_and_each_molecule_a_picture(tmp_path):
    (tmp_path / "in.csv").write_text("name,smiles\na,CCO\nb,bad\nc,\nd,c1ccccc1\nbroken\n")
    explainer = Explainer(untrained(tmp_path / "run"), method="shapley")
    rows = partial(read_rows, explainer.predictor, [tmp_path / "in.csv"])
    report = explain_to_folder(explainer, rows(), tmp_path / "out", ending=".png")
    assert (report.rows, report.failed) == (5, 3)
    place = f"{tmp_path / 'in.csv'}, row 2 (line 3)"
    assert (
        report.first_failure
        == f"{place}: cannot read the SMILES 'bad': not valid SMILES: unknown symbol 'a' at position 2"
    )
    lines = [json.loads(line) for line in (tmp_path / "out/explanations.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == [1, 2, 3, 4, 5]
    assert [line["picture"] for line in lines] == ["000001.png", None, None, "000004.png", None]
    assert lines[2]["error"] == "empty SMILES"
    assert lines[4]["error"] == "1 cell, the header has 2"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("000001.png", "000004.png", "explanations.jsonl")
    ]
    assert lines[0]["sum"] == pytest.approx(lines[0]["prediction"] - lines[0]["baseline"], abs=1e-4)
    assert lines[0]["atoms"][2].keys() == {"index", "element", "contribution", "standard_error"}
    with pytest.raises(OSError, match="it exists; choose another folder"):
        explain_to_folder(explainer, rows(), tmp_path / "out")
    with pytest.raises(MolsliceError, match="a drawing ends in"):
        explain_to_folder(explainer, rows(), tmp_path / "new", ending=".gif")


def test_one_explanation_at_a_time_is_in_memory(tmp_path):
    explainer = Explainer(untrained(tmp_path / "run"), method="attention")
    alive = []

    def rows():
        for row in range(6):
            alive.append(sum(type(kept) is AttentionView for kept in gc.get_objects()))
            yield f"row {row + 1}", "C" * (row + 2), ""

    explain_to_folder(explainer, rows(), tmp_path / "out")
    assert alive == [0] + [alive[1]] * 5
    assert alive[1] <= 1
    lines = [json.loads(line) for line in (tmp_path / "out/explanations.jsonl").read_text().splitlines()]
    assert [len(line["elements"]) for line in lines] == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_one_molecule_is_drawn_to_a_file(explain, tmp_path, ending):
    picture = tmp_path / f"a.{ending}"
    code, out, err = explain("--smiles", "CCO", "--out", picture)
    assert (code, out) == (0, "")
    assert err == f"molslice: written: {picture}\n"
    assert picture.read_bytes().startswith(b"<?xml" if ending == "svg" else b"\x89PNG")


def test_without_out_the_numbers_are_printed(explain):
    code, out, err = explain("--smiles", "CCO")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "CCO"
    assert lines[1].startswith("gap: ")
    assert lines[3].split() == ["atom", "element", "contribution"]
    assert [line.split()[:2] for line in lines[4:]] == [["0", "C"], ["1", "C"], ["2", "O"]]
    code, out, _ = explain("--smiles", "CCO", "--method", "shapley")
    assert "standard error" in out
    code, out, _ = explain("--smiles", "CCO", "--method", "attention")
    assert "weight for the graph token" in out


@pytest.mark.parametrize("method", ["gradients", "shapley", "attention"])
def test_json(explain, method):
    code, out, err = explain("--smiles", "CCO", "bad", "--json", "--method", method)
    assert code == 0
    place = "SMILES 2: cannot read the SMILES 'bad': not valid SMILES: unknown symbol 'a' at position 2"
    assert err == f"molslice: 1 failed: {place}\n"
    answer = json.loads(out)
    assert (answer["failed"], answer["refusals"][0]["count"]) == (1, 1)
    found, failed = answer["explanations"]
    assert failed == {
        "smiles": "bad",
        "error": "cannot read the SMILES 'bad': not valid SMILES: unknown symbol 'a' at position 2",
    }
    assert found["method"] == method
    assert found["error"] is None
    if method != "attention":
        total = sum(atom["contribution"] for atom in found["atoms"])
        assert total == pytest.approx(found["prediction"] - found["baseline"], abs=found["tolerance"])


def test_explanations_that_do_not_converge_are_named(capsys, tmp_path):
    push_pull = "CN(C)c1ccc(C=C(C#N)C#N)cc1"
    words = ["explain", "gap-xtb", "--method", "shapley", "--max-evaluations", "200", "--smiles", push_pull]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "\nwarning: not converged: standard error up to " in out
    assert "target 0.015 eV; raise --max-evaluations from 200 to 8200\n" in out
    shipped = "molslice: gap-xtb: the model that ships with molslice (HOMO-LUMO gap by GFN2-xTB)\n"
    assert err == shipped
    assert main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    (found,) = json.loads(out)["explanations"]
    assert found["converged"] is False
    warning = f"molslice: warning: {push_pull}: {found['warning']}\n"
    assert err == shipped + warning
    assert main([*words, "--out", str(tmp_path / "a.svg"), "--quiet"]) == 0
    assert capsys.readouterr().err == warning
    assert main([*words, "CO", "--out", str(tmp_path / "a"), "--quiet", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["not_converged"] == 1
    assert "warning: 1 of 2 explanations are not converged; see the field warning in " in err


def test_an_unreadable_molecule_is_one_line(explain, tmp_path):
    code, out, err = explain("--smiles", "c1cc", "--out", tmp_path / "a.svg")
    assert (code, out) == (1, "")
    assert err == "molslice: error: cannot read the SMILES 'c1cc': not valid SMILES: ring 1 is not closed\n"
    assert not (tmp_path / "a.svg").exists()
    code, out, err = explain("--smiles", "c1cc", "x", "--out", tmp_path / "folder")
    assert (code, out) == (1, "")
    assert "\nmolslice: error: none of the 2 molecules can be explained; row 1: cannot read" in err


def test_several_molecules_are_drawn_to_a_folder(explain, tmp_path):
    code, out, err = explain("--smiles", "CCO", "OC=C", "--out", tmp_path / "a", "--json", "--format", "png")
    assert (code, json.loads(out)["rows"]) == (0, 2)
    assert "2 pictures written to" in err
    (tmp_path / "in.smi").write_text("CCO first\nxx second\n")
    code, out, err = explain("--input", tmp_path / "in.smi", "--out", tmp_path / "b", "--quiet")
    assert (code, out) == (0, "")
    assert "1 of 2 molecules have no explanation; " in err
    assert "in.smi, row 2 (line 2): cannot read the SMILES 'xx'" in err
    assert (tmp_path / "b/000001.svg").exists()


def test_pictures_of_a_call_share_the_ends_of_their_colors_and_have_names(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "molslice.chem.colored_drawing.draw_colored", lambda *values, **named: drawn.append(named) or b""
    )
    (tmp_path / "in.csv").write_text("name,smiles\nethanol,CCO\n,OC=CF\nbad,xx\n")
    explainer = Explainer(untrained(tmp_path / "run"), method="gradients")
    largest = max(explainer(smiles).largest for smiles in ("CCO", "OC=CF"))
    rows = read_rows(explainer.predictor, [tmp_path / "in.csv"])
    report = explain_to_folder(explainer, rows, tmp_path / "out", background="transparent")
    assert (report.rows, report.failed) == (3, 1)
    assert [one["largest"] for one in drawn] == [largest, largest]
    assert [one["lines"][0] for one in drawn] == ["ethanol", "OC=CF"]
    assert {one["background"] for one in drawn} == {"transparent"}


def test_a_table_without_rows_gives_a_folder_without_pictures(explain, tmp_path):
    (tmp_path / "in.csv").write_text("smiles\n")
    code, _, err = explain("--input", tmp_path / "in.csv", "--out", tmp_path / "a")
    assert code == 0, err
    assert (tmp_path / "a" / "explanations.jsonl").read_text() == ""
    assert "0 pictures written" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--input", "a.csv"], "--input needs --out"),
        (["--input", "a.csv", "--out", "a.svg"], "--out is one picture"),
        (["--smiles", "C", "CC", "--out", "a.svg"], "--out is one picture"),
        (["--smiles", "C", "--out", "a.gif"], "a picture ends in .svg or .png"),
        (["--smiles", "C", "--format", "png"], "--format needs --out"),
        (["--smiles", "C", "--background", "dark"], "--background needs --out"),
        (["--smiles", "C", "--background", "pink", "--out", "a.svg"], "invalid choice"),
        (["--smiles", "C", "--smiles-column", "smiles"], "--smiles-column needs --input"),
        (["--smiles", "C", "--delimiter", ";"], "--delimiter needs --input"),
        (["--smiles", "C", "--method", "lime"], "invalid choice"),
        (
            ["--smiles", "C", "--method", "gradients", "--max-evaluations", "9"],
            "--max-evaluations needs --method shapley",
        ),
        (["--smiles", "C", "--method", "shapley", "--max-evaluations", "0"], "'0' is not a whole number"),
    ],
)
def test_wrong_usage(explain, words, message):
    code, out, err = explain(*words)
    assert (code, out) == (2, "")
    assert message in err


def test_a_model_with_several_targets_needs_a_name(tmp_path, capsys):
    run = checkpoint_folder(tmp_path / "two", targets=TWO)
    assert main(["explain", str(run), "--smiles", "C"]) == 1
    assert "has several targets; name one of gap, logp" in capsys.readouterr().err
    assert main(["explain", str(run), "--smiles", "C", "--target", "logp"]) == 0
