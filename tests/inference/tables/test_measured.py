"""How the measured values of `predict --metrics` are written."""

import json

import pytest

from molslice.cli import main
from molslice.files.tables import NumberFormat
from molslice.inference.tables.table import predict_table
from molslice.types import MolsliceError
from tests.inference.models import untrained


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("model"))


def test_the_options_that_messages_name_are_options(model, tmp_path, capsys):
    table = tmp_path / "in.csv"
    table.write_text("smiles;gap\nCCO;2,5\nC;pending\nCC;-999\n")
    words = ["predict", str(model.folder), "--input", str(table), "--output", str(tmp_path / "out.csv")]
    words += ["--metrics", "--json", "--quiet"]
    assert main(words) == 1
    assert "'2,5' is not a number (write a decimal point" in capsys.readouterr().err
    words += ["--decimal", ","]
    assert main(words) == 1
    assert "'pending' is not a number (leave unknown values empty" in capsys.readouterr().err
    assert main([*words, "--missing-value", "pending", "--missing-value=-999"]) == 0
    [error] = json.loads(capsys.readouterr().out)["metrics"]
    expected = abs(float(model.predict(["CCO"])[0]) - 2.5)
    assert (error["count"], error["value"]) == (1, pytest.approx(expected, rel=1e-5))


def test_options_take_the_place_of_the_format_of_the_training(model, tmp_path, monkeypatch):
    monkeypatch.setattr(type(model), "number_format", NumberFormat(",", (-999,)))
    table = tmp_path / "in.csv"
    table.write_text("smiles;gap\nCCO;4.250\nC;-999\n")

    def metrics(**options):
        return predict_table(model, table, tmp_path / "out.csv", metrics=True, **options).metrics[0]

    with pytest.raises(MolsliceError, match=r"name the decimal mark: --decimal , for 4250, --decimal \. for"):
        metrics()
    predicted = float(model.predict(["CCO"])[0])
    for mark, value in ((".", 4.25), (",", 4250)):
        error = metrics(decimal=mark)
        assert (error["count"], error["value"]) == (1, pytest.approx(abs(predicted - value), rel=1e-5))
    assert metrics(decimal=".", missing_values=["x"])["count"] == 2
