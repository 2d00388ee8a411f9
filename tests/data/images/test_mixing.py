"""Tests of Mixup and CutMix against slow forms."""

import numpy as np

from molslice.data.images.mixing import mix_images

BLACK_AND_WHITE = np.stack([np.zeros((12, 20, 1), np.uint8), np.full((12, 20, 1), 255, np.uint8)])


def draws(images):
    for seed in range(400):
        yield mix_images(images, np.random.default_rng(seed))


def test_mixup_is_the_weighted_mean_and_cutmix_a_rectangle_of_that_area():
    cut = 0
    for mixed, share in draws(BLACK_AND_WHITE):
        levels = np.unique(mixed[0])
        if set(levels) <= {0, 255}:
            rows, columns = np.nonzero(mixed[0, ..., 0])
            area = len(rows) and (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
            assert len(rows) == area
            assert abs(share - area / 240) <= 0.5 / 255  # Mixup with a tiny share looks like a whole image
            cut += 1
        else:
            assert levels.tolist() == [round(255 * share)]
        assert np.array_equal(mixed[1], 255 - mixed[0])  # mixed alike, the other way round
    assert 150 < cut < 250


def test_shares_are_those_of_the_beta_distributions():
    both = list(draws(BLACK_AND_WHITE))
    blended = [share for mixed, share in both if not set(np.unique(mixed[0])) <= {0, 255}]
    # Beta(0.8, 0.8) has the variance 1 / (4 (2 * 0.8 + 1)), without the few that round to black or white
    assert abs(np.mean(blended) - 0.5) < 0.06
    assert abs(np.var(blended) - 1 / 10.4) < 0.015
    areas = [share for mixed, share in both if set(np.unique(mixed[0])) <= {0, 255}]
    assert 0 <= min(areas) <= max(areas) <= 1
    assert 0.2 < np.mean(areas) < 0.45  # less than one half, because the border cuts rectangles off


def test_the_middle_one_of_an_odd_number_stays_and_the_input_is_not_changed():
    images = np.random.default_rng(0).integers(256, size=(3, 8, 8, 3), dtype=np.uint8)
    before = images.copy()
    for mixed, _ in draws(images):
        assert np.array_equal(mixed[1], images[1])
        assert mixed.dtype == np.uint8
    assert np.array_equal(images, before)
