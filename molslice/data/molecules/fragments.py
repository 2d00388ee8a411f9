"""Choose the molecules of mixtures in many rows, standardize molecules, and refuse wildcards."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from molslice.data.molecules.conditions import Conditioned
from molslice.files.processes import WorkerPool
from molslice.files.tables import Unreadable

if TYPE_CHECKING:
    from molslice.chem.standardize import Standardized

__all__ = ["StandardizedRows", "choose_fragments", "count_wildcards", "standardize_rows"]

ROWS_AT_ONCE = 256


def choose_fragments(
    smiles: Sequence[str], choice: str, wildcards: str = "keep", standardize: str = "no"
) -> tuple[list[str], int]:
    """Replace the mixtures in a list; see `molslice.chem.fragments.choose_fragment`.

    Args:
        smiles: The SMILES of each row.
        choice: `keep`, `largest` or `refuse`.
        wildcards: `keep` or `refuse` the rows with a wildcard; see `molslice.chem.fragments`.
        standardize: One of `STANDARDS`; see `standardize_rows`.

    Returns:
        One SMILES for each row, and the number of mixtures that were replaced by their largest molecule. A
        refused row is an `Unreadable`.
    """
    seconds = {place: text.partner for place, text in enumerate(smiles) if isinstance(text, Conditioned)}
    seconds = {place: text for place, text in seconds.items() if text is not None}
    partners, replaced = list[str](), 0
    if seconds:
        partners, replaced = choose_fragments([*seconds.values()], choice, wildcards)
    if standardize == "no":
        rows = list(smiles)
        for place, text in enumerate(rows if choice != "keep" else ()):
            if not isinstance(text, str) or not ("." in text or "InChI=" in text):
                continue
            from molslice.chem.fragments import choose_fragment  # needs rdkit
            from molslice.chem.smiles import ChemError

            try:
                chosen = choose_fragment(text, choice)
                replaced += chosen is not text
                rows[place] = _with_values(text, chosen)
            except ChemError as error:
                rows[place] = Unreadable(str(error))
    else:
        rows, replaced, _, _ = standardize_rows(smiles, standardize, choice)
    for place, reason in _wildcards(rows) if wildcards != "keep" else ():
        rows[place] = Unreadable(reason)
    for place, partner in zip(seconds, partners, strict=True):
        if isinstance(row := rows[place], Conditioned):
            rows[place] = row.with_molecules(row, partner)
    return rows, replaced


class StandardizedRows(NamedTuple):
    """Standardized molecules of many rows.

    Attributes:
        smiles: One SMILES for each row. A refused mixture is an `Unreadable`, and other unreadable rows stay.
        replaced: Number of mixtures that were replaced by their largest molecule.
        changed: Number of rows with another molecule than before, apart from this.
        kept: Number of rows for which RDKit could not do all steps.
    """

    smiles: list[str]
    replaced: int
    changed: int
    kept: int


def standardize_rows(
    smiles: Sequence[str], standardize: str, fragment: str, workers: int = 0
) -> StandardizedRows:
    """Standardize the molecules of a list; see `molslice.chem.standardize.standardize`.

    Args:
        smiles: The SMILES of each row.
        standardize: One of `STANDARDS` except `no`.
        fragment: What happens to mixtures.
        workers: Number of worker processes; 0 computes in this process.
    """
    starts = range(0, len(smiles), ROWS_AT_ONCE)
    calls = ((list(smiles[start : start + ROWS_AT_ONCE]), standardize, fragment) for start in starts)
    with WorkerPool(workers, "standardizes molecules") as pool:
        done = [row for rows in pool.map(_standardize, calls) for row in rows]
    return StandardizedRows(
        [_with_values(text, row.smiles) for text, row in zip(smiles, done, strict=True)],
        sum(row.replaced for row in done),
        sum(row.changed for row in done),
        sum(row.kept for row in done),
    )


def _with_values(text: str, smiles: str) -> str:
    """Return another molecule with the conditions of a row."""
    return text.with_molecules(smiles, text.partner) if isinstance(text, Conditioned) else smiles


def _standardize(smiles: Sequence[str], choice: str, fragment: str) -> "list[Standardized]":
    from molslice.chem.smiles import ChemError  # both need rdkit
    from molslice.chem.standardize import Standardized, standardize

    rows = []
    for text in smiles:
        if not isinstance(text, str) or isinstance(text, Unreadable):
            rows.append(Standardized(text))
            continue
        try:
            rows.append(standardize(text, choice, fragment))
        except ChemError as error:
            rows.append(Standardized(Unreadable(str(error))))
    return rows


def count_wildcards(smiles: Sequence[str]) -> int:
    """Count the rows with a wildcard, an R-group or a bond of any order."""
    return len(_wildcards(smiles))


def _wildcards(smiles: Sequence[str]) -> list[tuple[int, str]]:
    """Return the place of each row with a wildcard, and the reason to refuse it."""
    reasons = []
    for place, text in enumerate(smiles):
        # most rows have none of these characters, and without them rdkit is not needed
        if isinstance(text, str) and ("*" in text or "~" in text or "#0" in text):
            from molslice.chem.fragments import find_wildcard

            reason = find_wildcard(text)
            if reason is not None:
                reasons.append((place, reason))
    return reasons
