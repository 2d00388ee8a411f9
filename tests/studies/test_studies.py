"""Tests of the results of studies."""

import numpy as np
import pytest
import torch
from matplotlib.image import imsave

from molslice.attention import ATTENTIONS
from molslice.data.molecules.collate import collate
from molslice.inference.load import load_model
from molslice.inference.maps import attention_maps, mixed_tokens, record_calls
from molslice.studies import maps
from molslice.studies.base import Request
from molslice.studies.models import find_models, load_molecules, rows_of
from molslice.studies.untrained import read_choice, registered_entries, seeded_encoder
from molslice.types import MolsliceError
from tests.data.molecules.builders import memory_store


def pick(rows, column="mean", **wanted):
    """Return the numbers of a column in the rows with these values."""
    found = [row for row in rows if all(row[name] == str(value) for name, value in wanted.items())]
    return np.array([float(row[column] or "nan") for row in found])


@pytest.fixture
def noise(tmp_path):
    imsave(tmp_path / "noise.png", np.random.default_rng(0).random((40, 50, 3)))
    return tmp_path / "noise.png"


def test_softmax_smooths_and_sorting_does_not(study, measure):
    options = {"tokens": (16, 256, 4096), "repeats": 2, "permutations": 3}
    _, rows, about = study("oversmoothing", options=options)
    assert about["options"]["tokens"] == [16, 256, 4096]
    assert {"python", "torch", "numpy", "molslice"} <= about["versions"].keys()
    deviation = pick(rows, quantity="weight_sd", dtype="float64")
    limit = np.sqrt(np.e - 1) / np.array(options["tokens"])
    assert np.allclose(deviation[1:], limit[1:], rtol=0.2)
    softmax, sort = (pick(rows, quantity="output_sd", dtype="float64", method=m) for m in ("softmax", "sort"))
    assert (np.diff(softmax) < 0).all()
    assert softmax[-1] < 0.05
    assert np.allclose(sort, 1, atol=0.3)
    for dtype, unit in (("float32", 1e-7), ("float64", 1e-16)):
        assert (pick(rows, method="sort", dtype=dtype, quantity="share_equal") == 1).all()
        assert (pick(rows, method="sort", dtype=dtype, quantity="output_difference") == 0).all()
        assert pick(rows, method="softmax", dtype=dtype, quantity="sum_of_differences").max() < 100 * unit
    assert measure("oversmoothing", **options)[0] == rows
    assert measure("oversmoothing", seed=1, **options)[0] != rows


def test_permutation_agrees_with_the_promises_of_every_attention(measure, data):
    sizes = {"depth": 2, "dim": 8, "heads": 2, "molecules": 2, "images": 1}
    rows, notes = measure("permutation", **sizes, data=data)
    assert {row["attention"] for row in rows} == set(registered_entries()) >= set(ATTENTIONS.names())
    assert {row["input"] for row in rows} == {"molecules", "patches"}
    for row in rows:
        if row["reason"]:
            assert f"{row['input']}, {row['attention']}" in notes["left_out"]
        elif row["symmetry"] == "equivariant":
            assert float(row["all_mean"]) < 1e-4, row
    assert (pick(rows, "all_mean", attention="slice_sort") > 1e-4).all()
    assert (pick(rows, "equal_mean", attention="identity", input="patches") == 1).all()
    assert (pick(rows, "depth", attention="softmax", input="patches") == [1, 2]).all()


def test_what_cannot_be_built_is_a_row_with_its_reason(study, data):
    entries = ("slice_sort:order=frog", "softmax", "identity")
    options = {"attentions": entries, "depth": 2, "molecules": 2, "images": 1, "data": data}
    _, rows, _ = study("permutation", options=options)
    reasons = {(row["input"], row["attention"]): row["reason"] for row in rows}
    assert "invalid order 'frog'" in reasons["molecules", "slice_sort:order=frog"]
    assert reasons["patches", "softmax"] == ""


def test_permutation_of_trained_models(measure, data, runs):
    given = [runs["softmax"], runs["slice_sort"]]
    rows, notes = measure("permutation", runs=given, molecules=4, data=data)
    assert {row["input"] for row in rows} == {"molecules"}
    assert (pick(rows, "all_mean", attention="softmax") < 1e-5).all()
    assert (pick(rows, "all_mean", attention="slice_sort") > 1e-4).all()
    assert [model["attention"] for model in notes["models"]] == ["softmax", "slice_sort"]


def test_pieces_of_an_image_file(measure, data, tmp_path, noise):
    options = {"attentions": ("softmax",), "depth": 1, "molecules": 2, "images": 2, "data": data}
    drawn, _ = measure("permutation", **options, image=noise)
    synthetic, _ = measure("permutation", **options)
    assert pick(drawn, "sequences", input="patches") == [2]
    assert drawn != synthetic
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(MolsliceError, match=r"cannot read image .*text\.png"):
        measure("permutation", **options, image=tmp_path / "text.png")
    imsave(tmp_path / "small.png", np.zeros((8, 8, 3)))
    for name in ("permutation", "maps"):
        own = options if name == "permutation" else {"smiles": "CCO", "data": data}
        with pytest.raises(MolsliceError, match="8 x 8, smaller than 32 x 32"):
            measure(name, **own, image=tmp_path / "small.png")


def test_spectrum_of_given_runs(study, measure, data, runs):
    _, rows, about = study("spectrum", runs=[runs["softmax"], runs["mean"]], options={"data": data})
    assert (pick(rows, quantity="singular_value", index=1) == 1).all()
    atoms = about["notes"]["length"]
    ranks = {
        name: pick(rows, quantity="effective_rank", place="output", model=name)
        for name in ("softmax", "mean")
    }
    assert all(len(found) == 2 for found in ranks.values())
    assert ((ranks["softmax"] > 1.01) & (ranks["softmax"] <= atoms + 1)).all()
    assert np.allclose(ranks["mean"], 1, atol=1e-3)  # all tokens alike
    assert {row["layer"] for row in rows} == {"1", "2"}
    assert len(pick(rows, quantity="effective_rank", place="mixed", model="softmax")) == 2
    assert not len(pick(rows, place="mixed", model="mean"))  # it has no W_O
    with pytest.raises(MolsliceError, match="has 200 atoms"):
        measure("spectrum", runs=[runs["softmax"]], data=data, atoms=200)


def test_the_sorted_columns_themselves_before_the_output_map(measure, study, runs, data):
    """SliceSort(X) of the first layer is the sort of the columns of softmax(S + E) X W_V."""
    given = [runs["slice_sort"]]
    _, rows, _ = study("maps", runs=given, options={"smiles": "CCO", "layer": 1})
    model = load_model(runs["slice_sort"]).model
    batch = collate(memory_store(["CCO"]), [0])
    call = record_calls(model, batch)[0]
    values = call.attention.split_heads(call.attention.value(call.tokens))
    mixed = call.attention.merge_heads(call.attention.mix_pairs(values, call.context))
    expected = mixed[0].sort(0).values.detach()
    measured = pick(rows, "value", input="molecule", quantity="input of W_O").reshape(expected.shape)
    assert np.allclose(measured, expected, atol=1e-6)
    output = call.attention.output(torch.from_numpy(measured).float())
    assert torch.allclose(output, call.output.tokens[0], atol=1e-5)

    rows, notes = measure("spectrum", runs=given, data=data, molecules=1)
    dataset = load_molecules(data)
    one = next(r for r in rows_of(dataset) if dataset.num_tokens[r] == notes["length"] + 1)
    call = record_calls(model, dataset.collate([one]))[0]
    sizes = np.linalg.svd(mixed_tokens(call)[0].double().numpy(), compute_uv=False)
    measured = pick(rows, place="mixed", layer=1, quantity="singular_value")
    assert np.allclose(measured, sizes / sizes[0], atol=1e-6)


def test_short_trainings_are_kept_and_found_again(measure, data):
    told = []
    options = {"models": ("softmax", "slice_sort:order=frog", "gap-xtb"), "steps": 2, "data": data}
    rows, notes = measure("spectrum", **options, tell=told.append)
    assert notes["left_out"].keys() == {"slice_sort:order=frog"}
    assert "training softmax, 2 steps, seed 0" in told
    assert {row["model"] for row in rows} == {"softmax", "gap-xtb"}
    assert {model["label"]: model["steps"] for model in notes["models"]} == {"softmax": 2, "gap-xtb": 28000}
    told.clear()
    again, _ = measure("spectrum", **options, tell=told.append)
    assert again == rows
    assert not any("training" in line for line in told)


def test_seeds_of_one_attention_are_models_of_their_own(data, tmp_path):
    request = Request(tmp_path, seed=3, quiet=True)
    models, left_out = find_models(("softmax",), request, data, steps=1, seeds=2)
    assert [(m.label, m.attention, m.about["seed"]) for m in models] == [
        ("softmax (3)", "softmax", 3),
        ("softmax (4)", "softmax", 4),
    ]
    assert not left_out
    assert not torch.equal(*(m.model.readout.weight for m in models))


def test_maps_are_those_of_the_model(measure, runs, monkeypatch):
    monkeypatch.setattr(maps, "IMAGE_SIZE", 12)  # 9 patches: an influence map takes a derivative a token
    given = [runs[name] for name in ("softmax", "slice_sort", "flow", "singular", "mean")]
    rows, notes = measure("maps", runs=given, smiles="CCO", layer=2)
    assert {row["input"] for row in rows} == {"molecule", "image"}
    model = load_model(runs["softmax"]).model
    expected = attention_maps(model, collate(memory_store(["CCO"]), [0]))[1].weights[0].mean(0)
    found = pick(rows, "value", input="molecule", model="softmax", quantity="map").reshape(4, 4)
    assert np.allclose(found, expected.numpy(), atol=1e-6)
    assert np.allclose(found.sum(1), 1, atol=1e-5)
    image = {"column": "value", "input": "image"}
    shares = pick(rows, **image, model="slice_sort", quantity="share of channels sent to token 0")
    assert shares.shape == (10,)
    assert shares.sum() == pytest.approx(1, abs=1e-5)
    competition = pick(rows, "value", input="molecule", model="flow", quantity="competition")
    assert competition.mean() == pytest.approx(1, abs=1e-5)
    folding = pick(rows, **image, model="singular", quantity="weight in its pseudo-token")
    assert folding.sum() == pytest.approx(1, abs=1e-5)
    assert notes["image"] == "untrained encoder"
    with pytest.raises(MolsliceError, match="2 layers, so there is no layer 3"):
        measure("maps", runs=given[:1], smiles="CCO", layer=3)


def test_maps_are_drawn_on_an_image_file_too(study, measure, runs, noise):
    options = {"smiles": "CCO", "layer": 1}
    _, rows, _ = study("maps", runs=[runs["softmax"]], options={**options, "image": noise})
    synthetic, _ = measure("maps", runs=[runs["softmax"]], **options)
    on = {"column": "value", "input": "image", "quantity": "map"}
    assert not np.allclose(pick(rows, **on), pick(synthetic, **on))


def test_correlation_of_a_model_with_itself_and_with_others(study, runs, data):
    given = [runs["softmax"], runs["softmax"], runs["flow"]]
    _, rows, about = study("correlation", runs=given, options={"molecules": 3, "data": data})
    twice = {"model_a": "softmax (1)", "model_b": "softmax (2)"}
    for kind in ("exact", "influence"):
        for layer in (1, 2, "mean"):
            same = pick(rows, **twice, maps=kind, layer_a=layer, layer_b=layer)
            assert same == pytest.approx(1, abs=1e-9)
        other = pick(rows, model_a="softmax (1)", model_b="flow", maps=kind)
        assert other.shape == (9,)
        assert (np.abs(other) < 0.999).all()
        agreement = about["notes"]["mean_of_layers"][kind]
        assert agreement["softmax and softmax"] == pytest.approx(1, abs=1e-9)
    assert {row["map_a"] for row in rows if row["maps"] == "exact"} == {"exact"}


def test_an_encoder_by_its_seed():
    sizes = {"dim": 8, "num_layers": 1, "num_heads": 2, "uses_pair_bias": False, "max_tokens": 9}
    state = torch.random.get_rng_state()
    one, two, other = (seeded_encoder(read_choice("softmax"), s, **sizes).state_dict() for s in (0, 0, 1))
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["layers.0.ffn.inner.weight"], other["layers.0.ffn.inner.weight"])


def test_the_embedded_data_by_its_folder(data, tmp_path):
    assert len(load_molecules(data)) == 40
    with pytest.raises(MolsliceError, match="nothing"):
        load_molecules(str(tmp_path / "nothing"))
