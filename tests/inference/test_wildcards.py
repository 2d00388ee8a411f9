"""Wildcards in predictions, stores, data sets and fits: refused, or kept and counted."""

import json
from pathlib import Path

import numpy as np
import pytest

from molslice.cli import main
from molslice.data.molecules.csv import Csv
from molslice.data.molecules.fragments import choose_fragments, count_wildcards
from molslice.data.molecules.prepare import Featurizing
from molslice.data.molecules.prepare_files import prepare_files
from molslice.data.molecules.prepared import Prepared
from molslice.estimators import MolsliceFeaturizer
from molslice.explanation.explain import explain
from molslice.files.tables import Unreadable
from molslice.fitting.fit import fit
from molslice.inference.embedding import Embedder
from molslice.inference.load import load_model
from molslice.inference.tables.table import predict_table, prediction_identity
from molslice.types import MolsliceError
from tests.inference.models import checkpoint_folder, embedded_smiles

ROWS = ["*CC", "CCO", "C~C", "[*:1]c1ccccc1", "*CC.CCCO", "bad*"]
KEEP = "; keep such rows with --wildcards keep (data.wildcards: keep)"
REASONS = [
    f"wildcard or R-group (*){KEEP}",
    None,
    f"bond of any order (~){KEEP}",
    f"wildcard or R-group (*){KEEP}",
    f"wildcard or R-group (*){KEEP}",
    "not valid SMILES: unknown symbol 'a' at position 2",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "in.csv"
    rows = [*ROWS, *embedded_smiles(20)]
    path.write_text("smiles,gap\n" + "".join(f"{text},{len(text)}\n" for text in rows))
    return path


@pytest.mark.parametrize("workers", [0, 2])
def test_wildcards_have_a_reason_by_default(folder, workers):
    refusing, keeping = load_model(folder), load_model(folder, wildcards="keep")
    for one, other in ((refusing, keeping), (Embedder(refusing), Embedder(keeping))):
        refused, kept = (each.predict_with_errors(ROWS, workers=workers) for each in (one, other))
        assert refused.errors == REASONS
        assert np.isnan(refused.values).any(1).tolist() == [reason is not None for reason in REASONS]
        assert kept.errors == [None] * 5 + ["not valid SMILES: unknown symbol 'a' at position 2"]
        # a batch of the same row is equal, and other rows beside it change the rounding
        alone = other.predict_with_errors(ROWS[1:2], workers=workers)
        np.testing.assert_array_equal(alone.values[0], refused.values[1])
        np.testing.assert_allclose(kept.values[1], refused.values[1], rtol=0, atol=1e-5)
    with pytest.raises(MolsliceError, match="unknown wildcards 'all'"):
        load_model(folder, wildcards="all")


def test_the_largest_molecule_decides(folder):
    model = load_model(folder, fragment="largest")
    assert model.predict_with_errors(["*CC.CCCO", "*CCC.O"]).errors == [None, REASONS[0]]


def test_rows_and_reasons_stay():
    rows, replaced, *_ = choose_fragments([Unreadable("2 cells"), "*", "C", None, "*("], "keep", "refuse")
    assert [getattr(row, "reason", row) for row in rows] == ["2 cells", REASONS[0], "C", None, "*("]
    assert replaced == 0
    assert count_wildcards([*ROWS, Unreadable("x"), None]) == 4


def test_a_table_counts_them_and_does_not_continue_with_another_choice(folder, table, tmp_path):
    refusing, keeping = load_model(folder), load_model(folder, wildcards="keep")
    found = predict_table(refusing, table, tmp_path / "a.csv", progress=False)
    assert (found.failed, found.wildcards) == (5, 0)
    kept = predict_table(keeping, table, tmp_path / "b.csv", progress=False)
    assert (kept.failed, kept.wildcards) == (1, 4)
    assert prediction_identity(refusing) != prediction_identity(keeping)


def test_the_command_says_how_many_it_keeps(folder, table, tmp_path, capsys):
    assert main(["predict", str(folder), "--smiles", *ROWS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["failed"], found["wildcards"]) == (5, 0)
    keep = ["--wildcards", "keep"]
    assert main(["predict", str(folder), "--smiles", *ROWS, "--json", *keep]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["failed"], found["wildcards"]) == (1, 4)
    words = ["--input", str(table), "--output", str(tmp_path / "out.csv")]
    for verb in ("predict", "embed"):
        assert main([verb, str(folder), *words, *keep]) == 0
        message = "predicted rows with a wildcard, an R-group or a bond of any order: 4"
        assert message in capsys.readouterr().err
    assert main(["explain", str(folder), "--smiles", "*CC"]) == 1
    assert REASONS[0] in capsys.readouterr().err


def test_a_training_refuses_or_keeps_them(table, tmp_path):
    options = {"path": str(table), "target_columns": "gap", "cache_dir": str(tmp_path / "cache")}
    refused = Csv(**options)
    assert [refused.store.errors.get(row) for row in range(6)] == REASONS
    kept = Csv(**options, wildcards="keep")
    assert [kept.store.errors.get(row) for row in range(6)] == [None] * 5 + [
        "not valid SMILES: unknown symbol 'a' at position 2"
    ]
    with pytest.raises(MolsliceError, match="unknown wildcards 'no'"):
        Csv(**options, wildcards="no")


def test_a_store_states_that_it_keeps_them(table, tmp_path):
    split = {"kind": "random", "fractions": [0.4, 0.3, 0.3]}
    for wildcards, failed in (("refuse", 5), ("keep", 1)):
        out = tmp_path / wildcards
        prepared = prepare_files(
            [table], out, targets=["gap"], how=Featurizing(wildcards=wildcards), progress=False
        )
        assert prepared.report["failed"] == failed
        stated = Prepared(path=str(out), split=split).metadata.get("wildcards")
        assert stated == (None if wildcards == "refuse" else "keep")


def test_an_older_model_refuses_them(folder):
    model = load_model(folder)
    assert "wildcards" not in {**model.metadata, **model.config.data.options}
    assert model.wildcards == "refuse"


def test_a_fit_leaves_them_out_or_keeps_them(tmp_path):
    smiles = [*(f"*{'C' * size}O" for size in range(1, 26)), *(f"N{'C' * size}" for size in range(1, 26))]
    path = tmp_path / "fit.csv"
    path.write_text("smiles,y\n" + "".join(f"{text},{len(text)}\n" for text in smiles))
    options = {"members": 2, "encoder": None, "split": "all", "quiet": True}
    about = fit(path, ["y"], tmp_path / "refused", **options)
    assert about["wildcards"] == "refuse"
    (refusal,) = about["refusals"]
    assert (refusal["count"], refusal["reason"]) == (25, "wildcard or R-group (*)")
    about = fit(path, ["y"], tmp_path / "kept", wildcards="keep", **options)
    assert "wildcards: keep, 25 rows with a wildcard, an R-group or a bond of any order" in about["findings"]
    refusing, keeping = (load_model(tmp_path / name) for name in ("refused", "kept"))
    assert refusing.predict_with_errors(["*CO"]).errors == [REASONS[0]]
    assert keeping.predict_with_errors(["*CO"]).errors == [None]
    with pytest.raises(MolsliceError, match="wildcards"):
        fit(path, ["y"], tmp_path / "odd", wildcards="maybe", **options)


def test_a_connection_table_with_an_r_group_has_a_reason(folder, tmp_path):
    block = Path(tmp_path / "in.sdf")
    record = (
        "\n  x\n\n  2  1  0  0  0  0            999 V2000\n"
        "    0.0000    0.0000    0.0000 {:<3} 0  0  0  0  0  0  0  0  0  0  0  0\n"
        "    1.5000    0.0000    0.0000 C   0  0  0  0  0  0  0  0  0  0  0  0\n"
        "  1  2  1  0  0  0  0\n\nM  END\n$$$$\n"
    )
    block.write_text("".join(record.format(symbol) for symbol in ("R#", "Q", "O")))
    found = predict_table(load_model(folder), block, tmp_path / "out.csv", progress=False)
    assert (found.rows, found.failed) == (3, 2)
    assert found.refusals[0]["reason"] == "wildcard or R-group (*)"


def test_estimators_take_the_choice(folder):
    found = MolsliceFeaturizer(str(folder), wildcards="keep").fit_transform(["*CC", "CCO"])
    assert np.isfinite(found).all()


def test_an_explanation_takes_the_choice(folder):
    with pytest.raises(MolsliceError, match="wildcard or R-group"):
        explain(load_model(folder), "*CC")
    assert explain(load_model(folder, wildcards="keep"), "*CC").elements == ("*", "C", "C")
