"""Count SMARTS patterns in molecules, and match only those that may be there.

A pattern matches only if each of its atoms and each of its bonds alone has a counterpart in the molecule. The
kinds of atoms and bonds that occur are few, so what each kind may be is remembered, and a molecule is the sum
over its atoms and bonds. Most patterns of a long list are ruled out so, in a small part of the time of a
match. A pattern of one atom, or of two, is counted from the kinds alone if they say enough about it.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from rdkit import Chem

MAX_KINDS = 4_096  # of atoms and of bonds that are remembered
CHARGE, COUNT, ISOTOPE = re.compile(r"[+-]\d*"), re.compile(r"([HDXRv])(\d*)"), re.compile(r"(\d+)\*")
BOND_TYPES = {
    "": {Chem.BondType.SINGLE, Chem.BondType.AROMATIC},
    "-": {Chem.BondType.SINGLE},
    ":": {Chem.BondType.AROMATIC},
    "=": {Chem.BondType.DOUBLE},
    "#": {Chem.BondType.TRIPLE},
}
NUMBER, IS_AROMATIC, HYDROGENS, DEGREE, ATOM_CHARGE, ATOM_ISOTOPE, RINGS, VALENCE = range(8)
AtomKind = tuple[int, bool, int, int, int, int, int, int]  # the places above: what a pattern can ask about
Bond = tuple[Chem.BondType, bool, int, int]  # type, whether it is in a ring, and the indices of its atoms
Answer = tuple[bool, bool]  # whether "yes" is possible, and whether "no" is
YES, NO, EITHER = (True, False), (False, True), (True, True)
Question = Callable[..., Answer]  # about a kind of atom, or about the type and the ring of a bond


@dataclass(frozen=True, slots=True)
class _Pattern:
    """What a pattern needs.

    Attributes:
        places: The places of its atoms and bonds in the list of all.
        choices: For each atom that is described by other patterns only, the alternatives, each with the
            numbers of the patterns that all have to match.
        smallest_ring: Number of atoms of its smallest ring; infinite without rings.
        most: The place of its most frequent atom, and how often it occurs.
        whole: The place of its only atom, or of the bond of its two atoms; None if there is more to match.
    """

    places: frozenset[int]
    choices: tuple[tuple[tuple[int, ...], ...], ...]
    smallest_ring: float
    most: tuple[int, int]
    whole: int | None

    def has_choices(self, may_match: Sequence[bool]) -> bool:
        """Return whether each choice is left, if `may_match` says so for each pattern."""
        for alternatives in self.choices:
            for patterns in alternatives:
                if all([may_match[number] for number in patterns]):
                    break
            else:
                return False
        return True


class _Kinds:
    """Rows of numbers that are computed once for each kind of atom or bond.

    Args:
        compute: Returns the row of a kind.
        shape: Shape of a row.
    """

    def __init__(self, compute: Callable[[Any], np.ndarray], shape: tuple[int, ...]) -> None:
        self._compute, self._rows = compute, np.zeros((MAX_KINDS, *shape), np.uint8)
        self._numbers: dict[Any, int] = {}

    def numbers(self, kinds: Sequence[Any]) -> list[int]:
        """Number the kinds; a molecule has fewer than are remembered."""
        known = self._numbers
        try:
            return [known[kind] for kind in kinds]
        except KeyError:
            new = set(kinds) - known.keys()
            if len(known) + len(new) > MAX_KINDS:
                known.clear()
                new = set(kinds)
            for kind in new:
                self._rows[len(known)] = self._compute(kind)
                known[kind] = len(known)
            return [known[kind] for kind in kinds]

    def row(self, kind: object) -> np.ndarray:
        """Return the row of a kind."""
        return self._rows[self.numbers([kind])[0]]

    def added(self, numbers: Sequence[int]) -> np.ndarray:
        """Add up the rows of numbered kinds."""
        return np.add.reduce(self._rows[numbers], axis=0, dtype=np.uint16)


class PatternCounter:
    """Counts patterns in molecules without hydrogens as atoms.

    Args:
        queries: The patterns, from `Chem.MolFromSmarts`.
    """

    def __init__(self, queries: Iterable[Chem.Mol]) -> None:
        self._atom_places: dict[str, int] = {}
        self._bond_places: dict[tuple[str, str, str], int] = {}
        patterns: list[_Pattern] = []  # nested ones come before those that they are in
        self._queries = [self._compile(query, patterns) for query in queries]
        expressions, begins, ends = zip(*self._bond_places, strict=True)
        atoms = ([self._atom_places[atom] for atom in atoms] for atoms in (begins, ends))
        self._of_bonds = expressions, *atoms, [*self._bond_places.values()]
        count = len(self._atom_places) + len(self._bond_places)
        longest = max(len(pattern.places) for pattern in patterns)
        self._places = np.array(
            [[*pattern.places, *[count] * (longest - len(pattern.places))] for pattern in patterns]
        ).T.copy()
        self._rings = np.array([pattern.smallest_ring for pattern in patterns])
        self._most, self._numbers = np.array([pattern.most for pattern in patterns]).T
        self._with_choices = [(place, pattern) for place, pattern in enumerate(patterns) if pattern.choices]
        wholes = [
            (place, pattern.whole) for place, pattern in enumerate(patterns) if pattern.whole is not None
        ]
        self._of_wholes, self._wholes = np.array(wholes, np.int64).reshape(-1, 2).T
        self._atoms = _Kinds(self._look_at_atom, (2, count + 1))
        self._bonds = _Kinds(self._look_at_bond, (2, count + 1))

    def counts(self, atoms: Sequence[AtomKind], bonds: Sequence[Bond], smallest_ring: float) -> list[int]:
        """Return the number of matches of each pattern that differ by an atom; -1 if it has to be matched.

        Args:
            atoms: The atoms of the molecule.
            bonds: Its bonds.
            smallest_ring: Number of atoms of its smallest ring; infinite without rings.
        """
        kinds = [(kind, in_ring, atoms[begin], atoms[end]) for kind, in_ring, begin, end in bonds]
        may_be, surely = self._atoms.added(self._atoms.numbers(atoms))
        if kinds:
            of_bonds = self._bonds.added(self._bonds.numbers(kinds))
            may_be, surely = may_be + of_bonds[0], surely + of_bonds[1]
        may_be[-1] = 1
        may_match = (may_be > 0)[self._places].all(0) & (self._rings >= smallest_ring)
        may_match &= may_be[self._most] >= self._numbers
        counts = np.where(may_match, -1, 0)
        is_known = may_be[self._wholes] == surely[self._wholes]
        counts[self._of_wholes[is_known]] = may_be[self._wholes[is_known]]
        result, may_match = counts.tolist(), may_match.tolist()
        for place, pattern in self._with_choices:
            if may_match[place] and not pattern.has_choices(may_match):
                result[place], may_match[place] = 0, False
        return [result[place] for place in self._queries]

    def _compile(self, query: Chem.Mol, patterns: list[_Pattern]) -> int:
        """Add a pattern to the patterns, and return its number."""
        places, choices = [], []
        for atom in query.GetAtoms():
            places.append(self._place(self._atom_places, atom.GetSmarts()))
            choices += self._choices(atom.GetSmarts(), patterns)
        most = Counter(places).most_common(1)[0]
        for bond in query.GetBonds():
            ends = bond.GetBeginAtom().GetSmarts(), bond.GetEndAtom().GetSmarts()
            expression = bond.GetSmarts()  # pyright: ignore[reportCallIssue]
            places.append(self._place(self._bond_places, (expression, *ends)))
        smallest = min(map(len, Chem.GetSSSR(query)), default=math.inf)
        is_whole = len(places) == 1 or (query.GetNumAtoms(), query.GetNumBonds()) == (2, 1)
        whole = places[-1] if is_whole and not choices else None
        patterns.append(_Pattern(frozenset(places), tuple(choices), smallest, most, whole))
        return len(patterns) - 1

    def _place(self, known: dict[Any, int], key: object) -> int:
        return known.setdefault(key, len(self._atom_places) + len(self._bond_places))

    def _choices(self, expression: str, patterns: list[_Pattern]) -> list[tuple[tuple[int, ...], ...]]:
        choices = []
        for clause in _split(_inside(expression), ";"):
            nested = [
                [leaf for leaf in _split(alternative, "&") if leaf.startswith("$(")]
                for alternative in _split(clause, ",")
            ]
            if all(nested):
                choices.append(
                    tuple(
                        tuple(self._compile(_nested(leaf), patterns) for leaf in leaves) for leaves in nested
                    )
                )
        return choices

    def _look_at_atom(self, atom: AtomKind) -> np.ndarray:
        """Return which atoms of patterns an atom may be and which it surely is, as 0 and 1."""
        row = np.zeros((2, len(self._atom_places) + len(self._bond_places) + 1), np.uint8)
        for expression, place in self._atom_places.items():
            yes, no = _question(_inside(expression), _ask_atom)(atom)
            row[:, place] = yes, not no
        return row

    def _look_at_bond(self, bond: tuple[Chem.BondType, bool, AtomKind, AtomKind]) -> np.ndarray:
        """Return which bonds of patterns a bond may be and which it surely is, as 0 and 1."""
        kind, in_ring, *atoms = bond
        begin, end = (self._atoms.row(atom) for atom in atoms)
        expressions, one, other, places = self._of_bonds
        row = np.zeros_like(begin)
        fits = (begin[:, one] & end[:, other]) | (begin[:, other] & end[:, one])
        row[:, places] = fits * _types(expressions, kind, in_ring)
        return row


@cache
def _types(expressions: tuple[str, ...], kind: Chem.BondType, in_ring: bool) -> np.ndarray:
    """Return which expressions a type of bond may be and which it surely is, as 0 and 1, [2, expressions]."""
    answers = [_question(expression, _ask_bond)((kind, in_ring)) for expression in expressions]
    return np.array([(yes, not no) for yes, no in answers], np.uint8).T


@cache
def _question(expression: str, of_leaf: Callable[[str], Question]) -> Question:
    """Read an expression: `;` is "and" and comes last, before it `,` for "or", `&` for "and" and `!`."""
    for separator, join in ((";", _all_of), (",", _any_of), ("&", _all_of)):
        operands = _split(expression, separator)
        if len(operands) > 1:
            return join([_question(operand, of_leaf) for operand in operands])
    if expression.startswith("!"):
        question = _question(expression[1:], of_leaf)
        return lambda kind: (question(kind)[1], question(kind)[0])
    return of_leaf(expression)


def _all_of(questions: Sequence[Question]) -> Question:
    def ask(kind: Sequence[Any]) -> Answer:
        yes, no = zip(*(question(kind) for question in questions), strict=True)
        return all(yes), any(no)

    return ask


def _any_of(questions: Sequence[Question]) -> Question:
    def ask(kind: Sequence[Any]) -> Answer:
        yes, no = zip(*(question(kind) for question in questions), strict=True)
        return any(yes), all(no)

    return ask


def _whether(is_so: Callable[[Any], bool]) -> Question:
    return lambda kind: YES if is_so(kind) else NO


def _ask_atom(leaf: str) -> Question:
    if leaf == "*":
        return lambda _: YES
    if leaf in ("a", "A"):
        return _whether(lambda atom: atom[IS_AROMATIC] == (leaf == "a"))
    if leaf.startswith("#"):
        number = int(leaf[1:])
        return _whether(lambda atom: atom[NUMBER] == number)
    if leaf.startswith("$("):
        first = _question(_inside(_nested(leaf).GetAtomWithIdx(0).GetSmarts()), _ask_atom)
        return lambda atom: (first(atom)[0], True)
    if CHARGE.fullmatch(leaf):
        charge = int(leaf[1:] or 1) * (1 if leaf[0] == "+" else -1)
        return _whether(lambda atom: atom[ATOM_CHARGE] == charge)
    if counted := COUNT.fullmatch(leaf):
        return _ask_count(counted[1], counted[2])
    if isotope := ISOTOPE.fullmatch(leaf):
        return _whether(lambda atom: atom[ATOM_ISOTOPE] == int(isotope[1]))
    if leaf.lower() in _NUMBERS:
        number = _NUMBERS[leaf.lower()]
        return _whether(lambda atom: atom[NUMBER] == number and atom[IS_AROMATIC] == leaf.islower())
    return lambda _: EITHER


def _ask_count(letter: str, count: str) -> Question:
    if letter == "R" and not count:
        return _whether(lambda atom: atom[RINGS] > 0)
    number = int(count or 1)
    if letter == "X":
        return _whether(lambda atom: atom[DEGREE] + atom[HYDROGENS] == number)
    place = {"R": RINGS, "H": HYDROGENS, "D": DEGREE, "v": VALENCE}[letter]
    return _whether(lambda atom: atom[place] == number)


def _ask_bond(leaf: str) -> Question:
    if leaf == "~":
        return lambda _: YES
    if leaf == "@":
        return _whether(lambda bond: bond[1])
    if leaf in BOND_TYPES:
        return _whether(lambda bond: bond[0] in BOND_TYPES[leaf])
    return lambda _: EITHER


def _inside(expression: str) -> str:
    """Return the expression of an atom without its brackets."""
    return expression[1:-1] if expression.startswith("[") else expression


def _split(expression: str, separator: str) -> list[str]:
    """Split at a separator outside of all brackets."""
    parts, depth = [""], 0
    for character in expression:
        depth += (character in "([") - (character in ")]")
        if character == separator and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _nested(leaf: str) -> Chem.Mol:
    """Return the pattern inside of `$(...)`."""
    return Chem.MolFromSmarts(leaf[2:-1])


_TABLE = Chem.GetPeriodicTable()
_NUMBERS = {_TABLE.GetElementSymbol(number).lower(): number for number in range(1, 119)}
