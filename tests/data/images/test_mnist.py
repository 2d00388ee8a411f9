"""Tests of MNIST's idx files."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from molslice.data import build_dataset
from molslice.data.images.mnist import Mnist, read_idx
from molslice.types import DataSpec, MolsliceError
from tests.data.images.pictures import pixels, write_idx
from tests.real_data import shared

TRAIN, TEST = pixels(20, 28, 28, 1)[..., 0], pixels(6, 28, 28, 1, seed=1)[..., 0]
LABELS = np.arange(26, dtype=np.uint8) % 10


def write(folder, compressed=False, dot=False):
    ending, mark = ".gz" if compressed else "", "." if dot else "-"
    for part, images, labels in (("train", TRAIN, LABELS[:20]), ("t10k", TEST, LABELS[20:])):
        write_idx(folder / f"{part}-images{mark}idx3-ubyte{ending}", images, compressed)
        write_idx(folder / f"{part}-labels{mark}idx1-ubyte{ending}", labels, compressed)
    return folder


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("place", ["", "MNIST/raw", "raw"])
def test_the_files_are_found_and_read(tmp_path, compressed, place):
    write(tmp_path / place, compressed)
    data = build_dataset("mnist", {"root": str(tmp_path), "patch": 4})
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 18, "valid": 2, "test": 6}
    assert data.targets[:, 0].tolist() == LABELS.tolist()
    np.testing.assert_array_equal(data.images[..., 0], np.concatenate([TRAIN, TEST]))
    assert data.class_names == tuple("0123456789")
    assert data.spec.channels == 16
    assert data.spec.max_tokens == 49
    assert data.collate([0, 25]).tokens.shape == (2, 49, 16)


def test_fashion_has_other_classes(tmp_path):
    write(tmp_path / "FashionMNIST" / "raw")
    assert Mnist(root=tmp_path, variant="fashion").class_names[-1] == "Ankle boot"
    with pytest.raises(MolsliceError, match="invalid variant of mnist 'fasion'; did you mean 'fashion'"):
        Mnist(root=tmp_path, variant="fasion")


def test_the_spec_needs_no_data(tmp_path):
    described = Mnist.describe({"root": "none", "tokens": "pixels", "split_seed": 3})
    assert described == DataSpec(10, "ids", vocabulary_size=256, max_tokens=784, vocabulary="gray levels")
    assert Mnist(root=write(tmp_path), tokens="pixels").spec == described
    assert Mnist.describe({"patch": 2}).channels == 4


def test_dots_in_the_names(tmp_path):
    write(tmp_path, dot=True)
    for part in ("train", "t10k"):
        for kind in ("images.idx3", "labels.idx1"):
            assert (tmp_path / f"{part}-{kind}-ubyte").is_file()
    assert len(Mnist(root=tmp_path)) == 26
    write(tmp_path / "packed" / "MNIST" / "raw", compressed=True, dot=True)
    assert len(Mnist(root=tmp_path / "packed")) == 26


def test_what_is_missing_or_damaged_is_named(tmp_path):
    with pytest.raises(MolsliceError, match=r"no train-images-idx3-ubyte or .*--download"):
        Mnist(root=tmp_path)
    write(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(MolsliceError, match="has neither t10k-labels-idx1-ubyte nor"):
        Mnist(root=tmp_path)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte", LABELS[:5])
    with pytest.raises(MolsliceError, match="6 images and 5 labels"):
        Mnist(root=tmp_path)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte", LABELS[:6] + 8)
    with pytest.raises(MolsliceError, match="invalid class 13 in .*row 26; choices: 0 to 9"):
        Mnist(root=tmp_path)


def test_damaged_idx_files(tmp_path):
    path = write_idx(tmp_path / "a", TRAIN)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(MolsliceError, match="holds 15679 bytes, but its header says 20 x 28 x 28"):
        read_idx(path, 3)
    path.write_bytes(b"\0\0\x0d\3" + whole[4:])
    with pytest.raises(MolsliceError, match="of bytes in 3 dimensions: starts with 00 00 0d 03"):
        read_idx(path, 3)
    compressed = write_idx(tmp_path / "b.gz", TRAIN, compressed=True)
    compressed.write_bytes(compressed.read_bytes()[:-40])
    with pytest.raises(MolsliceError, match="cannot read"):
        read_idx(compressed, 3)


def hub_tables(images=(TRAIN, TEST), labels=(LABELS[:20], LABELS[20:])):
    """Return tables as the `datasets` library does: rows with a PIL image, and columns."""

    class Table:
        def __init__(self, images, labels):
            self.images, self.labels = images, labels

        def __iter__(self):
            pairs = zip(self.images, self.labels, strict=True)
            return iter([{"image": Image.fromarray(image), "label": int(label)} for image, label in pairs])

        def __getitem__(self, column):
            return {"label": [int(label) for label in self.labels]}[column]

    return dict(zip(("train", "test"), map(Table, images, labels), strict=True))


@pytest.mark.parametrize(
    ("variant", "name"), [("digits", "ylecun/mnist"), ("fashion", "zalando-datasets/fashion_mnist")]
)
def test_fetching_from_the_hub(tmp_path, monkeypatch, variant, name):
    asked = []
    fake = SimpleNamespace(load_dataset=lambda name: asked.append(name) or hub_tables())
    monkeypatch.setitem(sys.modules, "datasets", fake)
    options = {"root": tmp_path / "new", "variant": variant}
    Mnist.download(options)
    data = Mnist(**options)
    assert asked == [name]
    np.testing.assert_array_equal(data.images[..., 0], np.concatenate([TRAIN, TEST]))
    assert data.targets[:, 0].tolist() == LABELS.tolist()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "new").iterdir()}
    assert len(before) == 5
    Mnist.download(options)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "new").iterdir()}
    assert asked == [name]
    (tmp_path / "new" / "t10k-labels-idx1-ubyte.gz").unlink()
    Mnist.download(options)
    assert asked == [name] * 2
    assert before.keys() == set((tmp_path / "new").iterdir())
    other = {"digits": "fashion", "fashion": "digits"}[variant]
    with pytest.raises(MolsliceError, match=f"new holds {name}, not .*; give another data.root"):
        Mnist.download({**options, "variant": other})


@pytest.mark.parametrize("dot", [False, True])
@pytest.mark.parametrize("place", ["", "FashionMNIST/raw"])
def test_files_that_are_there_are_not_fetched(tmp_path, monkeypatch, place, dot):
    monkeypatch.setitem(sys.modules, "datasets", None)
    write(tmp_path / place, dot=dot)
    Mnist.download({"root": tmp_path, "variant": "fashion"})
    assert not list(tmp_path.rglob("SOURCE.json"))


def test_what_is_missing_is_fetched_without_a_claim_to_the_rest(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=lambda name: hub_tables()))
    write(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    Mnist.download({"root": tmp_path})
    assert len(Mnist(root=tmp_path)) == 26
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == 4
    assert "t10k-images-idx3-ubyte.gz" in names


def test_what_goes_wrong_with_fetching(tmp_path, monkeypatch):
    def fail(name):
        raise ConnectionError("no\nroute")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=fail))
    with pytest.raises(MolsliceError, match="cannot download ylecun/mnist .*: no route"):
        Mnist.download({"root": tmp_path})
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MolsliceError, match=r"the library datasets, which"):
        Mnist.download({"root": tmp_path})


def test_the_real_ones():
    data = Mnist(root=shared("mnist"))
    assert {name: len(rows) for name, rows in data.splits.items()} == {
        "train": 54000,
        "valid": 6000,
        "test": 10000,
    }
    assert data.targets[:5, 0].tolist() == [5, 0, 4, 1, 9]
    # the mean 0.1307 and the std 0.3081 are common knowledge
    assert data.spec.vocabulary == "gray patches of 2, mean 0.131, std 0.308"
