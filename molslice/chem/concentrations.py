"""Units of concentrations."""

import re

import numpy as np

PREFIXES = {"": 0, "k": 3, "m": -3, "u": -6, "n": -9, "p": -12}
_LITER = r"(?:\s*/\s*|[.*\s])(m|u|)[lL](?:\^?-1)?"
_MOLAR = re.compile(rf"([munp]?)(?:M|[mM]olar|mol{_LITER})")
_MASS = re.compile(rf"([kmunp]?)g{_LITER}")
_USUAL = [
    f"{prefix}{unit}"
    for prefix in ("", "m", "u", "n", "p")
    for unit in ("M", "mol/L", "mol/mL", "g/L", "g/mL")
]
_BY_LOWER = {unit.lower(): unit for unit in _USUAL if unit not in ("M", "pM")}  # `PM` is also afternoon


def plain_unit(unit: str) -> str:
    """Return a unit without blanks around it and with one spelling of micro, `u`."""
    return unit.strip().replace("µ", "u").replace("μ", "u")


def moles_per_liter(unit: str, weights: np.ndarray) -> np.ndarray | None:
    """Return how many mol/L one unit is for each molecule.

    Args:
        unit: A unit such as `nM`, `umol/L`, `ug/mL` or `mg.L-1`.
        weights: Molecular weights, float64 [n].

    Returns:
        float64 [n]; None if the unit is no concentration.
    """
    text = plain_unit(unit)
    molar, mass = _MOLAR.fullmatch(text), _MASS.fullmatch(text)
    match = molar or mass
    if match is None:
        return None
    prefix, liter = match.groups()
    factor = 10.0 ** (PREFIXES[prefix] - PREFIXES[liter or ""])
    return np.full(len(weights), factor) if molar else factor / weights


def similar_unit(text: str) -> str | None:
    """Return the concentration that a text is except for upper case, such as `nM` for `NM`; None without."""
    return _BY_LOWER.get(plain_unit(text.lower()))


def is_same_unit(first: str, second: str) -> bool:
    """Return whether two units are the same, such as `nM` and `nmol/L`, for molecules of any weight."""
    if plain_unit(first) == plain_unit(second):
        return True
    weights = np.array([1.0, 2.0])  # with two weights, g/L and mol/L differ
    moles, others = moles_per_liter(first, weights), moles_per_liter(second, weights)
    return moles is not None and others is not None and np.array_equal(moles, others)
