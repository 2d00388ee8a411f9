"""The rule of similarities: known errors, small sets, intervals that miss, its JSON."""

import json

import numpy as np
import pytest

from molslice.uncertainty.similarity_rule import EDGE, LIKE, OUTSIDE, SimilarityRule


def rows(count=600, seed=0):
    """Similarities from 0 to 1, and errors of mean 1."""
    draw = np.random.default_rng(seed)
    return np.sort(draw.uniform(size=count)), draw.uniform(0.9, 1.1, count)


def test_the_similarities_are_where_the_errors_grow():
    similarities, errors = rows()
    errors = errors * np.select([similarities < 0.2, similarities < 0.4], [4.0, 2.0], 1.0)
    rule = SimilarityRule.choose(similarities, errors, threshold=0.05)
    # relative to the mean error of all rows, of about 1.8, the errors are 2.2, 1.1 and 0.55
    assert rule.edge == pytest.approx(0.2, abs=0.05)
    assert rule.edge <= rule.like < 0.28  # a group with rows on both sides
    errors = np.where(similarities < 0.1, 1.6, 1.0) * np.where(similarities < 0.02, 3.0, 1.0)
    rule = SimilarityRule.choose(similarities, errors, threshold=0.5)
    assert 0.01 <= rule.edge < rule.like
    assert rule.like == pytest.approx(0.1, abs=0.03)
    assert [rule.place(rule.like), rule.place(rule.like - 0.01), rule.place(rule.edge - 0.01)] == [
        LIKE,
        EDGE,
        OUTSIDE,
    ]


def test_errors_that_do_not_grow_leave_only_what_was_not_tested_outside():
    similarities, errors = rows()
    rule = SimilarityRule.choose(0.5 + similarities / 2, errors, threshold=0.9)
    assert rule.edge == rule.like == round(0.5 + similarities[5] / 2, 2)  # five of 600 rows are below
    assert sum(group.rows for group in rule.groups) == 600
    assert all(first.high <= second.low for first, second in zip(rule.groups, rule.groups[1:], strict=False))


def test_a_rare_large_error_among_similar_molecules_does_not_move_the_rule():
    """The expected error does not grow with the similarity."""
    similarities, errors = rows()
    plain = SimilarityRule.choose(similarities, errors, threshold=0.5)
    errors[400:420] = 3.0
    assert SimilarityRule.choose(similarities, errors, threshold=0.5).like == plain.like


def test_intervals_that_miss_are_at_the_edge():
    similarities, errors = rows()
    covered = np.ones(600)
    covered[:60:2] = 0.0  # half of the least similar tenth
    rule = SimilarityRule.choose(similarities, errors, covered, threshold=0.5)
    without = SimilarityRule.choose(similarities, errors, threshold=0.5)
    assert without.like < 0.05
    assert rule.like == pytest.approx(0.1, abs=0.03)
    assert rule.edge == without.edge
    assert rule.groups[0].coverage == pytest.approx(7 / 15)


def test_rows_of_one_molecule_count_as_one():
    similarities, errors = rows()
    errors *= np.where(similarities < 0.1, 3.0, 1.0)
    covered = np.where(similarities < 0.1, 0.5, 1.0)
    rule = SimilarityRule.choose(similarities, errors, covered, threshold=0.5)
    repeats = np.random.default_rng(1).integers(1, 9, 600)
    molecules = np.repeat(np.arange(600), repeats)
    repeated = [np.repeat(one, repeats) for one in (similarities, errors, covered)]
    order = np.random.default_rng(2).permutation(len(molecules))
    of_rows = SimilarityRule.choose(
        *(one[order] for one in repeated), threshold=0.5, molecules=molecules[order]
    )
    assert (of_rows.edge, of_rows.like) == (rule.edge, rule.like)
    assert [group.rows for group in of_rows.groups] == [group.rows for group in rule.groups]
    usual = SimilarityRule.choose(
        *(np.repeat(one, 5) for one in rows(59)), threshold=0.5, molecules=np.repeat(np.arange(59), 5)
    )
    assert usual == SimilarityRule.usual(0.5)


@pytest.mark.parametrize(("threshold", "like"), [(0.234, 0.4), (0.618, 0.62)])
def test_few_rows_have_the_usual_similarities(threshold, like):
    similarities, errors = rows(59)
    for rule in (
        SimilarityRule.choose(similarities, errors, threshold=threshold),
        SimilarityRule.choose(*rows(600)[:1], np.full(600, np.nan), threshold=threshold),
        SimilarityRule.choose(*rows(600)[:1], np.zeros(600), threshold=threshold),
    ):
        assert (rule.edge, rule.like, rule.groups) == (round(threshold, 2), like, ())


def test_a_rule_reads_back_and_a_damaged_one_is_refused():
    similarities, errors = rows()
    rule = SimilarityRule.choose(similarities, errors, np.full(600, np.nan), threshold=0.5)
    mapping = json.loads(json.dumps(rule.to_mapping()))
    assert SimilarityRule.from_mapping(mapping) == rule
    with pytest.raises(ValueError, match=r"edge 0.9 and like 0.5"):
        SimilarityRule.from_mapping({"edge": 0.9, "like": 0.5, "groups": []})
