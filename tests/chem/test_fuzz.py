"""Any text gives valid arrays or a reason."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from molslice.chem.featurize import ChemError, molecule_arrays
from molslice.chem.scaffold import scaffolds
from molslice.ops.vocabulary import ATOM_FEATURE_SIZES, BOND_FEATURE_SIZES
from tests.fuzzing import fuzz_for_a_minute

PIECES = (
    *"CNOPSFIBcnopsb*.-=#$:~/\\()[]@+%0123456789H|^,;&<> \t\n\0\u00e9\u200b",
    *(
        "Cl",
        "Br",
        "[nH]",
        "[C@H]",
        "[C@@]12",
        "[H]",
        "[Fe]",
        "[*:1]",
        "[2H]",
        "[se]",
        "%10",
        "%(101)",
        "->",
        "<-",
    ),
    *(
        "[O-]",
        "[N+]",
        "[Pt@SP1]",
        "[Co@OH3]",
        "[C+99]",
        "[13CH3:7]",
        "c1ccccc1",
        "C(=O)",
        "/C=C/",
        "*:*",
        "[Si]",
    ),
    *(" |^1:0|", " |$a;b$|", " |w:0.0|", " |Sg:n:0::ht|", " |C:0.0|"),
)
MOLECULES = (
    "CC(=O)Nc1ccc(O)cc1",
    "O[C@H]1C[C@@]2(SCCS2)CC2(SCCS2)C1",
    "C12=C3C4C5=C1[Ru]23541678C2=C1C6C7=C28",
    "[Na+].[O-]C(=O)/C=C/c1cc[nH]c1",
    "N->[Pt](Cl)(Cl)<-N",
    "c1ccc2c(c1)ccc1ccccc12",
)


@st.composite
def texts(draw):
    """Draw a SMILES with random insertions and deletions, or a few fragments repeated many times."""
    pieces = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
    if draw(st.booleans()):
        return draw(pieces) + draw(pieces) * draw(st.sampled_from((1, 2, 10, 60, 300, 4000))) + draw(pieces)
    text = draw(st.sampled_from(MOLECULES))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        text = text[:start] + draw(pieces) + text[start + draw(st.sampled_from((0, 0, 1, 3))) :]
    return text


def arrays_or_reason(text):
    try:
        return [molecule_arrays(text, atom_order=order) for order in ("canonical", "input")]
    except ChemError as error:
        return str(error)


def check(text):
    assert isinstance(scaffolds([text])[0], str)
    found = arrays_or_reason(text)
    if isinstance(found, str):
        assert found
        assert "\n" not in found
        return
    for arrays in found:
        assert 1 <= len(arrays.atoms) <= 256
        assert (arrays.atoms < np.array(ATOM_FEATURE_SIZES)).all()
        assert (arrays.bonds[:, :2] < len(arrays.atoms)).all()
        assert (arrays.bonds[:, 0] != arrays.bonds[:, 1]).all()
        assert (arrays.bonds[:, 2:] < np.array(BOND_FEATURE_SIZES)).all()


fuzz = settings(deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))


@settings(fuzz, max_examples=150)
@given(texts())
def test_any_text_becomes_arrays_or_a_reason(text):
    check(text)


@pytest.mark.exhaustive
def test_any_text_for_a_minute():
    fuzz_for_a_minute(texts(), check, fuzz)
