"""The page of the configuration keys agrees with the code, and shows each key once with its description."""

import dataclasses
import re

import pytest

from molslice.attention import ATTENTIONS
from molslice.config import OptimizerConfig, TrainerConfig, TrainingConfig
from molslice.data import DATASETS
from molslice.model import MODELS
from tests.programs import load_program


@pytest.fixture(scope="module")
def program():
    return load_program("config_page")


def keys(page, title):
    """Return key, value, default and description of each row of the table below a title."""
    (section,) = re.findall(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", page, re.M | re.S)
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_the_page_is_that_of_the_code(program):
    hint = "run python benchmarks/config_page.py"
    assert program.FILE.read_text(encoding="utf-8") == program.make_page(), hint


@pytest.mark.parametrize(
    ("title", "cls"),
    [("optimizer", OptimizerConfig), ("training", TrainingConfig), ("trainer", TrainerConfig)],
)
def test_a_section_lists_the_fields_of_its_class_in_their_order(program, title, cls):
    assert list(keys(program.make_page(), title)) == [field.name for field in dataclasses.fields(cls)]


def test_each_data_set_and_model_lists_its_own_options(program):
    page = program.make_page()
    for name in DATASETS.names():
        listed = keys(page, f"data: {name}")
        assert listed.keys() == DATASETS.options(name).keys()
        assert all(cells[-1][0].isalnum() or cells[-1][0] == "`" for cells in listed.values()), name
    for name in MODELS.names():
        fields = {field.name for field in dataclasses.fields(MODELS.find(name))} - {"name"}
        assert keys(page, f"model: {name}").keys() == fields


def test_the_options_of_all_attentions_are_in_one_table(program):
    found = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", program.make_page(), re.M)
    shown = {(name, key) for name, key in found if name in ATTENTIONS.names()}
    assert shown == {(name, key) for name in ATTENTIONS.names() for key in ATTENTIONS.options(name)}


def test_a_default_is_shown_as_in_yaml(program):
    rows = keys(program.make_page(), "optimizer")
    assert rows["lr"][:2] == ["number", "`0.001`"]
    assert rows["betas"][:2] == ["list of numbers", "`[0.9, 0.999]`"]
    assert rows["ema_decay"][:2] == ["number or `null`", "`0.999`"]
    assert rows["warmup_steps"][:2] == ["integer or `null`", "`null`"]
