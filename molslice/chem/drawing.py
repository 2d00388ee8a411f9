"""Draw a molecule from its arrays as SVG or PNG."""

from rdkit import Chem
from rdkit.Chem.Draw import rdMolDraw2D

from molslice.chem.depict import skeleton
from molslice.chem.rebuild import rebuild
from molslice.chem.smiles import ChemError, quiet_rdkit
from molslice.types import MoleculeArrays, MolsliceError

__all__ = ["DRAWINGS", "draw_molecule", "drawer_kind"]

DRAWINGS = (".svg", ".png")
WIDTH, HEIGHT = 500, 400  # pixels


def draw_molecule(molecule: MoleculeArrays, ending: str, *, numbered: bool = True) -> bytes:
    """Draw a molecule.

    A molecule that RDKit refuses is drawn without stereochemistry.

    Args:
        molecule: The arrays.
        ending: One of `DRAWINGS`.
        numbered: Whether to write the numbers of the atoms in the arrays.

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
    try:
        mol = rebuild(molecule).mol
        with quiet_rdkit():
            rdMolDraw2D.PrepareAndDrawMolecule(drawer, mol)
    except ChemError:
        drawer.drawOptions().prepareMolsBeforeDrawing = False
        drawer.DrawMolecule(Chem.Mol(skeleton(molecule)))
    drawer.FinishDrawing()
    text = drawer.GetDrawingText()
    return text.encode() if isinstance(text, str) else text


def drawer_kind(ending: str) -> type:
    """Return RDKit's class of drawers for an ending.

    Raises:
        MolsliceError: The ending is unknown, or this RDKit cannot write PNG.
    """
    if ending not in DRAWINGS:
        raise MolsliceError(f"a drawing ends in {' or '.join(DRAWINGS)}, got {ending!r}")
    if ending == ".png" and not hasattr(rdMolDraw2D, "MolDraw2DCairo"):
        raise MolsliceError("this RDKit cannot write PNG; write .svg")
    return rdMolDraw2D.MolDraw2DSVG if ending == ".svg" else rdMolDraw2D.MolDraw2DCairo
