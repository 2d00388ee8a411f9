"""Tests of images: tokens, augmentation, decoding."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from molslice.data.images import decoding as image_files
from molslice.data.images.base import Cutting, ImageDataset, Pictures, to_gray
from molslice.data.images.decoding import Decoding
from molslice.types import DataSpec, MolsliceError
from tests.data.images.pictures import encoded, pixels


class Drawn(ImageDataset):
    """Data set of images in memory."""

    source, class_names = "drawn", ("a", "b", "c")

    def __init__(self, images, failed=(), scale=None, **options):
        rows = np.arange(len(images))
        failed = dict.fromkeys(failed, "torn")
        self._take(Pictures(images, rows % 3, {"train": rows}, failed), Cutting(**options), scale)


def test_patches_are_squares_in_reading_order():
    images = pixels(3, 4, 6)
    data = Drawn(images, patch=2, scale=([0.5, 0.25, 0.0], [0.5, 1.0, 2.0]))
    batch = data.collate([2, 0])
    assert batch.token_mask is None
    assert batch.tokens.shape == (2, 6, 12)
    assert batch.tokens.dtype == torch.float32
    values = (images / 255 - [0.5, 0.25, 0.0]) / [0.5, 1.0, 2.0]
    for place, row in enumerate([2, 0]):
        for token in range(6):
            top, left = token // 3 * 2, token % 3 * 2
            expected = values[row, top : top + 2, left : left + 2].ravel()
            np.testing.assert_allclose(batch.tokens[place, token], expected, atol=1e-5)
    assert batch.targets is not None
    assert batch.rows is not None
    assert batch.targets.tolist() == [[2.0], [0.0]]
    assert batch.rows.tolist() == [2, 0]


def test_pixels_are_levels():
    images = pixels(2, 3, 4, 1)
    data = Drawn(images, tokens="pixels", gray=True)
    assert data.collate([1]).tokens.tolist() == [images[1].ravel().tolist()]
    assert data.spec == DataSpec(3, "ids", vocabulary_size=256, max_tokens=12, vocabulary="gray levels")
    colors = Drawn(pixels(1, 2, 2), tokens="pixels")
    assert colors.collate([0]).tokens.tolist() == [pixels(1, 2, 2).ravel().tolist()]
    assert colors.spec.max_tokens == 12


def test_the_grid_of_patches_is_in_the_spec():
    data = Drawn(pixels(2, 4, 8), patch=2, scale=([0, 0, 0], [1, 1, 1]))
    assert data.spec.grid == (2, 4)
    # patches go row by row: the second token is to the right of the first
    torch.testing.assert_close(
        data.collate([1]).tokens[0, 1],
        torch.from_numpy(pixels(2, 4, 8)[1, :2, 2:4].reshape(-1) / np.float32(255)),
    )


def test_mean_and_spread_are_those_of_the_training_split():
    images = pixels(20, 4, 4)
    data = Drawn(images, failed=[3])
    kept = np.delete(images, 3, 0).reshape(-1, 3) / 255
    mean, spread = kept.mean(0).round(3), kept.std(0).round(3)
    listed = [" ".join(f"{number:g}" for number in numbers) for numbers in (mean, spread)]
    assert data.spec.vocabulary == f"rgb patches of 2, mean {listed[0]}, std {listed[1]}"
    tokens = data.collate(np.delete(np.arange(20), 3)).tokens.reshape(-1, 3)
    np.testing.assert_allclose(tokens.mean(0), 0, atol=2e-3)
    np.testing.assert_allclose(tokens.std(0), 1, atol=5e-3)


def test_a_constant_color_is_not_divided_by_zero():
    data = Drawn(np.full((3, 2, 2, 1), 255, np.uint8), gray=True)
    assert data.collate([0]).tokens.tolist() == [[[0.0] * 4]]


@pytest.mark.parametrize("augment", ["crop", "crop_flip", "crop_flip_rand", "resized_flip_rand"])
def test_augmentation_is_a_function_of_draw_and_row(augment):
    images = pixels(40, 16, 16)
    data = Drawn(images, augment=augment, patch=1, scale=([0, 0, 0], [1, 1, 1]))
    first = data.collate(np.arange(40), draw=7).tokens
    again = data.collate(np.arange(40)[::-1].copy(), draw=7).tokens
    assert torch.equal(first, again.flip(0))
    other = data.collate(np.arange(40), draw=8).tokens
    assert (first != other).flatten(1).any(1).float().mean() > 0.8
    assert torch.equal(first, data.collate(np.arange(40), draw=7).tokens)
    plain = data.collate([5]).tokens.reshape(16, 16, 3) * 255
    np.testing.assert_allclose(plain, images[5], atol=1e-3)


def test_mixing_is_a_function_of_draw_and_rows():
    images = pixels(6, 16, 16)
    options = {"patch": 1, "scale": ([0, 0, 0], [1, 1, 1])}
    data = Drawn(images, augment="resized_flip_rand_mix", **options)
    plain = Drawn(images, augment="resized_flip_rand", **options)
    rows, forms = np.array([4, 0, 2, 1]), set()
    for draw in range(8):
        batch, unmixed = data.collate(rows, draw=draw), plain.collate(rows, draw=draw)
        assert torch.equal(batch.tokens, data.collate(rows, draw=draw).tokens)
        assert batch.targets.tolist() == unmixed.targets.tolist() == [[1.0], [0.0], [2.0], [1.0]]
        assert batch.other_targets.tolist() == unmixed.targets.flip(0).tolist()
        share, other = batch.other_share, unmixed.tokens.flip(0)
        assert share.dtype == torch.float32
        assert share.tolist() == share[:1].tolist() * 4
        cut = ((batch.tokens == unmixed.tokens) | (batch.tokens == other)).all()
        forms.add(bool(cut))
        if not cut:
            torch.testing.assert_close(
                batch.tokens, unmixed.tokens.lerp(other, share[0]), atol=0.51 / 255, rtol=0
            )
    assert forms == {True, False}
    still = data.collate(rows)
    assert still.other_targets is None
    assert torch.equal(still.tokens, plain.collate(rows).tokens)


def test_augmented_images_are_windows_of_the_padded_ones():
    images = np.maximum(pixels(60, 16, 8), 1)  # black is padding alone
    data = Drawn(images, augment="crop_flip", patch=1, scale=([0, 0, 0], [1, 1, 1]))
    tokens = (data.collate(np.arange(60), draw=1).tokens.numpy() * 255).round().reshape(images.shape)
    padded = np.pad(images, ((0, 0), (2, 2), (1, 1), (0, 0)))
    found = set()
    for row in range(60):
        matches = [
            (top, left, flip)
            for top in range(5)
            for left in range(3)
            for flip in (False, True)
            for window in [padded[row, top : top + 16, left : left + 8]]
            if np.array_equal(tokens[row], window[:, ::-1] if flip else window)
        ]
        assert len(matches) == 1
        found.add(matches[0])
    assert {top for top, _, _ in found} == set(range(5))
    assert {left for _, left, _ in found} == set(range(3))
    assert {flip for _, _, flip in found} == {False, True}


def test_without_a_draw_nothing_is_augmented():
    images = pixels(5, 8, 8)
    plain, moved = Drawn(images), Drawn(images, augment="crop_flip")
    assert torch.equal(plain.collate([0, 3]).tokens, moved.collate([0, 3]).tokens)
    assert torch.equal(plain.collate([0, 3], draw=4).tokens, plain.collate([0, 3]).tokens)


def test_an_image_that_failed_keeps_its_row():
    data = Drawn(pixels(6, 4, 4), failed=[1, 4])
    assert data.num_tokens.tolist() == [4, 0, 4, 4, 0, 4]
    assert data.errors == {1: "torn", 4: "torn"}
    assert data.labeled_rows("train").tolist() == [0, 2, 3, 5]
    with pytest.raises(MolsliceError, match=r"cannot batch rows .* that could not be read: \[4\]"):
        data.collate([0, 4])
    with pytest.raises(MolsliceError, match="cannot read any image of drawn: torn"):
        Drawn(pixels(2, 4, 4), failed=[0, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": "pixel"}, "invalid tokens of images 'pixel'; did you mean 'pixels'"),
        ({"augment": "flip"}, "invalid augment of images 'flip'"),
        ({"patch": 0}, "patch of images must be an integer of at least 1, got 0"),
        ({"patch": 2.0}, "patch of images"),
        ({"gray": 1}, "gray of images must be true or false"),
        ({"patch": 4}, r"patches of 4 x 4 do not tile images of 6 x 9; choices: 1, 3$"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(MolsliceError, match=message):
        Drawn(pixels(3, 6, 9), **options)


def test_gray_is_pillows_luma():
    images = pixels(4, 16, 16)
    expected = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])
    np.testing.assert_array_equal(to_gray(images)[..., 0], expected)
    weighted = images @ [0.299, 0.587, 0.114]
    assert np.abs(to_gray(images)[..., 0] - weighted).max() <= 0.5 + 1e-2


def decoded(items, tmp_path, identity=0, **how):
    how = Decoding(**how, cache_dir=tmp_path / "cache")
    return how.decode(lambda: iter(items), len(items), {"of": identity})


def test_files_become_pixels(tmp_path):
    images = pixels(3, 5, 7)
    (tmp_path / "one.png").write_bytes(encoded(images[0]))
    decoded_pixels, failed = decoded(
        [tmp_path / "one.png", encoded(images[1], "BMP"), encoded(images[2])], tmp_path
    )
    np.testing.assert_array_equal(decoded_pixels, images)
    assert failed == {}
    gray, _ = decoded([encoded(images[0])], tmp_path, gray=True)
    np.testing.assert_array_equal(gray, to_gray(images[:1]))


def test_what_was_decoded_is_found_again(tmp_path, monkeypatch):
    files = [encoded(image) for image in pixels(2, 4, 4)]
    first = decoded([*files, b"torn"], tmp_path)
    monkeypatch.setattr(image_files, "_decode", None)
    again = decoded([*files, b"torn"], tmp_path)
    np.testing.assert_array_equal(first[0], again[0])
    assert again[1] == first[1]
    with pytest.raises(TypeError):
        decoded(files, tmp_path, identity=1)


def test_damaged_files_have_a_reason(tmp_path):
    image = pixels(1, 40, 40)[0]
    whole = encoded(image, "JPEG")
    (tmp_path / "empty.jpg").touch()
    deep = Image.fromarray(np.full((4, 4), 40_000, np.uint16))
    deep.save(tmp_path / "deep.png")
    items = [
        encoded(image),
        whole[: len(whole) // 2],
        b"\x89PNG\r\n\x1a\nrubbish",
        tmp_path / "empty.jpg",
        tmp_path / "deep.png",
        tmp_path / "none.png",
        "the table holds no image in this row",
    ]
    decoded_pixels, failed = decoded(items, tmp_path)
    assert sorted(failed) == [1, 2, 3, 4, 5, 6]
    assert "truncated" in failed[1]
    assert failed[3].startswith("empty.jpg: cannot identify")
    assert "more than 8 bits" in failed[4]
    assert "No such file" in failed[5]
    np.testing.assert_array_equal(decoded_pixels[0], image)
    assert not decoded_pixels[1:].any()


def test_images_of_several_sizes_need_one(tmp_path):
    files = [encoded(pixels(1, 40, 20)[0]), encoded(pixels(1, 16, 30, 1)[0])]
    with pytest.raises(MolsliceError, match=r"differ in size: 40 x 20 in row 1, 16 x 30 in row 2; set"):
        decoded(files, tmp_path)
    assert decoded(files, tmp_path, size=8)[0].shape == (2, 8, 8, 3)


def test_crop_takes_the_middle_and_squash_all(tmp_path):
    image = np.zeros((30, 90, 3), np.uint8)
    image[:, 30:60] = 200
    crop, squash = (decoded([encoded(image)], tmp_path, size=30, fit=fit)[0][0] for fit in ("crop", "squash"))
    assert (crop == 200).all()
    assert not squash[:, :8].any()
    assert (squash[:, 13:17] == 200).all()
    wrong: list[dict[str, Any]] = [{"size": 0}, {"fit": "stretch"}]
    for option in wrong:
        with pytest.raises(MolsliceError, match="of images"):
            Decoding(**option)


def test_many_are_decoded_in_threads_and_on_disk_in_order(tmp_path, monkeypatch):
    images = pixels(50, 6, 6)
    files = [encoded(image) for image in images]
    for name, value in (("SINGLE_THREAD_ROWS", 10), ("CHUNK_ROWS", 16), ("IN_MEMORY_BYTES", 100)):
        monkeypatch.setattr(image_files, name, value)
    decoded_pixels, _ = Decoding(cache_dir=tmp_path, workers=3).decode(lambda: iter(files), 50, {})
    np.testing.assert_array_equal(decoded_pixels, images)
    assert [path.name for path in tmp_path.iterdir() if not path.is_dir()] == []
