"""Draw a structure whose atoms are colored by numbers, with the scale of the colors, as SVG or PNG."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters

import numpy as np
from rdkit import Chem
from rdkit.Chem import rdDepictor
from rdkit.Chem.Draw import rdMolDraw2D
from rdkit.Geometry import Point2D

from molslice.chem import BACKGROUNDS
from molslice.chem.drawing import drawer_kind, finish_drawing
from molslice.chem.smiles import ChemError, parse_smiles, quiet_rdkit
from molslice.errors import MolsliceError

Color = tuple[float, float, float]

# from the negative end through white to the positive end; blue and orange differ for all kinds of color
# blindness, and every color is light enough for black letters on it
DIVERGING: tuple[Color, ...] = (
    *((0.20, 0.50, 0.82), (0.52, 0.71, 0.91), (0.80, 0.89, 0.97), (1.0, 1.0, 1.0)),
    *((1.0, 0.89, 0.74), (0.99, 0.71, 0.40), (0.94, 0.50, 0.10)),
)
# the same on a dark background, for white letters
DARK: tuple[Color, ...] = (
    *((0.16, 0.42, 0.72), (0.13, 0.31, 0.50), (0.12, 0.22, 0.30), (0.106, 0.137, 0.149)),
    *((0.30, 0.21, 0.10), (0.50, 0.30, 0.08), (0.65, 0.34, 0.04)),
)
SEQUENTIAL: tuple[Color, ...] = ((1.0, 1.0, 1.0), (0.86, 0.82, 0.94), (0.71, 0.62, 0.87), (0.57, 0.42, 0.80))
DARK_SEQUENTIAL: tuple[Color, ...] = (DARK[3], (0.21, 0.18, 0.32), (0.33, 0.25, 0.50), (0.46, 0.33, 0.68))
BLACK, GRAY, WHITE, SILVER = (0.0, 0.0, 0.0), (0.35, 0.35, 0.35), (0.93, 0.95, 0.95), (0.70, 0.73, 0.74)

BOND_LENGTH, BOND = 1.5, 58.0  # in the coordinates, and in pixels
RADIUS = 0.40  # of a disk, in bond lengths
MARGIN, LINE = 28, 30  # pixels around the structure, and of a line of text
LARGE, SMALL = 23.0, 16.0  # sizes of letters
NARROWEST, WIDEST, LOWEST, HIGHEST = 560, 1_600, 240, 1_200  # pixels of the structure
LETTER = 0.56  # mean width of a letter, relative to its size
BAR_WIDTH, BAR_HEIGHT, STEPS = 300, 16, 60
SMALLEST_CELL, LARGEST_CELL = 2.0, 22.0  # pixels of a cell of a matrix
PADDING = 0.05  # share of the structure's width and height
INVISIBLE = 0.02  # share of the largest value below which an atom has no disk
NOTED = 0.2  # numbers are written at atoms with this share of the largest value
MOST_NOTES, NOTE = 14, 15.0  # number of them, and the size of their letters
NOTE_DISTANCE, NOTE_SPACE = 2.0, 7.0  # pixels to the disk, and at least to anything else
CARBON = 6
DIRECTIONS = np.array([[np.cos(angle), np.sin(angle)] for angle in np.arange(24) * np.pi / 12])


@dataclass(frozen=True, slots=True)
class Theme:
    """The colors of a picture.

    Attributes:
        background: The background; None for a transparent one.
        ink: Atoms, bonds and large letters.
        soft: Small letters.
        diverging: Colors of numbers with a sign, from the negative end.
        sequential: Colors of other numbers, from zero.
    """

    background: Color | None
    ink: Color
    soft: Color
    diverging: tuple[Color, ...] = DIVERGING
    sequential: tuple[Color, ...] = SEQUENTIAL


THEMES = {
    "white": Theme((1.0, 1.0, 1.0), BLACK, GRAY),
    "dark": Theme(DARK[3], WHITE, SILVER, DARK, DARK_SEQUENTIAL),
    "transparent": Theme(None, BLACK, GRAY),
}


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of numbers that are not negative, drawn beside the structure.

    Attributes:
        values: The numbers [N, N].
        labels: Label of each row; columns show the number in it.
        title: The title.
    """

    values: np.ndarray
    labels: Sequence[str]
    title: str

    @property
    def caption(self) -> str:
        """The title with the largest number."""
        return f"{self.title}; darkest {self.values.max():.2g}"


def color_of(value: float, largest: float, *, diverging: bool, theme: Theme = THEMES["white"]) -> Color:
    """Return the color of a number: the background for zero, full for `largest` or, if signed, -`largest`."""
    palette = theme.diverging if diverging else theme.sequential
    share = min(max(value / largest, -1.0 if diverging else 0.0), 1.0) if largest > 0 else 0.0
    place = (share + 1.0) / 2.0 if diverging else share
    place *= len(palette) - 1
    low = min(int(place), len(palette) - 2)
    between = place - low
    return tuple(a + between * (b - a) for a, b in zip(palette[low], palette[low + 1], strict=True))  # type: ignore[return-value]


def draw_colored(
    smiles: str,
    values: np.ndarray,
    ending: str,
    *,
    heading: str,
    lines: Sequence[str] = (),
    scale: str,
    equation: str = "",
    diverging: bool = True,
    matrix: Matrix | None = None,
    largest: float | None = None,
    background: str = "white",
) -> bytes:
    """Draw a structure with a disk behind each atom, colored by its value; returns the contents of the file.

    The largest values are also written at their atoms.

    Args:
        smiles: The molecule.
        values: Value of each atom, in the order of the SMILES [n].
        ending: `.svg` or `.png`.
        heading: The title, one line.
        lines: Further lines in small letters below the title.
        scale: What the colors mean, with the unit.
        equation: A line in small letters below it: how the values add up; "" for no line.
        diverging: Whether values may be negative.
        matrix: A matrix to draw beside the structure, or `None`.
        largest: The absolute value where the colors end, which the scale below the structure states; None for
            the largest one of the atoms. Pictures of one value can be compared.
        background: One of `BACKGROUNDS`.

    Raises:
        ChemError: The SMILES cannot be read.
        MolsliceError: The ending or the background is unknown, or this RDKit cannot write PNG.
    """
    kind = drawer_kind(ending)
    if background not in THEMES:
        raise MolsliceError(f"invalid background {background!r}; choices: {', '.join(BACKGROUNDS)}")
    theme = THEMES[background]
    mol = _prepared(smiles, len(values))
    largest = float(np.abs(values).max()) if largest is None else largest
    width, height = _size(mol)
    texts = (LETTER * LARGE * len(heading), *(LETTER * SMALL * len(line) for line in lines))
    needed = int(max(*texts, LETTER * SMALL * max(len(scale), len(equation)))) + 2 * MARGIN
    top, bottom = MARGIN // 2 + LINE + 24 * len(lines), 74 + 22 * bool(equation)
    side = 0 if matrix is None else _matrix_side(matrix)
    full = max(width + side, min(needed, 2 * WIDEST))
    width = full - side
    if matrix is not None:
        height = max(height, int(_cell(matrix) * len(matrix.values)) + 86)
    drawer = kind(full, top + height + bottom, width, height)
    _set_options(drawer, theme)
    if theme.background is not None:
        drawer.SetColour(theme.background)
        drawer.DrawRect(Point2D(0, 0), Point2D(full, top + height + bottom), True)
    drawer.SetOffset(0, top)
    _draw_disks(drawer, mol, values, largest, diverging, theme)
    _write_notes(drawer, mol, values, largest, diverging, theme)
    drawer.SetOffset(0, 0)
    _write(drawer, heading, MARGIN, MARGIN // 2 + LINE / 2, LARGE, theme.ink)
    for number, line in enumerate(lines):
        _write(drawer, line, MARGIN, MARGIN // 2 + LINE + 24 * number + 10, SMALL, theme.soft)
    _draw_scale(drawer, width / 2, top + height + 8, largest, (scale, equation), diverging, theme)
    if matrix is not None:
        _draw_matrix(drawer, matrix, width, top, side, theme)
    return finish_drawing(drawer)


def draw_disks(smiles: str, values: np.ndarray, *, dark: bool) -> str:
    """Draw a structure with disks as `draw_colored`, alone, on a transparent background that may be `dark`.

    The picture is as small as the molecule allows. Its colors are `DIVERGING` or `DARK`.

    Returns:
        The contents of an SVG file.

    Raises:
        ChemError: The SMILES cannot be read.
    """
    mol, theme = _prepared(smiles, len(values)), THEMES["dark" if dark else "transparent"]
    largest = float(np.abs(values).max())
    drawer = drawer_kind(".svg")(*_size(mol, smallest=False))
    _set_options(drawer, theme)
    _draw_disks(drawer, mol, values, largest, True, theme)
    _write_notes(drawer, mol, values, largest, True, theme)
    return finish_drawing(drawer).decode("ascii", "replace")


def _draw_disks(
    drawer: rdMolDraw2D.MolDraw2D,
    mol: Chem.Mol,
    values: np.ndarray,
    largest: float,
    diverging: bool,
    theme: Theme,
) -> None:
    disks = {
        atom: color_of(float(value), largest, diverging=diverging, theme=theme)
        for atom, value in enumerate(values)
        if abs(value) > INVISIBLE * largest
    }
    with quiet_rdkit():
        drawer.DrawMolecule(
            mol,
            highlightAtoms=list(disks),
            highlightAtomColors=disks,
            highlightAtomRadii=dict.fromkeys(disks, RADIUS * BOND_LENGTH),
            highlightBonds=[],
        )


def _prepared(smiles: str, atoms: int) -> Chem.Mol:
    """Return the molecule with coordinates, and with atoms in the order of the SMILES."""
    mol = parse_smiles(smiles)
    if mol.GetNumAtoms() != atoms:  # `atom_order: input` has the hydrogens that RDKit keeps
        mol = parse_smiles(smiles, as_written=True)
    for kekulize in (True, False):
        try:
            with quiet_rdkit():
                _place_atoms(mol)
                return rdMolDraw2D.PrepareMolForDrawing(mol, kekulize=kekulize, addChiralHs=False)
        except ChemError:
            continue
    return mol


def _place_atoms(mol: Chem.Mol) -> None:
    """Compute coordinates, with the parts of a disconnected molecule beside each other."""
    rdDepictor.Compute2DCoords(mol, canonOrient=True)
    conformer, left = mol.GetConformer(), 0.0
    for atoms in Chem.GetMolFrags(mol):
        positions = conformer.GetPositions()[list(atoms), :2]
        low, high = positions.min(0), positions.max(0)
        shift = np.array([left - low[0], -(low[1] + high[1]) / 2])
        for atom, place in zip(atoms, positions + shift, strict=True):
            conformer.SetAtomPosition(atom, (float(place[0]), float(place[1]), 0.0))
        left += high[0] - low[0] + 2.0 * BOND_LENGTH


def _write_notes(
    drawer: rdMolDraw2D.MolDraw2D,
    mol: Chem.Mol,
    values: np.ndarray,
    largest: float,
    diverging: bool,
    theme: Theme,
) -> None:
    """Write the largest values beside their atoms, where there is space, with the digits of the scale."""
    sizes = np.abs(values)
    if not sizes.max() > 0:
        return
    atoms = np.array([list(drawer.GetDrawCoords(atom)) for atom in range(mol.GetNumAtoms())])
    extent = float(np.ptp(mol.GetConformer().GetPositions()[:, :2], axis=0).max())
    scale = float(np.ptp(atoms, axis=0).max()) / extent if extent else BOND / BOND_LENGTH
    disk, digits = scale * BOND_LENGTH * RADIUS, _digits(largest)
    taken = _ink(mol, atoms)
    for atom in np.argsort(-sizes, kind="stable")[:MOST_NOTES]:
        shown = _shown(float(values[atom]), digits, diverging)
        if sizes[atom] < NOTED * sizes.max() or float(shown) == 0:
            break
        half = np.array([LETTER * NOTE * len(shown), NOTE]) / 2
        places = atoms[atom] + DIRECTIONS * (disk + NOTE_DISTANCE + half)
        gaps = np.maximum(np.abs(places[:, None] - taken) - half, 0.0)
        free = np.linalg.norm(gaps, axis=2).min(1)
        best = places[free.argmax()]
        if free.max() >= NOTE_SPACE:
            along = np.array([[-0.8, 0.0], [0.0, 0.0], [0.8, 0.0]])
            taken = np.concatenate([taken, best + along * half])
            _write(drawer, shown, best[0], best[1], NOTE, theme.ink, 0)


def _ink(mol: Chem.Mol, atoms: np.ndarray) -> np.ndarray:
    """Return points in pixels that numbers must not cover: atoms, bonds, and the letters of labels."""
    points = [atoms]
    for bond in mol.GetBonds():
        begin, end = atoms[bond.GetBeginAtomIdx()], atoms[bond.GetEndAtomIdx()]
        points.append(begin + np.array([[0.25], [0.5], [0.75]]) * (end - begin))
    for atom in mol.GetAtoms():
        place, neighbors = atoms[atom.GetIdx()], [other.GetIdx() for other in atom.GetNeighbors()]
        points.append(place + _label(atom, atoms[neighbors] - place))
    return np.concatenate(points)


def _label(atom: Chem.Atom, neighbors: np.ndarray) -> np.ndarray:
    """Return where the label of an atom is, relative to it, in pixels [k, 2].

    The symbol begins at the atom, and the charge follows at its upper right. Hydrogens are on the side
    without neighbors; of an atom alone they may be on both sides.
    """
    hydrogens, charge = atom.GetTotalNumHs(), atom.GetFormalCharge()
    shown = atom.GetAtomicNum() != CARBON or charge or not len(neighbors)
    if not shown:
        return np.zeros((0, 2))
    letters = len(atom.GetSymbol()) - 1 + (1 + (abs(charge) > 1) if charge else 0)
    points = [(LETTER * LARGE * (0.5 + place), -SMALL / 3) for place in range(1, letters + 1)]
    away = -neighbors.mean(0) if len(neighbors) else np.array([1.0, 0.0])
    if hydrogens and len(neighbors) > 1:  # above or below the atom
        points.append((0.0, float(np.copysign(LARGE, away[1]))))
    elif hydrogens:
        start = LETTER * LARGE * letters if away[0] >= 0 else 0.0
        for side in (away[0],) if len(neighbors) else (1.0, -1.0):
            points += [(float(np.copysign(start + factor * LARGE, side)), 0.0) for factor in (0.8, 1.5)]
    return np.array(points).reshape(-1, 2)


def _digits(largest: float) -> int:
    """Return the number of decimals that show two digits of the largest value."""
    return min(max(1 - int(np.floor(np.log10(largest))), 0), 12)


def _shown(value: float, digits: int, diverging: bool) -> str:
    return f"{value:+.{digits}f}" if diverging else f"{value:.2g}"


def _size(mol: Chem.Mol, *, smallest: bool = True) -> tuple[int, int]:
    """Return width and height of the structure in pixels, with `smallest` enough for texts."""
    positions = mol.GetConformer().GetPositions()[:, :2]
    around = 2 * (RADIUS * BOND + MARGIN)
    across, up = ((positions.max(0) - positions.min(0)) / BOND_LENGTH * BOND + around) / (1 - 2 * PADDING)
    narrowest, lowest = (NARROWEST, LOWEST) if smallest else (0, 0)
    return int(min(max(across, narrowest), WIDEST)), int(min(max(up, lowest), HIGHEST))


def _set_options(drawer: rdMolDraw2D.MolDraw2D, theme: Theme) -> None:
    options = drawer.drawOptions()
    options.setAtomPalette({-1: theme.ink})
    options.setAnnotationColour(theme.ink)
    options.setSymbolColour(theme.ink)
    options.prepareMolsBeforeDrawing = False
    options.fixedBondLength = BOND / BOND_LENGTH  # pixels for a unit of the coordinates
    options.clearBackground = False
    options.padding = PADDING
    options.bondLineWidth = 2
    options.fixedFontSize = int(LARGE)
    options.fillHighlights = True
    options.atomHighlightsAreCircles = True


def _write(
    drawer: rdMolDraw2D.MolDraw2D, text: str, x: float, y: float, size: float, color: Color, align: int = 1
) -> None:
    """Write text at a position in pixels; `align` is 0 for the middle, 1 for the start, 2 for the end."""
    drawer.SetFontSize(size)
    drawer.SetColour(color)
    drawer.DrawString(text, Point2D(x, y), align, True)


def _draw_scale(
    drawer: rdMolDraw2D.MolDraw2D,
    center: float,
    top: float,
    largest: float,
    captions: Sequence[str],
    diverging: bool,
    theme: Theme,
) -> None:
    left, step = center - BAR_WIDTH / 2, BAR_WIDTH / STEPS
    drawer.SetFillPolys(True)
    for number in range(STEPS):
        share = (number + 0.5) / STEPS
        value = (2.0 * share - 1.0 if diverging else share) * (largest or 1.0)
        drawer.SetColour(color_of(value, largest or 1.0, diverging=diverging, theme=theme))
        corner = left + number * step
        drawer.DrawRect(Point2D(corner, top), Point2D(corner + step + 0.5, top + BAR_HEIGHT), True)
    _frame(drawer, left, top, BAR_WIDTH, BAR_HEIGHT, theme)
    ends = (-largest, 0.0, largest) if diverging else (0.0, largest)
    digits = _digits(largest) if largest > 0 else 0
    for number, value in enumerate(ends):
        if largest == 0 and number != len(ends) // 2:
            continue  # all values are zero, so the colors have no ends
        shown = _shown(value, digits, diverging) if value else "0"
        place = left + BAR_WIDTH * number / (len(ends) - 1)
        _write(drawer, shown, place, top + BAR_HEIGHT + 13, SMALL, theme.ink, 0)
    for number, caption in enumerate(captions):
        _write(drawer, caption, center, top + BAR_HEIGHT + 37 + 22 * number, SMALL, theme.soft, 0)


def _frame(
    drawer: rdMolDraw2D.MolDraw2D, left: float, top: float, width: float, height: float, theme: Theme
) -> None:
    drawer.SetFillPolys(False)
    drawer.SetLineWidth(1)
    drawer.SetColour(theme.soft)
    drawer.DrawRect(Point2D(left, top), Point2D(left + width, top + height), True)
    drawer.SetFillPolys(True)


def _matrix_side(matrix: Matrix) -> int:
    title = LETTER * SMALL * len(matrix.caption)
    return int(max(_cell(matrix) * len(matrix.values) + 110, title + 2 * MARGIN))


def _cell(matrix: Matrix) -> float:
    return min(max(420.0 / len(matrix.values), SMALLEST_CELL), LARGEST_CELL)


def _draw_matrix(
    drawer: rdMolDraw2D.MolDraw2D, matrix: Matrix, left: float, top: float, side: int, theme: Theme
) -> None:
    cell, count = _cell(matrix), len(matrix.values)
    middle = left + side / 2
    left, top = middle + 15 - cell * count / 2, top + 60  # labels of rows are on the left
    largest = float(matrix.values.max())
    for i, row in enumerate(matrix.values):
        for j, value in enumerate(row):
            drawer.SetColour(color_of(float(value), largest, diverging=False, theme=theme))
            corner = Point2D(left + j * cell, top + i * cell)
            drawer.DrawRect(corner, Point2D(corner.x + cell, corner.y + cell), True)
    _frame(drawer, left, top, cell * count, cell * count, theme)
    _write(drawer, matrix.caption, middle, top - 38, SMALL, theme.soft, 0)
    if cell >= 12:
        for place, label in enumerate(matrix.labels):
            at = (place + 0.5) * cell
            _write(drawer, label, left - 5, top + at, 12.0, theme.ink, 2)
            # columns show the numbers only
            _write(drawer, label.lstrip(f"*{ascii_letters}") or "g", left + at, top - 10, 12.0, theme.ink, 0)
