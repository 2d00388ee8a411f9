import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from molslice.attention import ATTENTIONS
from molslice.attention.softmax import Softmax
from molslice.config import (
    OptimizerConfig,
    TrainingConfig,
    config_from_mapping,
    config_to_yaml,
    load_config,
    override_data,
)
from molslice.config.conversion import convert
from molslice.training.start import load_run_config
from molslice.types import MolsliceError

CONFIGS = sorted((Path(__file__).parents[2] / "configs").rglob("*.yaml"))
SMALL = """
data: {name: pcqm4m, root: data/gap_xtb}
model: {num_layers: 2, dim: 16, ffn_dim: 16, num_heads: 2}
attention: {name: slice_sort, order: interleave, pair_bias: mix}
training: {max_epochs: 3}
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_loads_and_comes_back_equal(path, tmp_path):
    config = load_run_config(path)  # a configuration with `start` needs no model
    copy = tmp_path / "copy.yaml"
    copy.write_text(config_to_yaml(config))
    assert load_config(copy) == config
    assert path.read_text().startswith("#"), "a configuration says first where its settings come from"


def test_there_are_configurations():
    names = {path.stem for path in CONFIGS}
    assert {"quickstart", "gap_xtb", "pcqm4m_v1", "pcqm4m_v2", "qm9", "tox21"} <= names


def test_options_of_attention_and_data_are_taken_apart(small):
    config = load_config(small)
    assert config.attention.name == "slice_sort"
    assert config.attention.pair_bias == "mix"
    assert config.attention.options == {"order": "interleave"}
    assert config.data.options == {"root": "data/gap_xtb"}


def test_overrides_have_the_types_of_the_fields(small):
    overrides = [("optimizer.lr", "1e-4"), ("trainer.precision", "16"), ("optimizer.betas", "[0.9, 0.98]")]
    overrides += [("optimizer.ema_decay", "null"), ("model.dim", "32"), ("seed", "7")]
    config = load_config(small, overrides)
    assert config.optimizer.lr == 1e-4  # YAML reads 1e-4 as text
    assert config.trainer.precision == "16"
    assert config.optimizer.betas == (0.9, 0.98)
    assert config.optimizer.ema_decay is None
    assert (config.model.dim, config.seed) == (32, 7)


def test_another_length_takes_the_place_of_the_former(small):
    training = load_config(small, [("training.max_minutes", "2")]).training
    assert (training.max_minutes, training.max_epochs, training.max_steps) == (2.0, None, None)


@pytest.mark.parametrize("overrides", [[("attention.name", "softmax")], [("attention", "softmax")]])
def test_another_attention_starts_without_the_options_of_the_former(small, overrides):
    attention = load_config(small, overrides).attention
    assert (attention.name, attention.pair_bias, attention.options) == ("softmax", None, {})


def test_a_preset_takes_the_place_of_the_sizes_in_the_file(small):
    small.write_text(SMALL.replace("num_heads: 2", "num_heads: 2, head_dim: 24"))
    assert load_config(small).model.head_dim == 24
    model = load_config(small, [("model.dim", "64"), ("model.preset", "slim")]).model
    assert model.head_dim is None
    assert (model.num_layers, model.dim, model.ffn_dim, model.num_heads) == (12, 64, 80, 8)


def test_the_same_attention_keeps_its_options(small):
    assert load_config(small, [("attention.name", "slice_sort")]).attention.options == {"order": "interleave"}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("optimizer.learning_rate", "1", ["optimizer.learning_rate", "unknown", "weight_decay"]),
        ("optimiser.lr", "1", ["optimiser", "did you mean 'optimizer'"]),
        ("model.dim", "big", ["model.dim", "'big'", "whole number"]),
        ("model.dim", "1.5", ["model.dim", "1.5", "whole number"]),
        ("model.dim", "true", ["model.dim", "True"]),
        ("model.name", "graphformer", ["model.name", "did you mean 'graphormer'"]),
        ("optimizer.lr", "true", ["optimizer.lr", "a number"]),
        ("optimizer.lr", "-1", ["optimizer", "lr is -1.0", "positive"]),
        ("optimizer.betas", "[0.9]", ["optimizer.betas", "[0.9]"]),
        ("training.loss", "mea", ["training.loss", "choices: gaussian, huber, mae, mse"]),
        ("training.compile", "1", ["training.compile", "true or false"]),
        ("training.token_budget", "0", ["token_budget is 0"]),
        ("attention.name", "slice_srot", ["slice_srot", "slice_sort"]),
        ("attention.ordr", "half", ["attention.ordr", "did you mean 'order'"]),
        ("data.rot", "x", ["data.rot", "did you mean 'root'"]),
        ("data.name", "pcqm", ["unknown data set", "pcqm4m"]),
        ("trainer.precision", "64", ["trainer.precision", "bf16"]),
        ("seed", "[", ["cannot read --seed as YAML: "]),
        ("seed", "2024-13-45", ["seed is '2024-13-45', expected a whole number"]),
        ("training.max_epochs", "abc", ["max_epochs is 'abc', expected a whole number or auto"]),
        ("seed", "10000000000000000000000", ["--seed", "more than 64 bits"]),
        ("seed", str(2**63), ["seed is 9223372036854775808", "63 bits"]),
        ("seed.a", "1", ["seed is {'a': 1}"]),
        ("model.name", "[a]", ["model.name is ['a']"]),
        ("optimizer.lr", "nan", ["optimizer.lr is 'nan'", "finite"]),
        ("training.max_minutes", ".inf", ["training.max_minutes is inf", "finite"]),
        ("optimizer.betas", "[.nan, 0.9]", ["optimizer.betas[0] is nan", "finite"]),
        ("optimizer.lr", "1" + "0" * 400, ["more than 64 bits"]),
        ("data.root", "[" * 90, ["cannot read --data.root as YAML: more than 50 levels"]),
        ("data.root", "&a [*a]", ["--data.root", "contains it"]),
        ("model.name", "x" * 5000, ["model.name is 'xxxx", " and more; choices"]),
    ],
)
def test_what_is_wrong_is_named(small, key, value, words):
    with pytest.raises(MolsliceError) as caught:
        load_config(small, [(key, value)])
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["mapping"]),
        ("- a", ["mapping"]),
        ("data: {name: [", ["as YAML"]),
        ("seed: 1\nseed: 2", ["'seed' is given twice"]),
        ("seed: 1", ["'data' is missing"]),
        ("data: 3\nmodel: {preset: slim}", ["data is 3", "mapping"]),
        ("data: {root: x}\nmodel: {preset: slim}", ["data.name"]),
        (
            "data: {name: pcqm4m, root: x}\nmodel: {preset: slim}\ntraining: {max_steps: 1, max_minutes: 1}",
            ["exactly one", "max_steps and max_minutes"],
        ),
        (
            "data: {name: pcqm4m, root: x}\nmodel: {preset: slim}\ntraining: {loss: mae}",
            ["exactly one", "found none"],
        ),
    ],
)
def test_a_file_that_is_wrong_is_named_with_the_reason(tmp_path, text, words):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(MolsliceError) as caught:
        load_config(path)
    for word in ["wrong.yaml", *words]:
        assert word in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MolsliceError, match="nowhere.yaml"):
        load_config(tmp_path / "nowhere.yaml")


def test_configurations_cannot_be_changed():
    with pytest.raises(AttributeError):
        OptimizerConfig().lr = 1.0  # type: ignore[misc]


def test_a_section_can_be_a_bare_name():
    mapping = {"data": {"name": "pcqm4m", "root": "x"}, "model": {"preset": "slim"}, "attention": "flow"}
    assert config_from_mapping(mapping).attention.name == "flow"


@pytest.mark.parametrize("section", ["", "attention: {fused: false}"])
def test_attention_without_a_name_is_softmax(tmp_path, section):
    file = tmp_path / "c.yaml"
    file.write_text(f"data: listops\nmodel: {SEQUENCE}\n{section}")
    for overrides in ([("attention.fused", "false")], [("attention.name", "softmax")]):
        attention = load_config(file, overrides).attention
        is_given = section or overrides[0][0] == "attention.fused"
        assert (attention.name, attention.options) == ("softmax", {"fused": False} if is_given else {})
    with pytest.raises(MolsliceError, match="unknown key 'attention.foo' for 'softmax'"):
        load_config(file, [("attention.foo", "1")])
    assert load_config(file, [("attention.name", "slice_sort")]).attention.options == {}


def test_lengths_must_be_positive():
    with pytest.raises(MolsliceError, match="max_steps is 0"):
        TrainingConfig(max_steps=0)


@pytest.mark.parametrize(
    ("name", "option", "value", "expected"),
    [
        ("listops", "counts", 5, "tuple"),
        ("listops", "counts", [1, 2], "tuple"),
        ("listops", "min_length", "abc", "a whole number"),
        ("listops", "root", 5, "a path"),
        ("pathfinder", "num_distractors", 2.5, "a whole number"),
        ("uea", "valid_fraction", "abc", "a number"),
        ("imdb", "root", None, "a path"),
        ("mnist", "augment", "crops", "crop"),
        ("csv", "units", 5, "text or a list"),
        ("csv", "units", ["eV", 5], "text or a list"),
        ("csv", "split", 5, "text or a mapping"),
    ],
)
def test_options_of_data_sets_have_types(name, option, value, expected):
    mapping = {"data": {"name": name, option: value}, "model": SEQUENCE}
    with pytest.raises(MolsliceError, match=rf"data.{option} is .*(expected|mean) .*{expected}"):
        config_from_mapping(mapping)


@pytest.mark.parametrize(
    ("name", "option", "value", "expected"),
    [("performer", "num_features", "many", "a whole number"), ("slice_sort", "order", "asc", "ascending")],
)
def test_options_of_attentions_have_types(name, option, value, expected):
    mapping = {"data": "listops", "model": SEQUENCE, "attention": {"name": name, option: value}}
    with pytest.raises(MolsliceError, match=rf"attention.{option} is '{value}'.*{expected}"):
        config_from_mapping(mapping)


def test_overrides_mean_the_same_in_any_order(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(config_to_yaml(config_from_mapping({"data": "listops", "model": SEQUENCE})))
    attention = [("attention.order", "interleave"), ("attention.name", "slice_sort")]
    data = [("data.root", "x"), ("data.name", "mnist")]
    for given in (attention + data, attention[::-1] + data[::-1]):
        config = load_config(file, given)
        assert (config.attention.name, config.attention.options) == ("slice_sort", {"order": "interleave"})
        assert (config.data.name, config.data.options) == ("mnist", {"root": "x"})
    with pytest.raises(MolsliceError, match="unknown key 'attention.order' for 'softmax'"):
        load_config(file, [("attention.order", "interleave"), ("attention.name", "softmax")])
    with pytest.raises(MolsliceError, match=r"unknown key 'model\.takes'; choices: (?!.*takes)"):
        load_config(file, [("model.takes", "1")])


def test_errors_name_the_file_and_the_overrides(small):
    given = [("seed", "1"), ("training.max_minute", "1")]
    named = (
        rf"^{re.escape(str(small))} with --seed --training\.max_minute: unknown key .training\.max_minute.;"
    )
    with pytest.raises(MolsliceError, match=named):
        load_config(small, given)
    with pytest.raises(MolsliceError, match="^configuration with --foo: unknown key 'foo'"):
        config_from_mapping({"data": "listops"}, overrides=[("foo", "1")])


def test_a_section_below_the_name_is_a_mapping_of_its_own(small):
    data = [("data.name", "csv"), ("data.path", "x.csv"), ("data.target-columns", "gap")]
    config = load_config(small, [*data, ("data.split", "scaffold"), ("data.split.kind", "random")])
    assert config.data.options["split"] == {"kind": "random"}
    assert load_config(
        small, [("attention", "slice_sort"), ("attention.order", "half")]
    ).attention.options == {"order": "half"}


def test_merge_keys_and_aliases_in_a_file(tmp_path):
    file = tmp_path / "c.yaml"
    model = "num_layers: 2, dim: 16, ffn_dim: 16, num_heads: 2"
    file.write_text(
        f"data: {{name: pcqm4m, root: x}}\nmodel: {{<<: {{{model}}}, dim: 32}}\n"
        "optimizer: &o {}\ntrainer: *o"
    )
    config = load_config(file, [("optimizer.lr", "0.5")])  # which leaves the trainer alone
    assert (config.model.dim, config.model.num_layers, config.optimizer.lr) == (32, 2, 0.5)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("#" * 1_000_001)
    with pytest.raises(MolsliceError, match="c.yaml: larger than 1,000,000 bytes"):
        load_config(file)


def test_settings_of_a_data_set_change_by_the_same_rules(small):
    data = load_config(small).data
    changed = override_data(data, [("data.max-atoms", "30")])
    assert (changed.name, changed.options) == (data.name, {"root": "data/gap_xtb", "max_atoms": 30})
    assert data.options == {"root": "data/gap_xtb"}
    own = [("data.path", "x.csv"), ("data.name", "csv"), ("data.target-columns", "gap")]
    assert override_data(data, own).options == {"path": "x.csv", "target_columns": "gap"}
    with pytest.raises(MolsliceError, match=r"data\.rot"):
        override_data(data, [("data.rot", "x")])


def test_two_lengths_given_at_once_are_refused(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(config_to_yaml(config_from_mapping({"data": "listops", "model": SEQUENCE})))
    with pytest.raises(MolsliceError, match="exactly one of .* found max_steps and max_minutes"):
        load_config(file, [("training.max_steps", "5"), ("training.max_minutes", "1")])
    assert load_config(file, [("training.max_minutes", "1")]).training.max_steps is None
    given = [("training", "{max_epochs: 4}"), ("training.max_steps", "5")]
    assert load_config(file, given).training.max_steps == 5


def test_options_of_own_attentions_of_any_form_are_left_to_them(monkeypatch):
    class Own(Softmax):
        def __init__(self, *arguments, kernel: list[int], late: "Missing" = 1):  # noqa: F821
            super().__init__(*arguments)

    monkeypatch.setattr(ATTENTIONS, "_added", {"own": Own})
    mapping = {"data": "listops", "model": SEQUENCE, "attention": {"name": "own", "kernel": [1], "late": "a"}}
    assert config_from_mapping(mapping).attention.options == {"kernel": [1], "late": "a"}
    del Own.__init__.__annotations__["late"]
    assert config_from_mapping(mapping).attention.options == {"kernel": [1], "late": "a"}


def test_an_option_of_several_forms_takes_each():
    for split in ("scaffold", {"kind": "column", "column": "part"}, None):
        data = {"name": "csv", "path": "x.csv", "target_columns": ["a"], "split": split}
        config = config_from_mapping({"data": data, "model": {"preset": "slim"}})
        assert config.data.options["split"] == split


SEQUENCE = {"name": "sequence", "num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2}


def test_values_of_mappings_are_converted_to_their_type():
    assert convert({"a": "1e-4", 2: 3}, dict[str, float], "x") == {"a": 1e-4, "2": 3.0}
    assert convert({"a": {"b": [1, "c"]}}, Mapping[str, Any], "x") == {"a": {"b": [1, "c"]}}
    assert convert({"a": {"b": 1}}, dict, "x") == {"a": {"b": 1}}
    for hint, message in (
        (dict[str, int], "x.a is 1.5, expected a whole number"),
        (Mapping[str, bool] | None, "x.a is 1.5, expected true or false"),
    ):
        with pytest.raises(MolsliceError, match=message):
            convert({"a": 1.5}, hint, "x")
    with pytest.raises(MolsliceError, match="x is 3, expected a mapping"):
        convert(3, dict[str, int], "x")
