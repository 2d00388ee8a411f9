"""The correlation of maps against its definition, written as loops."""

import numpy as np
import pytest
import torch

from molslice.inference.load import load_model
from molslice.inference.maps import attention_maps, record_calls
from molslice.studies import correlation
from molslice.studies.base import Request
from molslice.studies.models import draw_rows, load_molecules
from molslice.types import MolsliceError


def slow_correlation(maps_a, maps_b, molecule, mask):
    """Return the mean over rows of the Pearson correlation, from maps [B, H, N, N] of some layers."""
    tokens = [i for i, is_real in enumerate(mask) if is_real]
    pooled = []
    for maps in (maps_a, maps_b):
        matrix = np.zeros((len(tokens), len(tokens)))
        for layer in maps:
            for row, i in enumerate(tokens):
                for column, j in enumerate(tokens):
                    heads = [float(head[i, j]) for head in layer[molecule]]
                    matrix[row, column] += max(heads) / len(maps)
        pooled.append(matrix)
    return float(np.mean([np.corrcoef(one, other)[0, 1] for one, other in zip(*pooled, strict=True)]))


def test_it_is_the_maximum_over_heads_the_mean_over_layers_and_pearson_by_row(study, runs, data):
    names = ("softmax", "flow")
    _, rows, notes = study(
        "correlation", runs=[runs[n] for n in names], options={"molecules": 3, "data": data}
    )
    dataset = load_molecules(data)
    batch = dataset.collate(draw_rows(dataset, 3, 0))
    softmax, flow = (attention_maps(load_model(runs[name]).model, batch) for name in names)
    masks = softmax[0].token_mask
    assert softmax[0].weights.shape[1] > 1
    assert not masks.all()

    def expected(layers_a, layers_b):
        maps = ([layer.weights.double() for layer in layers] for layers in (layers_a, layers_b))
        maps_a, maps_b = maps
        return [slow_correlation(maps_a, maps_b, m, mask) for m, mask in enumerate(masks)]

    def recorded(layer_a, layer_b):
        wanted = {"maps": "exact", "model_a": "softmax", "model_b": "flow"}
        wanted |= {"layer_a": layer_a, "layer_b": layer_b}
        (row,) = (row for row in rows if wanted.items() <= row.items())
        return float(row["mean"]), float(row["sd"])

    for fast, slow in (
        (recorded("mean", "mean"), expected(softmax, flow)),
        (recorded("1", "2"), expected(softmax[:1], flow[1:2])),
    ):
        assert fast == pytest.approx((np.mean(slow), np.std(slow)), abs=1e-7)
    agreement = notes["notes"]["mean_of_layers"]["exact"]
    assert agreement["flow and softmax"] == pytest.approx(np.mean(expected(softmax, flow)), abs=1e-7)


def test_constant_rows_are_left_out():
    one = torch.tensor([[1.0, 2.0, 4.0], [0.3, 0.3, 0.3]], dtype=torch.float64)
    other = torch.tensor([[4.0, 2.0, 1.0], [0.1, 0.2, 0.7]], dtype=torch.float64)
    correlations = correlation._row_correlations(torch.stack([one, other, torch.ones_like(one)]))
    assert correlations[0, 1] == pytest.approx(np.corrcoef(one[0], other[0])[0, 1], abs=1e-12)
    assert correlations[:, 2].isnan().all()


def test_maps_of_other_tokens_are_refused(runs, data, tmp_path, monkeypatch):
    lengths = iter((3, 3, 4, 4))

    def matrices(found):
        return [torch.rand(n := next(lengths), n)]

    monkeypatch.setattr(correlation, "_matrices", matrices)
    study = correlation.Correlation(molecules=1, data=data)
    request = Request(tmp_path, runs=(runs["softmax"], runs["flow"]), quiet=True)
    with pytest.raises(MolsliceError, match="softmax has 3 tokens of a row, flow has 4"):
        study.measure(request)


def test_long_maps_are_compared_by_some_rows(runs, data, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.inference.maps.LONGEST", 5)
    monkeypatch.setattr("molslice.inference.maps.SAMPLED", 3)
    shapes = []
    matrices = correlation._matrices

    def keep(attention_map):
        shapes.append(attention_map.weights.shape)
        return matrices(attention_map)

    monkeypatch.setattr(correlation, "_matrices", keep)
    study = correlation.Correlation(molecules=2, data=data)
    findings = study.measure(Request(tmp_path, runs=(runs["softmax"], runs["slice_sort"]), quiet=True))
    assert all(shape[2] == 3 < shape[3] for shape in shapes)
    assert all(row["mean"] is not None for row in findings.rows)
    batch = load_molecules(data).collate(draw_rows(load_molecules(data), 2, 0))
    assert record_calls(load_model(runs["softmax"]).model, batch)[0].tokens.shape[1] == shapes[0][3]
