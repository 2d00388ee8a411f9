"""Evaluate ListOps expressions, and generate them like Long Range Arena.

An expression is a sequence of indices into `SYMBOLS`, counted from 1 (0 is padding). Parentheses are left
out, because they are redundant with the brackets.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from molslice.types import MolsliceError


def median(digits: list[int]) -> int:
    """Compute the median of digits; for an even count, the mean of the middle two, rounded down."""
    ordered, middle = sorted(digits), len(digits) // 2
    return ordered[middle] if len(digits) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


# first the four of the arena; the others occur only in the files of Nangia and Bowman
OPERATORS: Mapping[str, Callable[[list[int]], int]] = MappingProxyType(
    {
        "[MIN": min,
        "[MAX": max,
        "[MED": median,
        "[SM": lambda digits: sum(digits) % 10,
        "[FIRST": lambda digits: digits[0],
        "[LAST": lambda digits: digits[-1],
        "[PM": lambda digits: math.prod(digits) % 10,
    }
)
END = "]"
SYMBOLS = (*map(str, range(10)), *OPERATORS, END)
NUMBERS = MappingProxyType({symbol: number for number, symbol in enumerate(SYMBOLS, start=1)})
FUNCTIONS = MappingProxyType({NUMBERS[name]: function for name, function in OPERATORS.items()})
FIRST_OPERATOR, LAST = NUMBERS["[MIN"], NUMBERS[END]
GENERATED_OPERATORS = 4
LIST_SHARE = 0.25  # probability of a list, for nodes that may be lists
TRIALS = 4096  # expressions drawn at once; another number gives other expressions
PATIENCE = 250  # maximum rounds without a new expression


@dataclass(frozen=True, slots=True)
class ListOpsRule:
    """Limits of expressions.

    Attributes:
        min_length: Expressions have more symbols than this.
        max_length: Expressions have fewer symbols than this.
        max_depth: Maximum nesting depth, counting digits as a level.
        max_args: Maximum number of arguments of an operator.

    Raises:
        MolsliceError: No expression satisfies the limits.
    """

    min_length: int = 500
    max_length: int = 2000
    max_depth: int = 10
    max_args: int = 10

    def __post_init__(self) -> None:
        if self.min_length < 0 or self.max_depth < 1 or self.max_args < 2:
            raise MolsliceError(
                "min_length must be at least 0, max_depth 1 and max_args 2, got "
                f"{self.min_length}, {self.max_depth} and {self.max_args}"
            )
        if self.max_length < self.min_length + 2:
            raise MolsliceError(
                f"max_length must be greater than min_length + 1, got {self.min_length} and {self.max_length}"
            )
        longest = 1
        for _ in range(self.max_depth - 1):
            longest = 2 + self.max_args * longest
        if longest <= self.min_length:
            raise MolsliceError(
                f"with max_depth {self.max_depth} and max_args {self.max_args} the longest expression has "
                f"{longest} symbols, not more than min_length {self.min_length}"
            )


def evaluate(expression: Iterable[int]) -> int:
    """Evaluate an expression, indices of symbols from 1, to a digit.

    Raises:
        MolsliceError: The symbols are not exactly one complete expression.
    """
    operators: list[int] = []
    digits: list[list[int]] = [[]]  # arguments of each open list; the first holds the result
    for number in expression:
        if 0 < number < FIRST_OPERATOR:
            digits[-1].append(number - 1)
        elif FIRST_OPERATOR <= number < LAST:
            operators.append(number)
            digits.append([])
        elif number != LAST:
            raise MolsliceError(f"invalid symbol {number}; choices: 1 to {LAST}")
        elif not operators:
            raise MolsliceError("closing bracket without an open list")
        elif not digits[-1]:
            raise MolsliceError(f"a list without arguments: {SYMBOLS[operators[-1] - 1]} {END}")
        else:
            arguments = digits.pop()
            digits[-1].append(FUNCTIONS[operators.pop()](arguments))
    if operators:
        raise MolsliceError(f"{len(operators)} lists are not closed")
    if len(digits[0]) != 1:
        raise MolsliceError(f"expected one expression, got {len(digits[0])}")
    return digits[0][0]


def generate(rule: ListOpsRule, seed: int) -> Iterator[np.ndarray]:
    """Yield distinct expressions without end, determined by the seed.

    A node above the deepest level is a list with probability 1/4; its operator and its number of arguments
    (at least 2) are uniform. Any other node is a digit. Expressions of other lengths are discarded.

    Yields:
        Indices of symbols, uint8 [n].

    Raises:
        MolsliceError: No new expression was found in many rounds.

    Source: the generator of Long Range Arena (Tay et al. 2020, arXiv 2011.04006, section 2.2.1) after Nangia
    and Bowman 2018, arXiv 1804.06028.
    """
    generator = np.random.default_rng(seed)
    seen: set[bytes] = set()
    idle = 0
    while idle < PATIENCE:
        idle += 1
        for expression in _draw(rule, generator):
            key = hashlib.blake2b(expression.tobytes(), digest_size=16).digest()
            if key not in seen:
                seen.add(key)
                idle = 0
                yield expression
    raise MolsliceError(
        f"found {len(seen)} expressions of {rule.min_length} to {rule.max_length} symbols and no new one in "
        f"{PATIENCE * TRIALS:,} draws; ask for fewer, or widen the limits"
    )


@dataclass(frozen=True, slots=True)
class _Level:
    """The nodes of one level of many trees; nodes of a tree, and of a list, are consecutive."""

    tree: np.ndarray
    symbol: np.ndarray  # a digit, or the operator of a list
    num_args: np.ndarray  # 0 for a digit


def _draw(rule: ListOpsRule, generator: np.random.Generator) -> list[np.ndarray]:
    """Draw `TRIALS` expressions and keep those with an allowed length."""
    levels: list[_Level] = []
    tree = np.arange(TRIALS)
    lengths = np.zeros(TRIALS, np.int64)
    for depth in range(1, rule.max_depth + 1):
        is_list = (generator.random(len(tree)) < LIST_SHARE) & (depth < rule.max_depth)
        num_args = np.where(is_list, generator.integers(2, rule.max_args + 1, len(tree)), 0)
        operator = generator.integers(FIRST_OPERATOR, FIRST_OPERATOR + GENERATED_OPERATORS, len(tree))
        digit = generator.integers(1, FIRST_OPERATOR, len(tree))
        levels.append(_Level(tree, np.where(is_list, operator, digit).astype(np.uint8), num_args))
        lengths += np.bincount(tree, 1 + is_list, TRIALS).astype(np.int64)
        tree = np.repeat(tree, num_args)
        tree = tree[lengths[tree] < rule.max_length]  # stop drawing trees that are too long
        if not len(tree):
            break
    kept = (lengths > rule.min_length) & (lengths < rule.max_length)
    return _write(levels, kept, lengths)


def _write(levels: list[_Level], kept: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Write the kept trees as expressions, in reading order."""
    levels = [_kept(level, kept) for level in levels]
    # from below: the number of symbols of each node with its children, and `starts`, their cumulative sum
    sizes, starts = [np.zeros(0, np.int64)], [np.zeros(1, np.int64)]
    for level in reversed(levels):
        ends = level.num_args.cumsum()
        inner = starts[0][ends] - starts[0][ends - level.num_args]
        sizes.insert(0, 1 + (level.num_args > 0) + inner)
        starts.insert(0, np.concatenate([np.zeros(1, np.int64), sizes[0].cumsum()]))
    # from above: the position of each node in the text
    text = np.zeros(int(lengths[kept].sum()), np.uint8)
    places = starts[0][:-1]
    for depth, level in enumerate(levels):
        text[places] = level.symbol
        is_list = level.num_args > 0
        text[(places + sizes[depth] - 1)[is_list]] = LAST
        first = level.num_args.cumsum() - level.num_args  # first child of each node
        offset = places + 1 - starts[depth + 1][first]
        places = np.repeat(offset, level.num_args) + starts[depth + 1][:-1]
    return np.split(text, lengths[kept].cumsum()[:-1]) if kept.any() else []


def _kept(level: _Level, kept: np.ndarray) -> _Level:
    chosen = kept[level.tree]
    return _Level(level.tree[chosen], level.symbol[chosen], level.num_args[chosen])
