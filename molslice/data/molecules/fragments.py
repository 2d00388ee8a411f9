"""Choose the molecules of mixtures in many rows."""

from collections.abc import Sequence

from molslice.files.tables import Unreadable

__all__ = ["choose_fragments"]


def choose_fragments(smiles: Sequence[str], choice: str) -> tuple[list[str], int]:
    """Replace the mixtures in a list; see `molslice.chem.fragments.choose_fragment`.

    Args:
        smiles: The SMILES of each row.
        choice: `keep`, `largest` or `refuse`.

    Returns:
        One SMILES for each row, and the number of mixtures that were replaced by their largest molecule. A
        refused mixture is an `Unreadable`.
    """
    rows, replaced = list(smiles), 0
    if choice == "keep":
        return rows, 0
    from molslice.chem.fragments import choose_fragment  # needs rdkit
    from molslice.chem.smiles import ChemError

    for place, text in enumerate(rows):
        if not isinstance(text, str) or "." not in text:
            continue
        try:
            rows[place] = choose_fragment(text, choice)
            replaced += rows[place] is not text
        except ChemError as error:
            rows[place] = Unreadable(str(error))
    return rows, replaced
