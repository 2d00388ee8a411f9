"""The colors of explanations, and the layout of their pictures."""

import re
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem

import molslice
from molslice.chem import BACKGROUNDS
from molslice.chem.colored_drawing import (
    DARK,
    DARK_SEQUENTIAL,
    DIVERGING,
    SEQUENTIAL,
    THEMES,
    WHITE,
    Matrix,
    color_of,
    draw_colored,
    draw_disks,
)
from molslice.errors import MolsliceError

# Machado, Oliveira and Fernandes 2009, severity 1, for linear RGB
BLIND = {
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def linear(color):
    color = np.asarray(color)
    return np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("palette", [DIVERGING, SEQUENTIAL])
def test_black_letters_are_legible_on_every_color(palette):
    for color in palette:
        luminance = linear(color) @ [0.2126, 0.7152, 0.0722]
        assert (luminance + 0.05) / 0.05 >= 4.5  # the contrast that WCAG 2 asks for


def test_white_letters_are_legible_on_every_dark_color():
    for color in DARK:
        letters, disk = (linear(one) @ [0.2126, 0.7152, 0.0722] for one in (WHITE, color))
        assert (letters + 0.05) / (disk + 0.05) >= 4.5


@pytest.mark.parametrize("palette", [DIVERGING, DARK])
@pytest.mark.parametrize("kind", BLIND)
def test_the_two_ends_differ_for_each_kind_of_color_blindness(kind, palette):
    seen = [np.array(BLIND[kind]) @ linear(color) for color in (palette[0], palette[-1])]
    assert np.linalg.norm(seen[0] - seen[1]) > 0.3


def test_the_page_shows_the_colors_of_its_pictures():
    style = (Path(molslice.__file__).parent / "serve" / "static" / "page.css").read_text()
    scales = re.findall(r"--scale: (.*);", style)
    shown = [
        [[int(part) for part in color.split()] for color in re.findall(r"rgb\((.*?)\)", scale)]
        for scale in scales
    ]
    for colors, palette in zip(shown, (DIVERGING, DARK), strict=True):
        assert np.abs(np.array(colors) - 255 * np.array(palette)).max() <= 1
    assert color_of(0.0, 1.0, diverging=True) == (1.0, 1.0, 1.0)
    assert "--card: #1b2326" in style  # the middle of the dark colors
    assert np.abs(np.array(DARK[3]) * 255 - [0x1B, 0x23, 0x26]).max() <= 1


def test_a_picture_for_the_page_has_no_background_and_no_text():
    for dark in (False, True):
        drawn = draw_disks("CCO", np.array([0.1, -0.2, 0.5]), dark=dark)
        assert "<rect" not in drawn
        assert "<text" not in drawn
        assert width(drawn) < width(picture("CCO", [0.1, -0.2, 0.5]))


def test_the_scale_is_symmetric_and_ends_at_the_largest_value():
    assert color_of(0.0, 2.0, diverging=True) == (1.0, 1.0, 1.0)
    assert color_of(-2.0, 2.0, diverging=True) == DIVERGING[0]
    assert np.allclose(color_of(2.0, 2.0, diverging=True), DIVERGING[-1])
    shades = [
        [sum(color_of(sign * part, 1.0, diverging=True)) for part in (0.25, 0.5, 1)] for sign in (-1, 1)
    ]
    assert np.allclose(shades[0], shades[1], atol=0.2)  # of equal strength on both sides
    assert (np.diff(shades, axis=1) < 0).all()


def picture(smiles, values, **options):
    return draw_colored(
        smiles, np.array(values), ".svg", heading="gap", scale="part (eV)", **options
    ).decode()


def test_values_that_are_all_zero_have_no_ends_of_the_scale():
    assert picture("C", [0.0]).count("<path") < picture("C", [1e-3]).count("<path")


def width(text):
    return int(re.search(r"width='(\d+)px'", text).group(1))


def height(text):
    return int(re.search(r"height='(\d+)px'", text).group(1))


def test_the_title_of_a_small_matrix_is_not_cut_off():
    title = "exact map: to row, from column"
    one = Matrix(np.ones((2, 2)), ("graph", "O0"), title)
    alone, beside = picture("O", [0.5]), picture("O", [0.5], matrix=one)
    assert width(beside) - width(alone) > 0.56 * 16 * len(title)
    assert height(beside) == height(alone)
    large = Matrix(np.ones((40, 40)), [str(k) for k in range(40)], title)
    assert height(picture("O", [0.5], matrix=large)) > 400


def letters(smiles, values, **options):
    return picture(smiles, values, **options).count("<path")


def test_the_largest_values_are_written_at_their_atoms():
    alone = letters("CCO", [1.0, 0.1, 0.1])
    assert letters("CCO", [0.1, 0.1, 1.0]) == alone
    assert letters("CCO", [1.0, 0.1, -0.5]) == alone + len("-0.5")
    assert letters("CCO", [1.0, 0.3, -0.5]) == alone + len("-0.5+0.3")


def test_columns_of_a_small_matrix_show_the_number_of_their_atom():
    one, longer_symbol, longer_number = (
        letters("O", [0.5], matrix=Matrix(np.ones((2, 2)), ("graph", label), "map"))
        for label in ("O1", "Cl1", "O12")
    )
    assert (longer_symbol, longer_number) == (one + 1, one + 2)
    sides = [Matrix(np.ones((40, 40)), [f"O{k}{end}" for k in range(40)], "map") for end in ("", "1")]
    assert len({letters("O", [0.5], matrix=matrix) for matrix in sides}) == 1  # too small for labels


def test_white_letters_are_legible_on_the_dark_colors_without_a_sign():
    for color in DARK_SEQUENTIAL:
        letters, disk = (linear(one) @ [0.2126, 0.7152, 0.0722] for one in (WHITE, color))
        assert (letters + 0.05) / (disk + 0.05) >= 4.5


def test_the_background_is_white_dark_or_transparent():
    drawings = {name: picture("CCO", [0.1, -0.2, 0.5], background=name) for name in BACKGROUNDS}
    assert set(BACKGROUNDS) == set(THEMES)
    whole = r"<path d='M 0.0,0.0 [^']*' style='fill:#(\w+)"  # the first rectangle
    colors = {background: re.findall(whole, drawn) for background, drawn in drawings.items()}
    night = "".join(f"{int(255 * part):02X}" for part in DARK[3])
    assert colors == {"white": ["FFFFFF"], "dark": [night], "transparent": []}
    assert "#000000" not in drawings["dark"]  # no ink on the background of its color
    with pytest.raises(MolsliceError, match="invalid background 'pink'; choices: white, dark, transparent"):
        picture("C", [1.0], background="pink")


def disks(text):
    """Return the colors of the disks of the atoms, in order."""
    return re.findall(r"<ellipse[^>]*fill:(#[0-9A-F]{6})", text)


def test_pictures_with_one_end_of_the_colors_can_be_compared():
    first, second = (
        disks(picture("OCC", [0.5, 0.25, -0.5], largest=1.0)),
        disks(picture("OCC", [1.0, 0.5, 0.25], largest=1.0)),
    )
    assert first[0] == second[1]  # 0.5
    assert first[1] == second[2]  # 0.25
    alone = disks(picture("OCC", [0.5, 0.25, -0.5]))
    assert alone[0] == second[0]  # the largest of its picture
    assert len(disks(picture("OCC", [0.5, 0.0, 0.001], largest=1.0))) == 1


def box(paths):
    """Return the lower and the upper end of the points of paths."""
    numbers = [re.findall(r"(-?[\d.]+)[ ,](-?[\d.]+)", path) for path in paths]
    points = np.array([[float(x), float(y)] for path in numbers for x, y in path])
    return points.min(0), points.max(0)


@pytest.mark.parametrize("smiles", ["[Na+]", "[Zn+2]", "[NH4+]", "[Cl-]", "C[NH3+]", "CC[O-]", "Br", "CCO"])
def test_numbers_keep_away_from_the_letters_of_labels(smiles):
    values = np.zeros(Chem.MolFromSmiles(smiles).GetNumAtoms())
    values[-1] = 0.35
    drawn = picture(smiles, values)
    label = re.findall(rf"<path class='atom-{len(values) - 1}' d='([^']*)' fill", drawn)
    number = re.findall(r"<path d='([^']*)' fill='#000000'/>", drawn)[: len("+0.35")]
    (low, high), (below, above) = box(label), box(number)
    gaps = np.maximum(below - high, low - above)
    assert gaps.max() > 2  # pixels, across or up


def test_an_equation_has_its_line_below_the_scale():
    plain, with_sum = picture("CCO", [1.0, 0.0, -1.0]), picture("CCO", [1.0, 0.0, -1.0], equation="a = b")
    heights = [int(re.search(r"height='(\d+)px'", text)[1]) for text in (plain, with_sum)]
    assert heights[1] == heights[0] + 22
    assert with_sum.count("<path") > plain.count("<path")
