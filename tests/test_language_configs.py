"""Tests of the language model configurations: sizes, and a short run."""

import math
from pathlib import Path

import pytest
import torch

from molslice.cli import main
from molslice.config import load_config
from molslice.config.entries import describe_data
from molslice.data import DATASETS, build_dataset
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.model import build_model
from molslice.model.count import parameters_by_part
from molslice.training.run import train
from molslice.types import SequenceBatch

CONFIGS = Path(__file__).parents[1] / "configs" / "language"


@pytest.mark.parametrize("attention", ["softmax", "flow", "linear", "performer"])
def test_wikitext103_is_the_setting_of_the_paper(attention):
    path = CONFIGS / "wikitext103.yaml"
    config = load_config(path, [("attention.name", attention)])
    data = describe_data(config)  # without the files
    assert (data.vocabulary_size, data.max_tokens) == (267_735, 512)
    head = path.read_text()
    for number in ("30.8", "33.0", "37.5"):
        assert number in head
    small = load_config(path, [("attention.name", attention), ("data.vocabulary_size", "1000")])
    parts = parameters_by_part(build_model(small.model, small.attention, describe_data(small)))
    layer = 4 * (512**2 + 512) + (512 * 2048 + 2048) + (2048 * 512 + 512) + 2 * 2 * 512
    assert parts["layers"] == 6 * layer + 2 * 512 == 18_915_328
    assert parts["total"] == parts["layers"] + 1000 * 512


def test_the_batches_of_wikitext103_are_whole_windows():
    config = load_config(CONFIGS / "wikitext103.yaml")
    assert config.training.token_budget == config.training.batch_size * 512
    assert config.training.batch_size % config.training.accumulate == 0


def test_the_small_one_trains_on_small_files(tmp_path):
    lines = [f" word {number % 7} and {number % 3} more \n" for number in range(200)]
    for name in ("valid", "test"):
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    settings = [
        ("data.train_path", str(tmp_path / "valid.txt")),
        ("data.test_path", str(tmp_path / "test.txt")),
        ("data.cache_dir", str(tmp_path / "cache")),
        ("data.vocabulary_size", "50"),
        ("training.max_steps", "20"),
    ]
    config = load_config(CONFIGS / "wikitext2_small.yaml", settings)
    dataset = build_dataset(config.data.name, dict(config.data.options))
    assert set(dataset.splits) == {"train", "valid", "test"}
    summary = train(config, tmp_path / "run", quiet=True)
    assert summary["attention"] == "flow"
    assert summary["test"]["perplexity"]["next_token"] < 50 / 2


def test_a_context_gives_the_perplexity_of_a_token_by_token_form(tmp_path, capsys, caplog):
    lines = [f" word {number % 7} and {number * number % 5} more \n" for number in range(40)]
    for name in ("valid", "test"):
        (tmp_path / f"{name}.txt").write_text("".join(lines[: 40 if name == "valid" else 11]))
    settings = [
        ("data.train_path", str(tmp_path / "valid.txt")),
        ("data.test_path", str(tmp_path / "test.txt")),
        ("data.cache_dir", str(tmp_path / "cache")),
        ("data.vocabulary_size", "50"),
        ("data.length", "12"),
        ("training.max_steps", "30"),
    ]
    config = load_config(CONFIGS / "wikitext2_small.yaml", settings)
    train(config, tmp_path / "run", quiet=True)
    model = load_model(tmp_path / "run")
    perplexities = []
    for context in (0, 7):
        data = build_dataset("wikitext", {**config.data.options, "context": context})
        first, *others = (data.collate([row]) for row in data.rows("test"))
        text = first.tokens[0].tolist()[:1] + first.pair_tokens[0].tolist()
        for batch in others:
            text += batch.pair_tokens[0, context:].tolist()
        assert len(text) == 11 * 6
        losses = []
        for place in range(1, len(text)):
            # the first window of 12 tokens has all before; the others begin every 12 - context tokens
            window = 0 if place <= 12 else (place - 12 - 1) // (12 - context) + 1
            before = torch.tensor([text[window * (12 - context) : place]])
            assert before.shape[1] > (context if window else 0)
            with torch.no_grad():
                logits = model.model(SequenceBatch(before)).prediction[0, -1].double()
            losses.append(-logits.log_softmax(0)[text[place]].item())
        result = evaluate(model, data, "test", progress=False)["targets"][0]
        assert result["count"] == len(losses)
        assert result["perplexity"] == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-5)
        perplexities.append(result["perplexity"])
    assert perplexities[1] != pytest.approx(perplexities[0], rel=1e-3)
    assert main(["evaluate", str(tmp_path / "run"), "--data.context", "7"]) == 0
    printed = capsys.readouterr()
    assert f"{perplexities[1]:.3f}" in printed.out
    assert "rows of the training" not in printed.err + caplog.text


def test_the_data_set_of_both_can_be_fetched():
    assert callable(DATASETS.find("wikitext").download)
