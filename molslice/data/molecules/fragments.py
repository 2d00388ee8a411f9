"""Choose the molecules of mixtures in many rows, standardize molecules, and refuse wildcards."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from molslice.data.molecules.conditions import Conditioned, with_conditions
from molslice.files.processes import WorkerPool
from molslice.files.tables import Unreadable

if TYPE_CHECKING:
    from molslice.chem.standardize import Standardized

ROWS_AT_ONCE = 256
_WILDCARD = re.compile(r"[*~]|\[\d*#0")  # most rows have none of these, and without them rdkit is not needed


class ChosenMolecules(NamedTuple):
    """The molecules of many rows.

    Attributes:
        smiles: One SMILES for each row; an `Unreadable` for a refused row. Other unreadable rows stay.
        replaced: Number of mixtures that were replaced by their largest molecule.
        changed: Number of rows with another molecule after the standardization, apart from this.
        kept: Number of rows for which RDKit could not do all steps of the standardization.
    """

    smiles: list[str]
    replaced: int = 0
    changed: int = 0
    kept: int = 0


def choose_fragments(
    smiles: Sequence[str], choice: str, wildcards: str = "keep", standardize: str = "no", workers: int = 0
) -> ChosenMolecules:
    """Choose the molecule of each row; a second molecule is not standardized.

    Args:
        smiles: The SMILES of each row.
        choice: What happens to a mixture; see `molslice.chem.fragments.choose_fragment`.
        wildcards: `keep` or `refuse` the rows with a wildcard; see `molslice.chem.fragments`.
        standardize: One of `STANDARDS`; see `molslice.chem.standardize`.
        workers: Number of worker processes; 0 computes in this process.
    """
    chosen = ChosenMolecules(list(smiles))
    if (choice, standardize) != ("keep", "no"):
        starts = range(0, len(smiles), ROWS_AT_ONCE)
        calls = ((list(smiles[start : start + ROWS_AT_ONCE]), standardize, choice) for start in starts)
        with WorkerPool(workers, "standardizes molecules") as pool:
            done = [row for rows in pool.map(_standardize, calls) for row in rows]
        chosen = ChosenMolecules(
            [with_conditions(row.smiles, text) for text, row in zip(smiles, done, strict=True)],
            sum(row.replaced for row in done),
            sum(row.changed for row in done),
            sum(row.kept for row in done),
        )
    rows = chosen.smiles
    for place, reason in _wildcards(rows) if wildcards != "keep" else ():
        rows[place] = Unreadable(reason)
    seconds = {place: text.partner for place, text in enumerate(smiles) if isinstance(text, Conditioned)}
    seconds = {place: text for place, text in seconds.items() if text is not None}
    if not seconds:
        return chosen
    partners = choose_fragments([*seconds.values()], choice, wildcards)
    for place, partner in zip(seconds, partners.smiles, strict=True):
        if isinstance(row := rows[place], Conditioned):
            rows[place] = row.with_molecules(row, partner)
    return chosen._replace(replaced=chosen.replaced + partners.replaced)


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
        if isinstance(text, str) and _WILDCARD.search(text):
            from molslice.chem.fragments import find_wildcard

            if (reason := find_wildcard(text)) is not None:
                reasons.append((place, reason))
    return reasons
