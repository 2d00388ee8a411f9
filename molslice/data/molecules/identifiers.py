"""The columns of a table that name its molecules, such as `name` or `Compound ID`."""

from collections.abc import Collection, Sequence

THINGS = ("compound", "molecule", "mol", "substance", "drug")
NAMES = {
    *("name", "id", "identifier", "title", "code", "label", "compound", "molecule", "substance", "drug"),
    *(f"{thing}_{kind}" for thing in THINGS for kind in ("name", "id")),
    *("cas", "cas_number", "cas_no", "cas_rn", "casrn", "inchikey", "inchi_key", "registry_number"),
    *("chembl_id", "molecule_chembl_id", "compound_chembl_id", "cmpd_chemblid", "cmpd_id"),
    *("cid", "pubchem_cid", "drugbank_id", "zinc_id", "sample", "sample_id", "catalog_id"),
    *("common_name", "iupac_name", "trivial_name"),
}
MOST = 3


def find_identifiers(columns: Sequence[str], used: Collection[str]) -> list[str]:
    """Return the columns with one of the usual names of identifiers, at most three, in their order.

    Args:
        columns: The columns of a table.
        used: Columns that are something else.
    """
    plain = [column.strip().lower().replace(" ", "_").replace("-", "_") for column in columns]
    taken = {name.strip() for name in used}
    return [
        column
        for column, name in zip(columns, plain, strict=True)
        if name in NAMES and column.strip() not in taken and columns.count(column) == 1
    ][:MOST]
