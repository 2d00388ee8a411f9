"""Tests of the division of a batch among processes and micro-batches."""

import itertools

import numpy as np
import pytest

from molslice.data import build_dataset
from molslice.training.batches import TrainingBatches
from molslice.types import MolsliceError


@pytest.fixture(scope="module")
def dataset(build_config):
    config = build_config(data={"target_columns": ["gap", "half"]})
    return build_dataset(config.data.name, dict(config.data.options))


@pytest.fixture
def build_stream(build_config, dataset):
    def build(seed=5, rank=0, world=1, accumulate=1, count=None):
        training = build_config(training={"accumulate": accumulate}).training
        return TrainingBatches(dataset, dataset.splits["train"][:count], training, seed, rank, world)

    return build


@pytest.mark.parametrize(("world", "accumulate"), [(1, 3), (2, 1), (2, 3), (3, 2)])
def test_processes_and_micro_batches_divide_each_batch(build_stream, dataset, world, accumulate):
    """No row is lost or repeated; a row of two processes would have twice its weight."""
    streams = [build_stream(rank=rank, world=world, accumulate=accumulate) for rank in range(world)]
    steps = streams[0].steps_per_epoch
    whole = streams[0].order.epoch(0)
    taken_steps = (itertools.islice(stream.stream(0, 0), steps) for stream in streams)
    draws = set()
    for number, (rows, *batches) in enumerate(zip(whole, *taken_steps, strict=True)):
        micro_batches = [micro for batch in batches for micro in batch.micro_batches]
        assert len(micro_batches) == world * accumulate
        taken = [row for micro in micro_batches for row in micro.batch.rows.tolist()]
        assert sorted(taken) == sorted(rows.tolist())
        sizes = [len(micro.batch.rows) for micro in micro_batches]
        assert max(sizes) - min(sizes) <= 1
        assert {(batch.epoch, batch.index, batch.rows) for batch in batches} == {(0, number, len(rows))}
        assert len({micro.draw for micro in micro_batches}) == 1  # they hide the same, whoever computes a row
        draws.add(micro_batches[0].draw)
        known = np.count_nonzero(~np.isnan(dataset.targets[rows]))
        assert {(micro.rows, micro.present) for micro in micro_batches} == {(len(rows), known)}
    assert len(draws) == steps


@pytest.mark.parametrize(("world", "accumulate"), [(4, 1), (2, 2), (4, 3), (16, 1)])
def test_a_batch_with_fewer_rows_than_parts(build_stream, world, accumulate):
    """The batches are those of one process; who has no row computes one that does not count."""
    alone = build_stream(count=18)
    whole = alone.order.epoch(0)
    assert min(map(len, whole)) < world * accumulate
    streams = [build_stream(rank=rank, world=world, accumulate=accumulate, count=18) for rank in range(world)]
    assert [stream.steps_per_epoch for stream in streams] == [len(whole)] * world
    taken_steps = (itertools.islice(stream.stream(0, 0), len(whole)) for stream in streams)
    for rows, *batches in zip(whole, *taken_steps, strict=True):
        assert len({len(batch.micro_batches) for batch in batches}) == 1
        micro_batches = [micro for batch in batches for micro in batch.micro_batches]
        assert all(len(micro.batch.rows) > 0 for micro in micro_batches)
        counted = [row for micro in micro_batches if micro.counts for row in micro.batch.rows.tolist()]
        assert sorted(counted) == sorted(rows.tolist())


def test_a_batch_size_below_the_number_of_parts_is_refused(build_stream):
    with pytest.raises(
        MolsliceError, match=r"batch_size is 16, expected at least 18: 6 processes .* 3 parts"
    ):
        build_stream(world=6, accumulate=3)


def test_draws_differ_between_epochs_and_seeds(build_stream, dataset, monkeypatch):
    """A crop or a mask must not be the same in every epoch."""
    collate, draws = dataset.collate, []

    def recorded(rows, draw=None):
        draws.append(draw)
        return collate(rows, draw)

    monkeypatch.setattr(dataset, "collate", recorded)

    def drawn(seed, epoch, rank=0):
        draws.clear()
        stream = build_stream(seed, rank, world=2, accumulate=2)
        list(itertools.islice(stream.stream(epoch, 0), stream.steps_per_epoch))
        return set(draws)

    of_epochs = [drawn(seed, epoch) for seed in (5, 6) for epoch in range(3)]
    assert all(len(found) == 1 for found in of_epochs)  # a row draws alike whichever micro-batch it is in
    assert len(set.union(*of_epochs)) == 6
    assert drawn(5, 1, rank=1) == of_epochs[1]
