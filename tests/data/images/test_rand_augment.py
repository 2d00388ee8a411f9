"""Tests of RandAugment against numpy, and of the windows of resized crops."""

import sys

import numpy as np
import pytest
from PIL import Image

from molslice.data.images.rand_augment import OPERATIONS, rand_augment, resized_crop
from molslice.types import MolsliceError
from tests.data.images.pictures import pixels

IMAGE = pixels(1, 20, 40)[0]


def changed(name, strength, sign=1.0):
    return np.asarray(OPERATIONS[name](Image.fromarray(IMAGE), strength, sign)).astype(int)


def test_what_changes_colors():
    image = IMAGE.astype(int)
    assert (changed("identity", 0.7) == image).all()
    assert (changed("posterize", 0.5) == (image & 0b11111100)).all()
    assert (changed("posterize", 0.0) == image).all()
    assert (changed("solarize", 0.25) == np.where(image < 192, image, 255 - image)).all()
    bright = (image * (1 + 0.9 * 0.5)).clip(0, 255)
    assert np.abs(changed("brightness", 0.5) - bright).max() <= 1
    luma = (image @ np.array([0.299, 0.587, 0.114]))[..., None]
    pale = (luma + (image - luma) * (1 - 0.9 * 0.5)).clip(0, 255)
    assert np.abs(changed("color", 0.5, -1.0) - pale).max() <= 2
    flat = (luma.mean() + (image - luma.mean()) * (1 - 0.9 * 0.5)).clip(0, 255)
    assert np.abs(changed("contrast", 0.5, -1.0) - flat).max() <= 2
    low, high = image.min((0, 1)), image.max((0, 1))
    assert np.abs(changed("autocontrast", 0.3) - (image - low) * 255 / (high - low)).max() <= 1
    assert (changed("sharpness", 0.0) == image).all()
    blurred, sharp = (np.abs(np.diff(changed("sharpness", 1.0, sign), axis=0)).mean() for sign in (-1.0, 1.0))
    assert blurred < np.abs(np.diff(image, axis=0)).mean() < sharp


def test_what_moves_pixels():
    image = IMAGE.astype(int)
    right = changed("shift_x", 0.5)  # 0.45 x 0.5 x 40 = 9 pixels
    assert (right[:, :31] == image[:, 9:]).all()
    assert (right[:, 31:] == 0).all()
    up = changed("shift_y", 0.5, -1.0)  # 4.5, the nearest is taken
    assert (up[5:] == image[:15]).all() or (up[5:] == image[1:16]).all()
    sheared = changed("shear_x", 1.0)  # row y takes the column x + 0.3 y
    for y in (0, 6, 19):
        step = int(0.3 * (y + 0.5))
        same = [(sheared[y, : 30 - s] == image[y, s:30]).all() for s in (step, step + 1)]
        assert any(same)
    turned = changed("rotate", 1.0)
    assert (turned != image).any()
    assert (changed("rotate", 0.0) == image).all()


@pytest.mark.parametrize("colors", [1, 3])
def test_it_is_a_function_of_the_draw(colors):
    image = pixels(1, 12, 12, colors)[0]
    found = [
        change(image, np.random.default_rng(seed))
        for change in (rand_augment, resized_crop)
        for seed in range(40)
    ]
    again = [
        change(image, np.random.default_rng(seed))
        for change in (rand_augment, resized_crop)
        for seed in range(40)
    ]
    assert all((one == other).all() for one, other in zip(found, again, strict=True))
    assert all(one.shape == image.shape and one.dtype == np.uint8 for one in found)
    assert len({one.tobytes() for one in found}) > 60


def test_every_operation_is_drawn(monkeypatch):
    from molslice.data.images import rand_augment as module

    drawn = []

    def noted(name):
        return lambda image, strength, sign: drawn.append((name, strength, sign)) or image

    monkeypatch.setattr(module, "OPERATIONS", {name: noted(name) for name in OPERATIONS})
    for seed in range(700):
        rand_augment(IMAGE, np.random.default_rng(seed))
    assert len(drawn) == 1400
    counts = {name: sum(one[0] == name for one in drawn) for name in OPERATIONS}
    assert min(counts.values()) > 60
    assert {one[1] for one in drawn} == {9 / 30}
    assert 600 < sum(one[2] > 0 for one in drawn) < 800


def test_windows_are_of_the_sizes_that_they_should_be():
    """The values of a ramp show the width of the window."""
    ramp = np.arange(200, dtype=np.uint8)
    across = np.broadcast_to(ramp[None, :, None], (200, 200, 1))
    widths, heights = [], []
    for seed in range(300):
        for image, found in ((across, widths), (across.transpose(1, 0, 2), heights)):
            crop = resized_crop(np.ascontiguousarray(image), np.random.default_rng(seed)).astype(int)
            found.append(crop.max() - crop.min() + 1)
    areas = np.array(widths) * np.array(heights) / 200**2
    ratios = np.array(widths) / np.array(heights)
    assert areas.min() > 0.07
    assert areas.min() < 0.2
    assert areas.max() > 0.85
    assert 0.72 < ratios.min() < 0.85
    assert 1.2 < ratios.max() < 1.39
    assert abs(areas.mean() - 0.53) < 0.05


def test_without_pillow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MolsliceError, match=r"pip install 'molslice\[images\]'"):
        rand_augment(IMAGE, np.random.default_rng(0))
