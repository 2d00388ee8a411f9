import functools
import json
import math
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from molslice.config import config_from_mapping, config_to_mapping, config_to_yaml, load_config
from molslice.folders.run import CONFIG, MODEL, SUMMARY, read_config, read_run, write_model
from molslice.model import build_model
from molslice.tasks.targets import TargetInfo
from molslice.types import DataSpec, MolsliceError
from tests.forging import put
from tests.fuzzing import fuzz_for_a_minute

CONFIGURATION = config_from_mapping(
    {
        "data": {"name": "csv", "path": "x.csv", "target_columns": ["a", "b"]},
        "model": {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2},
        "attention": {"name": "slice_sort", "order": "half"},
    }
)
TARGETS = TargetInfo(("a", "b"), ("eV", ""), "regression", (1.0, 2.0), (0.1, 1 / 3))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return build_model(CONFIGURATION.model, CONFIGURATION.attention, DataSpec(2))


@pytest.fixture
def folder(tmp_path, model):
    write_model(tmp_path, model.state_dict(), TARGETS, DataSpec(2), CONFIGURATION, {"step": 3})
    (tmp_path / CONFIG).write_text(config_to_yaml(CONFIGURATION))
    return tmp_path


def test_what_was_written_is_read(folder, model):
    run = read_run(folder)
    assert (run.config, run.targets, run.summary) == (CONFIGURATION, TARGETS, None)
    assert not run.model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], tensor)


def test_the_file_alone_is_enough(folder):
    (folder / CONFIG).unlink()
    assert read_run(folder).config == CONFIGURATION
    assert read_run(folder / MODEL).targets == TARGETS


def test_the_configuration_is_read_without_the_weights(folder, monkeypatch):
    monkeypatch.setattr("molslice.folders.run.build_model", None)  # a call fails
    assert read_config(folder) == read_config(folder / MODEL) == CONFIGURATION
    with pytest.raises(MolsliceError, match="TypeError"):
        read_run(folder)
    with pytest.raises(MolsliceError, match="nowhere does not exist"):
        read_config(folder / "nowhere")
    with safe_open(folder / MODEL, "pt") as file:
        about = json.loads(file.metadata()["molslice"])
    save_file({}, folder / MODEL, metadata={"molslice": json.dumps({**about, "config": 3})})
    with pytest.raises(MolsliceError, match=MODEL):
        read_config(folder)


def test_the_summary_is_read_too(folder):
    (folder / SUMMARY).write_text(json.dumps({"steps": 7}))
    assert read_run(folder).summary == {"steps": 7}


def test_equal_models_are_equal_files(folder, tmp_path, model):
    first = (folder / MODEL).read_bytes()
    for _ in range(5):
        write_model(tmp_path, model.state_dict(), TARGETS, DataSpec(2), CONFIGURATION, {"step": 3})
        assert (tmp_path / MODEL).read_bytes() == first


def test_a_missing_or_empty_folder_is_refused(tmp_path):
    with pytest.raises(MolsliceError, match="nowhere does not exist"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(MolsliceError, match="holds no model.safetensors"):
        read_run(tmp_path)
    (tmp_path / CONFIG).write_text("")
    with pytest.raises(MolsliceError, match="not reached the first validation"):
        read_run(tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_a_truncated_file(folder, keep):
    content = (folder / MODEL).read_bytes()
    (folder / MODEL).write_bytes(content[:keep])
    with pytest.raises(MolsliceError, match=r"model.safetensors is truncated or not a safetensors file"):
        read_run(folder)


def test_a_pickle_under_that_name_is_not_opened(folder):
    torch.save({"a": torch.ones(1)}, folder / MODEL)
    with pytest.raises(MolsliceError, match="not a safetensors file"):
        read_run(folder)


def test_a_safetensors_file_of_another_program(folder):
    save_file({"a": torch.ones(1)}, folder / MODEL)
    with pytest.raises(MolsliceError, match="not one that molslice wrote"):
        read_run(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop("readout.bias"), ["1 missing (readout.bias)"]),
        (lambda state: state.update(more=torch.ones(1)), ["1 unexpected (more)"]),
        (
            lambda state: state.update({"readout.weight": torch.ones(3, 8)}),
            ["readout.weight [3, 8] instead of [2, 8]"],
        ),
        (
            lambda state: [state.pop(name) for name in list(state)[:5]],
            ["5 missing (", " and 2 others)"],
        ),
    ],
)
def test_weights_that_do_not_fit(folder, change, words):
    state = load_file(folder / MODEL)
    change(state)
    write_model(folder, state, TARGETS, DataSpec(2), CONFIGURATION)
    with pytest.raises(MolsliceError) as caught:
        read_run(folder)
    for word in ["model.safetensors", *words]:
        assert word in str(caught.value)


def forge(folder, change=None, weights=None, text=None):
    """Rewrite the model file with other metadata or other weights."""
    with safe_open(folder / MODEL, "pt") as file:
        text = text or file.metadata()["molslice"]
    if change is not None:
        about = json.loads(text)
        change(about)
        text = json.dumps(about)
    save_file(load_file(folder / MODEL) if weights is None else weights, folder / MODEL, {"molslice": text})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(folder, value):
    weights = load_file(folder / MODEL)
    weights["readout.weight"][1, 2] = value
    forge(folder, weights=weights)
    with pytest.raises(
        MolsliceError, match=r"the weights readout.weight in .*model.safetensors are not finite"
    ):
        read_run(folder)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int32, torch.complex64])
def test_weights_of_another_type_are_refused(folder, dtype):
    weights = load_file(folder / MODEL)
    weights["readout.weight"] = weights["readout.weight"].to(dtype)
    forge(folder, weights=weights)
    with pytest.raises(MolsliceError, match=rf"1 of another type \(readout.weight {dtype} instead of"):
        read_run(folder)


FORGED = [
    ("config.model.dim", 10**9, "model.dim must be at least 1 and at most 10,000,000, got 1000000000"),
    ("config.model.dim", 1 << 20, "do not fit its configuration"),
    (
        "config.model.num_layers",
        10**9,
        "model.num_layers must be at least 1 and at most 10,000, got 1000000000",
    ),
    ("config.model.ffn_dim", 10**30, "at most 63 bits"),
    ("config.model.name", [], "model.name is []; choices: behavior_cloning"),
    ("config.attention.order", {"a": []}, "attention"),
    ("config.attention.name", "os:system", "os:system"),
    ("config.seed", -1, "seed"),
    ("config", [], "expected a mapping"),
    ("data.num_outputs", "2", "description of the data"),
    ("data.num_outputs", True, "description of the data"),
    ("data.num_outputs", 10**9, "1000000000 outputs for 2 targets"),
    ("data.num_outputs", 3, "3 outputs for 2 targets"),
    ("data.tokens", [], "description of the data"),
    ("data.tokens", "ids", "description of the data"),
    ("data.grid", [1], "description of the data"),
    ("data.statistics", {"a": [float("nan")]}, "not finite"),
    ("data.odd", 1, "description of the data"),
    ("data", 7, "description of the data"),
    ("targets.names", "ab", "names is 'ab'"),
    ("targets.names", [1, 2], "names[0] is 1, expected text"),
    ("targets.mean", [float("nan"), 1.0], "mean[0] is nan, expected a finite number"),
    ("targets.std", [0.0, 1.0], "std positive"),
    ("targets.std", [10**400, 1.0], "description of the targets"),
    ("targets.kind", "multiclass", "classes belong to multiclass"),
    ("targets.kind", "actions", "targets of molecules"),
    ("targets.classes", [1], "classes[0] is 1, expected text"),
    ("targets", None, "description of the targets"),
]


@pytest.mark.parametrize(("path", "value", "words"), FORGED, ids=lambda value: str(value)[:30])
def test_a_forged_description_is_refused_in_one_line(folder, path, value, words):
    forge(folder, put(path.split("."), value))
    with pytest.raises(MolsliceError, match=re.escape(words)) as caught:
        read_run(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000


def test_tables_beside_the_weights_are_bounded(tmp_path):
    """Sinusoidal positions are not stored, so the file does not limit their size."""
    mapping = config_to_mapping(CONFIGURATION)
    mapping["model"] = {"name": "sequence", "num_layers": 1, "dim": 1024, "ffn_dim": 8, "num_heads": 2}
    mapping["model"] |= {"positions": "sinusoidal", "max_tokens": 8}
    config = config_from_mapping({**mapping, "task": "sequence"})
    data = DataSpec(2, "values", channels=1, max_tokens=8)
    write_model(
        tmp_path, build_model(config.model, config.attention, data).state_dict(), TARGETS, data, config
    )
    read_run(tmp_path)
    forge(tmp_path, put(["config", "model", "max_tokens"], 1 << 20))
    with pytest.raises(MolsliceError, match="needs buffers of"):
        read_run(tmp_path)


@pytest.mark.parametrize("depth", [900, 100_000])
def test_a_deep_description_is_refused(folder, depth):
    about = '{"format": "molslice-1", "targets": %s, "config": {}}' % ("[" * depth + "]" * depth)
    forge(folder, text=about)
    with pytest.raises(MolsliceError, match=r"model\.safetensors|targets"):
        read_run(folder)
    forge(
        folder,
        text='{"format": "molslice-1", "targets": {}, "config": %s}' % ('{"a":' * depth + "1" + "}" * depth),
    )
    with pytest.raises(MolsliceError, match=r"model\.safetensors|targets"):
        read_run(folder)


def test_a_text_file_is_not_called_truncated(folder):
    (folder / MODEL).write_text("smiles,y\nCCO,1.0\n")
    with pytest.raises(MolsliceError, match=r"model\.safetensors is not a safetensors file$"):
        read_run(folder)


def test_a_header_that_claims_to_be_huge(folder):
    content = (folder / MODEL).read_bytes()
    for size in (10**6, 2**40, 2**64 - 1):
        (folder / MODEL).write_bytes(size.to_bytes(8, "little") + content[8:])
        with pytest.raises(MolsliceError, match="truncated or not a safetensors file"):
            read_run(folder)


def test_a_link_is_followed_to_a_regular_file_of_the_folder_alone(folder, tmp_path):
    """A pipe or a device could be read endlessly."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "named").write_bytes((folder / MODEL).read_bytes())
    (other / MODEL).symlink_to("named")
    assert read_run(other).targets == TARGETS
    secret = tmp_path / "secret"
    secret.write_text("password")
    os.mkfifo(tmp_path / "pipe")
    for target in (
        secret,
        folder / MODEL,
        tmp_path / "pipe",
        "/dev/zero",
        other / MODEL,
        tmp_path / "nothing",
    ):
        (other / MODEL).unlink()
        (other / MODEL).symlink_to(target)
        with pytest.raises(MolsliceError) as caught:
            read_run(other)
        assert "password" not in str(caught.value)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ("{", "cannot read the description"),
        ("[]", "not one that molslice wrote"),
        ('{"format": "molslice-9", "targets": {}, "config": {}}', "format 'molslice-9'"),
        (
            '{"format": "molslice-1", "targets": {}, "config": {}}',
            "cannot read the description of the targets",
        ),
    ],
)
def test_an_unreadable_description_is_refused(folder, about, words):
    save_file(load_file(folder / MODEL), folder / MODEL, {"molslice": about})
    with pytest.raises(MolsliceError, match=words):
        read_run(folder)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000])
def test_a_summary_that_cannot_be_read(folder, text):
    (folder / SUMMARY).write_text(text)
    with pytest.raises(MolsliceError, match=r"cannot read .*summary.json"):
        read_run(folder)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([10**9, -1, "softmax", "os:system", "ids", "values", "steps", [], {}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value, path=()):
    """Yield the path of every value in nested mappings and lists."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed_bytes(content, draw, most):
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        content[draw(st.integers(0, min(most, len(content)) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.sampled_from([len(content), draw(st.integers(0, len(content)))]))])


def check_forged_folder(folder, forged, draw):
    """Change bytes of the weights or the configuration, metadata or summaries, and check what happens."""
    from molslice.inference.load import load_model

    for name in (MODEL, CONFIG):
        (forged / name).write_bytes((folder / name).read_bytes())
    kind = draw.draw(st.sampled_from(["header", "description", "configuration", "summary"]))
    if kind == "description":
        with safe_open(folder / MODEL, "pt") as file:
            about = json.loads(file.metadata()["molslice"])
        *path, last = draw.draw(st.sampled_from(list(places(about))))
        part = functools.reduce(lambda value, key: value[key], path, about)
        part[last] = draw.draw(JSON)
        save_file(load_file(folder / MODEL), forged / MODEL, {"molslice": json.dumps(about)})
    elif kind == "summary":
        written = JSON.map(lambda value: json.dumps(value).encode())
        (forged / SUMMARY).write_bytes(draw.draw(st.binary() | written))
    else:
        name, most = (MODEL, 4000) if kind == "header" else (CONFIG, 10_000)
        (forged / name).write_bytes(changed_bytes((folder / name).read_bytes(), draw.draw, most))
    try:
        load_config(forged / CONFIG)
        values = load_model(forged).predict_with_errors(["CCO", "c1ccccc1"])
    except MolsliceError as error:
        message = str(error)
    else:
        message = ""
        finite = np.isfinite(values.values).all(1).tolist()
        assert finite == [reason is None for reason in values.errors]
    assert "\n" not in message
    assert len(message) < 2000


@pytest.mark.exhaustive
def test_any_folder_is_a_model_that_predicts_or_is_refused_in_one_line(folder, tmp_path_factory):
    forged = tmp_path_factory.mktemp("forged")

    def check(draw):
        with tempfile.TemporaryDirectory(
            dir=forged
        ) as name:  # a new one, because weights may be memory-mapped
            check_forged_folder(folder, Path(name), draw)

    fuzz_for_a_minute(st.data(), check, settings(deadline=None, suppress_health_check=list(HealthCheck)))


@pytest.mark.parametrize("value", [None, -1, "3", 1.5])
def test_the_number_of_descriptors_is_an_integer(value):
    with pytest.raises(MolsliceError, match="num_descriptors of the data must be an integer of at least 0"):
        DataSpec(1, num_descriptors=value)
