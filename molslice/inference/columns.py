"""Names of the columns of predictions, in JSON and in tables."""

from collections.abc import Iterable, Sequence

SMILES, ERROR = "smiles", "error"  # the columns beside the predictions of a molecule


def prediction_columns(names: Sequence[str], units: Sequence[str]) -> tuple[str, ...]:
    """Name a column for each target: `<target>_<unit>`, or `<target>` if it has no unit.

    The names are unique and differ from `smiles` and `error`: a target `error` becomes `error_predicted`. If
    target `a` with unit `b_c` and target `a_b` with unit `c` both occur, the second becomes `a_b_c_2`.

    Args:
        names: The names of the targets.
        units: The unit of each target; empty for a target without a unit.
    """
    wanted = [f"{name}_{unit}" if unit else name for name, unit in zip(names, units, strict=True)]
    return tuple(distinct_columns(wanted, taken=(SMILES, ERROR)))


def distinct_columns(wanted: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Name columns that are added to a table, each name used once.

    A name that is taken gets the suffix `_predicted`: the predictions of a measured column `logS` are in
    `logS_predicted`. If that name is taken too, or wanted twice, a number from 2 follows.

    Args:
        wanted: The preferred names.
        taken: The names in the table. Surrounding blanks are ignored.

    Returns:
        The names, in the order of `wanted`.
    """
    others = {name.strip() for name in taken}
    used, columns = set(others), []
    for name in wanted:
        stem = f"{name}_predicted" if name.strip() in others else name
        column, count = stem, 1
        while column.strip() in used:
            count += 1
            column = f"{stem}_{count}"
        used.add(column.strip())
        columns.append(column)
    return columns
