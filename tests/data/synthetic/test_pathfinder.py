"""Tests of Pathfinder: generated images, labels, and the arena's folders."""

import cmath
import itertools
import math
import os
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from molslice.data import build_dataset
from molslice.data.synthetic.pathfinder import Pathfinder
from molslice.data.synthetic.pathfinder_rule import (
    CLEARANCE,
    RULES,
    Picture,
    distance,
    draw_pictures,
    is_connected,
    pictures,
)
from molslice.types import DataSpec, MolsliceError

SMALL = {"counts": (12, 4, 4), "contour_length": 8, "num_distractors": 3}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


def are_marks_on_one_blot(picture, scale):
    """Dilate the image until gaps close, and return whether both marks are in one connected component."""
    widen = (picture.reach - picture.rule.dash_width) / 2
    blots, _ = ndimage.label(draw_pictures([picture], scale=scale, widen=widen)[0] > 127)
    first, second = (blots[int(mark.imag * scale), int(mark.real * scale)] for mark in picture.marks)
    assert first
    assert second
    return first == second


@pytest.mark.parametrize(
    ("size", "scale", "count"), [(16, 10, 12), (32, 10, 10), (64, 10, 5), (128, 6, 5), (256, 3, 5)]
)
def test_the_pixels_say_what_the_labels_say(size, scale, count):
    found = [
        (picture.label, are_marks_on_one_blot(picture, scale))
        for picture in pictures(RULES[size], range(count), seed=1)
    ]
    assert [said for _, said in found] == [label for label, _ in found]
    assert {label for label, _ in found} == {True, False}


def test_the_dashes_keep_to_the_rule():
    rule = RULES[32]
    for picture in pictures(rule, range(6), seed=2):
        near = [
            (one, other)
            for one, other in itertools.combinations(picture.dashes, 2)
            if distance(one, other) < CLEARANCE * picture.gap - 1e-9
        ]
        assert max(distance(one, other) for one, other in near) <= picture.gap + 1e-9
        # what follows what: two long contours of 14, short ones of 4, each a chain
        groups = chains(picture.dashes, near)
        assert sorted(map(len, groups))[-2:] == [14, 14]
        assert set(map(len, groups)) <= {14, 4}
        assert 2 <= len(groups) <= 7
        for a, b in picture.dashes:
            assert abs(b - a) == pytest.approx(rule.dash_length)
            assert all(1 <= x <= 31 for x in (a.real, a.imag, b.real, b.imag))


def chains(dashes, links):
    groups = [{dash} for dash in dashes]
    for pair in links:
        one, other = (next(group for group in groups if dash in group) for dash in pair)
        if one is not other:
            groups.remove(other)
            one |= other
    return groups


def test_turns_have_the_density_of_the_rule():
    # so large that nothing is in the way
    rule = replace(
        RULES[128], size=2000, start_distance=300.0, num_distractors=0, contour_length=4, continuity=1.5
    )
    turns = []
    for picture in pictures(rule, range(400), seed=3):
        for one, other in itertools.permutations(picture.dashes, 2):
            middle = (one[1] + other[0]) / 2
            if (
                abs(one[1] - other[0]) <= picture.gap + 1e-9
                and abs(middle - one[1]) <= picture.gap / 2 + 1e-9
            ):
                turn = (other[1] - other[0]) / (one[1] - one[0])
                turns.append(abs(math.atan2(turn.imag, turn.real)))
    turns = np.array(turns)
    assert len(turns) == 400 * 2 * 3
    assert turns.max() <= math.pi / 3 + 1e-9
    # the share of cos^2 up to half of the largest angle is (pi / 4 + 1 / 2) / (pi / 2)
    assert np.mean(turns < math.pi / 6) == pytest.approx(0.5 + 1 / math.pi, abs=0.03)


def test_directions_of_dashes_are_uniform():
    rule = replace(RULES[128], size=2000, num_distractors=0, contour_length=4)
    angles = [
        cmath.phase(end - start)
        for picture in pictures(rule, range(1500), seed=5)
        for start, end in picture.dashes
    ]
    shares = np.histogram(angles, bins=4, range=(-math.pi, math.pi))[0] / len(angles)
    np.testing.assert_allclose(shares, 0.25, atol=0.03)


def test_labels_and_markers_are_coins():
    found = list(pictures(replace(RULES[32], contour_length=4, num_distractors=0), range(300), seed=4))
    assert np.mean([picture.label for picture in found]) == pytest.approx(0.5, abs=0.09)


def test_a_row_is_its_own_function_of_the_seed():
    rule = RULES[32]
    one, other = (list(pictures(rule, rows, seed=7)) for rows in (range(6), [5, 2]))
    assert [one[5], one[2]] == other
    assert next(pictures(rule, [2], seed=8)) != one[2]


def picture_of(dashes, marks, label=True):
    return Picture(RULES[32], 2.0, tuple(dashes), marks, label)


def test_following_dashes_by_hand():
    line = [(0j + x, 2j * 0 + x + 2) for x in (2, 6, 10)]
    assert is_connected(picture_of(line, (2 + 0j, 12 + 0j)))
    assert not is_connected(picture_of([line[0], line[2]], (2 + 0j, 12 + 0j)))  # a dash is missing
    aside = [(2 + 2.6j, 12 + 2.6j)]
    assert not is_connected(picture_of([*line, *aside], (2 + 0j, 2 + 2.6j)))
    assert is_connected(picture_of([*line, *aside], (12 + 2.6j, 2 + 2.6j)))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((0j, 4 + 0j), (2 - 1j, 2 + 1j), 0.0),
        ((0j, 4 + 0j), (1 + 2j, 3 + 2j), 2.0),
        ((0j, 4 + 0j), (7 + 4j, 9 + 9j), 5.0),
        ((0j, 4 + 0j), (2 + 3j, 2 + 3j), 3.0),
        ((0j, 0j), (3 + 4j, 3 + 4j), 5.0),
        ((0j, 2 + 0j), (4 + 0j, 6 + 0j), 2.0),
        ((0j, 4 + 0j), (2 + 1j, 2 + 5j), 1.0),
    ],
)
def test_distances_by_hand(one, other, expected):
    for a, b in ((one, other), (other, one), (one[::-1], other)):
        assert distance(a, b) == pytest.approx(expected)


def test_drawing_by_hand():
    rule = replace(RULES[32], contrast=1.0, dash_width=1.0, marker_radius=2.0)
    picture = Picture(rule, 2.0, ((4 + 8.5j, 20 + 8.5j),), (4 + 8.5j, 20.5 + 20.5j), False)
    pixels = draw_pictures([picture, replace(picture, dashes=((3.5 + 0j, 3.5 + 31j),))])
    assert pixels.shape == (2, 32, 32)
    assert pixels[0, 8, 6:20].tolist() == [255] * 14  # the pixels of row 8 reach from 8 to 9
    assert pixels[0, [7, 9], 12].tolist() == [0, 0]
    assert pixels[0, 20, 20] == 255  # the second marker
    assert pixels[0, 18, 20] == 128  # half of the pixel lies within the radius
    assert pixels[0, 17, 20] == 0
    assert pixels[1, 15, 2:5].tolist() == [0, 255, 0]
    assert pixels[1, 8, 12] == 0
    large = draw_pictures([picture], scale=4)
    assert large.shape == (1, 128, 128)
    assert large[0, 32:36, 60].tolist() == [255] * 4
    assert large[0, [31, 36], 60].tolist() == [0, 0]
    wide = draw_pictures([picture], scale=4, widen=0.5)
    assert wide[0, 30:38, 60].tolist() == [255] * 8
    assert wide[0, [29, 38], 60].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dash_gaps": ()}, "must be positive"),
        ({"dash_length": 0.0}, "must be positive"),
        ({"contour_length": 1}, "contour_length must be at least 2"),
        ({"num_distractors": -1}, "num_distractors 0"),
        ({"continuity": 0.5}, "continuity must be at least 0.75"),
    ],
)
def test_numbers_out_of_range_are_named(changes, message):
    with pytest.raises(MolsliceError, match=message):
        replace(RULES[32], **changes)


def test_what_finds_no_place_is_said(monkeypatch):
    monkeypatch.setattr("molslice.data.synthetic.pathfinder_rule.ATTEMPTS", 3)
    with pytest.raises(MolsliceError, match="3 attempts to place two contours of 60 dashes of 2 pixels"):
        next(pictures(replace(RULES[32], contour_length=60), [0], seed=0))


def test_the_data_set_that_is_made(tmp_path):
    dataset = build_dataset("pathfinder", dict(SMALL))
    assert dataset.spec == DataSpec(2, "ids", 256, max_tokens=1024, vocabulary="gray levels")
    assert Pathfinder.describe({"size": 128}).max_tokens == 16_384
    assert [len(dataset.splits[name]) for name in ("train", "valid", "test")] == [12, 4, 4]
    rule = replace(RULES[32], contour_length=8, num_distractors=3)
    expected = list(pictures(rule, range(20), seed=0))
    assert dataset.targets[:, 0].tolist() == [float(picture.label) for picture in expected]
    np.testing.assert_array_equal(dataset.sequences.values.reshape(20, 32, 32), draw_pictures(expected))
    batch = dataset.collate([3, 17])
    assert batch.tokens.shape == (2, 1024)
    assert batch.token_mask is None
    assert batch.tokens.max() == 255
    assert not dataset.errors
    again = Pathfinder(**SMALL)
    spread = Pathfinder(**SMALL, workers=2, cache_dir=tmp_path / "other")
    np.testing.assert_array_equal(spread.sequences.values, again.sequences.values)
    assert isinstance(again.sequences.values, np.memmap)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert not np.array_equal(Pathfinder(**SMALL, seed=1).sequences.values, again.sequences.values)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 48}, "size must be one of 16, 32, 64, 128, 256, got 48"),
        ({"counts": (1, 2)}, "counts must be"),
        ({"seed": -1}, "seed must be"),
        ({"workers": -1}, "workers must be 0 to 1024, got -1"),
        (
            {"root": "a", "num_distractors": 2, "contour_length": 6},
            "num_distractors, contour_length cannot be used with root",
        ),
        ({"root": "/nowhere"}, "/nowhere has no metadata/.* or leave out root"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(MolsliceError, match=message):
        Pathfinder(**options)


def write_folder(root, count=20, size=32, files=2):
    """Write a folder in the format of the arena, and return pixels and labels."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (count, size, size), dtype=np.uint8)
    labels = generator.integers(0, 2, count)
    (root / "metadata").mkdir(parents=True)
    for part in range(files):
        folder = root / "imgs" / str(part)
        folder.mkdir(parents=True)
        lines = []
        for n, row in enumerate(range(part, count, files)):
            Image.fromarray(pixels[row]).save(folder / f"sample_{n}.png")
            lines.append(f"imgs/{part} sample_{n}.png {n} {labels[row]} 1.0 14 4 2 0.5 1 1\n")
        (root / "metadata" / f"{part}.npy").write_text("".join(lines))
    order = [row for part in range(files) for row in range(part, count, files)]
    return pixels[order], labels[order]


def test_the_folder_of_the_arena(tmp_path):
    pixels, labels = write_folder(tmp_path / "arena", count=24, files=12)
    dataset = build_dataset("pathfinder", {"root": str(tmp_path / "arena")})
    np.testing.assert_array_equal(dataset.sequences.values.reshape(24, 32, 32), pixels)
    assert dataset.targets[:, 0].tolist() == labels.tolist()
    assert [len(dataset.splits[name]) for name in ("train", "valid", "test")] == [19, 3, 2]
    assert not dataset.errors


def test_metadata_as_an_array_of_text(tmp_path):
    pixels, labels = write_folder(tmp_path / "arena", files=1)
    table = tmp_path / "arena" / "metadata" / "0.npy"
    rows = [line.split() for line in table.read_text().splitlines()]
    for array in (np.array(rows), np.array(rows).astype("S")):
        np.save(table, array)
        dataset = Pathfinder(root=tmp_path / "arena")
        assert dataset.targets[:, 0].tolist() == labels.tolist()
        np.testing.assert_array_equal(dataset.sequences.values.reshape(-1, 32, 32), pixels)


def test_pickled_metadata_are_refused_unread(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    write_folder(tmp_path / "arena")
    np.save(tmp_path / "arena" / "metadata" / "0.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    with pytest.raises(MolsliceError, match=r"cannot read .*0\.npy without pickle"):
        Pathfinder(root=tmp_path / "arena")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("imgs/0 sample_0.png 0\n", r"0\.npy, line 1: expected folder, file, number and a label"),
        ("imgs/0 sample_0.png 0 2 1.0\n", r"0\.npy, line 1: .*'2'"),
        (np.zeros((3, 4)), r"0\.npy: expected rows of text, got float64 \[3, 4\]"),
        ("", "has no metadata"),
    ],
)
def test_metadata_of_other_content_are_named(tmp_path, content, message):
    write_folder(tmp_path / "arena", files=1)
    table = tmp_path / "arena" / "metadata" / "0.npy"
    if isinstance(content, str):
        table.write_text(content)
    else:
        np.save(table, content)
    with pytest.raises(MolsliceError, match=message):
        Pathfinder(root=tmp_path / "arena")


def test_pictures_that_do_not_read_keep_their_rows(tmp_path):
    root = tmp_path / "arena"
    pixels, _ = write_folder(root, files=1)
    folder = root / "imgs" / "0"
    (folder / "sample_3.png").write_bytes(b"")  # one of the arena's files is empty
    (folder / "sample_5.png").unlink()
    Image.fromarray(pixels[0][:16]).save(folder / "sample_6.png")
    whole = (folder / "sample_9.png").read_bytes()
    (folder / "sample_9.png").write_bytes(whole[: len(whole) // 2])
    Image.fromarray(pixels[2]).convert("RGB").save(folder / "sample_2.png")  # gray in three channels
    for _ in range(2):  # read, and as it is kept
        dataset = Pathfinder(root=root)
        assert sorted(dataset.errors) == [3, 5, 6, 9]
        assert dataset.errors[3].startswith("imgs/0/sample_3.png: ")
        assert dataset.errors[5] == "imgs/0/sample_5.png: No such file or directory"
        assert dataset.errors[6] == "imgs/0/sample_6.png: 32 x 16 pixels instead of 32 x 32"
        assert np.flatnonzero(dataset.num_tokens == 0).tolist() == [3, 5, 6, 9]
        for row in (0, 2, 4, 7, 19):
            np.testing.assert_array_equal(dataset.sequences[row].reshape(32, 32), pixels[row])
    with pytest.raises(
        MolsliceError, match=r"cannot read any of the 20 pictures .*32 x 32 pixels instead of 64 x 64"
    ):
        Pathfinder(root=root, size=64)


def test_pictures_that_change_places_are_read_again(tmp_path):
    pixels, _ = write_folder(tmp_path / "arena", files=1)
    first, second = (tmp_path / "arena" / "imgs" / "0" / f"sample_{n}.png" for n in (3, 4))
    for file, time in ((first, 10**9), (second, 2 * 10**9)):
        os.utime(file, (time, time))
    Pathfinder(root=tmp_path / "arena")
    first.rename(tmp_path / "aside.png")
    second.rename(first)
    (tmp_path / "aside.png").rename(second)
    found = Pathfinder(root=tmp_path / "arena").sequences.values.reshape(-1, 32, 32)
    np.testing.assert_array_equal(found[[3, 4]], pixels[[4, 3]])
