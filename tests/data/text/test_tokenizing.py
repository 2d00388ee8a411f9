"""Tests of bytes, words and subwords: token ids, and a vocabulary from the training rows only."""

import json
import sys

import numpy as np
import pytest

from molslice.data.sequences import Sequences
from molslice.data.text.tokenizing import UNKNOWN, Tokenizing, fingerprint, tokenize
from molslice.types import MolsliceError

TEXTS = [
    "The cat sat. The cat ran!",
    "A dog sat on the cat",
    "Zebras don't run",
    "naïve 日本 🙂",
]
TRAIN = np.array([0, 1])


def rows(how, texts=TEXTS, training=TRAIN):
    arrays = tokenize(texts, training, how)
    packed = Sequences(arrays["values"], arrays["offsets"])
    return [packed[row].tolist() for row in range(len(packed))]


def vocabulary(how, texts=TEXTS, training=TRAIN):
    return json.loads(tokenize(texts, training, how)["vocabulary"].tobytes())


def test_bytes_are_those_of_utf8_from_1():
    found = rows(Tokenizing("bytes"))
    for text, ids in zip(TEXTS, found, strict=True):
        assert bytes(number - 1 for number in ids).decode() == text
    assert rows(Tokenizing("bytes"), ["\x00"]) == [[1]]
    assert tokenize(["\xff"], TRAIN[:0], Tokenizing("bytes"))["values"].dtype == np.uint16


def test_bytes_are_cut_at_their_end_and_may_be_lowered():
    assert rows(Tokenizing("bytes", max_tokens=3), ["Ünïcode"]) == [[1 + b for b in "Ünïcode".encode()[:3]]]
    assert rows(Tokenizing("bytes", lower=True), ["AbÄ"]) == rows(Tokenizing("bytes"), ["abä"])


def test_words_are_numbered_by_how_often_the_training_rows_have_them():
    how = Tokenizing("words")
    # cat, the: three times each; sat: twice; the others once, in the order of the alphabet
    words = ["cat", "the", "sat", "!", ".", "a", "dog", "on", "ran"]
    assert vocabulary(how) == words
    number = {word: place for place, word in enumerate(words, start=2)}
    assert rows(how)[0] == [number[w] for w in ("the", "cat", "sat", ".", "the", "cat", "ran", "!")]
    assert rows(how)[2] == [UNKNOWN] * 5  # zebras don ' t run
    assert rows(how)[3] == [UNKNOWN] * 2  # a picture is no word


def test_a_small_vocabulary_holds_the_most_frequent_words():
    how = Tokenizing("words", vocabulary_size=4)
    assert vocabulary(how) == ["cat", "the"]
    assert max(map(max, rows(how))) == 3
    assert vocabulary(Tokenizing("words", 4), ["b a c", "c"], np.array([0])) == ["a", "b"]


def test_words_keep_their_case_if_asked():
    assert "The" in vocabulary(Tokenizing("words", lower=False))
    assert rows(Tokenizing("words", max_tokens=2))[0] == rows(Tokenizing("words"))[0][:2]


CORPUS = ["lower newest widest low lower newest " * 20, "another text of words, newest and lowest " * 20]


@pytest.mark.parametrize("kind", ["words", "subwords"])
def test_other_rows_change_nothing(kind):
    how = Tokenizing(kind, vocabulary_size=300)
    texts = [*CORPUS, "unseen words of the test rows " * 50]
    one = tokenize(texts, np.array([0, 1]), how)
    other = tokenize([*CORPUS, "xyz"], np.array([0, 1]), how)
    assert fingerprint(one["vocabulary"], how) == fingerprint(other["vocabulary"], how)
    third = tokenize(texts, np.array([0, 1, 2]), how)
    assert fingerprint(third["vocabulary"], how) != fingerprint(one["vocabulary"], how)


def test_subwords_are_the_same_every_time_and_spell_every_text():
    how = Tokenizing("subwords", vocabulary_size=280)
    texts = [*CORPUS, *TEXTS]
    one, other = (tokenize(texts, np.array([0, 1]), how) for _ in range(2))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
    tokens, _ = json.loads(one["vocabulary"].tobytes())
    assert len(tokens) == 279  # with padding 280
    assert one["values"].min() >= 1
    assert one["values"].max() < 280
    spelt = "".join(tokens[number - 1] for number in Sequences(one["values"], one["offsets"])[2])
    assert spelt.replace("Ġ", " ") == " " + TEXTS[0]


def test_a_frequent_word_is_one_subword_and_padding_is_never_spelt():
    found = rows(Tokenizing("subwords", 400), [*CORPUS, "newest", "<padding>[PAD]"], np.array([0, 1]))
    assert len(found[2]) == 1
    assert len(found[3]) > 5
    assert 0 not in found[3]


def test_a_fingerprint_differs_between_vocabularies():
    names = set()
    for how in (
        Tokenizing("bytes"),
        Tokenizing("bytes", lower=True),
        Tokenizing("words"),
        Tokenizing("words", 4),
    ):
        arrays = tokenize(TEXTS, TRAIN, how)
        names.add(fingerprint(arrays["vocabulary"], how))
        assert fingerprint(tokenize(TEXTS, TRAIN, how)["vocabulary"], how) in names
    assert len(names) == 4


def test_without_the_library_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MolsliceError, match=r"molslice\[text\]"):
        tokenize(TEXTS, TRAIN, Tokenizing("subwords"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": "word"}, "did you mean 'words'"),
        ({"tokens": "bytes", "vocabulary_size": 300}, "vocabulary_size of bytes must be 257"),
        ({"tokens": "words", "vocabulary_size": 2}, "at least 3, got 2"),
        ({"tokens": "subwords", "vocabulary_size": 256}, "at least 257"),
        ({"vocabulary_size": "16k"}, "got '16k'"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"lower": "no"}, "lower must be true or false"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(MolsliceError, match=message):
        Tokenizing(**options)
