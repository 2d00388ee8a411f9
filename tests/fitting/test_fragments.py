import csv
import json

import numpy as np
import pytest

from molslice.cli import main
from molslice.fitting.fit import fit
from molslice.inference.load import load_model
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles


@pytest.mark.usefixtures("few_trees")
def test_a_model_fitted_to_the_largest_molecules_predicts_them(tmp_path, capsys):
    smiles = embedded_smiles(60)
    table = tmp_path / "in.csv"
    with table.open("w", newline="") as file:
        rows = [[text + ".Cl" * (place % 2), len(text)] for place, text in enumerate(smiles)]
        csv.writer(file).writerows([["smiles", "y"], *rows])
    options = {"encoder": None, "members": 2, "refit": False, "quiet": True}
    about = fit(table, "y", tmp_path / "model", fragment="largest", **options)
    assert (about["fragment"], about["replaced"]) == ("largest", 30)
    assert "mixtures: largest, replaced in 30 rows" in (tmp_path / "model" / "card.md").read_text()
    model = load_model(tmp_path / "model")
    salts = [f"{text}.[Na+]" for text in smiles[:5]]
    np.testing.assert_array_equal(model.predict(salts), model.predict(smiles[:5]))
    assert main(["evaluate", str(tmp_path / "model"), "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["targets"][0]["mae"] == pytest.approx(about["results"][0]["test"]["molslice fit"], abs=1e-5)

    plain = fit(table, "y", tmp_path / "plain", **options)
    assert (plain["fragment"], plain["replaced"]) == ("keep", 0)
    assert load_model(tmp_path / "plain").fragment == "keep"
    refused = fit(table, "y", tmp_path / "refused", fragment="refuse", **options)
    assert refused["failed"] == 30
    assert "mixtures: refuse, refused in 30 rows" in (tmp_path / "refused" / "card.md").read_text()
    assert [(kind["reason"], kind["count"]) for kind in refused["refusals"]] == [
        ("mixture of … molecules", 30)
    ]
    with pytest.raises(MolsliceError, match="unknown fragment 'all'; choices: keep, largest, refuse"):
        fit(table, "y", tmp_path / "none", fragment="all", **options)
    about["fragment"] = "other"
    (tmp_path / "model" / "fit.json").write_text(json.dumps(about))
    with pytest.raises(MolsliceError, match="invalid fragment in"):
        load_model(tmp_path / "model")
