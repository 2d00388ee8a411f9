"""The column of names of a table of molecules, found by its own name."""

import re
from collections.abc import Sequence

from molslice.files.tables import trimmed

# the first of these that a table has; numbers of compounds are names where there are no others
NAME_COLUMNS = (
    *("name", "compound_name", "molecule_name", "mol_name", "title", "compound", "drug", "drug_name"),
    *("iupac", "iupac_name"),
    *("id", "compound_id", "molecule_id", "mol_id", "cmpd_id", "chembl_id", "molecule_chembl_id"),
    *("identifier", "registry_number", "cas", "cas_number"),
)
_BETWEEN = re.compile(r"[\s_\-.]+")


def find_name_column(columns: Sequence[str], smiles_column: str) -> str | None:
    """Return the column whose cells name the molecules; None if there is none.

    Upper and lower case, and what stands between words, make no difference.
    """
    by_word = {_BETWEEN.sub("_", trimmed(column).lower()): column for column in reversed(columns)}
    found = (by_word[word] for word in NAME_COLUMNS if word in by_word)
    return next((column for column in found if column != smiles_column and columns.count(column) == 1), None)
