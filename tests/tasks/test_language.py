"""Tests of next-token prediction: loss, results, perplexity."""

import math

import numpy as np
import pytest
import torch

from molslice.model import AttentionChoice, build_model
from molslice.model.sequences.language import LanguageSpec
from molslice.model.sequences.sequence import SequenceSpec
from molslice.tasks.base import MicroBatch
from molslice.tasks.language import Language
from molslice.tasks.targets import TargetInfo
from molslice.types import DataSpec, MolsliceError, SequenceBatch

SIZES = {"dim": 8, "num_layers": 1, "num_heads": 2, "ffn_dim": 8, "dropout": 0.0}
DATA = DataSpec(6, "ids", vocabulary_size=6, max_tokens=4)
TOKENS = TargetInfo.of_training(("next_token",), ("",), "tokens", np.array([[4.0], [2.0]]))
MASK = torch.tensor([[True] * 4, [True, True, False, False]])


@pytest.fixture
def task():
    return Language(build_model(LanguageSpec(**SIZES), AttentionChoice(), DATA), TOKENS)


def batch_of(mask=MASK):
    text = torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 0, 0]])
    return SequenceBatch(text[:, :4], mask, torch.tensor([[4.0], [2.0]]), torch.arange(2), text[:, 1:])


def likelihoods(logits, batch):
    """Return the likelihood of each real token."""
    rows, places = torch.where(MASK if batch.token_mask is not None else torch.ones_like(MASK))
    shares = logits.double().softmax(-1)
    return [
        shares[b, n, batch.pair_tokens[b, n]].item()
        for b, n in zip(rows.tolist(), places.tolist(), strict=True)
    ]


@pytest.mark.parametrize("mask", [MASK, None], ids=["padded", "full"])
def test_the_loss_is_summed_over_the_real_tokens(task, mask):
    batch, logits = batch_of(mask), torch.randn(2, 4, 6, requires_grad=True)
    found = task.loss_sum(logits, batch)
    shares = likelihoods(logits.detach(), batch)
    assert len(shares) == (6 if mask is not None else 8)
    assert found.item() == pytest.approx(-sum(map(math.log, shares)), rel=1e-5)
    found.backward()
    if mask is not None:
        assert not logits.grad[~mask].any()
    micro_batch = MicroBatch(batch, 2, len(shares))
    logits = task.model(batch).prediction.detach()
    expected = -sum(map(math.log, likelihoods(logits, batch))) / len(shares)
    assert task.training_step(micro_batch).item() == pytest.approx(expected, rel=1e-5)


def test_the_result_is_the_mean_of_each_row_and_perplexity_that_of_all_tokens(task):
    batch, logits = batch_of(), torch.randn(2, 4, 6)
    losses = -np.log(likelihoods(logits, batch))
    found = task.results(logits, batch)
    assert found.shape == (2, task.num_results)
    np.testing.assert_allclose(found[:, 0].numpy(), [losses[:4].mean(), losses[4:].mean()], rtol=1e-5)
    metrics = task.metrics(found.numpy(), batch.targets.numpy())
    assert metrics["next_token"] == pytest.approx(math.exp(losses.mean()), rel=1e-5)  # not the mean of means
    assert task.score(metrics) == metrics["next_token"]
    half = task.results(logits.bfloat16(), batch)
    assert half.dtype == torch.float32


def test_other_data_and_other_models_are_refused():
    model = build_model(LanguageSpec(**SIZES), AttentionChoice(), DATA)
    classes = TargetInfo(("label",), ("",), "multiclass", (0.0,), (1.0,), ("a", "b"))
    with pytest.raises(MolsliceError, match="of kind tokens, got multiclass"):
        Language(model, classes)
    with pytest.raises(MolsliceError, match="model.name language"):
        Language(build_model(SequenceSpec(**SIZES), AttentionChoice(), DATA), TOKENS)
