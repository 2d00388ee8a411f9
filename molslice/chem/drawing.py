"""Draw molecules as SVG or PNG: from arrays, or a SMILES as it is written."""

from typing import Any

from rdkit import Chem
from rdkit.Chem import Draw  # noqa: F401 - registers the types of drawing options
from rdkit.Chem.Draw import rdMolDraw2D

from molslice.chem.layout import skeleton
from molslice.chem.rebuild import rebuild
from molslice.chem.smiles import ChemError, parse_unguarded, quiet_rdkit
from molslice.types import MoleculeArrays, MolsliceError

DRAWINGS = (".svg", ".png")
DARK_NITROGEN = (0.55, 0.68, 1.0)  # RDKit's own blue is too dark on a dark background
LETTER_SIZE = 22  # the smallest in a drawing of a SMILES, which a page shows much smaller
WIDTH, HEIGHT = 500, 400  # pixels
SMILES_WIDTH, SMILES_HEIGHT = 480, 320


def draw_molecule(
    molecule: MoleculeArrays, ending: str, *, numbered: bool = True, dark: bool | None = None
) -> bytes:
    """Draw a molecule from its arrays; a molecule that RDKit refuses is drawn without stereochemistry.

    Args:
        molecule: The molecule.
        ending: `.svg` or `.png`.
        numbered: Whether to write the numbers of the atoms.
        dark: Whether a transparent background will be dark; None for a white background.

    Returns:
        The contents of the file.

    Raises:
        MolsliceError: The molecule has no atoms, the ending is unknown, or this RDKit cannot write PNG.
    """
    kind = drawer_kind(ending)
    if not len(molecule.atoms):
        raise MolsliceError("cannot draw a molecule without atoms")
    drawer = kind(WIDTH, HEIGHT)
    drawer.drawOptions().addAtomIndices = numbered
    if dark:
        _set_dark(drawer)
    drawer.drawOptions().clearBackground = dark is None
    try:
        mol = rebuild(molecule).mol
        with quiet_rdkit():
            rdMolDraw2D.PrepareAndDrawMolecule(drawer, mol)
    except ChemError:
        drawer.drawOptions().prepareMolsBeforeDrawing = False
        drawer.DrawMolecule(Chem.Mol(skeleton(molecule)))
    return finish_drawing(drawer)


def draw_smiles(smiles: str, *, dark: bool = False) -> str:
    """Draw a molecule as it is written, on a transparent background that may be `dark`.

    Returns:
        The contents of an SVG file. Atom labels are paths, so it contains no text of the SMILES.

    Raises:
        ChemError: The SMILES cannot be read or drawn.
    """
    with quiet_rdkit():
        mol = parse_unguarded(smiles, as_written=True)
        drawer = rdMolDraw2D.MolDraw2DSVG(SMILES_WIDTH, SMILES_HEIGHT)
        drawer.drawOptions().minFontSize = LETTER_SIZE
        if dark:
            _set_dark(drawer)
        drawer.drawOptions().clearBackground = False
        rdMolDraw2D.PrepareAndDrawMolecule(drawer, mol)
        return finish_drawing(drawer).decode()


def drawer_kind(ending: str) -> type:
    """Return RDKit's class of drawers for an ending; refuse another one, and PNG if RDKit cannot write it."""
    if ending not in DRAWINGS:
        raise MolsliceError(f"a drawing ends in {' or '.join(DRAWINGS)}, got {ending!r}")
    if ending == ".png" and not hasattr(rdMolDraw2D, "MolDraw2DCairo"):
        raise MolsliceError("this RDKit cannot write PNG; write .svg")
    return rdMolDraw2D.MolDraw2DSVG if ending == ".svg" else rdMolDraw2D.MolDraw2DCairo


def _set_dark(drawer: Any) -> None:  # noqa: ANN401
    """Set colors that can be read on a dark background."""
    rdMolDraw2D.SetDarkMode(drawer.drawOptions())
    drawer.drawOptions().updateAtomPalette({7: DARK_NITROGEN})


def finish_drawing(drawer: Any) -> bytes:  # noqa: ANN401
    """Return the contents of the file of a drawing."""
    drawer.FinishDrawing()
    content = drawer.GetDrawingText()
    return content.encode() if isinstance(content, str) else content
