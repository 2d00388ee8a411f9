"""The column of SMILES of a table, found by its name or its cells."""

import re
from collections.abc import Sequence

from molslice.errors import MolsliceError
from molslice.files.tables import Table, trimmed
from molslice.number_text import counted

SMILES_NAMES = ("smiles", "canonical_smiles", "isomeric_smiles", "smi")
VAGUE_NAMES = ("structure", "molecule", "mol")  # also of names, numbers and pictures
PROBED_ROWS = 50
SHOWN_NAMES = 8  # of columns, in messages
PROBED_SHARE = 0.8  # of the probed cells that must be SMILES in a column of another name
VAGUE_SHARE = 0.5  # the same in a column of a vague name
NOTATIONS = {  # other notations of molecules, and what to do with their column
    "AuxInfo": (
        re.compile(r"AuxInfo="),
        "It belongs to an InChI: take the column of the InChI",
    ),
    "InChIKey": (
        re.compile(r"(InChIKey=)?[A-Z]{14}-[A-Z]{10}-[A-Z]$"),
        "It does not contain the molecule: look up the SMILES in the source of the table",
    ),
}


def find_smiles_column(table: Table, *, alone: bool = False) -> str:
    """Find the column of SMILES by its name, or else by the first cells of all columns.

    It is the first column if there are no rows, and the only column, whatever it contains, with `alone`.

    Raises:
        MolsliceError: No column or several columns could be it.
    """
    if (named := _find_name(table, SMILES_NAMES)) is not None:
        return named
    vague = _find_name(table, VAGUE_NAMES)
    rows = [row.cells for row in table.peek(PROBED_ROWS) if row.error is None]
    if vague is not None and _are_smiles([cells[table.find(vague)] for cells in rows], VAGUE_SHARE):
        return vague
    likely = [
        name
        for place, name in enumerate(table.names)
        if trimmed(name) and table.names.count(name) == 1 and _are_smiles([cells[place] for cells in rows])
    ]
    # SMILES are preferred to InChI
    likely = [name for name in likely if not _are_inchi(name, table, rows)] or likely
    if vague is not None and not likely:
        return vague  # its rows are refused one by one
    headless = next((name for name in likely or table.names if _is_smiles(name)), None)
    if headless is not None:
        raise MolsliceError(
            f"{table.path}: the first line contains the SMILES {headless!r} instead of column names. Add "
            "column names" + (", or name the file .smi if each line is a SMILES and a name" * (not alone))
        )
    if not table.names:
        raise MolsliceError(f"{table.path} has no columns")
    if (alone and len(table.names) == 1) or not table.peek(1):
        return table.names[0]
    if len(likely) == 1:
        return likely[0]
    advice = "Give the column alone" if alone else "Name it: --smiles-column, or --data.smiles-column"
    if likely:
        reason = f"several could be it ({', '.join(likely)})"
    else:
        listed, others = ", ".join(map(repr, table.names[:SHOWN_NAMES])), len(table.names) - SHOWN_NAMES
        listed += f" and {counted(others, 'other')}" if others > 0 else ""
        reason = f"no column contains SMILES (columns: {listed})"
        for place, name in enumerate(table.names):
            if other := other_notation([cells[place] for cells in rows]):
                raise MolsliceError(
                    f"{table.path}: no column contains SMILES; {name!r} contains {'. '.join(other)}"
                )
        advice += "" if alone else "; or check the line of the column names, and the delimiter"
    raise MolsliceError(f"{table.path}: cannot find the column of SMILES: {reason}. {advice}")


def other_notation(cells: Sequence[str]) -> tuple[str, str] | None:
    """Return the notation that all cells with a text have and an advice; None if it may be SMILES."""
    texts = [text for cell in cells if (text := trimmed(cell))]
    for name, (form, advice) in NOTATIONS.items():
        if texts and all(map(form.match, texts)):
            return name, advice
    return None


def _find_name(table: Table, known: Sequence[str]) -> str | None:
    """Return the column with the first of some names that a table has; None if it has none of them."""
    for wanted in known:
        matches = [name for name in table.names if trimmed(name).lower() == wanted]
        if len(matches) == 1:
            return matches[0]
        if len(set(matches)) == 1:
            table.find(wanted)  # refuses the repeated name
    return None


def _are_inchi(name: str, table: Table, rows: Sequence[Sequence[str]]) -> bool:
    return any(trimmed(cells[table.find(name)]).startswith("InChI=") for cells in rows)


def _are_smiles(cells: Sequence[str], share: float = PROBED_SHARE) -> bool:
    return bool(cells) and sum(map(_is_smiles, cells)) >= share * len(cells)


def _is_smiles(cell: str) -> bool:
    from molslice.chem.smiles import ChemError, parse_smiles  # needs rdkit

    text = trimmed(cell)
    if len(text) < 2 or text.isdecimal():
        return False
    try:
        parse_smiles(text)
    except ChemError:
        return False
    return True
