"""Tests of the Long Range Arena configurations: loading, headers, and the 10% rule."""

import pytest

from molslice.attention import ATTENTIONS
from molslice.config import load_config
from molslice.config.entries import describe_data
from molslice.model import AttentionChoice
from molslice.training.optimizer import learning_rate
from tests.programs import ROOT, load_program

FOLDER = ROOT / "configs" / "lra"
NAMES = sorted(
    str(path.relative_to(FOLDER).with_suffix(""))
    for path in FOLDER.glob("**/*.yaml")
    if not path.stem.endswith("_small")  # made smaller to be measured on two cores
)
CLASSES = {"image": 10, "listops": 10, "pathfinder": 2, "pathx": 2, "retrieval": 2, "text": 2}
LENGTHS = {
    "image": 1024,
    "listops": 2000,
    "pathfinder": 1024,
    "pathx": 16_384,
    "retrieval": 4000,
    "text": 4000,
}


def load(name):
    return load_config(FOLDER / f"{name}.yaml")


@pytest.fixture(scope="module")
def program():
    return load_program("parameter_page")


def test_all_six_tasks_are_there_twice():
    assert set(NAMES) == {*CLASSES, *(f"sliceformer/{name}" for name in CLASSES)}


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_loads_and_is_the_task(name, program):
    config, task = load(name), name.split("/")[-1]
    data = describe_data(config)
    assert config.task == "sequence"
    assert data.num_outputs == CLASSES[task]
    assert data.max_tokens == (1000 if name == "sliceformer/text" else LENGTHS[task])
    assert data.paired == (task == "retrieval")
    assert config.attention.name == ("slice_sort" if "/" in name else "softmax")
    assert program.count(config, config.attention, data) > 0
    # a batch holds as many rows as the arena's, the longest included
    tokens = data.max_tokens * (2 if data.paired else 1)
    assert config.training.token_budget == config.training.batch_size * tokens


@pytest.mark.parametrize("name", NAMES)
def test_a_header_says_where_the_settings_are_from_and_what_they_gave(name):
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    header = "\n".join(line for line in lines if line.startswith("#"))
    assert "ettings" in header
    assert "Published" in header
    assert "ot measured here" in header
    assert "GELU" in header
    model = load(name).model
    inner = model.dim if model.head_dim is None else model.num_heads * model.head_dim
    maps = 1 if "/" in name else 3  # value; query and key too
    biases = model.num_layers * (maps * inner + model.dim)
    assert f"({biases:,} more parameters)" in " ".join(header.replace("#", "").split())
    assert max(map(len, lines)) <= 125


@pytest.mark.parametrize(("name", "warmup"), [("listops", 1000), ("text", 8000), ("retrieval", 8000)])
def test_the_rate_is_that_of_the_arena(name, warmup):
    config = load(name)
    steps = config.training.max_steps
    assert config.optimizer.warmup_steps == warmup
    for step in {1, min(warmup, steps), (warmup + steps) // 2, steps}:
        arena = 0.05 * min(1, step / warmup) / max(step, warmup) ** 0.5
        assert learning_rate(config.optimizer, step - 1, steps) == pytest.approx(arena, rel=1e-4)


@pytest.mark.parametrize("name", ["listops", "text", "retrieval"])
def test_the_sliceformer_keeps_the_sizes_of_the_arena_there(name):
    assert load(f"sliceformer/{name}").model == load(name).model


@pytest.mark.parametrize(
    ("name", "width"),
    [("image", 64), ("pathfinder", 16), ("pathx", 16), ("sliceformer/image", 48), ("sliceformer/pathx", 16)],
)
def test_the_attention_has_the_width_of_the_arena(name, width):
    model = load(name).model
    assert model.num_heads * model.head_dim == width < model.dim


def test_parameters_by_hand(program):
    config = load("listops")
    layer = 4 * (512 * 512 + 512) + (512 * 1024 + 1024) + (1024 * 512 + 512) + 4 * 512
    head = (512 * 1024 + 1024) + (1024 * 10 + 10)
    total = program.count(config, AttentionChoice("softmax"), describe_data(config))
    assert total == 4 * layer + 2 * 512 + head + 512 + 19 * 512


def test_more_than_a_tenth_above_softmax_is_flagged(program):
    counts, refused = program.compare(load("listops"))
    assert counts.keys() == set(ATTENTIONS.names())
    assert not refused
    assert counts["slice_sort"] < 0.85 * counts["softmax"]
    over = program.above_limit(counts)
    assert over == [name for name in counts if counts[name] > 1.1 * counts["softmax"]]
    assert 0 < len(over) < len(counts)


def test_attentions_without_heads_of_another_width_are_refused(program):
    counts, refused = program.compare(load("image"))
    assert refused == ["flash_linear", "flash_quad"]
    assert counts.keys() == set(ATTENTIONS.names()) - set(refused)
