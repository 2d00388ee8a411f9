"""Tests of CIFAR in its binary version, as images in folders and archives, and in Parquet files."""

import gzip
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from molslice.data.images import cifar_files
from molslice.data.images.base import to_gray
from molslice.data.images.cifar10 import CLASSES, Cifar10
from molslice.data.images.cifar100 import Cifar100
from molslice.types import DataSpec, MolsliceError
from tests.data.images.pictures import encoded, pixels, records, write_archive, write_table
from tests.real_data import shared

TRAIN, TEST = pixels(20), pixels(5, seed=1)
LABELS = np.arange(25) % 10


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


def binary10():
    """Return the files of CIFAR-10's binary version, with four images in each batch."""
    parts = {f"data_batch_{i + 1}.bin": records(TRAIN[i::5], LABELS[:20][i::5]) for i in range(5)}
    return {**parts, "test_batch.bin": records(TEST, LABELS[20:]), "batches.meta.txt": b"airplane\n"}


def binary100():
    coarse, fine = LABELS % 20, LABELS * 4
    parts = {
        "train.bin": records(TRAIN, coarse[:20], fine[:20]),
        "test.bin": records(TEST, coarse[20:], fine[20:]),
    }
    for kind, count in SIZES:
        parts[f"{kind}_label_names.txt"] = "".join(f"{kind}{i}\n" for i in range(count)).encode()
    return parts


SIZES = (("fine", 100), ("coarse", 20))


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def shuffled():
    """Return the order of the rows in the binary version, batch by batch."""
    return np.concatenate([np.arange(20)[i::5] for i in range(5)])


@pytest.mark.parametrize("place", ["", "cifar-10-batches-bin", "archive"])
def test_the_binary_version(tmp_path, place):
    root = tmp_path / "data"
    root.mkdir()
    if place == "archive":
        members = {f"cifar-10-batches-bin/{name}": data for name, data in binary10().items()}
        write_archive(root / "cifar-10-binary.tar.gz", members)
    else:
        put(root / place, binary10())
    data = Cifar10(root=root)
    np.testing.assert_array_equal(data.images, np.concatenate([TRAIN[shuffled()], TEST]))
    assert data.targets[:, 0].tolist() == [*LABELS[:20][shuffled()], *LABELS[20:]]
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 18, "valid": 2, "test": 5}
    assert (data.spec.channels, data.spec.max_tokens, data.spec.num_outputs) == (12, 256, 10)


def test_gray_pixels_as_the_arena_has_them(tmp_path):
    options = {"root": put(tmp_path, binary10()), "tokens": "pixels", "gray": True}
    data = Cifar10(**options)
    np.testing.assert_array_equal(data.images, to_gray(np.concatenate([TRAIN[shuffled()], TEST])))
    expected = DataSpec(10, "ids", vocabulary_size=256, max_tokens=1024, vocabulary="gray levels")
    assert data.spec == Cifar10.describe(options) == expected
    assert data.collate([3]).tokens.shape == (1, 1024)


def class_files(ending, kind):
    for split, images, labels in (("train", TRAIN, LABELS[:20]), ("test", TEST, LABELS[20:])):
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield f"{split}/{CLASSES[label]}/{number:04}{ending}", encoded(image, kind), label, image


@pytest.mark.parametrize("form", ["folders", "one archive", "two archives"])
def test_images_by_class(tmp_path, form):
    root = tmp_path / "data"
    root.mkdir()
    files = list(class_files(".png", "PNG"))
    if form == "folders":
        for name, content, _, _ in files:
            put((root / name).parent, {name.rpartition("/")[2]: content})
        (root / "train" / "cat" / "Thumbs.db").write_bytes(b"x")
        files.sort(key=lambda file: (file[0].startswith("test"), file[0]))
    elif form == "one archive":
        (root / "train" / "cat").mkdir(parents=True)  # folders without images are ignored
        write_archive(root / "cifar10.tgz", {f"cifar10/{name}": content for name, content, _, _ in files})
    else:
        for split in ("train", "test"):
            members = {name: content for name, content, _, _ in files if name.startswith(split)}
            write_archive(root / f"{split}.tar.gz", members)
        files.sort(key=lambda file: not file[0].startswith("test"))  # archives by name
    data = Cifar10(root=root)
    assert data.targets[:, 0].tolist() == [label for _, _, label, _ in files]
    np.testing.assert_array_equal(data.images, np.stack([image for *_, image in files]))
    is_test = np.array([name.startswith("test") for name, *_ in files])
    assert data.splits["test"].tolist() == np.flatnonzero(is_test).tolist()
    assert not is_test[data.splits["train"]].any()


def test_a_damaged_image_keeps_its_row(tmp_path):
    for name, content, _, _ in class_files(".jpg", "JPEG"):
        put((tmp_path / name).parent, {name.rpartition("/")[2]: content})
    torn = tmp_path / "train" / "airplane" / "0000.jpg"
    torn.write_bytes(torn.read_bytes()[:100])
    data = Cifar10(root=tmp_path)
    assert list(data.errors) == [0]
    assert data.errors[0].startswith("0000.jpg: ")
    assert data.num_tokens[0] == 0
    assert len(data.labeled_rows("train")) + len(data.labeled_rows("valid")) == 19


def test_parquet_files(tmp_path):
    for split, images, labels in (("train", TRAIN, LABELS[:20]), ("test", TEST, LABELS[20:])):
        path = tmp_path / "plain_text" / f"{split}-00000-of-00001.parquet"
        write_table(path, [encoded(image) for image in images], labels, CLASSES, image_column="img")
    data = Cifar10(root=tmp_path)
    np.testing.assert_array_equal(data.images[data.splits["test"]], TEST)
    assert data.targets[data.splits["test"], 0].tolist() == LABELS[20:].tolist()
    for path in tmp_path.rglob("*.parquet"):
        write_table(path, [encoded(TRAIN[0])], [0], ("cat", "dog"))
    with pytest.raises(MolsliceError, match="has 2 classes, not the 10 of CIFAR-10: cat, dog"):
        Cifar10(root=tmp_path)
    for path in tmp_path.rglob("*.parquet"):
        write_table(path, [encoded(TRAIN[0])], [0], CLASSES[::-1])
    message = "has other classes, or another order, than the 10 of CIFAR-10: truck, ship"
    with pytest.raises(MolsliceError, match=message):
        Cifar10(root=tmp_path)


@pytest.mark.parametrize("name", ["cifar-10-batches-py", "data_batch_1", "cifar-10-python.tar.gz"])
def test_pickles_are_refused(tmp_path, name):
    class Trap:
        def __reduce__(self):
            return (eval, ("1 / 0",))

    put(tmp_path, {name: pickle.dumps(Trap())})
    with pytest.raises(MolsliceError, match=rf"Python version of CIFAR-10 \({name}\).*Get the binary"):
        Cifar10(root=tmp_path)


def test_what_is_missing_or_damaged_is_named(tmp_path):
    with pytest.raises(MolsliceError, match=r"no CIFAR-10 in .*-binary.tar.gz from https:.*--download`"):
        Cifar10(root=tmp_path)
    with pytest.raises(MolsliceError, match="no such folder: .*none"):
        Cifar10(root=tmp_path / "none")
    put(tmp_path, {**binary10(), "data_batch_2.bin": b"12"})
    with pytest.raises(MolsliceError, match="data_batch_2.bin of .* has 2 bytes, not a multiple of the 3073"):
        Cifar10(root=tmp_path)
    (tmp_path / "data_batch_2.bin").unlink()
    with pytest.raises(MolsliceError, match="lacks data_batch_2.bin of the binary version"):
        Cifar10(root=tmp_path)
    put(tmp_path, {**binary10(), "data_batch_2.bin": records(TRAIN[:1], [11])})
    with pytest.raises(MolsliceError, match="invalid class 11 in .*row 5; choices: 0 to 9"):
        Cifar10(root=tmp_path)


def test_other_images_are_refused(tmp_path):
    one = encoded(TRAIN[0])
    (tmp_path / "a").mkdir()
    write_archive(tmp_path / "a" / "a.tar.gz", {"train/kitten/1.png": one})
    with pytest.raises(MolsliceError, match="unknown class 'kitten'"):
        Cifar10(root=tmp_path / "a")
    put(tmp_path / "b" / "train" / "cat", {"1.png": one})
    with pytest.raises(MolsliceError, match="no images test/<class>"):
        Cifar10(root=tmp_path / "b")
    put(tmp_path / "c" / "train" / "cat", {"1.png": encoded(pixels(1, 8, 8)[0])})
    put(tmp_path / "c" / "test" / "cat", {"1.png": encoded(pixels(1, 8, 8)[0])})
    with pytest.raises(MolsliceError, match="images of 8 x 8 pixels, expected 32 x 32"):
        Cifar10(root=tmp_path / "c")
    write_archive(tmp_path / "c" / "other.tgz", {"readme.txt": b"x"})
    (tmp_path / "d").mkdir()
    write_archive(tmp_path / "d" / "other.tgz", {"readme.txt": b"x"})
    with pytest.raises(MolsliceError, match="no CIFAR-10 in"):
        Cifar10(root=tmp_path / "d")
    torn = write_archive(tmp_path / "d" / "other.tgz", {"train/cat/1.png": one})
    torn.write_bytes(torn.read_bytes()[:-900])
    with pytest.raises(MolsliceError, match=r"cannot read .*other\.tgz"):
        Cifar10(root=tmp_path / "d")


@pytest.mark.parametrize(("labels", "count"), SIZES)
@pytest.mark.parametrize("form", ["folder", "archive", "parquet"])
def test_cifar100(tmp_path, labels, count, form):
    root = tmp_path / "data"
    root.mkdir()
    coarse, fine = LABELS % 20, LABELS * 4
    wanted = fine if labels == "fine" else coarse
    if form == "folder":
        put(root, binary100())
    elif form == "archive":
        members = {f"cifar-100-binary/{name}": data for name, data in binary100().items()}
        write_archive(root / "cifar-100-binary.tar.gz", members)
    else:
        for split, images, part in (("train", TRAIN, wanted[:20]), ("test", TEST, wanted[20:])):
            names = [f"{labels}{i}" for i in range(count)]
            files = [encoded(image) for image in images]
            write_table(root / f"{split}.parquet", files, part, names, "img", f"{labels}_label")
    data = Cifar100(root=root, labels=labels)
    order = np.argsort([*data.splits["train"], *data.splits["valid"], *data.splits["test"]])
    assert len(order) == 25
    assert data.class_names == tuple(f"{labels}{i}" for i in range(count))
    assert data.spec.num_outputs == Cifar100.describe({"labels": labels}).num_outputs == count
    train = np.sort(np.concatenate([data.splits["train"], data.splits["valid"]]))
    assert data.targets[train, 0].tolist() == wanted[:20].tolist()
    np.testing.assert_array_equal(data.images[data.splits["test"]], TEST)


def test_cifar100_without_names(tmp_path):
    files = {name: data for name, data in binary100().items() if name.endswith(".bin")}
    assert Cifar100(root=put(tmp_path, files)).class_names == tuple(map(str, range(100)))
    with pytest.raises(MolsliceError, match="invalid labels of cifar100 'middle'; choices: coarse, fine"):
        Cifar100(root=tmp_path, labels="middle")
    with pytest.raises(MolsliceError, match="Python version of CIFAR-100"):
        Cifar100(root=put(tmp_path / "py", {"meta": b""}))


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_names_of_cifar100_in_another_place(tmp_path, form):
    files = binary100()
    put(tmp_path, {name: files.pop(name) for name in Cifar100.parts})
    if form == "folder":
        put(tmp_path / "cifar-100-binary", files)
    else:
        members = {f"cifar-100-binary/{name}": data for name, data in files.items()}
        write_archive(tmp_path / "cifar-100-binary.tar.gz", members)
    assert Cifar100(root=tmp_path).class_names == tuple(f"fine{i}" for i in range(100))


@pytest.mark.parametrize("number", [10, 100])
def test_fetching_from_the_hub(tmp_path, monkeypatch, number):
    asked = []
    labels = {"label": LABELS} if number == 10 else {"fine_label": LABELS * 4, "coarse_label": LABELS}

    class Table:
        features = {"img": "an image"}

        def __init__(self, rows, images):
            self.rows, self.images = rows, images

        def to_parquet(self, path):
            (name, values), *_ = labels.items()
            write_table(path, [encoded(image) for image in self.images], values[self.rows], (), "img", name)

    def load_dataset(name):
        asked.append(name)
        return {"train": Table(slice(20), TRAIN), "test": Table(slice(20, 25), TEST)}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset, Image=type(None)))
    dataset = Cifar10 if number == 10 else Cifar100
    dataset.download({"root": str(tmp_path / "new")})
    assert asked == [f"uoft-cs/cifar{number}"]
    data = dataset(root=tmp_path / "new")
    np.testing.assert_array_equal(data.images[data.splits["test"]], TEST)
    assert not list((tmp_path / "new").glob(".*"))


@pytest.mark.exhaustive
def test_the_real_jpeg_copy():
    data = Cifar10(root=shared("cifar10_jpeg"))
    sizes = {name: len(rows) for name, rows in data.splits.items()}
    assert sizes == {"train": 45_000, "valid": 5_000, "test": 10_000}
    assert np.bincount(data.targets[data.splits["test"], 0].astype(int)).tolist() == [1_000] * 10
    assert not data.errors
    # the mean of the training images is 0.491, 0.482, 0.447, the standard deviation 0.247, 0.243, 0.262
    assert data.spec.vocabulary == "rgb patches of 2, mean 0.492 0.482 0.447, std 0.247 0.243 0.261"


def damaged(data):
    """Return damaged contents: truncated, of another format, empty, and with one changed byte."""
    changed = bytearray(data)
    changed[len(data) // 2] ^= 1
    return [data[: len(data) // 3], data[:-20], data[:600], b"", b"hello", pickle.dumps([]), bytes(changed)]


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("compressed", [True, False])
def test_a_damaged_archive_is_named_in_one_line(tmp_path, compressed, number):
    path = tmp_path / "cifar-10-binary.tar.gz"
    write_archive(path, {f"cifar-10-batches-bin/{name}": data for name, data in binary10().items()})
    data = path.read_bytes() if compressed else gzip.decompress(path.read_bytes())
    damage = damaged(data)
    if not compressed:  # a tar holds no checksum of its content, and ends in zeros that nothing needs
        damage[1], damage[6] = data[:700], b"\0" * len(data)
    path.write_bytes(damage[number])
    with pytest.raises(MolsliceError, match=r"cifar-10-binary\.tar\.gz") as caught:
        Cifar10(root=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_member_that_claims_to_be_huge_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar_files, "LARGEST_MEMBER", 1000)
    write_archive(tmp_path / "cifar-10-binary.tar.gz", binary10())
    with pytest.raises(MolsliceError, match=r"tar\.gz: 'data_batch_1.bin' is larger than 1000 bytes"):
        Cifar10(root=tmp_path)
