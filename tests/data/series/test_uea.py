"""Tests of time series data sets: classes, splits, standardization, missing values, sizes, download."""

import gzip
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from molslice.data import build_dataset
from molslice.data.series.uea import SIZES, Uea
from molslice.types import DataSpec, MolsliceError, SequenceBatch
from tests.real_data import SHARED, shared

TRAIN = """\
@problemName Toy
@univariate false
@dimensions 2
@classLabel true a b
@data
1,2,3:10,10,10:a
5,6:10,12:b
0,?,4,?:?,11,?,13:b
7:8:a
"""
TEST = "@classLabel true b a\n@data\n1,3:9,9:b\n2:?:a\n?:?:?\n"
# known values of the two channels in the training cases
FIRST, SECOND = np.array([1, 2, 3, 5, 6, 0, 4, 7.0]), np.array([10, 10, 10, 10, 12, 11, 13, 8.0])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "Toy_TRAIN.ts").write_text(TRAIN)
    (tmp_path / "Toy_TEST.ts").write_text(TEST)
    return tmp_path


def toy(folder, **options):
    return Uea(root=folder, problem="Toy", **{"valid_fraction": 0.0, "standardize": False, **options})


def same(found, expected):
    np.testing.assert_allclose(found, np.array(expected, dtype=np.float64), rtol=1e-6, atol=1e-6)


def test_classes_are_those_of_the_training_file(folder):
    data = toy(folder)
    assert (data.kind, data.target_names, data.class_names) == ("multiclass", ("class",), ("a", "b"))
    np.testing.assert_array_equal(data.labels[:, 0], [0, 1, 1, 0, 1, 0, np.nan])
    assert data.spec == DataSpec(2, "values", channels=2, max_tokens=4, vocabulary="Toy")
    assert data.row_name == "cases"


def test_another_standardization_is_another_vocabulary(folder):
    named = [
        toy(folder, **options).spec.vocabulary
        for options in ({"standardize": True}, {}, {"missing": "zero"}, {"standardize": True})
    ]
    assert named[0] == named[3]
    assert len(set(named)) == 3
    more = TRAIN.replace("7:8:a", "7:9:a")
    (folder / "Toy_TRAIN.ts").write_text(more)
    assert toy(folder).spec.vocabulary == named[1]
    assert toy(folder, standardize=True).spec.vocabulary not in named


def test_a_class_that_only_the_test_file_has_comes_last(folder):
    (folder / "Toy_TEST.ts").write_text("@classLabel true c b\n@data\n1:1:c\n1:1:b\n")
    data = toy(folder)
    assert data.class_names == ("a", "b", "c")
    assert data.labels[4:, 0].tolist() == [2, 1]


def test_a_batch_holds_a_step_a_token(folder):
    batch = toy(folder).collate([1, 0])
    assert batch.tokens.shape == (2, 3, 2)
    same(batch.tokens[0], [[5, 10], [6, 12], [0, 0]])
    same(batch.tokens[1], [[1, 10], [2, 10], [3, 10]])
    assert batch.token_mask is not None
    assert batch.token_mask.tolist() == [[True, True, False], [True] * 3]


def test_missing_values_are_interpolated_or_zero(folder):
    same(toy(folder).sequences[2], [[0, 11], [2, 11], [4, 12], [4, 13]])
    same(toy(folder, missing="zero").sequences[2], [[0, 0], [0, 11], [4, 0], [0, 13]])


def test_an_indicator_marks_missing_values(folder):
    data = toy(folder, missing_indicator=True)
    same(data.sequences[2], [[0, 11, 0, 1], [2, 11, 1, 0], [4, 12, 0, 1], [4, 13, 1, 0]])
    same(data.sequences[3], [[7, 8, 0, 0]])
    assert data.spec.channels == 4
    assert data.sequences[6].shape == (0, 4)


def test_a_case_without_a_value_keeps_its_row(folder):
    data = toy(folder)
    assert data.num_tokens.tolist() == [3, 2, 4, 1, 2, 1, 0]
    assert data.errors == {6: "the case has no known value"}
    assert data.labeled_rows("test").tolist() == [4, 5]
    same(data.sequences[5], [[2, 0]])  # a channel without a value has nothing to interpolate


def test_channels_are_standardized_by_the_known_training_values(folder):
    data = toy(folder, standardize=True)
    mean, spread = np.array([FIRST.mean(), SECOND.mean()]), np.array([FIRST.std(), SECOND.std()])
    same(data.sequences[0], (np.array([[1, 10], [2, 10], [3, 10]]) - mean) / spread)
    same(data.sequences[2], (np.array([[0, 11], [2, 11], [4, 12], [4, 13]]) - mean) / spread)
    same(data.sequences[5], [[(2 - mean[0]) / spread[0], 0]])


def test_held_out_cases_take_no_part_in_the_standardization(folder):
    data = toy(folder, standardize=True, valid_fraction=0.25)
    (held_out,) = data.splits["valid"]
    rows = {0: FIRST[:3], 1: FIRST[3:5], 2: FIRST[5:7], 3: FIRST[7:]}
    known = np.concatenate([values for row, values in rows.items() if row != held_out])
    same(data.sequences[4][:, 0], (np.array([1, 3]) - known.mean()) / known.std())


def test_a_constant_channel_is_only_shifted(tmp_path):
    for part in ("TRAIN", "TEST"):
        (tmp_path / f"Toy_{part}.ts").write_text("@classLabel true a\n@data\n0.1,0.1:1,3:a\n0.1:5:a\n")
    same(toy(tmp_path, standardize=True).sequences[1][:, 0], [0])


def test_without_a_fraction_the_test_cases_validate(folder):
    splits = toy(folder).splits
    assert {name: rows.tolist() for name, rows in splits.items()} == {
        "train": [0, 1, 2, 3],
        "valid": [4, 5, 6],
        "test": [4, 5, 6],
    }


def test_held_out_cases_are_spread_over_the_classes(tmp_path):
    lines = "".join(f"{row}:{'abc'[row % 3]}\n" for row in range(60))
    for part in ("TRAIN", "TEST"):
        (tmp_path / f"Toy_{part}.ts").write_text("@classLabel true a b c\n@data\n" + lines)
    data, again, other = (toy(tmp_path, valid_fraction=0.2, split_seed=seed) for seed in (0, 0, 1))
    held_out = data.splits["valid"]
    assert np.bincount(held_out % 3).tolist() == [4, 4, 4]
    assert sorted([*held_out, *data.splits["train"]]) == list(range(60))
    assert data.splits["test"].tolist() == list(range(60, 120))
    assert held_out.tolist() == again.splits["valid"].tolist()
    assert held_out.tolist() != other.splits["valid"].tolist()


def test_numbers_to_predict(tmp_path):
    for part in ("TRAIN", "TEST"):
        (tmp_path / f"Toy_{part}.ts").write_text("@targetlabel true\n@data\n1,2:0.5\n3:-1.5\n4:?\n")
    data = toy(tmp_path, valid_fraction=0.4)
    assert (data.kind, data.target_names, data.class_names) == ("regression", ("target",), ())
    np.testing.assert_array_equal(data.labels[:3, 0], np.array([0.5, -1.5, np.nan], np.float32))
    assert data.spec.num_outputs == 1


def test_validation_cases_are_drawn_from_the_whole_range_of_the_numbers(tmp_path):
    targets = np.random.default_rng(0).permutation(100)
    for part in ("TRAIN", "TEST"):
        cases = "".join(f"1,2:{target}\n" for target in targets)
        (tmp_path / f"Toy_{part}.ts").write_text("@targetlabel true\n@data\n" + cases)
    drawn = [
        targets[toy(tmp_path, valid_fraction=0.2, split_seed=seed).splits["valid"]] for seed in range(30)
    ]
    assert all(np.bincount(valid // 10).tolist() == [2] * 10 for valid in drawn)
    assert len({*map(tuple, drawn)}) == 30
    assert {0, 99} <= {*np.concatenate(drawn)}


@pytest.mark.parametrize("place", ["", "Toy"])
def test_files_may_be_compressed_and_in_a_folder_of_the_name(folder, place):
    expected = toy(folder)
    (folder / "other" / place).mkdir(parents=True)
    for part, text in (("TRAIN", TRAIN), ("TEST", TEST)):
        (folder / "other" / place / f"Toy_{part}.ts.gz").write_bytes(gzip.compress(text.encode()))
    data = toy(folder / "other")
    same(data.sequences.values, expected.sequences.values)


def test_a_variant_is_next_to_its_original(folder):
    (folder / "archive" / "Toy").mkdir(parents=True)
    for part, text in (("TRAIN", TRAIN), ("TEST", TEST)):
        (folder / "archive" / "Toy" / f"Toy_eq_{part}.ts").write_text(text)
    assert len(Uea(root=folder / "archive", problem="Toy_eq")) == 7


def test_a_missing_problem_is_named_with_those_there(folder):
    with pytest.raises(
        MolsliceError, match=r"neither Tou_TRAIN\.ts .*did you mean 'Toy'.*prepare.*timeseriesclassification"
    ):
        Uea(root=folder, problem="Tou")
    with pytest.raises(MolsliceError, match=r"nowhere has neither .*choices: \(none\)"):
        Uea(root=folder / "nowhere", problem="Toy")
    (folder / "Toy_TEST.ts").unlink()
    with pytest.raises(MolsliceError, match=r"neither Toy_TEST\.ts"):
        toy(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valid_fraction": 1.0}, "valid_fraction"),
        ({"valid_fraction": -0.1}, "valid_fraction"),
        ({"valid_fraction": 0.1}, "of 4 rows leaves the split"),
        ({"valid_fraction": 0.9}, "of 4 rows leaves the split"),
        ({"missing": "drop"}, "choices: interpolate, zero"),
    ],
)
def test_bad_options_are_named(folder, options, message):
    with pytest.raises(MolsliceError, match=message):
        toy(folder, **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@targetlabel true\n@data\n1:1:0.5\n", "has classes, the other does not"),
        ("@classLabel false\n@data\n1:1\n", "has classes, the other does not"),
        ("@classLabel true a\n@data\n1:a\n", "2 channels in training, 1 in test"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(folder, text, message):
    (folder / "Toy_TEST.ts").write_text(text)
    with pytest.raises(MolsliceError, match=message):
        toy(folder)


def test_files_without_classes_are_refused(tmp_path):
    for part in ("TRAIN", "TEST"):
        (tmp_path / f"Toy_{part}.ts").write_text("@classLabel false\n@data\n1:1\n")
    with pytest.raises(MolsliceError, match="neither classes nor targets"):
        toy(tmp_path)


@pytest.mark.parametrize(
    ("problem", "rows", "longest_to_train"),
    [("JapaneseVowels", (270, 370), 26), ("UWaveGestureLibrary", (120, 320), 315)],
)
def test_real_files_have_the_sizes_that_are_said_of_them(problem, rows, longest_to_train):
    shared("uea_timeseries", f"{problem}_TRAIN.ts.gz")
    options = {"root": str(SHARED / "uea_timeseries"), "problem": problem, "valid_fraction": 0.0}
    data = build_dataset("uea", options)
    described = Uea.describe(options)
    assert described is not None
    assert replace(data.spec, vocabulary=problem) == described
    train = data.rows("train")
    assert (len(train), len(data.rows("test"))) == rows
    assert data.num_tokens[train].max() == longest_to_train
    batch = data.collate(train)
    assert isinstance(batch, SequenceBatch)
    real = batch.tokens if batch.token_mask is None else batch.tokens[batch.token_mask]
    flat = real.reshape(-1, SIZES[problem][0]).double()
    same(flat.mean(0), np.zeros(flat.shape[1]))
    same(flat.std(0, correction=0), np.ones(flat.shape[1]))


def test_sizes_are_known_without_the_files():
    described = Uea.describe({"root": "nowhere", "problem": "PEMS-SF", "missing_indicator": True})
    assert described == DataSpec(7, "values", channels=1926, max_tokens=144, vocabulary="PEMS-SF")
    assert Uea.describe({"problem": "Toy"}) is None


class FakeAeon:
    """Replacement of aeon that writes files like its loaders and records the requests."""

    def __init__(self, monkeypatch):
        self.asked = []
        datasets, lists = ModuleType("aeon.datasets"), ModuleType("aeon.datasets.tser_datasets")
        vars(datasets)["load_classification"] = self.loader("classification")
        vars(datasets)["load_regression"] = self.loader("regression")
        vars(lists)["tsr_zenodo"] = {"Flood": 1}
        for module in (ModuleType("aeon"), datasets, lists):
            monkeypatch.setitem(sys.modules, module.__name__, module)

    def loader(self, kind):
        def load(name, split=None, extract_path=""):
            self.asked.append((kind, name, extract_path))
            if name == "Nothing":
                raise ValueError("Nothing is not in the list")
            folder = Path(extract_path) / name
            folder.mkdir(parents=True)
            (folder / f"{name}_TRAIN.ts").write_text(TRAIN)
            (folder / f"{name}_TEST.ts").write_text(TEST)
            if name == "Odd":
                raise OSError("Expecting univariate")

        return load


def test_what_is_fetched_can_be_read(monkeypatch, tmp_path):
    aeon = FakeAeon(monkeypatch)
    options = {"root": str(tmp_path / "uea"), "problem": "Toy", "valid_fraction": 0.0}
    Uea.download(options)
    assert aeon.asked == [("classification", "Toy", options["root"])]
    assert len(Uea(**options)) == 7
    Uea.download({**options, "problem": "Flood_nmv"})
    assert aeon.asked[1][0] == "regression"


def test_a_failed_download_reports_the_reason(monkeypatch, tmp_path):
    FakeAeon(monkeypatch)
    with pytest.raises(MolsliceError, match="cannot download Nothing to .*not in the list"):
        Uea.download({"root": tmp_path, "problem": "Nothing"})
    with pytest.raises(MolsliceError, match=r"needs data\.root"):
        Uea.download({"problem": "Toy"})


def test_what_is_there_is_not_fetched_again(monkeypatch, folder):
    aeon = FakeAeon(monkeypatch)
    Uea.download({"root": str(folder), "problem": "Toy"})
    assert not aeon.asked


def test_what_was_fetched_counts_also_if_aeon_cannot_read_it(monkeypatch, tmp_path):
    FakeAeon(monkeypatch)
    Uea.download({"root": str(tmp_path), "problem": "Odd"})
    assert len(Uea(root=tmp_path, problem="Odd")) == 7


def test_aeon_itself_knows_the_ten_sets_and_refuses_others(tmp_path):
    lists = pytest.importorskip("aeon.datasets.tsc_datasets")
    assert set(SIZES) <= set(lists.tsc_zenodo)
    with pytest.raises(MolsliceError, match="cannot download NoSuchProblem to"):
        Uea.download({"root": tmp_path, "problem": "NoSuchProblem"})


def test_without_aeon_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "aeon", None)
    monkeypatch.setitem(sys.modules, "aeon.datasets", None)
    with pytest.raises(MolsliceError, match=r"pip install 'molslice\[series\]'"):
        Uea.download({"root": tmp_path, "problem": "Toy"})
