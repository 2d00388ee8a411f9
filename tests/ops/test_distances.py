"""Bins of distances equal a loop over the pairs of atoms."""

import math

import torch

from molslice.ops.distances import BIN_WIDTH, NUM_BINS, UNKNOWN, distance_bins, pair_indices


def test_equals_a_loop_over_pairs():
    draw = torch.Generator().manual_seed(0)
    coordinates = 4 * torch.randn(3, 6, 3, generator=draw)
    coordinates[1, 4:] = math.nan
    coordinates[2, 0, 1] = math.nan
    bins = distance_bins(coordinates)
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    assert pair_indices(6, torch.device("cpu")).T.tolist() == [list(pair) for pair in pairs]
    for molecule, row in zip(coordinates.tolist(), bins.tolist(), strict=True):
        for (i, j), place in zip(pairs, row, strict=True):
            distance = math.dist(molecule[i], molecule[j])
            known = UNKNOWN if math.isnan(distance) else min(int(distance / BIN_WIDTH), NUM_BINS - 1)
            assert place == known
    assert (bins == NUM_BINS - 1).any()


def test_one_atom_has_no_pair():
    assert distance_bins(torch.zeros(2, 1, 3)).shape == (2, 0)
