"""The page of the attentions agrees with their traits and with the measurements."""

import pytest
import yaml
from latex2mathml.converter import convert

from molslice.attention import ATTENTIONS
from tests.programs import load_program


@pytest.fixture(scope="module")
def program():
    return load_program("zoo_page")


def test_the_page_is_that_of_the_code_and_the_results(program):
    hint = "run python benchmarks/zoo_page.py --write"
    assert program.PAGE.read_text(encoding="utf-8") == program.make_page(), hint
    assert program.DETAILS.read_text(encoding="utf-8") == program.make_details(), hint


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_the_row_of_each_attention_holds_its_traits(program, name):
    traits = ATTENTIONS.find(name).traits
    rows = [line.split(" | ") for line in program.promises().splitlines() if line.startswith(f"| `{name}` ")]
    (row,) = rows
    assert (
        row[1]
        == {"linear": "N", "log_linear": "N log N", "n_sqrt_n": "N sqrt N", "quadratic": "N^2"}[traits.cost]
    )
    assert (row[2] == "any") == (traits.symmetry == "equivariant")
    assert [mode in row[3] for mode in ("mix", "logits")] == [
        mode in traits.pair_bias for mode in ("mix", "logits")
    ]
    promised = (traits.causal, traits.recurrent, traits.cross, traits.fixed_length, traits.vmap)
    assert tuple(cell == "yes" for cell in row[4:9]) == promised


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_the_counted_exponents_are_those_of_the_traits(program, name):
    expected = program.EXPECTED[ATTENTIONS.find(name).traits.cost]
    assert program.counted_exponents(name) == pytest.approx((expected, expected), abs=0.15)


def test_an_exponent_is_the_slope_of_logarithms(program):
    assert program.exponent((256, 512, 1024), [3 * n**1.5 for n in (256, 512, 1024)]) == pytest.approx(1.5)
    cells = [
        {
            "attention": "mean",
            "outcome": "ok",
            "length": length,
            "batch_size": 8192 // length,
            "training_steps_per_second": {"median": 10.0},
            "peak_bytes": {"median": 5.0},
        }
        for length in (1024, 4096)
    ]
    assert program.measured_exponents("mean", cells) == pytest.approx((1.0, 1.0))  # a batch has equal tokens
    assert program.measured_exponents("flow", cells) == (None, None)


def test_each_attention_has_a_formula_that_renders(program):
    formulas = yaml.safe_load(program.FORMULAS.read_text(encoding="utf-8"))
    assert sorted(formulas) == ATTENTIONS.names()
    for name, formula in formulas.items():
        assert convert(formula).startswith("<math"), name
        assert "|" not in formula, f"{name}: a table cell ends at |"
