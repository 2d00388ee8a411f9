"""Tests of the image configurations: published parameter counts, and a short run of each attention."""

from pathlib import Path

import numpy as np
import pytest
import torch

from molslice.config import load_config
from molslice.config.entries import describe_data
from molslice.data import build_dataset
from molslice.data.images.base import Cutting
from molslice.data.images.image_folder import ImageFolder
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.model import AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.model.sequences.sequence import SequenceSpec
from molslice.training.run import train
from molslice.types import DataSpec, MolsliceError, SequenceBatch
from tests.data.images.pictures import encoded, pixels, records, write_idx

FOLDER = Path(__file__).parents[1] / "configs" / "vision"
ATTENTIONS = ("softmax", "slice_sort", "flow", "singular")
CLASSES = {
    "tiny_imagenet": 200,
    "dogs_vs_cats": 2,
    "image_folder": 1000,
    "flowformer_imagenet": 1000,
    "deit_distilled": 1000,
}


def count(name, attention="softmax", **options):
    config = load_config(FOLDER / f"{name}.yaml", [("attention.name", attention), *options.items()])
    data = config.data.options
    if name in CLASSES:
        spec = Cutting.of(data).describe(CLASSES[name], data["size"], data["size"], 3)
    else:
        spec = describe_data(config)
    with torch.device("meta"):
        return parameters_by_part(build_model(config.model, config.attention, spec))["total"]


@pytest.mark.parametrize(
    ("name", "softmax", "slice_sort"),
    [
        ("cifar10", 9_603_594, 6_457_866),  # exactly the published ones
        ("cifar100", 9_649_764, 6_504_036),
        ("mnist", 9_568_778, 6_423_050),
        ("tiny_imagenet", 21_742_664, 18_194_504),
        ("dogs_vs_cats", 1_899_138, 1_112_706),
    ],
)
def test_parameters_are_those_that_the_headers_say(name, softmax, slice_sort):
    assert (count(name), count(name, "slice_sort")) == (softmax, slice_sort)
    header = (FOLDER / f"{name}.yaml").read_text()
    assert all(f"{number:,}" in header for number in (softmax, slice_sort))


def test_a_head_for_a_thousand_classes_gives_the_published_counts_of_tiny_imagenet(monkeypatch):
    monkeypatch.setitem(CLASSES, "tiny_imagenet", 1000)
    assert (count("tiny_imagenet"), count("tiny_imagenet", "slice_sort")) == (22_050_664, 18_502_504)


@pytest.mark.parametrize(
    ("name", "published", "slice_sort"),
    [
        ("flowformer_imagenet", 43_311_304, 36_532_744),  # of the released code, counted by its shapes below
        ("deit_distilled", 22_436_432, 18_888_272),
    ],
)
def test_imagenet_models_have_as_many_parameters_as_published(name, published, slice_sort):
    own = load_config(FOLDER / f"{name}.yaml").attention.name
    assert (count(name, own), count(name, "slice_sort")) == (published, slice_sort)
    header = (FOLDER / f"{name}.yaml").read_text()
    assert f"{published:,}" in header


def test_the_four_stages_of_flowformer_by_their_shapes():
    dims, depths = (96, 192, 384, 768), (3, 3, 10, 3)
    stages = sum(
        depth * ((3 * d * d + 3 * d) + (d * d + d) + (4 * d * d + 4 * d) + (4 * d * d + d) + 4 * d + d)
        for d, depth in zip(dims, depths, strict=True)
    )
    merges = sum(4 * d * wider + wider for d, wider in zip(dims, dims[1:], strict=False))
    assert (48 * 96 + 96) + 3136 * 96 + stages + merges + 2 * 768 + (768 * 1000 + 1000) == 43_311_304


def test_a_teacher_and_stages_train_on_a_folder_of_images(tmp_path):
    for split, number in (("train", 8), ("val", 4), ("test", 4)):
        for kind in ("cat", "dog"):
            (folder := tmp_path / "data" / split / kind).mkdir(parents=True)
            for index, image in enumerate(pixels(number, 16, 16)):
                (folder / f"{index}.png").write_bytes(encoded(image))
    small = {
        "data.root": str(tmp_path / "data"),
        "data.size": "16",
        "data.patch": "2",
        "data.cache_dir": str(tmp_path / "cache"),
        "training.max_steps": "2",
        "training.batch_size": "8",
        "trainer.precision": "32",
        "trainer.accelerator": "cpu",
        "trainer.num_threads": "1",
    }
    flat = {"model.num_layers": "2", "model.dim": "12", "model.ffn_dim": "12", "model.num_heads": "2"}

    def run(name, settings, out=None):
        config = load_config(FOLDER / f"{name}.yaml", list({**small, **settings}.items()))
        return train(config, tmp_path / (out or name), quiet=True)

    stages = {"model.dims": "[8, 12, 16, 16]", "model.depths": "[1, 1, 2, 1]", "model.num_heads": "2"}
    with pytest.raises(MolsliceError, match="has 2 classes, but data.num_classes is 1000"):
        run("flowformer_imagenet", stages, "counted")
    run("flowformer_imagenet", {**stages, "data.valid_as_test": "false", "data.num_classes": "2"})
    run("image_folder", flat)
    taught = {"model.max_tokens": "66", "training.teacher": str(tmp_path / "image_folder")}
    summary = run("deit_distilled", flat | taught)
    for name in ("flowformer_imagenet", "deit_distilled"):
        predictor = load_model(tmp_path / name)
        dataset = build_dataset(predictor.config.data.name, dict(predictor.config.data.options))
        result = evaluate(predictor, dataset, "test", progress=False)
        assert result["rows"] == 8
    assert result["targets"][0]["accuracy"] == summary["test"]["accuracy"]["class"]
    names = predictor.model.state_dict().keys()
    assert "distillation_token" in names
    assert not any(key.startswith("teacher") for key in names)
    # a teacher of other data, none, and one where nothing is to be taught
    with pytest.raises(MolsliceError, match="trained on other data"):
        run("deit_distilled", flat | taught | {"data.gray": "true"}, "gray")
    with pytest.raises(MolsliceError, match="needs training.teacher"):
        run("deit_distilled", flat | taught | {"training.teacher": "null"}, "untaught")
    with pytest.raises(
        MolsliceError, match="teacher has no effect on task sequence, got 'x'; only distillation uses it"
    ):
        run("image_folder", flat | {"training.teacher": "x"}, "plain")


def test_a_number_of_classes_describes_images_without_files(tmp_path):
    config = load_config(FOLDER / "flowformer_imagenet.yaml", [("data.root", str(tmp_path / "nowhere"))])
    spec = describe_data(config)
    assert (spec.num_outputs, spec.max_tokens, spec.channels, spec.grid) == (1000, 3136, 48, (56, 56))
    assert ImageFolder.describe({"root": "x", "size": 32, "num_classes": 3}).max_tokens == 4  # patches of 16
    assert ImageFolder.describe({"root": "x", "size": 32}) is None
    assert ImageFolder.describe({"root": "x", "num_classes": 3}) is None


def test_the_orders_of_the_sort_cost_no_parameters():
    entry = {"attention.order": "interleave"}
    assert count("cifar10", "slice_sort", **entry) == 6_457_866


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_maps_without_biases(attention):
    sizes = {"num_layers": 2, "dim": 8, "ffn_dim": 8, "num_heads": 2, "readout": "cls"}
    spec = SequenceSpec(**sizes, qkv_bias=False)
    model = build_model(spec, AttentionChoice(attention), DataSpec(3, "values", channels=4, max_tokens=6))
    names = {name for name, _ in model.named_parameters() if "attention." in name}
    assert not {name for name in names if name.endswith(("query.bias", "key.bias", "value.bias"))}
    assert {name for name in names if name.endswith(("value.weight", "output.bias"))}
    model(SequenceBatch(torch.randn(2, 6, 4))).prediction.sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if name in names)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_all_configurations_build(attention):
    names = {path.stem for path in FOLDER.glob("*.yaml")}
    assert names >= {"mnist", "cifar10", "cifar100", "tiny_imagenet", "mnist_small", "cifar10_small"}
    for name in sorted(names - {"cifar10", "cifar100", "mnist", "tiny_imagenet"}):
        assert count(name, attention) > 0


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_headers_say_where_from_and_what_came_of_it(path):
    header = "".join(line for line in path.read_text().splitlines() if line.startswith("#"))
    assert "measured" in header.lower()
    assert "Data:" in header or "data/images" in header


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_small_ones_train(tmp_path, attention):
    for part, number in (("train", 60), ("t10k", 20)):
        labels = np.arange(number, dtype=np.uint8) % 10
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", pixels(number, 28, 28, 1)[..., 0])
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", labels)
    for number in range(1, 6):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(records(pixels(12), np.arange(12) % 10))
    (tmp_path / "test_batch.bin").write_bytes(records(pixels(10), np.arange(10)))
    for name in ("mnist_small", "cifar10_small"):
        words = [("data.root", str(tmp_path)), ("training.max_steps", "2"), ("attention.name", attention)]
        config = load_config(FOLDER / f"{name}.yaml", words)
        summary = train(config, tmp_path / name, quiet=True)
        assert 0 <= summary["test"]["accuracy"]["class"] <= 1
        assert summary["steps"] == 2
