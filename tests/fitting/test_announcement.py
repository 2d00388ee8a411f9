"""What a fit says first, such as conflicts and the time; and the names that rows keep."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from molslice.cli import main
from molslice.data.molecules.identifiers import find_identifiers
from molslice.fitting.card import MORE_TIME, describe_more_time
from molslice.fitting.data import FitOptions
from molslice.fitting.expected_time import describe_seconds, expected_seconds
from molslice.fitting.fit import fit
from molslice.fitting.table import read_fit_data
from molslice.folders.fitted import ROWS
from tests.inference.models import embedded_smiles

pytestmark = pytest.mark.usefixtures("few_trees")
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
OPTIONS = {"encoder": None, "quality": "fast", "members": 2, "workers": 0, "quiet": True}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Sixty molecules, aspirin three times and another one twice with different values, and a wrong row."""
    file = tmp_path_factory.mktemp("announced") / "measured.csv"
    smiles = embedded_smiles(60)
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Name", "smiles", "CAS", "logS"])
        writer.writerow(["aspirin", ASPIRIN, "50-78-2", -1.72])
        for row, text in enumerate(smiles):
            writer.writerow([f"m{row}", text, "", len(text) / 10])
        writer.writerow(["ASA", ASPIRIN, "50-78-2", -1.6])
        writer.writerow(["", ASPIRIN, "", -5])
        writer.writerow(["again", smiles[3], "", len(smiles[3]) / 10 + 0.5])
        writer.writerow(["wrong", "C1CC", "", 1])
    return file


def test_conflicts_have_names_values_and_rows(table):
    data = read_fit_data(table, ["logS"], FitOptions(), workers=0)
    place = data.findings.index("aspirin: -1.72, -1.6, -5 (rows 1, 62, 63)")
    value = float(f"{len(embedded_smiles(60)[3]) / 10:g}")
    assert data.findings[place - 1].startswith(
        "2 molecules have several rows, 2 of them with different values"
    )
    assert data.findings[place + 1] == f"m3: {value:g}, {value + 0.5:g} (rows 5, 64)"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "column 'T / K' differs between the rows of a molecule; if the target depends on it, give "),
        ({"conditions": ("T / K",)}, None),
        ({"duplicates": "keep"}, None),
    ],
)
def test_a_column_of_numbers_that_differs_between_averaged_rows_is_named(options, said, tmp_path):
    file = tmp_path / "temperatures.csv"
    lines = [
        f"{text},{kelvin},{7 if row else 8},{row * 1000 + kelvin},w{kelvin},{row / 9 + kelvin / 50}"
        for row, text in enumerate(embedded_smiles(60))
        for kelvin in (288, 298)
    ]
    file.write_text("\n".join(["smiles,T / K,pH,id,word,y", *lines]) + "\n")
    findings = read_fit_data(file, ["y"], FitOptions(**options), workers=0).findings
    hints = [text for text in findings if "differs between" in text]
    assert hints == ([] if said is None else [f"{said}--condition 'T / K'"])
    assert not any("'pH'" in text for text in hints)  # it is the same for all rows of a molecule


def test_only_the_largest_conflicts_are_listed(tmp_path):
    file = tmp_path / "many.csv"
    smiles = embedded_smiles(60)
    lines = [f"{text},{value}" for row, text in enumerate(smiles) for value in (1, 2 + row / 10)]
    file.write_text("\n".join(["smiles,y", *lines]) + "\n")
    findings = read_fit_data(file, ["y"], FitOptions(duplicates="keep"), workers=0).findings
    listed = [text for text in findings if text.startswith(tuple(smiles[-5:]))]
    assert [text.partition(": ")[2].partition(" (")[0] for text in listed] == [
        f"1, {2 + row / 10:g}" for row in (59, 58, 57, 56, 55)
    ]
    assert "differences like these, but smaller: 55 molecules" in findings


def test_classes_that_disagree_are_named(tmp_path):
    file = tmp_path / "classes.csv"
    lines = [f"m{row},{text},{'yes' if row % 2 else 'no'}" for row, text in enumerate(embedded_smiles(40))]
    file.write_text("\n".join(["name,smiles,active", *lines, f"x,{embedded_smiles(40)[3]},no"]) + "\n")
    findings = read_fit_data(file, ["active"], FitOptions(), workers=0).findings
    assert "m3: 1, 0 (rows 4, 41)" in findings  # yes is class 1


def test_usual_names_of_identifiers_are_found():
    columns = ["smiles", "Compound ID", "logS", "CAS", "name", "cid", "split"]
    assert find_identifiers(columns, ["smiles", "logS"]) == ["Compound ID", "CAS", "name"]
    assert find_identifiers(["drug", "y", "name", "name"], ["drug"]) == []


def test_rows_keep_their_names(table, tmp_path):
    about = fit(table, "logS", tmp_path / "model", **OPTIONS)
    assert about["identifiers"] == ["Name", "CAS"]
    with (tmp_path / "model" / ROWS).open(newline="") as stream:
        rows = {row["smiles"]: row for row in csv.DictReader(stream)}
    assert (rows[ASPIRIN]["Name"], rows[ASPIRIN]["CAS"]) == ("aspirin; ASA", "50-78-2")
    assert rows[embedded_smiles(60)[7]]["Name"] == "m7"
    assert main(["report", str(tmp_path / "model"), "--out", str(tmp_path / "report.html"), "--quiet"]) == 0
    page = (tmp_path / "report.html").read_text()
    assert any(f">m{row}<" in page or "aspirin; ASA, 50-78-2" in page for row in range(60))


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ([], "61 rows to learn, 6 of them held out first"),
        (["--no-refit"], "55 rows to learn, 6 others held out"),
        (["--split", "Name"], "41 rows to learn, 20 others held out"),
        (["--split", "Name", "--refit"], "61 rows to learn, 20 of them held out first"),
    ],
)
def test_the_findings_and_the_time_come_before_the_fit(options, count, table, tmp_path, capsys, monkeypatch):
    if "Name" in options:
        rows = list(csv.reader(table.read_text().splitlines()))
        for row in rows[1:]:
            row[0] = "test" if len(row[1]) % 3 == 0 else "train"
        table = tmp_path / "divided.csv"
        table.write_text("\n".join(map(",".join, rows)) + "\n")
    said = []
    monkeypatch.setattr(
        "molslice.fitting.fit.fit_stacks", lambda *_, **__: said.append(capsys.readouterr().err) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        main(
            [
                "fit",
                str(table),
                "--target",
                "logS",
                "--no-encoder",
                "--out",
                str(tmp_path / "model"),
                *options,
            ]
        )
    (text,) = said
    lines = [line.removeprefix("molslice: ") for line in text.splitlines()]
    assert any(line.startswith("targets: logS; regression") for line in lines)
    assert "--split" in options or any(line.startswith("aspirin: ") for line in lines)
    assert any("1 failed" in line for line in lines)
    assert lines[-1].startswith(f"{count}; the fit takes about ")


def test_findings_are_said_once(table, tmp_path, capsys):
    command = ["fit", str(table), "--target", "logS", "--no-encoder", "--quality", "fast", "--members", "2"]
    assert main([*command, "--out", str(tmp_path / "model")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len({*lines})
    about = json.loads((tmp_path / "model" / "fit.json").read_text())
    for text in about["findings"]:
        assert sum(text in line for line in lines) == 1


def test_the_expected_time_grows_with_rows_and_quality_and_ends_at_the_limit(table):
    data = read_fit_data(table, ["logS"], FitOptions(), workers=0)

    def seconds(reading=0.3, **options):
        asked = {"refits": True, "has_encoder": True}
        return expected_seconds(data, FitOptions(**options), reading, **asked)

    fast, good, best = (seconds(quality=quality) for quality in ("fast", "good", "best"))
    assert sum(fast.values()) < sum(good.values()) < sum(best.values())
    assert list(good) == ["embedding", "learners (measuring)", "learners"]
    assert list(best)[1:] == ["learners (measuring)", "networks (measuring)", "learners", "networks"]
    assert sum(seconds(reading=0.6).values()) == pytest.approx(2 * sum(seconds(reading=0.3).values()))
    assert sum(seconds(reading=3.0, quality="best", minutes=0.01).values()) == pytest.approx(0.6)
    assert "tuning" in seconds(tune=1.0)
    assert np.isfinite(sum(seconds(reading=0.0).values()))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "about 5 seconds"), (22, "about 20 seconds"), (55, "about 1 minute"), (200, "about 3 minutes")],
)
def test_an_expected_time_is_rounded(seconds, text):
    assert describe_seconds(seconds) == text
    assert describe_seconds(7200) == "about 2 hours"


def test_a_good_fit_says_what_more_time_would_change():
    record = {"options": {"quality": "good"}, "encoder": "encoder-small"}
    page = (Path(__file__).parents[2] / "docs" / "results" / "small-data.md").read_text()
    error, time = re.findall(r"has (\S+) times the error of `--quality best` .* in (\S+) of the proc", page)[
        0
    ]
    line = describe_more_time(record)
    assert f"about {1 / float(time):.0f} times the time" in line
    assert f"{1 - 1 / float(error):.1%} smaller" in line
    for change in (
        {"options": {"quality": "best"}},
        {"encoder": None},
        {"conditions": [{"name": "temperature"}]},
        {"partner": "solvent"},
        {"related": [{"target": "logP"}]},
    ):
        assert not describe_more_time({**record, **change})


def test_the_last_line_of_the_command_is_about_more_time(table, tmp_path, capsys):
    words = ["fit", str(table), "--target", "logS", "--members", "2", "--split", "all"]
    assert main([*words, "--out", str(tmp_path / "good")]) == 0
    assert capsys.readouterr().err.endswith(f"molslice: {MORE_TIME}\n")
    assert main([*words, "--no-encoder", "--quality", "fast", "--out", str(tmp_path / "fast")]) == 0
    assert MORE_TIME not in capsys.readouterr().err
