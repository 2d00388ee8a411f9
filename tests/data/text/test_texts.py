"""Tests of text data sets: formats, common options, messages."""

import gzip
import inspect
import json
from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from molslice.data import DATASETS, build_dataset
from molslice.data.text import base as texts
from molslice.data.text.base import TextDataset
from molslice.data.text.bbc_news import BbcNews
from molslice.data.text.imdb import Imdb
from molslice.data.text.mimic3 import Mimic3
from molslice.data.text.newsgroups20 import Newsgroups20
from molslice.data.text.r8 import R8
from molslice.data.text.text_folder import TextFolder
from molslice.types import MolsliceError
from tests.real_data import shared

REVIEWS = {
    "train": [("neg", f"dull film number {n}") for n in range(6)]
    + [("pos", f"a fine film, {n}") for n in range(6)],
    "test": [("neg", "dull and long"), ("neg", "never again"), ("pos", "fine!")],
}
NEWS = {
    "train": [(name, f"{name} news item {n}") for name in ("acq", "earn", "money-fx") for n in range(5)],
    "test": [("earn", "profits rise"), ("grain", "wheat falls")],
}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


def class_folders(folder, rows, suffix=".txt", encoding="utf-8"):
    for number, (name, text) in enumerate(rows):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / f"{number:03}{suffix}").write_bytes(text.encode(encoding))


def json_lines(path, rows):
    text = "".join(json.dumps({"text": text, "label": label}) + "\n" for label, text in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.fixture
def imdb(tmp_path):
    """Write the same reviews in each format; `unsup` is an additional folder of the original."""
    for split, rows in REVIEWS.items():
        class_folders(tmp_path / "original" / split, rows)
        numbered = [(int(label == "pos"), text) for label, text in rows]
        for name in ("lines", "packed", "hub", "plain"):
            (tmp_path / name / "plain_text").mkdir(parents=True, exist_ok=True)
        json_lines(tmp_path / "lines" / f"{split}.jsonl", numbered)
        json_lines(tmp_path / "packed" / f"{split}.jsonl.gz", numbered)
        table = pyarrow.Table.from_pylist([{"text": text, "label": label} for label, text in numbered])
        pyarrow.parquet.write_table(
            table, tmp_path / "hub" / "plain_text" / f"{split}-00000-of-00001.parquet"
        )
        pyarrow.parquet.write_table(table, tmp_path / "plain" / f"{split}.parquet")
    class_folders(tmp_path / "original" / "train", [("unsup", "no label")])
    return tmp_path


@pytest.mark.parametrize("form", ["original", "lines", "packed", "hub", "plain"])
def test_imdb_in_all_its_forms(imdb, form):
    data = Imdb(root=imdb / form, tokens="bytes", valid_fraction=1 / 6)
    assert len(data) == 15
    assert (data.kind, data.target_names, data.class_names) == ("multiclass", ("sentiment",), ("neg", "pos"))
    assert data.splits["test"].tolist() == [12, 13, 14]
    assert data.labels[data.splits["test"], 0].tolist() == [0, 0, 1]
    assert data.labels[data.splits["valid"], 0].tolist() == [0, 1]  # one of each class
    words = [bytes(b - 1 for b in data.sequences[row].tolist()).decode() for row in range(15)]
    assert words == [text for rows in REVIEWS.values() for _, text in rows]
    assert data.spec.vocabulary_size == 257
    batch = data.collate(data.labeled_rows("test"))
    assert batch.tokens.shape == (3, len("dull and long"))
    assert batch.targets.tolist() == [[0.0], [0.0], [1.0]]


def test_imdb_refuses_other_labels(imdb):
    json_lines(imdb / "lines" / "test.jsonl", [(1, "fine"), (-1, "unknown")])
    with pytest.raises(
        MolsliceError, match=r"test\.jsonl, row 2 \(line 2\), column 'label': invalid label -1"
    ):
        Imdb(root=imdb / "lines")


@pytest.mark.parametrize("names", ["{}.tsv", "{}.tsv.gz", "r8-{}-all-terms.txt"])
def test_r8(tmp_path, names):
    for split, rows in NEWS.items():
        text = "".join(f"{label}\t{text} \n" for label, text in rows) + "\n"
        path = tmp_path / names.format(split)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    data = R8(root=tmp_path, max_tokens=3)
    assert (len(data), len(data.class_names), data.spec.num_outputs) == (17, 8, 8)
    assert data.labels[:, 0].tolist() == [0] * 5 + [2] * 5 + [5] * 5 + [2, 3]
    assert data.splits["test"].tolist() == [15, 16]
    assert data.num_tokens.max() == 3
    assert data.errors == {}


def test_r8_names_the_line_and_the_topic(tmp_path):
    (tmp_path / "train.tsv").write_text("earn\tprofits\nacq no tab\n")
    with pytest.raises(
        MolsliceError, match=r"train\.tsv, line 2: expected `topic TAB text`, got 'acq no tab'"
    ):
        R8(root=tmp_path)
    (tmp_path / "train.tsv").write_text("earn\tprofits\nearns\tmore\n")
    (tmp_path / "test.tsv").write_text("acq\tbought\n")
    with pytest.raises(MolsliceError, match=r"train\.tsv, row 2: unknown topic 'earns'; did you mean 'earn'"):
        R8(root=tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "label"), [(Imdb, "{}", 1), (Newsgroups20, "20news-bydate-{}", "sci.med")]
)
def test_a_file_with_the_name_of_the_folder_of_a_split_is_ignored(tmp_path, kind, name, label):
    for split in ("train", "test"):
        for ending in ("", ".gz"):
            (tmp_path / f"{name.format(split)}{ending}").write_text("notes\n")
    with pytest.raises(MolsliceError, match=f"has neither {name.format('train')}/"):
        kind(root=tmp_path)
    for split, count in (("train", 20), ("test", 3)):
        rows = [(label, f"text {number}") for number in range(count)]
        json_lines(tmp_path / f"{name.format(split)}.jsonl", rows)
    assert len(kind(root=tmp_path)) == 23


def test_newsgroups_in_both_forms(tmp_path):
    rows = {
        "train": [
            (name, f"Subject: {name}\n\ncafé {n}") for name in ("rec.autos", "sci.med") for n in range(10)
        ],
        "test": [("talk.politics.misc", "Subject: x")],
    }
    for split, part in rows.items():
        class_folders(tmp_path / "folders" / f"20news-bydate-{split}", part, "", "latin-1")
        (tmp_path / "lines").mkdir(exist_ok=True)
        json_lines(tmp_path / "lines" / f"20news-bydate-{split}.jsonl", part)
    one, other = (Newsgroups20(root=tmp_path / name) for name in ("folders", "lines"))
    assert one.spec == other.spec
    assert one.spec.num_outputs == 20
    np.testing.assert_array_equal(one.sequences.values, other.sequences.values)
    np.testing.assert_array_equal(one.labels, other.labels)
    assert one.class_names[int(one.labels[-1, 0])] == "talk.politics.misc"
    class_folders(tmp_path / "folders" / "20news-bydate-train", [("rec.cars", "x")], "")
    with pytest.raises(MolsliceError, match=r"unknown group 'rec\.cars'"):
        Newsgroups20(root=tmp_path / "folders")


def test_a_folder_of_ones_own_classes(tmp_path):
    rows = [(name, f"{name} text {n}") for name in ("sport", "business") for n in range(20)]
    class_folders(tmp_path, rows)
    (tmp_path / "sport" / "199.txt").write_bytes("a £ sign".encode("latin-1"))  # as in BBC News
    (tmp_path / "sport" / "notes.md").write_text("not a text")
    (tmp_path / "README.TXT").write_text("about")
    (tmp_path / ".cache").mkdir()
    data = TextFolder(root=tmp_path, tokens="bytes", test_fraction=0.3)
    assert data.class_names == ("business", "sport")
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 26, "valid": 3, "test": 12}
    assert data.labels[data.splits["test"], 0].sum() == pytest.approx(6, abs=1)
    (row,) = np.flatnonzero(data.num_tokens == len("a £ sign".encode()))
    assert bytes(b - 1 for b in data.sequences[row].tolist()).decode() == "a £ sign"


@pytest.mark.parametrize(
    "names", [("train", "valid", "test"), ("training", "val", "testing"), ("Train", "validation", "Test")]
)
def test_a_folder_with_its_own_splits(tmp_path, names):
    for split, count in zip(names, (10, 2, 3), strict=True):
        class_folders(
            tmp_path / split, [(name, f"{split} {name} {n}") for name in "ab" for n in range(count)]
        )
    data = TextFolder(root=tmp_path)
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 20, "valid": 4, "test": 6}
    folds = [TextFolder(root=tmp_path, folds=3, fold=fold) for fold in range(3)]
    tested = np.concatenate([data.splits["test"] for data in folds])
    assert sorted(tested.tolist()) == list(range(30))
    assert folds[0].spec.vocabulary != folds[1].spec.vocabulary  # each fold has its own training rows
    bytes_of = [TextFolder(root=tmp_path, folds=3, fold=fold, tokens="bytes") for fold in range(3)]
    assert len({data.spec.vocabulary for data in bytes_of}) == 1


def test_two_folders_of_one_split_are_named(tmp_path):
    for split in ("train", "val", "valid"):
        class_folders(tmp_path / split, [(name, f"{split} {name}") for name in "ab"])
    with pytest.raises(
        MolsliceError, match="val and valid are both names of the split valid; keep one of them"
    ):
        TextFolder(root=tmp_path)


def test_without_a_folder_to_train_on_all_are_classes(tmp_path):
    class_folders(tmp_path, [(name, f"{name} {n}") for name in ("test", "val", "valid") for n in range(10)])
    assert TextFolder(root=tmp_path).class_names == ("test", "val", "valid")


def test_texts_without_a_token_keep_their_rows(tmp_path):
    rows = [(name, f"text {n}") for name in "ab" for n in range(20)]
    class_folders(tmp_path, [*rows, ("b", " \n"), ("b", "***")])
    data = TextFolder(root=tmp_path)
    assert len(data) == 42
    assert data.errors == {40: "no text", 41: "it has no words"}
    assert data.num_tokens[[40, 41]].tolist() == [0, 0]
    assert not np.isin([40, 41], np.concatenate([data.labeled_rows(split) for split in data.splits])).any()


def test_half_a_character_is_a_reason(tmp_path):
    rows = [(0, f"dull {n}") for n in range(10)] + [(1, "fine")] * 10
    json_lines(tmp_path / "test.jsonl", rows)
    json_lines(tmp_path / "train.jsonl", [*rows, (1, "x\ud83d")])
    data = Imdb(root=tmp_path)
    assert data.errors == {20: "character 1 is an unpaired surrogate"}


def test_nothing_to_read_is_an_error(tmp_path):
    class_folders(tmp_path, [(name, "***") for name in "ab" for _ in range(10)])
    with pytest.raises(MolsliceError, match="cannot read any of the 20 texts .* row 1: it has no words"):
        TextFolder(root=tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("imdb", "aclImdb_v1"),
        ("r8", "r8-train-all-terms"),
        ("newsgroups20", "20news-bydate.tar.gz"),
        ("text_folder", "one folder per class"),
    ],
)
def test_missing_data_say_how_to_get_them(tmp_path, name, words):
    with pytest.raises(MolsliceError, match=f"no such folder: .*nowhere.*{words}"):
        build_dataset(name, {"root": tmp_path / "nowhere"})
    (tmp_path / "empty").mkdir()
    expected = "has no class folders" if name == "text_folder" else f"has neither .*{words}"
    with pytest.raises(MolsliceError, match=expected):
        build_dataset(name, {"root": tmp_path / "empty"})


def test_the_numbers_are_made_once_for_the_same_texts(imdb, monkeypatch):
    made = []
    real = texts.tokenize
    monkeypatch.setattr(texts, "tokenize", lambda *arguments: made.append(1) or real(*arguments))
    first = Imdb(root=imdb / "lines", vocabulary_size=20)
    again = Imdb(root=imdb / "packed", vocabulary_size=20)  # the same texts
    assert len(made) == 1
    assert first.spec == again.spec
    np.testing.assert_array_equal(first.sequences.values, again.sequences.values)
    for options in (
        {"vocabulary_size": 19},
        {"max_tokens": 2},
        {"lower": False},
        {"seed": 1},
        {"tokens": "bytes"},
    ):
        Imdb(
            root=imdb / "lines", **{"vocabulary_size": 20, **options} if "tokens" not in options else options
        )
    assert len(made) == 6
    Imdb(root=imdb / "lines", tokens="bytes", seed=5)  # bytes are learned from no split
    assert len(made) == 6


@pytest.mark.parametrize("name", ["imdb", "r8", "newsgroups20"])
@pytest.mark.parametrize(
    "options", [{}, {"tokens": "bytes", "max_tokens": 9}, {"tokens": "subwords", "vocabulary_size": 400}]
)
def test_the_options_tell_the_spec_without_the_data(name, options):
    spec = DATASETS.find(name).describe({"root": "nowhere", **options})
    assert spec is not None
    assert spec.num_outputs == {"imdb": 2, "r8": 8, "newsgroups20": 20}[name]
    assert spec.max_tokens == options.get("max_tokens", 512)
    assert spec.vocabulary_size == {"bytes": 257, "subwords": 400}.get(options.get("tokens"), 16_000)


def test_described_properties_are_those_of_the_data(imdb):
    for options in ({}, {"tokens": "bytes"}, {"tokens": "subwords", "vocabulary_size": 300, "max_tokens": 4}):
        data = Imdb(root=imdb / "lines", **options)
        assert replace(data.spec, vocabulary="") == Imdb.describe(options)
        assert data.spec.vocabulary.startswith(options.get("tokens", "words"))
    assert TextFolder.describe({"root": "x"}) is None


def test_all_data_sets_of_texts_have_the_same_options():
    """Data sets that repeat the options in their signature must have the same options as the others."""
    shared_options = inspect.signature(TextDataset.__init__).parameters
    members = [name for name in DATASETS.names() if issubclass(DATASETS.find(name), TextDataset)]
    assert {"imdb", "r8", "newsgroups20", "text_folder", "text_table", "fasta"} <= set(members)
    for name in members:
        own = DATASETS.options(name)
        lacking = {"root", "tokens", "vocabulary_size", "lower", "cache_dir"} if name == "fasta" else {"root"}
        for option, parameter in shared_options.items():
            if option == "self" or (option not in own and option in lacking):
                continue
            assert own[option] == parameter, f"{name}: {option}"


def test_the_real_ones(tmp_path):
    news = R8(root=shared("reuters_r8"), max_tokens=141, cache_dir=tmp_path)
    assert {name: len(rows) for name, rows in news.splits.items()} == {
        "train": 4937,
        "valid": 548,
        "test": 2189,
    }
    assert np.bincount(news.labels[:5485, 0].astype(int)).tolist() == [
        1596,
        253,
        2840,
        41,
        190,
        206,
        108,
        251,
    ]
    assert news.errors == {}
    fold = R8(root=shared("reuters_r8"), folds=5, fold=4, fold_over="train", cache_dir=tmp_path)
    assert len(fold.splits["official_test"]) == 2189
    assert len(fold.splits["test"]) == 1097


def test_a_split_that_was_cut_to_nothing_is_named(tmp_path):
    (tmp_path / "train.tsv").write_text("earn\tprofit rises\ngrain\twheat falls\n")
    (tmp_path / "test.tsv").write_text("")
    with pytest.raises(MolsliceError, match=r"test.tsv has no rows for the split 'test'"):
        build_dataset("r8", {"root": tmp_path})


def test_bbc_news_is_a_table_or_folders(tmp_path):
    texts = {name: [f"{name} one", f"{name} two, three"] for name in BbcNews.class_names}
    lines = [f'{name},"{text}"\n' for name, both in texts.items() for text in both]
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "bbc-text.csv").write_text("category,text\n" + "".join(lines))
    for name, both in texts.items():
        (folder := tmp_path / "folders" / name).mkdir(parents=True)
        for number, text in enumerate(both):
            (folder / f"{number:03}.txt").write_text(text)
    options = {"cache_dir": tmp_path / "cache", "test_fraction": 0.2, "max_tokens": 9}
    one, other = (BbcNews(root=tmp_path / name, **options) for name in ("table", "folders"))
    assert one.spec == other.spec
    assert one.spec.num_outputs == BbcNews.describe(options).num_outputs == 5
    assert one.labels.tolist() == other.labels.tolist() == [[k // 2] for k in range(10)]
    assert np.array_equal(one.sequences.values, other.sequences.values)
    assert {split: len(rows) for split, rows in one.splits.items()}["test"] == 2
    with pytest.raises(MolsliceError, match="neither bbc-text.csv nor the folders business.*mlg.ucd.ie"):
        BbcNews(root=tmp_path)
    (tmp_path / "table" / "bbc-text.csv").write_text("category,text\nsports,a b\n")
    with pytest.raises(MolsliceError, match="unknown topic 'sports'; did you mean 'sport'"):
        BbcNews(root=tmp_path / "table", **options)


def test_the_most_frequent_codes_of_mimic_are_the_targets(tmp_path):
    (tmp_path / "train.csv").write_text("TEXT,ICD9_CODE\nfever,401.9;428\nno fever,428\ncough,250\n" * 4)
    with pytest.raises(MolsliceError, match=r"no such file: .*test\.csv\. .*physionet.*TEXT and ICD9_CODE"):
        Mimic3(root=tmp_path)
    (tmp_path / "test.csv").write_text("TEXT,ICD9_CODE\ncough,401.9\n")
    data = Mimic3(root=tmp_path, max_labels=2, cache_dir=tmp_path / "cache")
    assert data.target_names == ("401.9", "428")
    assert data.labels[:3].tolist() == [[1, 1], [0, 1], [0, 0]]
    assert data.targets[data.rows("test")].tolist() == [[1, 0]]
    assert data.spec.max_tokens == Mimic3.describe({"max_labels": 2}).max_tokens == 512
    assert Mimic3.describe({}).num_outputs == 50
    (tmp_path / "valid.csv").write_text("TEXT,ICD9_CODE\ncough,428\nfever,428\n")
    assert len(Mimic3(root=tmp_path, max_labels=2, cache_dir=tmp_path / "cache").rows("valid")) == 2
