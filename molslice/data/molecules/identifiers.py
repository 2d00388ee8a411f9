"""The columns of a table that name its molecules, found by their own names, such as `Compound ID`."""

import re
from collections.abc import Collection, Sequence

from molslice.files.tables import trimmed

# names first: numbers of compounds are names where there are no others
NAMES = (
    *("name", "compound_name", "molecule_name", "mol_name", "substance_name", "common_name", "trivial_name"),
    *("title", "compound", "drug", "drug_name", "iupac", "iupac_name", "molecule", "substance"),
    *("id", "compound_id", "molecule_id", "mol_id", "substance_id", "drug_id", "cmpd_id"),
    *("chembl_id", "molecule_chembl_id", "compound_chembl_id", "cmpd_chemblid"),
    *("identifier", "code", "registry_number", "cas", "cas_number", "cas_no", "cas_rn", "casrn"),
    *("cid", "pubchem_cid", "drugbank_id", "zinc_id", "catalog_id", "sample", "sample_id"),
    *("inchikey", "inchi_key"),
)
MOST = 3
_BETWEEN = re.compile(r"[\s_\-.]+")


def find_identifiers(columns: Sequence[str], used: Collection[str]) -> list[str]:
    """Return the columns with one of the usual names of identifiers, at most three, in their order.

    Upper and lower case, and what stands between words, make no difference.

    Args:
        columns: The columns of a table.
        used: Columns that are something else.
    """
    return _identifiers(columns, used)[:MOST]


def find_name_column(columns: Sequence[str], smiles_column: str) -> str | None:
    """Return the identifier that is the most like a name; None if there is none."""
    return min(
        _identifiers(columns, [smiles_column]), key=lambda name: NAMES.index(_word(name)), default=None
    )


def _identifiers(columns: Sequence[str], used: Collection[str]) -> list[str]:
    taken = {trimmed(name) for name in used}
    return [
        name
        for name in columns
        if _word(name) in NAMES and trimmed(name) not in taken and columns.count(name) == 1
    ]


def _word(column: str) -> str:
    return _BETWEEN.sub("_", trimmed(column).lower())
