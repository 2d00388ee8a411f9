"""Tests of text generation: sampling, window, recurrent and windowed decoding, the command."""

import json
import os
import shutil

import pytest
import torch

from molslice.attention import ATTENTIONS
from molslice.cli import main
from molslice.config import config_from_mapping
from molslice.data.text.lexicon import Lexicon
from molslice.folders.run import write_model
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.inference.sequences import generate as module
from molslice.inference.sequences.generate import generate
from molslice.model import build_model
from molslice.model.sequences.language import LanguageModel
from molslice.tasks.targets import TargetInfo
from molslice.training.run import train
from molslice.types import DataSpec, MolsliceError
from tests.inference.models import untrained

CAUSAL = [name for name in ATTENTIONS.names() if ATTENTIONS.find(name).traits.causal]
TOKENS = TargetInfo(("next_token",), ("",), "tokens", (0.0,), (1.0,))
LINES = ["one two three four five six seven eight nine ten"]
ROUND = "one two three four five"


def model_folder(folder, attention="flow", kind="words", spare=0, **sizes):
    """Write an untrained model with weights large enough to affect predictions."""
    lexicon = Lexicon.of_text(kind, LINES)
    data = DataSpec(len(lexicon) + spare, "ids", len(lexicon) + spare, max_tokens=12, vocabulary=lexicon.name)
    model = {"name": "language", "num_layers": 2, "dim": 8, "ffn_dim": 16, "num_heads": 2, **sizes}
    config = config_from_mapping(
        {
            "data": {"name": "wikitext", "root": "gone", "tokens": kind},
            "model": model,
            "attention": attention,
            "task": "language",
        }
    )
    torch.manual_seed(1)
    built = build_model(config.model, config.attention, data)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_(std=0.7)
    folder.mkdir(exist_ok=True)
    write_model(folder, built.state_dict(), TOKENS, data, config, {"lexicon": lexicon.to_mapping()})
    return folder


@pytest.fixture
def predictor(tmp_path):
    def load(**options):
        return load_model(model_folder(tmp_path / "model", **options))

    return load


@pytest.mark.parametrize("attention", CAUSAL)
def test_every_causal_attention_generates(predictor, attention):
    result = generate(predictor(attention=attention), "one two", 5)
    assert len(result.numbers) == 5
    assert result.text == f"one two{result.continuation}"
    assert result.unknown == ()


@pytest.mark.parametrize("attention", ["flow", "linear", "softmax"])
@pytest.mark.parametrize("prompt", ["one two", " ".join(LINES * 3)])
def test_with_a_state_and_without_it_is_the_same_text(predictor, attention, prompt, monkeypatch):
    loaded = predictor(attention=attention)
    assert loaded.model.has_steps
    stepped = generate(loaded, prompt, 40, seed=4)
    monkeypatch.setattr(LanguageModel, "has_steps", False)
    assert generate(loaded, prompt, 40, seed=4) == stepped
    assert stepped.forgotten > 0  # beyond the 12 positions


def test_a_state_is_read_once_for_each_token(predictor, monkeypatch):
    loaded, steps = predictor(), []
    step = LanguageModel.step

    def counted(self, token, state):
        steps.append(state.position)
        return step(self, token, state)

    monkeypatch.setattr(LanguageModel, "step", counted)
    generate(loaded, "one two three", 8)
    assert steps == list(range(10))


@pytest.mark.parametrize("longest", [1, 2, 3, 12])
def test_the_window_keeps_the_last_half_and_fills_again(longest):
    starts = [module._window_start(count, longest) for count in range(1, 60)]
    sizes = [count - start for count, start in enumerate(starts, start=1)]
    assert starts == sorted(starts)
    assert max(sizes) == longest
    assert min(sizes[longest:]) == max(1, longest // 2)
    assert starts[:longest] == [0] * longest


def test_the_seed_decides_the_drawing(predictor):
    loaded = predictor()
    drawn = {generate(loaded, "one", 12, temperature=3.0, seed=seed).numbers for seed in (0, 0, 1, 2)}
    assert len(drawn) == 3
    state = torch.get_rng_state()
    generate(loaded, "one", 3)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_most_probable_tokens(predictor):
    loaded = predictor()
    greedy = generate(loaded, "one", 10, temperature=0)
    for options in ({"top_k": 1}, {"temperature": 1e-9}, {"temperature": 0, "seed": 5}):
        assert generate(loaded, "one", 10, **options) == greedy
    numbers = loaded.model.following(torch.tensor([Lexicon.of_text("words", LINES).encode("one")]))
    assert greedy.numbers[0] == numbers[0].argmax()


def test_drawing_follows_the_probabilities():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for temperature, top_k in ((1.0, None), (2.0, None), (0.5, 2)):
        drawn = [module._choose(logits, temperature, top_k, generator) for _ in range(4000)]
        shares = torch.bincount(torch.tensor(drawn), minlength=4) / 4000
        expected = (logits / temperature).masked_fill(logits < (1.0 if top_k else -9), -torch.inf).softmax(0)
        torch.testing.assert_close(shares.double(), expected, atol=0.03, rtol=0)


def test_rows_of_the_table_without_a_token_are_never_drawn(predictor):
    loaded = predictor(spare=200)
    result = generate(loaded, "one", 60, temperature=5.0)
    assert max(result.numbers) < len(Lexicon.of_text("words", LINES))


@pytest.mark.parametrize("kind", ["words", "characters", "bytes"])
def test_the_text_continues_where_the_prompt_ends(predictor, kind):
    loaded = predictor(kind=kind)
    lexicon = Lexicon.of_text(kind, LINES)
    for prompt in ("", "one", "one\n", "one "):
        result = generate(loaded, prompt, 6, seed=3)
        assert result.text.startswith(prompt)
        made = lexicon.decode(result.numbers)
        apart = kind == "words" and prompt == "one" and not made.startswith("\n")
        assert result.continuation == (f" {made}" if apart else made)
    # nothing to continue is a new line
    assert generate(loaded, "", 6, seed=3).numbers == generate(loaded, "\n", 6, seed=3).numbers


def test_bytes_of_a_prompt_that_are_not_utf_8(predictor):
    loaded = predictor(kind="bytes")
    result = generate(loaded, os.fsdecode(b"one \xff"), 3)
    assert result.prompt == os.fsdecode(b"one \xff")
    assert Lexicon("bytes").encode(result.prompt) == list(b"one \xff")
    with pytest.raises(MolsliceError, match="the prompt has no UTF-8 form"):
        generate(loaded, "one \ud800", 3)


def test_unknown_words_of_the_prompt_are_reported(predictor):
    loaded = predictor()
    result = generate(loaded, "one hundred and one", 4)
    assert result.unknown == ("hundred", "and")
    assert result.text.startswith("one hundred and one")
    assert result.numbers == generate(loaded, "one <unk> <unk> one", 4).numbers


@pytest.mark.parametrize("words", [["--tokens", "0"], ["--temperature", "-1"], ["--top-k", "0"]])
def test_bad_numbers_are_refused(words, capsys):
    assert main(["generate", "run", *words]) == 2
    assert f"argument {words[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lexicon", "message"),
    [
        (None, "cannot read the tokens"),
        ({"kind": "words", "entries": 5}, "must be a list of texts: 5"),
        ({"kind": "words", "entries": ["<unk>", "<eos>", ["one"]]}, "must be a list of texts"),
        ({"kind": "bytes", "entries": []}, r"names 256 tokens, but its weights are for \d+"),
    ],
)
def test_tokens_that_do_not_fit_the_model_are_refused(predictor, lexicon, message):
    loaded = predictor()
    loaded.metadata["lexicon"] = lexicon
    with pytest.raises(MolsliceError, match=message):
        generate(loaded, "one")


def test_another_model_is_refused(tmp_path):
    with pytest.raises(MolsliceError, match="is not a language model"):
        generate(untrained(tmp_path / "molecules"), "one")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train on a periodic text, then delete the data."""
    folder = tmp_path_factory.mktemp("language")
    data = folder / "data"
    data.mkdir()
    for split, times in (("train", 300), ("valid", 30), ("test", 31)):
        (data / f"wiki.{split}.tokens").write_text(f"{ROUND} " * times)
    config = config_from_mapping(
        {
            "data": {"name": "wikitext", "root": str(data), "length": 12, "cache_dir": str(folder / "cache")},
            "model": {
                "name": "language",
                "num_layers": 1,
                "dim": 16,
                "ffn_dim": 16,
                "num_heads": 2,
                "dropout": 0.0,
            },
            "attention": "flow",
            "task": "language",
            "optimizer": {"lr": 1e-2, "ema_decay": None},
            "training": {"max_steps": 60, "batch_size": 16, "token_budget": 512},
            "trainer": {"accelerator": "cpu", "num_threads": 1},
        }
    )
    summary = train(config, folder / "run", quiet=True)
    loaded = load_model(folder / "run")
    from molslice.data import build_dataset

    again = []
    for context in (0, 4):
        dataset = build_dataset(config.data.name, {**config.data.options, "context": context})
        again.append(evaluate(loaded, dataset, "test", progress=False))
    shutil.rmtree(data)
    shutil.rmtree(folder / "cache")
    return folder / "run", summary, again


def test_a_trained_model_knows_the_text_without_its_data(trained):
    run, summary, again = trained
    assert summary["metric"] == "perplexity"
    assert summary["noun"] == "windows"
    assert summary["test"]["perplexity"]["next_token"] < 1.3  # of five words
    assert again[0]["targets"][0]["perplexity"] == pytest.approx(
        summary["test"]["perplexity"]["next_token"], rel=1e-4
    )
    result = generate(load_model(run / "model.safetensors"), "two three", 8, temperature=0)
    assert result.text == "two three four five one two three four five one"


def test_a_perplexity_counts_the_predicted_tokens_whatever_the_windows(trained):
    first, second = trained[2]
    assert first["rows"] < second["rows"]
    for result in (first, second):
        assert result["targets"][0]["count"] == 31 * 5  # the end of the line follows the last word


def test_the_command_prints_the_text(trained, capsys):
    run = str(trained[0])
    assert main(["generate", run, "--prompt", "two six", "--tokens", "3", "--temperature", "0"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("two six ")
    assert len(printed.out.split()) == 5
    assert "not in the vocabulary, read as <unk>: 'six'" in printed.err
    words = ["--prompt", "two three", "--tokens", "3", "--top-k", "1", "--json", "--quiet"]
    assert main(["generate", run, *words]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    told = json.loads(printed.out)
    assert told["continuation"] == " four five one"
    assert (told["prompt"], told["unknown"], told["forgotten"]) == ("two three", [], 0)
    assert len(told["numbers"]) == 3


@pytest.mark.parametrize("words", [["--temperature", "-1"], ["--tokens", "0"], ["--top-k", "x"]])
def test_wrong_usage_of_the_command(words):
    assert main(["generate", "run", *words]) == 2
