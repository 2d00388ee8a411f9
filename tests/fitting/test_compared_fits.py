"""Models of `molslice fit` in one table."""

import csv
import json

import pytest

from molslice.cli import main
from molslice.fitting.fit import fit
from tests.inference.models import checkpoint_folder, embedded_smiles

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    rows = [f"{text},{len(text)},{len(text) % 7}" for text in embedded_smiles(60)]
    (folder / "t.csv").write_text("\n".join(["smiles,size (m),other", *rows]) + "\n")
    options = {"encoder": None, "members": 2, "workers": 0, "quiet": True}
    fit(folder / "t.csv", ["size (m)", "other"], folder / "fast", quality="fast", **options)
    fit(folder / "t.csv", "size (m)", folder / "good", split="all", **options)
    return folder


def test_fits_are_in_one_table(fits, tmp_path, capsys):
    runs = ["--runs", str(fits / "fast"), str(fits / "good")]
    assert main(["compare", *runs, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.out.splitlines()]
    assert lines[0][:5] == ["fit", "target", "unit", "metric", "rows"]
    assert [line[1] for line in lines[2:]] == [
        "size",
        "size",
        "other",
    ]  # a target has its fits beside each other
    assert lines[2][2:5] == ["m", "MAE", "60"]
    assert lines[3][6:8] == ["0", "-"]
    assert [line[9] for line in lines[2:]] == ["fast", "good", "fast"]
    assert "molslice report" in shown.err
    about = json.loads((fits / "fast" / "fit.json").read_text())["results"][0]
    with (tmp_path / "out" / "table.csv").open(newline="") as stream:
        first = next(csv.DictReader(stream))
    assert float(first["cross_validated"]) == pytest.approx(about["cross_validated"])
    assert float(first["held_out"]) == pytest.approx(about["test"]["molslice fit"])
    assert (tmp_path / "out" / "table.md").read_text() == shown.out
    assert main(["compare", *runs, "--out", str(tmp_path / "out"), "--json", "--quiet"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert printed["fits"][1]["held_out"] is None


def test_what_is_no_fit_or_twice_is_refused(fits, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    run = checkpoint_folder(tmp_path / "run")
    for runs, code, message in (
        ([fits / "fast", run], 1, f"{run} is a run; compare them separately"),
        ([fits / "fast", fits / "fast"], 1, "are the same folder; name each fit once"),
        ([fits / "fast", "--curves"], 2, "--curves: models of molslice fit have no training curves"),
    ):
        assert main(["compare", "--runs", *map(str, runs), *out]) == code
        assert message in capsys.readouterr().err
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "fit.json").write_text('{"results": [{}]}')
    assert main(["compare", "--runs", str(tmp_path / "broken"), *out]) == 1
    assert "fit.json is damaged: missing or invalid 'options'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
