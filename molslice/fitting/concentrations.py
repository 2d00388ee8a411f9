"""Units of the targets of a fit: concentrations in one unit, and their negative logarithms."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from molslice.chem.concentrations import moles_per_liter, similar_unit
from molslice.chem.descriptors import descriptor_names
from molslice.chem.isotopes import isotope_excess
from molslice.data.molecules.limits import plain_cell
from molslice.data.molecules.side_columns import is_unit, listed_cells
from molslice.files.urls import File
from molslice.fitting.columns import Cells
from molslice.fitting.data import FitData, FitOptions
from molslice.number_text import counted
from molslice.types import MolsliceError

P_UNIT = "-log10 mol/L"


def convert_units(
    data: FitData, columns: Sequence[str | None], cells: Cells, options: FitOptions, path: File
) -> None:
    """Convert the targets to one unit each: the unit that is asked for, or the most frequent one.

    Values without a unit count as missing, unless a column that nobody named has one unit only.

    Raises:
        MolsliceError: A column has several units, and one of them is no concentration; or its only unit is no
            unit, such as `NM`.
    """
    units, was_detected = list(data.units), options.unit_columns is None
    for index, (name, column) in enumerate(zip(data.names, columns, strict=True)):
        if column is None or data.types[index].has_classes:
            continue
        written, known = np.array([*map(plain_cell, cells[column])]), data.known[:, index]
        counts = Counter(written[known & (written != "")].tolist())
        if not counts:
            continue
        goal = units[index] or counts.most_common(1)[0][0]
        units[index], without = goal, int((known & (written == "")).sum())
        detected = " (detected)" if was_detected else ""
        known_unit = is_unit(goal) or similar_unit(goal) is None
        if {*counts} == {goal} and known_unit and (was_detected or not without):
            also = f", also {counted(without, 'value')} without a unit" if without else ""
            data.findings.append(f"{name}: in {goal}, by column {column!r}{detected}{also}")
            continue
        first = {unit: cells.where(int(np.argmax(known & (written == unit)))) for unit in counts}
        factors = _factors(
            counts, goal, _molecular_weights(data, options), {goal: str(path), **first}, column
        )
        scale = np.full(len(written), np.nan)
        for unit, factor in factors.items():
            scale = np.where(written == unit, factor, scale)
        data.scale(index, scale)
        data.findings.append(
            f"{name}: converted to {goal} by column {column!r}{detected}: {listed_cells(counts)}"
        )
        if without:
            verb = "count" if without > 1 else "counts"
            data.lose(f"{name}: {counted(without, 'value')} without a unit {verb} as missing")
    data.units = tuple(units)


def _molecular_weights(data: FitData, options: FitOptions) -> np.ndarray:
    """Return the molecular weight of each row with its isotopes, float64 [n], NaN if it cannot be read."""
    without_isotopes = data.molecules.descriptors[:, descriptor_names().index("MolWt")]
    choices = options.fragment, options.standardize
    return without_isotopes + np.array([isotope_excess(text, *choices) for text in data.smiles])


def _factors(
    counts: Counter[str], goal: str, weights: np.ndarray, where: Mapping[str, str], column: str
) -> dict[str, np.ndarray]:
    """Return what each unit is in the unit `goal`, for each row, float64 [n].

    `where` describes the first row with each unit.

    Raises:
        MolsliceError: A unit is no concentration.
    """
    whole = moles_per_liter(goal, weights)
    factors = {}
    for unit in counts:
        moles = moles_per_liter(unit, weights)
        if moles is None or whole is None:
            wrong = unit if moles is None else goal
            similar = similar_unit(wrong)
            hint = f" (did you mean {similar}?)" if similar else ""
            raise MolsliceError(
                f"{where[wrong]}, column {column!r}: {wrong!r}{hint} cannot be converted to another unit "
                f"({listed_cells(counts)}); correct or empty the cell, keep the rows of one unit, or give "
                "--unit-column '' if the column belongs to no target"
            )
        factors[unit] = np.ones(len(weights)) if unit == goal else moles / whole
    return factors


def to_p_values(data: FitData, options: FitOptions, path: File) -> None:
    """Replace concentrations by their negative common logarithms in mol/L, such as IC50 by pIC50.

    Limits change sides, and standard errors follow the delta method. The targets get a `p` before their
    names, so that values of the table are not compared with predictions.

    Raises:
        MolsliceError: A target has no unit of a concentration, or a value that is not positive.
    """
    numbers = np.flatnonzero(~data.has_classes).tolist()
    names, units, weights = [*data.names], [*data.units], _molecular_weights(data, options)
    for index in numbers:
        name = names[index]
        where, unit = f"{path}, column {name!r}", data.units[index]
        factor = moles_per_liter(unit, weights)
        if factor is None:
            raise MolsliceError(
                f"{where}: unknown concentration {unit!r}; name the unit with --unit, such as nM, umol/L or "
                "ug/mL"
            )
        upper = data.targets[:, index] if data.bounds is None else data.bounds[1, :, index]
        if (wrong := np.flatnonzero(upper <= 0)).size:
            row = int(wrong[0])
            raise MolsliceError(
                f"{data.where(row)}, column {name!r}: the value {upper[row]:g} of {data.smiles[row]} has no "
                "logarithm"
            )
        if data.noise is not None:
            data.noise[:, index] = data.noise_of_logarithms(index)
        data.targets[:, index] = -np.log10(factor * data.targets[:, index])
        if data.bounds is not None:
            with np.errstate(divide="ignore"):  # a lower limit of zero says nothing
                lower, upper = -np.log10(factor * np.maximum(data.bounds[..., index], 0.0))
            data.bounds[..., index] = upper, lower
        names[index], units[index] = f"p{name}", P_UNIT
        data.findings.append(f"learned and predicted: {names[index]}, {P_UNIT} of {name} in {unit}")
    data.units, data.names = tuple(units), tuple(names)
