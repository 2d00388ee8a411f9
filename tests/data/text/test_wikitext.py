"""Tests of texts for language models: tokens, windows, file formats, download."""

import gzip
import json
import sys
from types import ModuleType

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from molslice.data import build_dataset
from molslice.data.text.lexicon import Lexicon
from molslice.data.text.wikitext import Wikitext
from molslice.types import MolsliceError
from tests.real_data import shared

TRAIN = " \n = A title = \n the cat sat on the mat \n the dog <unk> \n"
VALID = " the cat ran \n"
TEST = " the bird \n \n"
TEXTS = {"train": TRAIN, "valid": VALID, "test": TEST}


def folder_of(folder, ending="tokens", texts=TEXTS, compressed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for split, text in texts.items():
        path = folder / f"wiki.{split}.{ending}"
        if compressed:
            (folder / f"{path.name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            path.write_bytes(text.encode())
    return folder


@pytest.fixture
def make(tmp_path):
    def make(**options):
        if not {"root", "train_path"} & options.keys():
            options["root"] = folder_of(tmp_path / "wikitext")
        return Wikitext(cache_dir=tmp_path / "cache", **options)

    return make


def spoken(dataset, split):
    """Return the tokens that the windows of a split read and predict."""
    said = []
    for row in dataset.rows(split):
        batch = dataset.collate([row])
        if not said:
            said = batch.tokens[0, :1].tolist()
        assert batch.tokens[0].tolist() == (said[-1:] + batch.pair_tokens[0].tolist())[:-1]
        said += batch.pair_tokens[0].tolist()
    return said


def test_words_are_sorted_by_frequency_and_lines_end_in_eos(make):
    data = make()
    words = data.lexicon.entries
    assert words == ("<unk>", "<eos>", "the", "=", "A", "cat", "dog", "mat", "on", "sat", "title")
    assert data.lexicon.decode(spoken(data, "train")) == (
        "\n= A title =\nthe cat sat on the mat\nthe dog <unk>\n"
    )
    # `ran` and `bird` are not in the text to train on
    assert data.lexicon.decode(spoken(data, "valid")) == "the cat <unk>\n"
    assert data.lexicon.decode(spoken(data, "test")) == "the <unk>\n\n"
    assert data.spec.vocabulary_size == data.spec.num_outputs == len(words)


@pytest.mark.parametrize("length", [1, 3, 4, 16, 17, 100])
def test_every_token_but_the_first_is_predicted_once(make, length):
    data = make(length=length)
    count = len(TRAIN.split()) + TRAIN.count("\n")
    assert len(spoken(data, "train")) == count
    rows = data.rows("train")
    assert data.targets[rows].sum() == data.count_targets(rows) == data.num_tokens[rows].sum() == count - 1
    assert len(rows) == -(-(count - 1) // length)
    assert set(data.num_tokens[rows[:-1]].tolist()) <= {length}
    assert data.spec.max_tokens == length
    every = np.concatenate([data.rows(split) for split in ("train", "valid", "test")])
    assert every.tolist() == list(range(len(data)))


@pytest.mark.parametrize("length", [1, 5, 8, 40, 41, 60])
@pytest.mark.parametrize("context", [0, 1, 3, 4, 7, 39])
def test_with_a_context_each_token_is_predicted_once_after_that_many(make, tmp_path, length, context):
    if context >= length:
        return
    texts = {"train": TRAIN, "valid": " ".join(map(str, range(40))), "test": " the bird \n"}
    data = make(root=folder_of(tmp_path / "long", texts=texts), length=length, context=context)
    plain = make(root=tmp_path / "long", length=length)
    assert data.spec == plain.spec
    for split in ("train", "valid", "test"):
        whole = plain.collate(plain.rows(split))
        real = slice(None) if whole.token_mask is None else whole.token_mask
        predicted = whole.pair_tokens[real].flatten()
        rows, said, least = data.rows(split), [], []
        for row in rows:
            batch = data.collate([row])
            is_scored = torch.ones_like(batch.tokens, dtype=torch.bool)
            is_scored = is_scored if batch.pair_mask is None else batch.pair_mask
            assert batch.targets.item() == is_scored.sum() > 0
            said += batch.pair_tokens[is_scored].tolist()
            least.append(int(is_scored[0].nonzero()[0]))
        assert said == predicted.tolist()
        assert least == [0] + [0 if split == "train" else context] * (len(rows) - 1)
        assert data.count_targets(rows) == data.targets[rows].sum() == len(said)
        together = data.collate(rows)
        if together.pair_mask is not None:
            assert together.pair_mask.sum(1).tolist() == together.targets[:, 0].tolist()


def test_a_shorter_window_is_padded(make):
    data = make(length=6)
    rows = data.rows("train")
    batch = data.collate(rows[::-1])
    sizes = data.num_tokens[rows[::-1]]
    assert sizes[0] < 6
    assert batch.token_mask is not None
    assert batch.token_mask.sum(1).tolist() == sizes.tolist()
    assert not batch.tokens[~batch.token_mask].any()
    assert not batch.pair_tokens[~batch.token_mask].any()
    assert batch.targets[:, 0].tolist() == sizes.tolist()
    assert batch.rows.tolist() == rows[::-1].tolist()
    assert data.collate(rows[:2]).token_mask is None


@pytest.mark.parametrize(("tokens", "count"), [("characters", len(TRAIN)), ("bytes", len(TRAIN.encode()))])
def test_characters_and_bytes_are_the_text_itself(make, tokens, count):
    data = make(tokens=tokens)
    said = spoken(data, "train")
    assert len(said) == count
    assert data.lexicon.decode(said) == TRAIN
    assert data.spec.vocabulary_size == (256 if tokens == "bytes" else 2 + len(set(TRAIN) - {"\n"}))


def test_the_vocabulary_is_capped_at_the_most_frequent(make):
    data = make(vocabulary_size=4)
    assert data.lexicon.entries == ("<unk>", "<eos>", "the", "=")
    assert data.lexicon.decode(spoken(data, "test")) == "the <unk>\n\n"
    larger = make(vocabulary_size=20)
    assert (larger.spec.vocabulary_size, len(larger.lexicon)) == (20, 11)


def test_what_the_options_tell_is_what_the_data_say(make):
    assert Wikitext.describe({"root": "x"}) is None
    for options in ({"vocabulary_size": 20, "length": 7}, {"tokens": "bytes"}):
        told, found = Wikitext.describe(options), make(**options).spec
        assert told is not None
        assert (told.num_outputs, told.vocabulary_size, told.max_tokens) == (
            found.num_outputs,
            found.vocabulary_size,
            found.max_tokens,
        )


def test_two_vocabularies_have_two_names(make, tmp_path):
    other = folder_of(tmp_path / "other", texts={**TEXTS, "train": TRAIN.replace("cat", "cow")})
    names = {
        make().spec.vocabulary,
        make(root=other).spec.vocabulary,
        make(tokens="characters").spec.vocabulary,
    }
    assert len(names) == 3
    again = folder_of(tmp_path / "again", texts={**TEXTS, "test": "other \n"})
    assert make(root=again).spec == make().spec


def hub_rows(text):
    """Return the lines of a text as on the Hugging Face Hub: with line ends, except of empty lines."""
    return [line if line.strip() else "" for line in text.splitlines(True)]


def parquet(path, rows, column="text"):
    pyarrow.parquet.write_table(pyarrow.table({column: rows}), path)


def test_every_format_gives_the_same(make, tmp_path):
    expected = make()
    rows = {split: hub_rows(text) for split, text in TEXTS.items()}
    table = tmp_path / "table"
    table.mkdir()
    parquet(table / "train-00000-of-00002.parquet", rows["train"][:2])
    parquet(table / "train-00001-of-00002.parquet", rows["train"][2:])
    parquet(table / "validation-00000-of-00001.parquet", rows["valid"])
    parquet(table / "test-00000-of-00001.parquet", rows["test"])
    windows = {split: text.replace("\n", "\r\n") for split, text in TEXTS.items()}
    plain = {split: tmp_path / f"{split}.txt" for split in TEXTS}
    for split, path in plain.items():
        path.write_text(TEXTS[split].removesuffix("\n"))  # the last line goes without an end
    for options in (
        {"root": folder_of(tmp_path / "raw", "raw")},
        {"root": folder_of(tmp_path / "zipped", compressed=True)},
        {"root": folder_of(tmp_path / "windows", texts=windows)},
        {"root": table},
        {f"{split}_path": path for split, path in plain.items()},
        {"root": table, "test_path": plain["test"]},
    ):
        found = make(**options)
        assert found.spec == expected.spec
        for split in TEXTS:
            assert spoken(found, split) == spoken(expected, split)


def test_words_come_from_tokens_and_bytes_from_raw(make, tmp_path):
    root = folder_of(tmp_path / "both")
    folder_of(root, "raw", {split: text.replace("<unk>", "yawned") for split, text in TEXTS.items()})
    assert "yawned" not in make(root=root).lexicon.entries
    data = make(root=root, tokens="bytes")
    assert "yawned" in data.lexicon.decode(spoken(data, "train"))


def test_without_a_text_to_validate_on_the_last_lines_are_held_out(make, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("".join(f"line {number}\n" for number in range(25)))
    data = make(train_path=path)
    assert set(data.splits) == {"train", "valid"}
    assert data.lexicon.decode(spoken(data, "train")).splitlines()[-1] == "line 22"
    assert data.lexicon.decode(spoken(data, "valid")) == "line <unk>\nline <unk>\n"
    path.write_text("one line of many words\n")
    with pytest.raises(MolsliceError, match="valid_path"):
        make(train_path=path)
    # in a folder without a part to test on there is none
    root = folder_of(tmp_path / "untested", texts={"train": TRAIN, "valid": VALID})
    assert set(make(root=root).splits) == {"train", "valid"}


def test_the_text_is_read_once(make, monkeypatch):
    first = make(length=5)

    def fail(*arguments):
        raise AssertionError("read again")

    monkeypatch.setattr(Lexicon, "of_text", fail)
    again = make(length=5)
    assert again.spec == first.spec
    assert spoken(again, "train") == spoken(first, "train")
    assert make(length=3).rows("train").size > first.rows("train").size  # other windows of the same numbers
    with pytest.raises(AssertionError, match="read again"):
        make(vocabulary_size=4)


def test_bytes_need_no_encoding_and_words_do(make, tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"one two\nthree \xe9t\xe9\nfour five\n")
    data = make(train_path=path, valid_path=path, tokens="bytes")
    assert bytes(spoken(data, "train")) == path.read_bytes()
    with pytest.raises(MolsliceError, match=r"latin\.txt, line 2.*utf-8"):
        make(train_path=path, valid_path=path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": "subwords"}, "subwords.*words"),
        ({"vocabulary_size": 2}, "at least 3, got 2"),
        ({"vocabulary_size": 300, "tokens": "bytes"}, "vocabulary_size of bytes must be 256"),
        ({"length": 0}, "length must be at least 1"),
        ({"length": 4, "context": 4}, "context must be at least 0 and less than length=4, got 4"),
        ({"context": -1}, "context must be at least 0"),
        ({"version": 1}, "invalid version 1; choices: 2, 103"),
        ({"root": "nowhere"}, "no such folder: nowhere.*prepare --config FILE --download"),
        ({"train_path": "nowhere.txt"}, "no such file: nowhere.txt"),
    ],
)
def test_bad_options_are_named(make, options, message):
    with pytest.raises(MolsliceError, match=message):
        make(**options)


def test_missing_and_damaged_files_are_named(make, tmp_path):
    with pytest.raises(MolsliceError, match="data.root or data.train_path.*--download"):
        Wikitext()
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(MolsliceError, match=r"has no wiki\.train\.tokens.*--download"):
        make(root=empty)
    root = folder_of(tmp_path / "short", texts={**TEXTS, "train": "\n"})
    with pytest.raises(
        MolsliceError, match=r"wiki\.train\.tokens has fewer than 2 tokens, too few for the split train"
    ):
        make(root=root)
    root = folder_of(tmp_path / "empty_valid", texts={**TEXTS, "valid": ""})
    with pytest.raises(MolsliceError, match=r"wiki\.valid\.tokens has fewer than 2 .* the split valid$"):
        make(root=root)
    few = tmp_path / "few.txt"
    few.write_text("a b\n" * 9 + "\n")
    with pytest.raises(
        MolsliceError, match=r"the last tenth of .*few\.txt has .* valid; give a longer text or valid_path"
    ):
        make(train_path=few)
    path = tmp_path / "wiki.parquet"
    parquet(path, ["a"], column="document")
    with pytest.raises(MolsliceError, match="no column 'text'; choices: document"):
        make(train_path=path, valid_path=path)
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(MolsliceError, match="cannot read .* as Parquet"):
        make(train_path=path, valid_path=path)
    torn = tmp_path / "torn.gz"
    torn.write_bytes(gzip.compress(TRAIN.encode())[:-9])
    with pytest.raises(MolsliceError, match=r"cannot read .*torn\.gz"):
        make(train_path=torn, valid_path=torn)


@pytest.fixture
def hub(monkeypatch):
    """Replace the `datasets` library by one with a single text that records the requests."""
    asked = []

    def load_dataset(path, name, split):
        asked.append((path, name, split))
        text = TEXTS[{"validation": "valid"}.get(split, split)]
        return [{"text": row} for row in hub_rows(text)]

    module = ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return asked


def test_the_download_is_the_files_as_they_were(make, hub, tmp_path):
    root = tmp_path / "fetched"
    options = {"root": root, "version": 2}
    Wikitext.download(options)
    assert hub[0] == ("Salesforce/wikitext", "wikitext-2-v1", "train")
    for split, text in TEXTS.items():
        assert (root / f"wiki.{split}.tokens").read_text() == text
    names = sorted(path.name for path in root.iterdir())
    assert names == ["SOURCE.json", *(f"wiki.{s}.tokens" for s in sorted(TEXTS))]
    assert spoken(make(**options), "train") == spoken(make(), "train")
    (root / "wiki.test.tokens").unlink()
    del hub[:]
    Wikitext.download(options)
    assert [split for *_, split in hub] == ["test"]
    Wikitext.download({**options, "tokens": "characters"})
    assert hub[-1][1] == "wikitext-2-raw-v1"
    assert (root / "wiki.train.raw").read_text() == TRAIN


@pytest.mark.parametrize("tokens", ["words", "characters"])
def test_another_version_needs_another_folder(hub, tmp_path, tokens):
    Wikitext.download({"root": tmp_path, "version": 2})
    del hub[:]
    (tmp_path / "wiki.test.tokens").unlink()
    with pytest.raises(
        MolsliceError, match=f"{tmp_path} holds .*wikitext-2, not .*wikitext-103; give another"
    ):
        Wikitext.download({"root": tmp_path, "tokens": tokens})
    assert not hub
    (tmp_path / "SOURCE.json").write_text("[]")
    with pytest.raises(MolsliceError, match=r"cannot read .*SOURCE\.json"):
        Wikitext.download({"root": tmp_path})


@pytest.mark.parametrize("missing", [[], ["test"]])
def test_files_that_were_not_downloaded_are_not_mentioned(hub, tmp_path, missing):
    root = folder_of(tmp_path / "own")
    for split in missing:
        (root / f"wiki.{split}.tokens").unlink()
    for version in (2, 103):
        Wikitext.download({"root": root, "version": version})
    assert [split for *_, split in hub] == missing
    assert sorted(path.name for path in root.iterdir()) == [f"wiki.{s}.tokens" for s in sorted(TEXTS)]


def test_a_failed_download_reports_the_reason(hub, tmp_path, monkeypatch):
    for options in ({"train_path": "x"}, {"root": tmp_path / "x", "version": 3}, {"tokens": "subwords"}):
        with pytest.raises(MolsliceError, match="data.root|version 3|subwords"):
            Wikitext.download(options)

    def refuse(*arguments, **options):
        raise ConnectionError("no route")

    monkeypatch.setattr(sys.modules["datasets"], "load_dataset", refuse)
    with pytest.raises(MolsliceError, match="cannot download Salesforce/wikitext .*no route"):
        Wikitext.download({"root": tmp_path / "x"})
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if not installed
    with pytest.raises(MolsliceError, match=r"pip install 'molslice\[text\]'"):
        Wikitext.download({"root": tmp_path / "x"})


@pytest.mark.parametrize("kind", ["words", "characters", "bytes"])
def test_a_lexicon_travels_as_json(kind):
    lexicon = Lexicon.of_text(kind, ["the cat", "the dog"])
    again = Lexicon.from_mapping(json.loads(json.dumps(lexicon.to_mapping())))
    assert again == lexicon
    assert again.name == lexicon.name
    for text in ("", "the", "the\n", "the cat\n\nthe"):
        assert again.decode(again.encode(text)) == text
    assert again.encode("\n") == [again.line_end]


def test_what_is_unknown_is_named_once():
    lexicon = Lexicon.of_text("words", ["the cat"])
    assert lexicon.unknown("the bird saw\na bird") == ["bird", "saw", "a"]
    assert lexicon.encode("the bird") == [lexicon.encode("the")[0], 0]
    assert Lexicon("bytes").unknown("\u00e9") == []
    assert Lexicon("bytes").decode([0xC3]) == "\ufffd"
    assert Lexicon.of_text("characters", ["ab"]).unknown("abc\n") == ["c"]


@pytest.mark.parametrize(
    "mapping",
    [
        None,
        {"kind": "words"},
        {"kind": "signs", "entries": []},
        {"kind": "words", "entries": ["a", "b"]},
        {"kind": "words", "entries": ["<unk>", "<eos>", "a", "a"]},
    ],
)
def test_an_invalid_lexicon_is_refused(mapping):
    with pytest.raises(MolsliceError):
        Lexicon.from_mapping(mapping)


def test_the_real_files_have_the_counts_of_the_paper(tmp_path):
    data = build_dataset(
        "wikitext",
        {
            "train_path": str(shared("wikitext2", "valid.txt.gz")),
            "valid_path": str(shared("wikitext2", "valid.txt.gz")),
            "test_path": str(shared("wikitext2", "test.txt.gz")),
            "cache_dir": str(tmp_path),
        },
    )
    counts = {split: data.count_targets(data.rows(split)) + 1 for split in data.splits}
    assert counts == {"train": 217_646, "valid": 217_646, "test": 245_569}  # Merity et al. 2016, table 2
    assert len(data.rows("test")) == -(-245_568 // 512)
