"""Find the cause for which a SMILES is invalid, in words for the person who wrote it.

RDKit has the cause only in its log, which belongs to the whole process and names neither the ring nor the
symbol. The functions here run only for texts and molecules that RDKit refuses, and refuse nothing themselves.
"""

import re
from collections.abc import Sequence
from typing import Protocol

from rdkit import Chem

_TOKEN = re.compile(
    r"(?P<atom>\[[^\[\]]*\]|Br|Cl|[BCNOPSFIbcnops*])"
    r"|(?P<bond>->|<-|\\{1,2}|[-=#$:~/])|(?P<ring>%\(\d+\)|%\d\d|\d)|(?P<dot>\.)|(?P<open>\()|(?P<close>\))"
)
_SYMBOL = re.compile(r"\[\d*(#\d+|\*|[A-Z][a-z]?|se|as|te|si|[a-z])")
_ATTRIBUTES = re.compile(r"(@{1,2}|@(?:TH|AL|SP|TB|OH)\d+)?(H\d*)?(\++|-+|[+-]\d+)?(:\d{1,9})?\]")
_VALENCE = re.compile(r"Explicit valence for atom # (\d+) (\w+), (\d+), is greater than permitted")
_AROMATIC = frozenset(("se", "as", "te", "si", *"bcnops"))
_ELEMENTS = frozenset(Chem.GetPeriodicTable().GetElementSymbol(number) for number in range(1, 119))
SHOWN_ATOM, MOST_PROBLEMS = 20, 3


def syntax_error(smiles: str) -> str | None:
    """Return the first error in the syntax of a SMILES, with its position from 1, or `None`.

    Only some errors are known. `None` therefore does not mean that RDKit can parse the text.
    """
    position, before, bonds = 0, "start", _Bonds()
    while position < len(smiles):
        token = _TOKEN.match(smiles, position)
        if token is None:
            return _unknown(smiles, position)
        kind, text, place = str(token.lastgroup), token.group(), position + 1
        if _needs_atom(before, kind):
            return f"no atom before {text!r} at position {place}"
        if text[0] == "[" and (error := _bracket_error(text, place)):
            return error
        if error := bonds.add(kind, text, place):
            return error
        position, before = token.end(), kind
    if error := bonds.unclosed():
        return error
    return f"no atom after {smiles[-1]!r} at the end" if before in ("bond", "dot") else None


def chemistry_problems(mol: Chem.Mol) -> str:
    """Return RDKit's objections to a molecule that is not sanitized, at most three. Atoms count from 1."""
    problems = list(Chem.DetectChemistryProblems(mol))[:MOST_PROBLEMS]
    return "; ".join(_problem(mol, problem) for problem in problems)


class _Problem(Protocol):
    """An exception of RDKit, which its stubs do not describe."""

    def Message(self) -> str: ...  # noqa: N802
    def GetType(self) -> str: ...  # noqa: N802
    def GetAtomIndices(self) -> Sequence[int]: ...  # noqa: N802


class _Bonds:
    """The bonds of a SMILES that is read token by token. Atoms count from 1."""

    def __init__(self) -> None:
        self._num_atoms, self._last = 0, 0  # 0 is before the first atom and after a dot
        self._branches: list[tuple[int, int]] = []  # atom and position of each open parenthesis
        self._rings: dict[int, int] = {}  # atom of each open ring
        self._pairs: set[tuple[int, int]] = set()

    def add(self, kind: str, text: str, place: int) -> str | None:
        """Add a token at a position, and return what is wrong with it, or `None`."""
        if kind == "atom":
            self._num_atoms += 1
            self._pairs.add((self._last, self._num_atoms))
            self._last = self._num_atoms
        elif kind == "dot":
            self._last = 0
        elif kind == "ring":
            return self._close_ring(int(text.strip("%()")), place)
        elif kind == "open":
            self._branches.append((self._last, place))
        elif kind == "close":
            if not self._branches:
                return f"parenthesis at position {place} is not opened"
            self._last = self._branches.pop()[0]
        return None

    def _close_ring(self, number: int, place: int) -> str | None:
        """Open or close a ring at the last atom."""
        start, end = self._rings.pop(number, None), self._last
        if start is None:
            self._rings[number] = end
        elif start == end:
            return f"ring {number} joins atom {end} with itself, at position {place}"
        elif (start, end) in self._pairs:
            return f"ring {number} joins atoms {start} and {end} again, at position {place}"
        else:
            self._pairs.add((start, end))
        return None

    def unclosed(self) -> str | None:
        """Return what is not closed at the end of the text, or `None`."""
        if self._branches:
            return f"parenthesis at position {self._branches[-1][1]} is not closed"
        return f"ring {next(iter(self._rings))} is not closed" if self._rings else None


def _needs_atom(before: str, kind: str) -> bool:
    """Return whether an atom must stand between two tokens."""
    if kind == "atom":
        return False
    if before in ("start", "dot"):
        return True
    return kind != "bond" if before == "open" else before == "bond" and kind != "ring"


def _unknown(smiles: str, position: int) -> str:
    """Describe a position at which no token begins."""
    character, place = smiles[position], position + 1
    if character == "[":
        return f"bracket at position {place} is not closed"
    if character == "]":
        return f"bracket at position {place} is not opened"
    return f"unknown symbol {character!r} at position {place}"


def _bracket_error(atom: str, place: int) -> str | None:
    """Return what is wrong in an atom in brackets that begins at a position, or `None`."""
    symbol = _SYMBOL.match(atom)
    if symbol is not None:
        name = symbol.group(1)
        if name[0] not in "#*" and name not in _ELEMENTS and name not in _AROMATIC:
            return f"unknown symbol {name!r} at position {place + symbol.start(1)}"
        if _ATTRIBUTES.fullmatch(atom, symbol.end()):
            return None
    shown = atom if len(atom) <= SHOWN_ATOM else f"{atom[:SHOWN_ATOM]}…"
    return f"invalid atom {shown!r} at position {place}"


def _problem(mol: Chem.Mol, problem: _Problem) -> str:
    """Describe one problem, an exception of RDKit, in its words if its kind is not known."""
    message = problem.Message().strip()
    if valence := _VALENCE.match(message):
        index, symbol, number = valence.groups()
        return f"atom {int(index) + 1}, {symbol}, has valence {number}, more than permitted"
    if problem.GetType() != "KekulizeException":
        return message
    indices = list(problem.GetAtomIndices())
    atoms = [mol.GetAtomWithIdx(index) for index in indices]
    bare = (atom for atom in atoms if atom.GetSymbol() == "N" and atom.GetDegree() == 2)
    needs_hydrogen = any(not atom.GetNumExplicitHs() and not atom.GetFormalCharge() for atom in bare)
    hint = "; a nitrogen with a hydrogen is written [nH]" if needs_hydrogen else ""
    return f"cannot kekulize the aromatic atoms {' '.join(str(index + 1) for index in indices)}{hint}"
