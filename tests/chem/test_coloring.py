import re
import struct

import numpy as np
import pytest

from molslice.chem.coloring import Matrix, color_of, draw_colored
from molslice.types import MolsliceError
from tests.explanation.models import ODD
from tests.real_data import odd_smiles

OPTIONS = {"heading": "gap: 3.2 eV", "lines": ["about"], "scale": "contribution (eV)"}


def disks(svg):
    """Return the color of the disk of each atom, in hexadecimal."""
    found = re.findall(r"<ellipse[^>]*class='atom-(\d+)'[^>]*>|<ellipse[^>]*>", svg)
    colors = re.findall(r"<ellipse[^>]*fill:(#[0-9A-F]{6})", svg)
    assert len(found) == len(colors)
    return {int(atom): color for atom, color in zip(found, colors, strict=True) if atom}


def hexadecimal(color):
    return "#" + "".join(f"{int(255 * part):02X}" for part in color)


def test_colors_diverge_around_white():
    assert color_of(0.0, 2.0, diverging=True) == color_of(0.0, 2.0, diverging=False) == (1.0, 1.0, 1.0)
    assert color_of(1.0, 0.0, diverging=True) == (1.0, 1.0, 1.0)
    red, _, blue = color_of(2.0, 2.0, diverging=True)
    assert red > blue
    red, _, blue = color_of(-2.0, 2.0, diverging=True)
    assert blue > red
    assert color_of(9.0, 2.0, diverging=True) == color_of(2.0, 2.0, diverging=True)
    steps = [color_of(x, 1.0, diverging=True) for x in np.linspace(0, 1, 50)]
    assert all(after[2] <= before[2] for before, after in zip(steps, steps[1:], strict=False))


def luminance(color):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color]
    return np.dot(linear, (0.2126, 0.7152, 0.0722))


# from linear RGB to that of the color-blind: Vienot, Brettel and Mollon 1999 (protan, deutan)
BLIND = {
    "protan": [(0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)],
    "deutan": [(0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)],
}


@pytest.mark.parametrize("kind", BLIND)
def test_signs_differ_for_the_color_blind_and_letters_are_readable(kind):
    for share in (0.3, 0.6, 1.0):
        seen = [
            np.array(BLIND[kind]) @ np.array(color_of(sign * share, 1.0, diverging=True)) ** 2.2
            for sign in (1, -1)
        ]
        assert np.abs(seen[0] - seen[1]).max() > 0.2
    for value, diverging in ((1.0, True), (-1.0, True), (1.0, False)):
        contrast = (luminance(color_of(value, 1.0, diverging=diverging)) + 0.05) / 0.05
        assert contrast > 3.5  # of black letters


def test_the_disk_of_an_atom_has_the_color_of_its_value():
    values = np.array([2.0, -1.0, 0.0])
    for smiles, order in (("OCC", [0, 1, 2]), ("CCO", [2, 1, 0])):
        svg = draw_colored(smiles, values[order], ".svg", **OPTIONS).decode()
        expected = {
            atom: hexadecimal(color_of(float(value), 2.0, diverging=True))
            for atom, value in enumerate(values[order])
        }
        assert disks(svg) == expected


def test_a_picture_is_wide_enough_and_the_same_each_time():
    values = np.linspace(-1, 1, 3)
    png = draw_colored("OCC", values, ".png", **OPTIONS)
    assert png.startswith(b"\x89PNG")
    assert png == draw_colored("OCC", values, ".png", **OPTIONS)
    narrow = struct.unpack(">II", png[16:24])
    long = draw_colored("OCC", values, ".png", **{**OPTIONS, "lines": ["many words " * 12]})
    wide = struct.unpack(">II", long[16:24])
    assert wide[0] > 900 > narrow[0]
    matrix = Matrix(np.eye(4), ["graph", "O0", "C1", "C2"], "map")
    beside = draw_colored("OCC", values, ".svg", **OPTIONS, diverging=False, matrix=matrix).decode()
    assert beside.count("<path") > draw_colored("OCC", values, ".svg", **OPTIONS).decode().count("<path") + 16


def test_parts_of_a_disconnected_molecule_do_not_overlap():
    svg = draw_colored("[Na+].[Cl-].O.CC(=O)[O-]", np.zeros(7), ".svg", **OPTIONS).decode()
    places = np.array(
        [[float(x), float(y)] for x, y in re.findall(r"<ellipse cx='([\d.]+)' cy='([\d.]+)'", svg)]
    )
    assert len(places) == 7
    apart = np.linalg.norm(places[:, None] - places, axis=2) + 1e3 * np.eye(7)
    assert apart.min() > 45  # pixels, about a bond


def test_names_from_a_model_cannot_add_elements_to_a_picture():
    svg = draw_colored(
        "O", np.ones(1), ".svg", heading="<script>alert(1)</script>", scale="&\x00 <b>"
    ).decode()
    assert "script" not in svg
    assert "<b>" not in svg


def test_odd_molecules_are_drawn():
    from molslice.chem.smiles import ChemError, parse_smiles

    drawn = 0
    for smiles in (
        *ODD,
        "[H][H]",
        "C[C@@H]1CC2CC1C2",
        "c1cc[nH]c1",
        *odd_smiles("rdkit_should_parse.smi.gz")[:40],
    ):
        try:
            atoms = parse_smiles(smiles).GetNumAtoms()
        except ChemError:
            continue
        assert draw_colored(smiles, np.linspace(-1, 1, atoms), ".svg", **OPTIONS).startswith(b"<?xml")
        drawn += 1
    assert drawn > 15


def test_wrong_endings_and_molecules_are_refused():
    with pytest.raises(MolsliceError, match=r"a drawing ends in \.svg or \.png, got '\.gif'"):
        draw_colored("C", np.ones(1), ".gif", **OPTIONS)
    with pytest.raises(MolsliceError, match="not valid SMILES"):
        draw_colored("c1cc", np.ones(4), ".svg", **OPTIONS)
