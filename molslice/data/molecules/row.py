"""The contents of one row of a store, for people."""

import math
from typing import Any

from molslice.data.molecules.store import MoleculeStore


def read_row(store: MoleculeStore, row: int) -> dict[str, Any]:
    """Read a row of a store, counted from 0, with names instead of codes.

    Returns:
        JSON values: `row`; `smiles`, rebuilt from the arrays, or None; `lost`, what the SMILES does not
        reproduce, or None; `error`, the reason of a row without a molecule, or None; `targets` with `name`,
        `unit` and `value` (None if missing); and the features of `atoms` and `bonds` by name, as text.

    Raises:
        MolsliceError: The row is out of range.
    """
    from molslice.chem.naming import ATOM_FEATURES, BOND_FEATURES, atom_names, bond_names  # needs rdkit
    from molslice.chem.rebuild import ChemError, rebuild

    molecule = store.arrays(row)
    smiles, lost = None, None
    if len(molecule.atoms):
        try:
            rebuilt = rebuild(molecule)
            smiles, lost = rebuilt.smiles, rebuilt.lost
        except ChemError as error:
            lost = str(error)
    values = store.targets[row].tolist()
    columns = zip(store.target_names, store.target_units, values, strict=True)
    return {
        "row": row,
        "smiles": smiles,
        "lost": lost,
        "error": store.errors.get(row),
        "targets": [
            {"name": name, "unit": unit, "value": None if math.isnan(value) else value}
            for name, unit, value in columns
        ],
        "atoms": [dict(zip(ATOM_FEATURES, names, strict=True)) for names in atom_names(molecule)],
        "bonds": [dict(zip(BOND_FEATURES, names, strict=True)) for names in bond_names(molecule)],
    }
