"""What a report says without data, and the commands that make it again."""

import argparse
import csv
import html
import json
import re
import shlex
import shutil

import pytest

from molslice.cli import main
from molslice.cli.report import ROWS, _command
from molslice.inference.load import load_model
from molslice.report import write_report
from molslice.types import MolsliceError
from tests.inference.models import checkpoint_folder, embedded_smiles
from tests.real_data import REPOSITORY

SALTS = [f"{text}.Cl" if row % 2 else text for row, text in enumerate(embedded_smiles(40))]
SETTINGS = {
    "data": {"name": "csv", "path": "mine.csv", "target_columns": ["size", "a b"], "units": ["m", ""]},
    "model": {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2},
    "training": {"max_steps": 4, "valid_every_steps": 2, "batch_size": 16},
    "trainer": {"accelerator": "cpu", "num_threads": 1},
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a table of molecules, where commands run."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with (folder / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["smiles", "size", "a b"], *([text, len(text), row] for row, text in enumerate(SALTS))]
        )
    return folder


def train(folder, *options):
    (folder / "first.yaml").write_text(json.dumps(SETTINGS))
    assert main(["train", "--config", "first.yaml", "--out", "run", "--quiet", *options]) == 0


def report(*words):
    assert main(["report", *words, "--quiet"]) == 0


def code_of(page):
    """Return the texts in boxes of code: the commands, and the configuration if there is one."""
    return [html.unescape(found) for found in re.findall(r"<pre>(.*?)</pre>", page, flags=re.DOTALL)]


def run_again(page, here, monkeypatch):
    """Run the commands of a page in another folder, and return the page that they write."""
    commands, *configuration = code_of(page)
    other = here.parent / "there"
    other.mkdir()
    shutil.copy(here / "mine.csv", other)
    if configuration:
        (other / "config.yaml").write_text(configuration[0])
    monkeypatch.chdir(other)
    for line in commands.splitlines():
        program, *words = shlex.split(line)
        assert program == "molslice"
        assert main(words) == 0, line
    (written,) = other.glob("*_report.html")
    return written.read_text()


@pytest.mark.parametrize("options", [[], ["--members", "2"]], ids=["run", "ensemble"])
def test_the_commands_make_the_same_page_again(options, here, monkeypatch):
    train(here, *options)
    report("run", "--rows", "20", "--data.kind", "regression")
    page = (here / "run_report.html").read_text()
    assert code_of(page)[0].splitlines()[1] == "molslice report run --rows 20 --data.kind regression"
    assert run_again(page, here, monkeypatch) == page


def test_the_commands_of_a_fit_make_the_same_page_again(here, monkeypatch):
    words = ["fit", "mine.csv", "--target", "size", "--target", "a b", "--unit", "m", "--unit", "s"]
    words += ["--no-encoder", "--members", "2", "--fragment", "largest", "--scale", "linear"]
    assert main([*words, "--out", "some/fit", "--quiet"]) == 0
    report("some/fit")
    page = (here / "fit_report.html").read_text()
    assert "--fragment largest" in code_of(page)[0]
    assert "--scale linear" in code_of(page)[0]
    assert run_again(page, here, monkeypatch) == page


@pytest.mark.parametrize("given", [[], ["--unit", "km"], ["--unit", ""]], ids=["no", "km", "empty"])
def test_a_column_with_its_unit_in_brackets_is_reproduced(given, here, monkeypatch):
    (here / "mine.csv").write_text((here / "mine.csv").read_text().replace("size", "size [m]", 1))
    words = ["fit", "mine.csv", "--target", "size [m]", *given, "--no-encoder", "--members", "2"]
    assert main([*words, "--quality", "fast", "--out", "fit", "--quiet"]) == 0
    report("fit")
    page = (here / "fit_report.html").read_text()
    command = code_of(page)[0].splitlines()[0]
    assert "--target 'size [m]'" in command
    assert ("--unit" in command) == bool(given)
    assert run_again(page, here, monkeypatch) == page


OF_MEASUREMENTS = {
    "limits": ["--limits", "exact", "--relation", "sign", "--target", "size"],
    "one of two targets": ["--relation", "sign", "--relation", "", "--target", "size", "--target", "a b"],
    "weights": ["--weight", "sure", "--target", "size"],
    "errors": ["--error", "off", "--target", "size"],
    "units": ["--unit-column", "in", "--unit", "nM", "--transform", "p", "--target", "size"],
}


@pytest.mark.parametrize("options", OF_MEASUREMENTS.values(), ids=OF_MEASUREMENTS)
def test_what_is_known_of_measurements_is_reproduced(options, here, monkeypatch):
    lines = [
        [
            text,
            len(text),
            row,
            ">" if row % 9 == 0 else "=",
            1 + row % 3,
            0.1 + row % 2,
            ("nM", "uM")[row % 2],
        ]
        for row, text in enumerate(SALTS)
    ]
    with (here / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["smiles", "size", "a b", "sign", "sure", "off", "in"], *lines])
    words = ["fit", "mine.csv", *options, "--no-encoder", "--members", "2", "--quality", "fast"]
    assert main([*words, "--out", "fit", "--quiet"]) == 0
    record = json.loads((here / "fit" / "fit.json").read_text())
    report("fit")
    page = (here / "fit_report.html").read_text()
    assert run_again(page, here, monkeypatch) == page
    again = json.loads((here.parent / "there" / "fit" / "fit.json").read_text())
    assert again["options"] == record["options"]


def test_a_target_that_begins_with_a_hyphen_is_reproduced(here, monkeypatch):
    (here / "mine.csv").write_text((here / "mine.csv").read_text().replace("size", "-log(S)", 1))
    words = ["fit", "mine.csv", "--target=-log(S)", "--no-encoder", "--members", "2", "--unit=-"]
    assert main([*words, "--out", "fit", "--quiet"]) == 0
    report("fit")
    assert run_again(page := (here / "fit_report.html").read_text(), here, monkeypatch) == page


def test_the_page_of_the_working_folder_has_its_name(here, monkeypatch):
    checkpoint_folder(here / "run")
    monkeypatch.chdir(here / "run")
    report(".")
    assert (here / "run" / "run_report.html").is_file()
    assert "Report on run" in (here / "run" / "run_report.html").read_text()
    (here / "latest").symlink_to(here / "run")
    report(str(here / "latest"))
    assert "Report on latest" in (here / "run" / "latest_report.html").read_text()


def test_a_setting_that_begins_with_a_hyphen_is_reproduced():
    words = {
        "rows": ROWS,
        "threshold": None,
        "root": None,
        "fragment": None,
        "wildcards": None,
        "overrides": [("data.units", "-"), ("data.a", "1")],
    }
    command = _command(argparse.Namespace(model="run", **words))
    assert command == ["molslice", "report", "run", "--data.units=-", "--data.a", "1"]


def test_mixtures_are_measured_as_the_option_says(here):
    train(here)
    pages = []
    for options in ([], ["--fragment", "largest"]):
        report("run", *options)
        pages.append((here / "run_report.html").read_text())
    assert "Cl 50.0%" in pages[0] or re.search(r"Cl \d", pages[0])
    assert re.search(r"mixtures|largest", pages[1])
    assert "--fragment largest" in code_of(pages[1])[0]
    shown = [set(re.findall(r"<br>([^<]*)</figcaption>", page)) for page in pages]
    assert any(".Cl" in smiles or "Cl." in smiles for smiles in shown[0])
    assert not any("." in smiles for smiles in shown[1])


@pytest.mark.parametrize("options", [[], ["--members", "2"]], ids=["run", "ensemble"])
def test_without_its_data_the_page_has_what_the_folder_says(options, here, capsys):
    train(here, *options)
    (here / "mine.csv").unlink()
    capsys.readouterr()
    assert main(["report", "run"]) == 0
    said = capsys.readouterr().err
    assert "the report has no measured errors: no such file: mine.csv (data.path)" in said
    page = (here / "run_report.html").read_text()
    assert "Not measured, because the data are not available: no such file: mine.csv (data.path)." in page
    assert page.count("The data are not available.") == 5
    runs = sorted(here.glob("run/**/summary.json"))
    assert len(runs) == max(1, len(options))
    for file in runs:
        error = json.loads(file.read_text())["test"]["mae"]["a b"]
        assert f"{error:.4g}"[:5] in page
    assert "Validation MAE of size (m)." in page
    assert page.count(">member 1<") == (9 if options else 0)  # six errors, and the legends of three charts
    assert main(["report", "run", "--data.path", "mine.csv"]) == 1  # data that were asked for


def test_without_its_rows_a_fit_has_the_errors_of_the_fit(here, capsys):
    shutil.copytree(REPOSITORY / "tests" / "saved_models" / "fit", here / "fit")
    (here / "fit" / "rows.csv").unlink()
    report("fit")
    page = (here / "fit_report.html").read_text()
    assert "Errors from the fit" in page
    assert "random forest" in page
    assert "Its prediction is the weighted mean of these learners." in page


def test_a_model_without_any_record_says_so(here):
    checkpoint_folder(here / "bare")
    write_report(load_model(here / "bare"), None, here / "page.html")
    page = (here / "page.html").read_text()
    assert "Not measured.</p>" in page
    assert "The folder of the model has no errors from its training." in page
    assert "has no metrics.csv, so there are no curves" in page
    assert "These commands reproduce the model" in page


def test_a_model_of_other_data_is_refused(here):
    series = load_model(REPOSITORY / "tests" / "saved_models" / "series")
    with pytest.raises(MolsliceError, match="does not take molecules"):
        write_report(series, None, here / "page.html")
    assert not (here / "page.html").exists()
