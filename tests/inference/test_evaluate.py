import json
import re
import shutil

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from molslice.cli import main
from molslice.cli.evaluate import result_text
from molslice.data import build_dataset
from molslice.data.molecules.leaderboard import import_ogb
from molslice.inference.domain import DOMAIN, TrainingDomain
from molslice.inference.evaluate import count_trained, evaluate
from molslice.inference.held_out import write_domain
from molslice.inference.load import load_model
from molslice.inference.predictions import NOT_FINITE
from molslice.types import MolsliceError
from tests.data.molecules.builders import gap_folder
from tests.inference.models import CLASSES, FORMS, TWO, embedded_smiles, untrained, write_tiny_config

GAPS = {"names": ("homolumogap",), "units": ("eV",)}


def table_of(tmp_path, columns, repeats=1, **options):
    """Return a CSV data set of 40 molecules, of which 38 are in the test split, with equal rows of each."""
    smiles = embedded_smiles(40)
    names = list(columns)
    lines = [",".join(["smiles", "split", *names])]
    for row, text in enumerate(smiles):
        part = {0: "train", 1: "valid"}.get(row, "test")
        lines += [",".join([text, part, *(str(columns[name][row]) for name in names)])] * repeats
    path = tmp_path / "data.csv"
    path.write_text("\n".join(lines) + "\n")
    return build_dataset(
        "csv",
        {
            "path": path,
            "target_columns": names,
            "split": {"kind": "column", "column": "split"},
            "cache_dir": tmp_path / "cache",
            **options,
        },
    )


def test_the_error_of_each_target_in_its_unit(tmp_path):
    model = untrained(tmp_path / "model", targets=TWO)
    random = np.random.default_rng(0)
    gap, logp = random.normal(3, 1, 40).round(3), random.normal(1, 1, 40).round(3).astype(object)
    logp[5] = logp[9] = ""
    dataset = table_of(tmp_path, {"gap": gap, "logp": logp}, units=["eV", ""])
    result = evaluate(model, dataset)
    values = model.predict(embedded_smiles(40)).astype(float)
    known = [row for row in range(2, 40) if row not in (5, 9)]
    first, second = result["targets"]
    of_gap = np.abs(values[2:, 0] - gap[2:])
    assert first == {
        "name": "gap",
        "unit": "eV",
        "count": 38,
        "mae": pytest.approx(of_gap.mean(), abs=1e-5),
        "standard_error": pytest.approx(of_gap.std(ddof=1) / np.sqrt(38), abs=1e-5),
    }
    assert second["count"] == 36
    expected = np.abs(values[known, 1] - logp[known].astype(float)).mean()
    assert second["mae"] == pytest.approx(expected, abs=1e-5)
    assert (result["rows"], result["failed"], result["split"]) == (38, 0, "test")
    assert result["parameters"] == sum(p.numel() for p in model.model.parameters())
    assert 0 < result["parameters_without_embeddings"] < result["parameters"]
    assert result["seconds"] > 0


def test_rows_of_one_molecule_count_as_one_in_standard_errors(tmp_path):
    model = untrained(tmp_path / "model")
    gap = {"gap": np.random.default_rng(0).normal(3, 1, 40).round(3)}
    results = []
    for repeats in (1, 5):
        (tmp_path / str(repeats)).mkdir()
        results.append(evaluate(model, table_of(tmp_path / str(repeats), gap, repeats, units="eV")))
    assert [(result["rows"], result["molecules"]) for result in results] == [(38, 38), (190, 38)]
    first, second = (result["targets"][0] for result in results)
    for name in ("mae", "standard_error"):
        assert second[name] == pytest.approx(first[name], rel=1e-5)
    assert "rows        190 of 38 molecules, atoms canonical" in result_text(results[1])
    assert "molecules   38, atoms canonical" in result_text(results[0])


def test_classes_are_measured_by_roc_auc(tmp_path):
    model = untrained(tmp_path / "model", targets=CLASSES)
    toxic = np.random.default_rng(1).integers(0, 2, 40)
    dataset = table_of(tmp_path, {"toxic": toxic}, kind="classification")
    (target,) = evaluate(model, dataset)["targets"]
    expected = roc_auc_score(toxic[2:], model.predict(embedded_smiles(40)[2:]))
    assert target["roc_auc"] == pytest.approx(expected, abs=1e-6)
    assert 0.05 < target["standard_error"] < 0.15  # 38 molecules
    assert "mae" not in target


def test_a_model_of_numbers_is_not_measured_on_classes(tmp_path):
    labels = np.random.default_rng(1).integers(0, 2, 40)
    dataset = table_of(tmp_path, {"gap": labels}, kind="classification", units=["eV"])
    with pytest.raises(MolsliceError, match=r"model is for regression .*data\.csv are for classification"):
        evaluate(untrained(tmp_path / "model"), dataset)


def test_an_infinite_prediction_counts(tmp_path, monkeypatch):
    model = untrained(tmp_path / "model")
    dataset = table_of(tmp_path, {"gap": np.full(40, 3.0)}, units=["eV"])
    predictions = model.predict_dataset(dataset, dataset.rows("test"))
    predictions.values[3] = np.inf
    monkeypatch.setattr(model, "predict_dataset", lambda *_, **__: predictions)
    (target,) = evaluate(model, dataset)["targets"]
    assert (target["mae"], target["standard_error"]) == (np.inf, None)


def test_a_prediction_that_is_not_finite_counts_as_infinitely_wrong(tmp_path, monkeypatch):
    """Leaving it out would make a broken model look better."""
    model = untrained(tmp_path / "model")
    dataset = table_of(tmp_path, {"gap": np.full(40, 3.0)}, units=["eV"])
    predictions = model.predict_dataset(dataset, dataset.rows("test"))
    predictions.values[3], predictions.errors[3] = np.nan, NOT_FINITE
    monkeypatch.setattr(model, "predict_dataset", lambda *_, **__: predictions)
    result = evaluate(model, dataset, strict=True)
    assert (result["rows"], result["failed"], result["refusals"]) == (38, 0, [])
    assert (result["targets"][0]["count"], result["targets"][0]["mae"]) == (38, np.inf)


def test_a_probability_that_is_not_finite_has_the_worst_rank(tmp_path, monkeypatch):
    model = untrained(tmp_path / "model", targets=CLASSES)
    toxic = np.arange(40) % 2
    dataset = table_of(tmp_path, {"toxic": toxic}, kind="classification")
    predictions = model.predict_dataset(dataset, dataset.rows("test"))
    predictions.values[:, 0] = toxic[2:]
    predictions.values[3], predictions.errors[3] = np.nan, NOT_FINITE
    monkeypatch.setattr(model, "predict_dataset", lambda *_, **__: predictions)
    (target,) = evaluate(model, dataset)["targets"]
    assert target["count"] == 38
    assert target["roc_auc"] == pytest.approx(18 / 19)


def gap_model(tmp_path, **options):
    from molslice.tasks.targets import TargetInfo

    targets = TargetInfo(("homolumogap",), ("eV",), "regression", (3.0,), (1.5,))
    return untrained(tmp_path / "model", targets=targets, **options)


def test_pcqm4m_is_measured_by_the_evaluator_of_ogb(tmp_path, monkeypatch):
    asked = []
    PCQM4MEvaluator = import_ogb("ogb.lsc").PCQM4MEvaluator  # noqa: N806
    real = PCQM4MEvaluator.eval
    monkeypatch.setattr(PCQM4MEvaluator, "eval", lambda self, given: asked.append(given) or real(self, given))
    smiles = embedded_smiles(10)
    smiles[7] = "unreadable"
    gaps = [1.5 + row for row in range(9)] + [""]  # the last label is hidden, as OGB hides those of its test
    root = gap_folder(tmp_path / "data", smiles, gaps, {"train": [0, 1], "valid": [2], "test": range(3, 10)})
    model = gap_model(tmp_path)
    result = evaluate(model, build_dataset("pcqm4m", {"root": root}))
    rows = [3, 4, 5, 6, 8]
    values = model.predict([smiles[row] for row in rows])
    expected = np.abs(values - np.array(gaps, dtype=object)[rows].astype(float)).mean()
    assert result["targets"][0]["mae"] == pytest.approx(expected, abs=1e-5)
    assert (result["rows"], result["failed"], result["targets"][0]["count"]) == (6, 1, 5)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("form", "matters"),
    [
        ("softmax", False),
        ("flow", False),
        ("singular", False),
        ("slice_sort aligned", False),
        ("slice_sort", True),
    ],
)
def test_the_order_of_atoms_costs_only_the_ordered(tmp_path, form, matters):
    model = gap_model(tmp_path, attention=FORMS[form])
    smiles = embedded_smiles(30)
    root = gap_folder(
        tmp_path / "data", smiles, [3.0] * 30, {"train": [0], "valid": [1], "test": range(2, 30)}
    )
    dataset = build_dataset("pcqm4m", {"root": root})
    plain = model.predict_dataset(dataset, np.arange(30)).values
    shuffled = model.predict_dataset(dataset, np.arange(30), atom_permutation=1).values
    # Where two keys nearly tie, rounding alone may decide how `aligned` ranks them: one molecule of thirty.
    moved = (np.abs(plain - shuffled) > 1e-4).mean()
    assert moved > 0.5 if matters else moved < 0.1
    result = evaluate(model, dataset, atom_permutation=1)
    assert result["atoms"] == "shuffled, seed 1"
    assert result["targets"][0]["mae"] == pytest.approx(np.abs(shuffled[2:] - 3.0).mean(), abs=1e-5)


def test_what_cannot_be_evaluated(tmp_path):
    smiles, gaps = embedded_smiles(10), [*range(1, 8), "", "", ""]
    splits = {"train": range(5), "valid": [5, 6], "test": [7, 8, 9]}
    dataset = build_dataset("pcqm4m", {"root": gap_folder(tmp_path / "data", smiles, gaps, splits)})
    model = gap_model(tmp_path)
    with pytest.raises(MolsliceError, match="no split 'tset'"):
        evaluate(model, dataset, "tset")
    with pytest.raises(MolsliceError, match="'test' of .*data holds no labels"):
        evaluate(model, dataset)
    other = untrained(tmp_path / "other", targets=TWO)
    words = r"predicts gap \[eV\], logp, but the targets of .*data are homolumogap \[eV\]; evaluate on data"
    with pytest.raises(MolsliceError, match=words):
        evaluate(other, dataset, "valid")


def test_a_molecule_with_any_label_counts_as_trained(tmp_path):
    gaps, logps = [3.0] * 40, [1.0] * 40
    gaps[5] = logps[7] = gaps[9] = logps[9] = ""
    dataset = table_of(tmp_path, {"gap": gaps, "logp": logps}, units=["eV", ""])
    model = untrained(tmp_path / "model", targets=TWO)
    assert count_trained(model, dataset, np.arange(4, 12)) == 0  # the training molecules are not known
    TrainingDomain.of_smiles(embedded_smiles(40)[:11]).write(model.folder)
    assert count_trained(model, dataset, np.arange(4, 12)) == 6  # rows 4 to 10 without row 9


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on 60 molecules that are divided at random."""
    folder = tmp_path_factory.mktemp("run")
    split = {"kind": "random", "fractions": [0.5, 0.4, 0.1]}
    config = write_tiny_config(folder, "size", 1, split=split)
    words = ["train", "--config", str(config), "--out", str(folder / "run"), "--quiet"]
    assert main(words) == 0
    return folder / "run"


@pytest.mark.parametrize("change", [["--data.split.seed", "3"], ["--data.split", "scaffold"]])
def test_training_rows_in_another_division_are_counted(run, change, caplog, capsys):
    assert main(["evaluate", str(run), "--json", *change]) == 0
    captured = capsys.readouterr()
    trained = json.loads(captured.out)["trained"]
    assert trained > 0
    assert re.search(rf"at least {trained} of \d+ measured rows are of training molecules; ", captured.err)
    assert "is not divided as it was when" in caplog.text
    assert main(["evaluate", str(run)]) == 0
    assert "training molecules" not in capsys.readouterr().err


def test_a_table_that_was_sorted_after_the_training_is_noticed(run, caplog, capsys, tmp_path):
    """The random division depends on the number of rows only, so other rows are in each split."""
    table = run.parent / "molecules.csv"
    original = table.read_text()
    header, *lines = original.splitlines(keepends=True)
    try:
        table.write_text(header + "".join(sorted(lines)))
        assert main(["evaluate", str(run), "--data.cache-dir", str(tmp_path)]) == 0
        assert "is not what it was when" in caplog.text
        assert "(different: the targets); rows of the training may be among those" in caplog.text
        capsys.readouterr()
        assert main(["evaluate", str(run), "--split", "valid", "--calibrate", "--quiet"]) == 1
        assert re.search("cannot calibrate: .* is not what it was when", capsys.readouterr().err)
    finally:
        table.write_text(original)
    caplog.clear()
    assert main(["evaluate", str(run), "--quiet"]) == 0
    assert not caplog.text


def test_a_table_that_changed_during_the_training_gives_no_domain(run, caplog, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    shutil.copy(run.parent / "molecules.csv", tmp_path / "molecules.csv")
    model = load_model(tmp_path / "run")
    options = {**model.data_config.options, "path": str(tmp_path / "molecules.csv")}
    dataset = build_dataset("csv", options)
    for name in (DOMAIN, "domain.safetensors"):
        (tmp_path / "run" / name).unlink()
    lines = (tmp_path / "molecules.csv").read_text().splitlines(keepends=True)
    (tmp_path / "molecules.csv").write_text("".join(lines[:9]))
    write_domain(model, dataset)
    assert "the domain of the model is not available: " in caplog.text
    assert "molecules.csv has changed since its rows were read" in caplog.text
    assert not (tmp_path / "run" / DOMAIN).exists()
    (tmp_path / "molecules.csv").write_text("".join(lines))
    write_domain(model, dataset)
    assert (tmp_path / "run" / DOMAIN).exists()


def test_intervals_are_not_calibrated_on_training_rows(run, capsys):
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    calibrate = ["evaluate", str(run), "--split", "valid", "--calibrate", "--quiet"]
    assert main([*calibrate, "--data.split.seed", "3"]) == 1
    error = capsys.readouterr().err
    assert re.search(r"cannot calibrate: .* is not divided as it was when .* \(different: the split", error)
    shutil.copy(run.parent / "molecules.csv", run.parent / "other.csv")
    assert main([*calibrate, "--data.path", str(run.parent / "other.csv"), "--data.split.seed", "3"]) == 1
    assert re.search(
        r"cannot calibrate on the split valid: the model was trained on at least \d+ of its molecules",
        capsys.readouterr().err,
    )
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    assert main(calibrate) == 0
