"""Choose the molecules of mixtures in many rows, and refuse wildcards."""

from collections.abc import Sequence

from molslice.data.molecules.conditions import Conditioned
from molslice.files.tables import Unreadable

__all__ = ["choose_fragments", "count_wildcards"]


def choose_fragments(smiles: Sequence[str], choice: str, wildcards: str = "keep") -> tuple[list[str], int]:
    """Replace the mixtures in a list; see `molslice.chem.fragments.choose_fragment`.

    Args:
        smiles: The SMILES of each row.
        choice: `keep`, `largest` or `refuse`.
        wildcards: `keep` or `refuse` the rows with a wildcard; see `molslice.chem.fragments`.

    Returns:
        One SMILES for each row, and the number of mixtures that were replaced by their largest molecule. A
        refused row is an `Unreadable`.
    """
    rows, replaced = list(smiles), 0
    seconds = {place: text.partner for place, text in enumerate(rows) if isinstance(text, Conditioned)}
    seconds = {place: text for place, text in seconds.items() if text is not None}
    partners = list[str]()
    if seconds:
        partners, replaced = choose_fragments([*seconds.values()], choice, wildcards)
    for place, text in enumerate(rows if choice != "keep" else ()):
        if not isinstance(text, str) or "." not in text:
            continue
        from molslice.chem.fragments import choose_fragment  # needs rdkit
        from molslice.chem.smiles import ChemError

        try:
            chosen = choose_fragment(text, choice)
            replaced += chosen is not text
            rows[place] = (
                text.with_molecules(chosen, text.partner) if isinstance(text, Conditioned) else chosen
            )
        except ChemError as error:
            rows[place] = Unreadable(str(error))
    for place, reason in _wildcards(rows) if wildcards != "keep" else ():
        rows[place] = Unreadable(reason)
    for place, partner in zip(seconds, partners, strict=True):
        if isinstance(row := rows[place], Conditioned):
            rows[place] = row.with_molecules(row, partner)
    return rows, replaced


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
