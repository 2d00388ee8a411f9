"""Drawings of SMILES for pages: colors and letters that can be read."""

import re

from molslice.chem.drawing import draw_smiles

DARK_CARD = (0x1B, 0x23, 0x26)  # of molslice/serve/static/page.css


def luminance(color):
    """Return the relative luminance of sRGB, as in the contrast ratio of WCAG."""
    shares = [channel / 255 for channel in color]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_nitrogen_is_readable_on_a_dark_background():
    colors = set(re.findall(r"fill='#([0-9A-F]{6})'|fill:#([0-9A-F]{6})", draw_smiles("NCCN", dark=True)))
    (nitrogen,) = {one or other for one, other in colors} - {"E5E5E5"}
    color = tuple(bytes.fromhex(nitrogen))
    assert color[2] == max(color)  # blue
    assert (luminance(color) + 0.05) / (luminance(DARK_CARD) + 0.05) >= 4.5
