"""Units of concentrations."""

import numpy as np
import pytest

from molslice.chem.concentrations import is_same_unit, moles_per_liter


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        *[("M", 1.0), ("mM", 1e-3), ("uM", 1e-6), ("µM", 1e-6), ("μM", 1e-6), ("nM", 1e-9), ("pM", 1e-12)],
        *[("mol/L", 1.0), ("mmol/l", 1e-3), ("nmol.L-1", 1e-9), ("nmol/mL", 1e-6)],
        *[
            ("g/L", 0.01),
            ("mg/mL", 0.01),
            ("mg/L", 1e-5),
            ("ug/mL", 1e-5),
            ("ug.mL-1", 1e-5),
            ("ng/mL", 1e-8),
        ],
        *[(text, None) for text in ("nm", "m", "g", "%", "mg/kg", "uL", "", "mol", "M/s", "mg/mL/h")],
    ],
)
def test_units_in_moles_per_liter(unit, factor):
    """Of a molecule of 100 g/mol."""
    moles = moles_per_liter(unit, np.array([100.0]))
    assert moles is None if factor is None else moles == pytest.approx([factor], rel=1e-12)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        *[("nM", "nmol/L", True), ("uM", "nmol.mL-1", True), ("µM", "μM ", True), ("mg/mL", "g/L", True)],
        *[("nM", "uM", False), ("g/L", "M", False), ("ug/mL", "nM", False), ("nM", "", False)],
        *[("%", "%", True), ("%", "nM", False), ("h", "min", False)],
    ],
)
def test_spellings_of_a_unit(first, second, same):
    assert is_same_unit(first, second) == is_same_unit(second, first) == same
