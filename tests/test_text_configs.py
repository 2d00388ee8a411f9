"""Tests of the text configurations: models, parameter counts, short training runs."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from molslice.cli import main
from molslice.config import load_config
from molslice.config.entries import describe_data
from molslice.model import AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.training.compare import FOUR
from molslice.types import DataSpec

FOLDER = Path(__file__).parents[1] / "configs" / "text"
CONFIGS = sorted(FOLDER.glob("*.yaml"))
KNOWN = [
    path
    for path in CONFIGS
    if load_config(path).data.name in ("imdb", "r8", "newsgroups20", "bbc_news", "mimic3")
]
PAPER = {  # tokens and classes of the Singularformer paper; None: the classes depend on the files
    "imdb": (539, 2),
    "r8": (141, 8),
    "newsgroups20": (700, 20),
    "bbc": (664, 5),
    "mimic3": (1024, 50),
    "scope40": (337, None),
    "scope95": (328, None),
}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


def count(config, attention):
    """Count parameters without data, as `molslice params` does."""
    with torch.device("meta"):
        model = build_model(config.model, AttentionChoice(attention), describe_data(config))
    return parameters_by_part(model)["total"]


def test_there_are_configurations():
    expected = {"imdb_sliceformer", "imdb_singularformer", "r8_singularformer", "newsgroups20_singularformer"}
    expected |= {f"{name}_singularformer" for name in PAPER}
    expected |= {"imdb_bytes", "text_table", "text_folder", "fasta", "r8_small", "imdb_small"}
    assert expected <= {path.stem for path in CONFIGS}


@pytest.mark.parametrize("path", KNOWN, ids=lambda path: path.stem)
def test_the_four_attentions_are_built_without_the_data(path):
    config = load_config(path)
    counts = {name: count(config, name) for name in FOUR.split(",")}
    assert counts["softmax"] == counts["flow"]
    assert counts["slice_sort"] < counts["softmax"]


def test_the_counts_of_the_sliceformer_paper():
    config = load_config(FOLDER / "imdb_sliceformer.yaml")
    counts = {name: count(config, name) for name in ("softmax", "slice_sort")}
    assert counts == {"softmax": 8_835_586, "slice_sort": 8_046_082}
    assert [f"{number / 1e6:.2f}" for number in counts.values()] == ["8.84", "8.05"]  # as published
    text = (FOLDER / "imdb_sliceformer.yaml").read_text()
    assert all(f"{number:,}" in text for number in counts.values())


@pytest.mark.parametrize("name", PAPER)
def test_the_sizes_of_the_singularformer_paper(name):
    config = load_config(FOLDER / f"{name}_singularformer.yaml")
    model = config.model
    assert (model.num_layers, model.dim, model.num_heads, model.ffn_dim) == (6, 384, 6, 1536)
    assert (model.readout, model.head) == ("max_mean", (1024,))
    assert (model.dropout, model.embedding_dropout) == (0.1, 0.2)
    assert (model.initialization, config.trainer.precision) == ("truncated_normal", "bf16")
    longest, classes = PAPER[name]
    assert config.task == ("labels" if name == "mimic3" else "sequence")
    if classes is None:
        options = config.data.options
        assert (options["max_tokens"], options["min_members"], options["test_fraction"]) == (longest, 2, 0.3)
        assert config.training.token_budget == config.training.batch_size * longest
        return
    spec = describe_data(config)
    assert (spec.max_tokens, spec.num_outputs) == (longest, classes)
    built = build_model(model, config.attention, spec)
    assert [(layer.in_features, layer.out_features) for layer in built.head] == [(768, 1024)]
    assert built.readout.out_features == spec.num_outputs
    # a batch of the longest texts is as large as asked
    assert config.training.token_budget >= config.training.batch_size * longest


WORDS = (("wheat", "corn", "crop"), ("profit", "shares", "dividend"))


def sentences(count):
    draw = np.random.default_rng(0)
    for number in range(count):
        yield number % 2, " ".join(draw.choice([*WORDS[number % 2], "the", "said"], 12))


def small_files(folder):
    """Write small data for the text_folder, text_table, fasta and R8 configurations."""
    for split, size in (("train", 80), ("test", 20)):
        lines = [f"{('grain', 'earn')[label]}\t{text}\n" for label, text in sentences(size)]
        (folder / f"{split}.tsv").write_text("".join(lines))
        with (folder / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["TEXT", "ICD9_CODE"])
            writer.writerows([text, ("401.9;250", "428.0")[label]] for label, text in sentences(size))
    with (folder / "scope.fa").open("w") as file:
        for label, text in sentences(80):
            letters = "".join(text.split()).upper()
            file.write(f">d{label}xyza_ {('a.1.1.1', 'b.2.1.1')[label]} (A:) x\n{letters}\n")
    for label, text in sentences(80):
        place = folder / "bbc" / ("a", "b")[label]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{len(list(place.iterdir()))}.txt").write_text(text)
    with (folder / "bbc-text.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["category", "text"])
        writer.writerows([("sport", "tech")[label], text] for label, text in sentences(80))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("r8_small", {"root": "."}),
        ("text_table", {"path": "train.csv", "test_path": "test.csv"}),
        ("text_folder", {"root": "bbc"}),
        ("fasta", {"path": "scope.fa"}),
        ("bbc_singularformer", {"root": "."}),
        ("mimic3_singularformer", {"root": "."}),
        ("scope95_singularformer", {"path": "scope.fa"}),
    ],
)
def test_they_train_and_are_evaluated(tmp_path, monkeypatch, capsys, name, settings):
    small_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["train", "--config", FOLDER / f"{name}.yaml", "--out", "run", "--quiet", "--json"]
    for key, value in settings.items():
        words += [f"--data.{key}", value]
    for key, value in {"num_layers": 1, "dim": 12, "ffn_dim": 12, "head": [8]}.items():
        words += [f"--model.{key}", value]
    words += ["--training.max_steps", 3, "--training.batch_size", 16, "--trainer.accelerator", "cpu"]
    assert main([str(word) for word in words]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["metric"] == ("roc_auc" if name == "text_table" else "accuracy")
    assert main(["evaluate", "run", "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    for target in result["targets"]:
        told = summary["test"][summary["metric"]][target["name"]]
        assert target[summary["metric"]] == pytest.approx(told, abs=1e-6)
    assert result["noun"] == ("proteins" if "path" in settings and "fa" in settings["path"] else "texts")


def test_a_model_never_meets_another_vocabulary(tmp_path, monkeypatch, capsys):
    small_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "--config",
        FOLDER / "r8_small.yaml",
        "--out",
        "run",
        "--quiet",
        "--json",
        "--data.root",
        ".",
    ]
    words += ["--model.dim", 12, "--training.max_steps", 2, "--trainer.accelerator", "cpu"]
    assert main([str(word) for word in words]) == 0
    assert main(["evaluate", "run", "--quiet", "--data.seed", "3"]) == 1  # other rows to learn the words from
    assert "vocabulary is 'words-lower-" in capsys.readouterr().err


def test_a_spec_without_a_fingerprint_is_what_params_asks(capsys):
    assert main(["params", "--config", str(FOLDER / "imdb_sliceformer.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"]["total"] == 8_046_082
    assert describe_data(load_config(FOLDER / "imdb_bytes.yaml")) == DataSpec(
        2, "ids", vocabulary_size=257, max_tokens=4000
    )
