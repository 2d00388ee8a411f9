"""Tests of images in one folder per class."""

import os

import numpy as np
import pytest

from molslice.data import build_dataset
from molslice.data.images.image_folder import ImageFolder
from molslice.types import MolsliceError
from tests.data.images.pictures import encoded, pixels


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


def fill(root, layout, side=8):
    """Write random images, `{folder: number}`, and return them by name."""
    found = {}
    for number, (folder, count) in enumerate(layout.items()):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for i, image in enumerate(pixels(count, side, side, seed=number)):
            path = root / folder / f"{i}.png"
            path.write_bytes(encoded(image))
            found[path] = image
    return found


def sizes(data):
    return {name: len(rows) for name, rows in data.splits.items()}


def test_three_folders(tmp_path):
    layout = {"train/dog": 3, "train/cat": 4, "val/cat": 2, "test/cat": 1, "test/dog": 2}
    images = fill(tmp_path / "data", layout)
    data = build_dataset("image_folder", {"root": str(tmp_path / "data"), "patch": 4})
    assert isinstance(data, ImageFolder)
    assert data.class_names == ("cat", "dog")
    assert data.targets[:, 0].tolist() == [0] * 4 + [1] * 3 + [0] * 2 + [0, 1, 1]
    assert {name: rows.tolist() for name, rows in data.splits.items()} == {
        "train": list(range(7)),
        "valid": [7, 8],
        "test": [9, 10, 11],
    }
    np.testing.assert_array_equal(data.images[4], images[tmp_path / "data" / "train" / "dog" / "0.png"])
    assert (data.spec.max_tokens, data.spec.channels, data.spec.num_outputs) == (4, 48, 2)


def test_without_valid_it_is_carved(tmp_path):
    fill(tmp_path, {"train/a": 10, "train/b": 10, "test/a": 3})
    assert sizes(ImageFolder(root=tmp_path, patch=4, valid_fraction=0.2)) == {
        "train": 16,
        "valid": 4,
        "test": 3,
    }


def test_one_folder_is_divided(tmp_path):
    fill(tmp_path, {"a": 10, "b": 10})
    data = ImageFolder(root=tmp_path, patch=4, valid_fraction=0.2, test_fraction=0.3)
    assert sizes(data) == {"train": 10, "valid": 4, "test": 6}
    assert sorted(np.concatenate(list(data.splits.values()))) == list(range(20))
    other = ImageFolder(root=tmp_path, patch=4, valid_fraction=0.2, test_fraction=0.3, split_seed=1)
    assert data.splits["test"].tolist() != other.splits["test"].tolist()


def test_the_official_valid_as_the_test_split(tmp_path):
    fill(tmp_path, {"train/a": 10, "train/b": 10, "val/a": 3, "test/images": 2})
    data = ImageFolder(root=tmp_path, patch=4, valid_as_test=True)
    assert sizes(data) == {"train": 18, "valid": 2, "test": 3, "hidden": 2}
    assert np.isnan(data.targets[data.splits["hidden"]]).all()
    assert sizes(ImageFolder(root=tmp_path, patch=4)) == {"train": 20, "valid": 3, "test": 2}
    fill(tmp_path / "plain", {"a": 10})
    with pytest.raises(MolsliceError, match="has no split 'valid'"):
        ImageFolder(root=tmp_path / "plain", patch=4, valid_as_test=True)


def test_tiny_imagenet(tmp_path):
    images = fill(tmp_path, {"train/n01/images": 4, "train/n02/images": 4, "val/images": 3, "test/images": 2})
    file = tmp_path / "val" / "val_annotations.txt"
    file.write_text("2.png\tn01\t0\t0\t9\t9\n0.png\tn02\t0\t0\t9\t9\n1.png\tn01\t0\t0\t9\t9\n")
    data = ImageFolder(root=tmp_path, patch=4)
    assert data.class_names == ("n01", "n02")
    rows = data.splits["valid"]
    assert data.targets[rows, 0].tolist() == [0, 0, 1]
    for row, name in zip(rows, ("1.png", "2.png", "0.png"), strict=True):
        np.testing.assert_array_equal(data.images[row], images[tmp_path / "val" / "images" / name])
    assert np.isnan(data.targets[data.splits["test"]]).all()
    file.write_text("2.png\tn01\t0\n0.png\tn02\t0\n")
    with pytest.raises(MolsliceError, match=r"has no class for 1.png \(1 such images\)"):
        ImageFolder(root=tmp_path, patch=4)
    file.write_text("7.png\tn01\t0\n")
    with pytest.raises(MolsliceError, match=r"val_annotations.txt, line 1: .*got '7.png"):
        ImageFolder(root=tmp_path, patch=4)
    file.write_bytes(b"0.png\tn01\n1.png\tn\xe9\n")
    with pytest.raises(MolsliceError, match=r"val_annotations.txt, line 2: byte 7 is not utf-8"):
        ImageFolder(root=tmp_path, patch=4)


def test_images_of_any_size(tmp_path):
    fill(tmp_path, {"a": 3}, side=40)
    fill(tmp_path, {"b": 3}, side=30)
    data = ImageFolder(root=tmp_path, size=16, patch=8, gray=True, valid_fraction=0.2, test_fraction=0.2)
    assert data.images.shape == (6, 16, 16, 1)
    with pytest.raises(MolsliceError, match="differ in size: 40 x 40 in row 1, 30 x 30 in row 4"):
        ImageFolder(root=tmp_path, patch=8, valid_fraction=0.2, test_fraction=0.2)


def test_changed_files_are_decoded_again(tmp_path):
    images = fill(tmp_path, {"a": 5, "b": 5})
    options = {"root": tmp_path, "patch": 4, "cache_dir": tmp_path.parent / "kept"}
    path, image = next(iter(images.items()))
    np.testing.assert_array_equal(ImageFolder(**options).images[0], image)
    path.write_bytes(encoded(255 - image, "PNG", compress_level=0))
    np.testing.assert_array_equal(ImageFolder(**options).images[0], 255 - image)


def test_a_damaged_image_keeps_its_row(tmp_path):
    fill(tmp_path, {"a": 5, "b": 5})
    (tmp_path / "a" / "3.png").write_bytes(b"GIF89a")
    data = ImageFolder(root=tmp_path, patch=4)
    assert list(data.errors) == [3]
    assert "3.png" in data.errors[3]
    assert len(data) == 10


def test_given_mean_and_std_are_in_the_spec(tmp_path):
    fill(tmp_path, {"a": 5, "b": 5})
    mean, std = [0.5, 0.4, 0.3], [0.25, 0.25, 0.25]
    data = ImageFolder(root=tmp_path, patch=4, mean=mean, std=std)
    assert data.spec.vocabulary == "rgb patches of 4, mean 0.5 0.4 0.3, std 0.25 0.25 0.25"
    tokens = data.collate([2]).tokens[0].reshape(2, 2, 4, 4, 3).permute(0, 2, 1, 3, 4).reshape(8, 8, 3)
    expected = (data.images[2] / 255 - mean) / 0.25
    np.testing.assert_allclose(tokens, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": [0.5, 0.5, 0.5]}, "mean and std must both be 3 numbers"),
        ({"mean": [0.5], "std": [0.5]}, "both be 3 numbers"),
        ({"mean": [0.5] * 3, "std": [0.5, 0.5, 0]}, "std of images must be positive"),
        ({"valid_fraction": 0.6, "test_fraction": 0.5}, "leave no training rows"),
        ({"test_fraction": 1}, "test_fraction must be between 0 and 1"),
        ({"valid_as_test": "yes"}, "valid_as_test must be true or false"),
        ({"patch": 3}, "patches of 3 x 3 do not tile images of 8 x 8; choices: 1, 2, 4, 8"),
    ],
)
def test_bad_options_are_named(tmp_path, options, message):
    fill(tmp_path, {"a": 5, "b": 5})
    with pytest.raises(MolsliceError, match=message):
        ImageFolder(**{"root": tmp_path, "patch": 4, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valid_as_test": True}, "has no split 'valid'"),
        ({"valid_fraction": 0.001}, "leaves the split 'valid' empty"),
    ],
)
def test_splits_are_checked_before_images_are_decoded(tmp_path, options, message):
    for path in fill(tmp_path, {"a": 5, "b": 5}):
        path.write_bytes(b"torn")
    with pytest.raises(MolsliceError, match=message):
        ImageFolder(root=tmp_path, patch=4, **options)


def test_bad_folders_are_named(tmp_path):
    with pytest.raises(MolsliceError, match="no such folder"):
        ImageFolder(root=tmp_path / "none")
    with pytest.raises(MolsliceError, match="has neither images"):
        ImageFolder(root=tmp_path)
    fill(tmp_path, {"train/cat": 3, "train/dog": 3, "test/cats": 1, "test/dog": 1})
    with pytest.raises(MolsliceError, match="'cats', which is not in train; did you mean 'cat'"):
        ImageFolder(root=tmp_path, patch=4)
    (tmp_path / "empty" / "train").mkdir(parents=True)
    with pytest.raises(MolsliceError, match="train has no images"):
        ImageFolder(root=tmp_path / "empty")


def test_folders_of_equal_names_and_times_are_distinguished(tmp_path):
    for name, level in (("one", 10), ("other", 200)):
        (tmp_path / name / "a").mkdir(parents=True)
        for number in range(12):
            file = tmp_path / name / "a" / f"{number}.bmp"
            file.write_bytes(encoded(np.full((8, 8, 3), level, np.uint8), "BMP"))
            os.utime(file, (0, 0))
    assert ImageFolder(root=tmp_path / "one", patch=4).images.max() == 10
    assert ImageFolder(root=tmp_path / "other", patch=4).images.min() == 200


def test_test_images_are_neither_lost_nor_robbed_of_their_class(tmp_path):
    fill(tmp_path, {"train/a": 4, "train/b": 4, "test/A": 2, "test/B": 2})
    with pytest.raises(MolsliceError, match="test has the class 'A', which is not in train"):
        ImageFolder(root=tmp_path, patch=4)
    fill(tmp_path / "flat", {"train/a": 4, "train/b": 4, "val/a": 2, "test": 3})
    data = ImageFolder(root=tmp_path / "flat", patch=4)
    assert sizes(data) == {"train": 8, "valid": 2, "test": 3}
    assert np.isnan(data.targets[data.splits["test"]]).all()
    fill(tmp_path / "mixed", {"train/a": 4, "train": 1})
    with pytest.raises(MolsliceError, match=r"train/0.png is not in the folder of a class"):
        ImageFolder(root=tmp_path / "mixed", patch=4)


def test_two_folders_of_one_split_are_refused(tmp_path):
    fill(tmp_path, {"train/a": 4, "val/a": 2, "validation/a": 2})
    with pytest.raises(
        MolsliceError, match="val and validation are both names of the split valid; keep one of them"
    ):
        ImageFolder(root=tmp_path, patch=4)
