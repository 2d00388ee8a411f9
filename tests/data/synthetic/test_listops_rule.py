"""Tests of ListOps expressions: values and generation."""

import itertools
import statistics

import numpy as np
import pytest

from molslice.data.synthetic.listops_rule import (
    LIST_SHARE,
    NUMBERS,
    SYMBOLS,
    ListOpsRule,
    evaluate,
    generate,
)
from molslice.types import MolsliceError


def numbers(text):
    return [NUMBERS[symbol] for symbol in text.split()]


def tree_of(symbols):
    """Return a digit, or an operator with its arguments, without the code of the evaluator."""
    symbol = symbols.pop(0)
    if symbol.isdigit():
        return int(symbol)
    tree = [symbol.removeprefix("[")]
    while symbols[0] != "]":
        tree.append(tree_of(symbols))
    symbols.pop(0)
    return tree


def value_of(tree):
    if isinstance(tree, int):
        return tree
    name, *values = [tree[0], *map(value_of, tree[1:])]
    if name == "MED":
        return int(statistics.median(values))
    if name in ("SM", "PM"):
        result = 0 if name == "SM" else 1
        for value in values:
            result = (result + value if name == "SM" else result * value) % 10
        return result
    return {"MIN": sorted(values)[0], "MAX": sorted(values)[-1], "FIRST": values[0], "LAST": values[-1]}[name]


def depth_of(tree):
    return 1 if isinstance(tree, int) else 1 + max(map(depth_of, tree[1:]))


def lists_of(tree):
    if isinstance(tree, list):
        yield tree
        for part in tree[1:]:
            yield from lists_of(part)


def take(count, rule, seed=0):
    return list(itertools.islice(generate(rule, seed), count))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("[MIN 4 2 9 ]", 2),
        ("[MAX 4 2 9 ]", 9),
        ("[MED 9 1 4 ]", 4),
        ("[MED 1 9 2 5 ]", 3),  # (2 + 5) / 2 = 3.5
        ("[MED 8 9 ]", 8),
        ("[SM 7 8 9 ]", 4),
        ("[FIRST 3 1 2 ]", 3),
        ("[LAST 3 1 2 ]", 2),
        ("[PM 7 8 ]", 6),
        ("[PM 9 0 9 ]", 0),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("[MED 1 [PM 2 2 [LAST 4 9 8 ] 5 ] 4 3 ]", 2),
        ("[SM [SM [SM 9 9 ] 9 ] 9 ]", 6),
    ],
)
def test_what_expressions_come_to(text, value):
    assert evaluate(numbers(text)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "one expression, got 0"),
        ("1 2", "one expression, got 2"),
        ("[MIN 1 ] 2", "one expression, got 2"),
        ("]", "closing bracket without an open list"),
        ("[MIN 1 ] ]", "closing bracket without an open list"),
        ("[MIN [MAX 1 2", "2 lists are not closed"),
        ("[MAX 1 [SM ] ]", r"without arguments: \[SM \]"),
    ],
)
def test_an_invalid_expression_is_refused(text, message):
    with pytest.raises(MolsliceError, match=message):
        evaluate(numbers(text))


@pytest.mark.parametrize("number", [0, -1, len(SYMBOLS) + 1])
def test_a_number_without_a_symbol_is_refused(number):
    with pytest.raises(MolsliceError, match=f"invalid symbol {number}"):
        evaluate([number])


def test_a_recursive_evaluator_finds_the_same():
    rule = ListOpsRule(min_length=20, max_length=400, max_depth=8, max_args=6)
    for expression in take(2000, rule):
        symbols = [SYMBOLS[number - 1] for number in expression]
        assert evaluate(expression.tolist()) == value_of(tree_of(symbols))
        assert not symbols[1:] or symbols[0].startswith("[")


def test_a_recursive_evaluator_finds_the_same_of_all_operators():
    generator = np.random.default_rng(0)
    operators = [symbol for symbol in SYMBOLS if symbol.startswith("[")]
    assert len(operators) == 7

    def draw(depth):
        if depth == 0 or generator.random() < 0.4:
            return [str(generator.integers(10))]
        arguments = [draw(depth - 1) for _ in range(generator.integers(1, 6))]
        return [str(generator.choice(operators)), *itertools.chain(*arguments), "]"]

    for _ in range(2000):
        symbols = draw(5)
        assert evaluate(numbers(" ".join(symbols))) == value_of(tree_of(list(symbols)))


def test_expressions_keep_to_the_limits():
    rule = ListOpsRule(min_length=10, max_length=36, max_depth=4, max_args=5)
    found = take(3000, rule)
    lengths = np.array([len(expression) for expression in found])
    assert (lengths.min(), lengths.max()) == (11, 35)
    trees = [tree_of([SYMBOLS[number - 1] for number in expression]) for expression in found]
    assert max(map(depth_of, trees)) == 4
    lists = [part for tree in trees for part in lists_of(tree)]
    assert {len(part) - 1 for part in lists} == {2, 3, 4, 5}
    assert {part[0] for part in lists} == {"MIN", "MAX", "MED", "SM"}
    assert len({expression.tobytes() for expression in found}) == 3000


def test_the_shares_are_those_of_the_rule():
    """Without rejected expressions: fractions of lists, operators, digits and numbers of arguments."""
    rule = ListOpsRule(min_length=0, max_length=10_000, max_depth=3, max_args=10)
    found = [[SYMBOLS[number - 1] for number in expression] for expression in take(8000, rule, seed=3)]
    trees = [tree_of(symbols) for symbols in found]
    assert sum(isinstance(tree, int) for tree in trees) == 10  # a digit alone comes once
    # short lists, which come twice and are left out then, are left out here
    below = [part for tree in trees if isinstance(tree, list) and len(tree) > 4 for part in tree[1:]]
    lists = [part for part in below if isinstance(part, list)]
    assert len(lists) / len(below) == pytest.approx(0.25, abs=0.01)
    counts = np.bincount([len(part) - 1 for part in lists], minlength=11)[2:]
    assert counts / counts.sum() == pytest.approx(np.full(9, 1 / 9), abs=0.012)
    digits = np.bincount([digit for part in lists for digit in part[1:]], minlength=10)
    assert digits / digits.sum() == pytest.approx(np.full(10, 0.1), abs=0.01)
    named = [part[0] for part in lists]
    shares = [named.count(name) / len(named) for name in ("MIN", "MAX", "MED", "SM")]
    assert shares == pytest.approx([0.25] * 4, abs=0.02)


def test_a_straightforward_generator_makes_the_same_lengths():
    """Compares the arena's recursion over single nodes with the generation of many trees by level."""
    rule = ListOpsRule(min_length=30, max_length=300, max_depth=7, max_args=6)
    generator = np.random.default_rng(1)

    def length(depth):
        if depth == rule.max_depth or generator.random() > LIST_SHARE:
            return 1
        return 2 + sum(length(depth + 1) for _ in range(generator.integers(2, rule.max_args + 1)))

    expected = [n for n in (length(1) for _ in range(60_000)) if rule.min_length < n < rule.max_length]
    found = [len(expression) for expression in take(len(expected), rule)]
    assert len(expected) > 3000
    shares = np.arange(0.1, 1, 0.1)
    assert np.quantile(found, shares) == pytest.approx(np.quantile(expected, shares), rel=0.06)


def test_the_seed_decides():
    rule = ListOpsRule(min_length=10, max_length=60)
    one, again, other = (take(200, rule, seed) for seed in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not {row.tobytes() for row in one} & {row.tobytes() for row in other}
    longer = take(300, rule, 5)
    assert all(np.array_equal(a, b) for a, b in zip(one, longer, strict=False))


def test_an_exhausted_generator_is_an_error(monkeypatch):
    monkeypatch.setattr("molslice.data.synthetic.listops_rule.PATIENCE", 20)
    rule = ListOpsRule(min_length=0, max_length=3)
    with pytest.raises(MolsliceError, match="found 10 expressions .* ask for fewer"):
        take(11, rule)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_length": -1}, "min_length must be at least 0"),
        ({"max_depth": 0}, "max_depth 1"),
        ({"max_args": 1}, "max_args 2"),
        ({"max_length": 501}, "max_length must be greater than min_length \\+ 1, got 500 and 501"),
        ({"max_depth": 3}, "longest expression has 122 symbols, not more than min_length 500"),
    ],
)
def test_limits_that_nothing_keeps_are_refused(changes, message):
    with pytest.raises(MolsliceError, match=message):
        ListOpsRule(**changes)
