"""Repeatable dropout passes."""

from dataclasses import replace
from threading import Thread

import pytest
import torch

from molslice.model import AttentionChoice, build_model
from molslice.model.dropout import MOST_PASSES, DropoutSampler
from molslice.model.gin_virtual import GinVirtualSpec
from molslice.model.graphormer import GraphormerSpec
from molslice.types import DataSpec, MolsliceError
from tests.model.molecules import random_batch

SPEC = GraphormerSpec(num_layers=2, dim=16, ffn_dim=24, num_heads=4, dropout=0.2, attention_dropout=0.0)
SIZES = [3, 9, 17]


@pytest.fixture
def model():
    torch.manual_seed(2)
    built = build_model(SPEC, AttentionChoice(), DataSpec(2)).eval()
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return built


@torch.no_grad()
def test_a_pass_does_not_depend_on_padding_or_on_the_rest_of_the_batch(model):
    sampler = DropoutSampler(model, 4)
    found = sampler.predictions(random_batch(SIZES))
    torch.testing.assert_close(found, sampler.predictions(random_batch(SIZES)), rtol=0, atol=0)
    padded = sampler.predictions(random_batch(SIZES, pad_to=30, garbage=True))
    torch.testing.assert_close(found, padded, rtol=0, atol=1e-5)
    batch = random_batch(SIZES)
    mine = batch.bond_index[:, 0] == 1
    alone = replace(
        batch,
        atoms=batch.atoms[1:2, : SIZES[1]],
        atom_mask=batch.atom_mask[1:2, : SIZES[1]],
        bond_index=batch.bond_index[mine] * torch.tensor([0, 1, 1]),
        bond_features=batch.bond_features[mine],
    )
    torch.testing.assert_close(sampler.predictions(alone)[:, 0], found[:, 1], rtol=0, atol=1e-5)
    more = DropoutSampler(model, 6).predictions(random_batch(SIZES))
    torch.testing.assert_close(more[:4], found, rtol=0, atol=0)


@torch.no_grad()
def test_the_passes_have_the_distribution_of_dropout_in_training(model):
    batch, passes = random_batch([3, 6]), 300
    found = DropoutSampler(model, passes).predictions(batch).double()
    torch.manual_seed(0)
    model.train()
    drawn = torch.stack([model(batch).prediction for _ in range(passes)]).double()
    error = (found.var(0) / passes + drawn.var(0) / passes).sqrt()
    assert ((found.mean(0) - drawn.mean(0)).abs() < 4 * error).all()
    torch.testing.assert_close(found.std(0), drawn.std(0), rtol=0.25, atol=0)
    # successive passes are independent
    centered = found - found.mean(0)
    following = (centered[1:] * centered[:-1]).mean(0) / centered.var(0)
    assert following.abs().max() < 5 / passes**0.5


@torch.no_grad()
def test_the_model_itself_stays_as_it_is(model):
    batch = random_batch(SIZES)
    before = model(batch).prediction
    sampler = DropoutSampler(model, 2)
    sampler.predictions(batch)
    torch.testing.assert_close(model(batch).prediction, before, rtol=0, atol=0)
    shared = zip(sampler.model.parameters(), model.parameters(), strict=True)
    assert all(one is other for one, other in shared)


def test_threads_do_not_disturb_each_other(model):
    sampler, batch, results = DropoutSampler(model, 6), random_batch(SIZES), []

    @torch.no_grad()
    def compute():
        results.append(sampler.predictions(batch))

    threads = [Thread(target=compute) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=0, atol=0)


def test_a_model_without_dropout_is_refused(model):
    without = build_model(replace(SPEC, dropout=0.0), AttentionChoice(), DataSpec(1))
    with pytest.raises(MolsliceError, match=r"model\.dropout 0"):
        DropoutSampler(without, 5)
    with pytest.raises(MolsliceError, match="no encoder"):
        DropoutSampler(build_model(GinVirtualSpec(num_layers=2, dim=8), AttentionChoice(), DataSpec(1)), 5)
    for passes in (1, MOST_PASSES + 1):
        with pytest.raises(MolsliceError, match=f"must be from 2 to {MOST_PASSES}, got {passes}"):
            DropoutSampler(model, passes)
