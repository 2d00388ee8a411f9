"""Matched pairs: two molecules that differ by one exchanged substituent.

Source: Hussain and Rea 2010, "Computationally Efficient Algorithm to Identify Matched Molecular Pairs (MMPs)
in Large Data Sets", with the fragments of RDKit's rdMMPA.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rdkit import Chem
from rdkit.Chem import rdMMPA

from molslice.chem.smiles import ChemError, parse_smiles, quiet_rdkit

MOST_VARIABLE = 10  # heavy atoms of what is exchanged
LEAST_CONSTANT = 5  # heavy atoms of what stays
MOST_PAIRS = 200_000
HYDROGEN = "[H][*:1]"


@dataclass(frozen=True, slots=True)
class MatchedPair:
    """Two rows whose molecules differ by a substituent.

    Attributes:
        first: The first row.
        second: The second row.
        constant: What both have, as SMILES with the open bond `[*:1]`.
        before: What the first row has at this bond.
        after: What the second row has there.
    """

    first: int
    second: int
    constant: str
    before: str
    after: str


def find_matched_pairs(
    smiles: Sequence[str],
    most: int = MOST_PAIRS,
    *,
    progress: Callable[[int, int], None] = lambda done, rows: None,
) -> list[MatchedPair]:
    """Find pairs of molecules that differ by one substituent, a single cut of an acyclic bond.

    The substituents have at most 10 heavy atoms, and what both molecules have at least twice as many, and at
    least 5. A hydrogen is a substituent too. Of several cuts for two molecules, the one with the smallest
    substituents counts, and the one whose texts are first in the alphabet if they are equal. Molecules that
    differ in stereochemistry alone are no pair. Rows of one molecule make a pair each.

    Args:
        smiles: The molecules; those that cannot be read have no pairs.
        most: Most pairs; the ones with the largest constant parts are kept.
        progress: Called with the number of molecules that are cut and of all.

    Returns:
        The pairs, ordered by rows. `before` is first in the alphabet.
    """
    members, whole = dict[str, dict[str, list[int]]](), dict[str, list[int]]()
    for row, text in enumerate(smiles):
        progress(row, len(smiles))
        try:
            mol = parse_smiles(text)
        except ChemError:
            continue
        whole.setdefault(Chem.MolToSmiles(mol), []).append(row)
        for constant, variable in _cuts(mol):
            members.setdefault(constant, {}).setdefault(variable, []).append(row)
    sizes = {constant: _heavy_atoms(constant) for constant in members}
    for constant in members:
        if rows := whole.get(_with_hydrogen(constant)):
            members[constant].setdefault(HYDROGEN, []).extend(rows)
    pairs = dict[tuple[int, int], MatchedPair]()
    for constant in sorted(members, key=lambda text: (-sizes[text], text)):
        for before, after in itertools.combinations(sorted(members[constant]), 2):
            if _without_stereo(before) == _without_stereo(after):
                continue
            for first, second in itertools.product(members[constant][before], members[constant][after]):
                key = min(first, second), max(first, second)
                if first != second and key not in pairs:
                    pairs[key] = MatchedPair(first, second, constant, before, after)
        if len(pairs) >= most:
            break
    return sorted(pairs.values(), key=lambda pair: (pair.first, pair.second))[:most]


def _cuts(mol: Chem.Mol) -> Iterator[tuple[str, str]]:
    """Yield what stays and what is exchanged for each single cut, each side in turn if it is small enough."""
    with quiet_rdkit():
        fragments = rdMMPA.FragmentMol(mol, maxCuts=1, resultsAsMols=False)
    for _, chains in fragments:
        sides = chains.split(".")
        if len(sides) != 2:
            continue
        for variable, constant in itertools.permutations(sides):
            exchanged, kept = _heavy_atoms(variable), _heavy_atoms(constant)
            if exchanged <= min(MOST_VARIABLE, kept / 2) and kept >= LEAST_CONSTANT:
                yield constant, variable


def _heavy_atoms(fragment: str) -> int:
    with quiet_rdkit():
        return Chem.MolFromSmiles(fragment, sanitize=False).GetNumAtoms() - 1  # without the open bond


def _with_hydrogen(constant: str) -> str:
    """Return the molecule that has a hydrogen at the open bond; "" if there is none."""
    with quiet_rdkit():
        mol = Chem.MolFromSmiles(constant.replace("[*:1]", "[H]"))
    return "" if mol is None else Chem.MolToSmiles(mol)


def _without_stereo(fragment: str) -> str:
    return fragment.replace("@", "").replace("/", "").replace("\\", "")
