"""Draw the structure of a SMILES as SVG."""

from rdkit.Chem import Draw  # noqa: F401 - registers the types of drawing options
from rdkit.Chem.Draw import rdMolDraw2D

from molslice.chem.smiles import parse_unguarded, quiet_rdkit

__all__ = ["sketch"]

WIDTH, HEIGHT = 480, 320  # pixels


def sketch(smiles: str, *, dark: bool = False) -> str:
    """Draw a molecule as it is written, on a transparent background.

    Args:
        smiles: The molecule.
        dark: Whether the drawing is shown on a dark background.

    Returns:
        The contents of an SVG file. Atom labels are paths, so it contains no text of the SMILES.

    Raises:
        ChemError: The SMILES cannot be read or drawn.
    """
    with quiet_rdkit():
        mol = parse_unguarded(smiles, as_written=True)
        drawer = rdMolDraw2D.MolDraw2DSVG(WIDTH, HEIGHT)
        options = drawer.drawOptions()
        if dark:
            rdMolDraw2D.SetDarkMode(options)
        options.clearBackground = False
        rdMolDraw2D.PrepareAndDrawMolecule(drawer, mol)
        drawer.FinishDrawing()
        return drawer.GetDrawingText()
