"""Tests of plans: valid requests, and requests that are rejected before measuring."""

from pathlib import Path

import pytest

from molslice.attention import ATTENTIONS
from molslice.bench.attention import SETTINGS, choose_setting, read_entries, sizes_of_config
from molslice.config import config_from_mapping, load_config
from molslice.types import MolsliceError
from tests.bench.jobs import plan

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    ("entries", "changes", "message"),
    [
        ("softmax,sotfmax", {}, "did you mean 'softmax'"),
        ("softmax:fusd=true", {}, "did you mean 'fused'"),
        ("softmax:fused=perhaps", {}, "fused must be true or false"),
        ("slice_sort:order", {}, "not of the form option=value"),
        ("softmax:fused=[", {}, "as YAML"),
        ("flow,flow", {}, "occurs twice"),
        (" ", {}, "at least one entry"),
        ("softmax,slice_sort", {"causal": True}, "entry 'slice_sort': .* no causal form"),
        ("softmax", {"dims": (8, 9)}, "multiple of num_heads"),
        ("softmax", {"dtype": "fp64"}, "choices: fp32, bf16, fp16"),
        ("softmax", {"device": "frog"}, "device 'frog'"),
        ("softmax", {"device": "meta"}, "cannot measure device 'meta'"),
        ("softmax", {"device": "cuda:99"}, "CUDA devices"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(entries, changes, message):
    with pytest.raises(MolsliceError, match=message):
        plan(entries, **changes)


def test_an_attention_that_other_processes_do_not_know_is_refused():
    ATTENTIONS.add("own", type("Own", (ATTENTIONS.find("mean"),), {}))
    try:
        with pytest.raises(MolsliceError, match="entry 'own': it is registered in this process only"):
            plan("own")
    finally:
        ATTENTIONS.remove("own")


def test_sizes_are_sorted_and_each_once():
    sizes = plan(lengths=(16, 8, 16), dims=(8, 4), batch_sizes=(2, 1)).sizes()
    assert [size.length for size in sizes] == [8, 16] * 4
    assert [(size.dim, size.batching) for size in sizes[::2]] == [
        (dim, f"batch {batch}") for dim in (4, 8) for batch in (1, 2)
    ]


def test_a_batch_may_hold_a_number_of_tokens():
    sizes = plan(lengths=(256, 1024, 5000), batch_tokens=2048).sizes()
    assert [size.batch_size for size in sizes] == [8, 2, 1]
    assert {size.batching for size in sizes} == {"2,048 tokens a batch"}


def test_a_job_is_all_that_the_worker_needs():
    job = list(plan("slice_sort:order=half", ffn_dim=None, rounds=3).tasks())[-1].job
    assert (job.attention, job.options) == ("slice_sort", {"order": "half"})
    assert (job.length, job.ffn_dim, job.seed, job.counts_flops) == (16, 32, 2, False)


def test_all_is_every_attention_and_softmax_twice():
    labels = [entry.label for entry in read_entries("all")]
    assert labels[:2] == ["softmax", "softmax:fused=false"]
    assert {label.partition(":")[0] for label in labels} == set(ATTENTIONS.names())


def test_a_budget_is_given_or_what_is_free():
    assert plan(budget_gb=1.5).budget_bytes() == 1_500_000_000
    assert plan().budget_bytes() > 0


def test_the_sizes_of_a_configuration():
    sizes = {"num_layers": 3, "dim": 32, "ffn_dim": 64, "num_heads": 4}
    training = {"max_steps": 1, "batch_size": 100, "token_budget": 520}
    mapping = {"data": {"name": "pcqm4m", "root": "nowhere"}, "model": sizes, "training": training}
    found = sizes_of_config(config_from_mapping(mapping))
    assert plan("flow", **found).sizes()[0].length == 52
    assert (found["batch_sizes"], found["num_layers"], found["causal"]) == ((10,), 3, False)
    assert found["head_dim"] is None
    mapping["model"] = {**sizes, "name": "sequence", "max_tokens": 13, "causal": True, "head_dim": 16}
    found = sizes_of_config(config_from_mapping(mapping))
    assert (found["lengths"], found["batch_sizes"], found["causal"]) == ((13,), (40,), True)
    wide = plan("softmax", **found)
    assert next(wide.tasks()).job.head_dim == wide.conditions()["head_dim"] == 16


@pytest.mark.parametrize("file", ["language/wikitext2_small.yaml", "rl/hopper_medium.yaml"])
def test_what_is_trained_causally_is_measured_causally(file):
    config = load_config(CONFIGS / file, [("model.max_tokens", "8")] if "language" in file else [])
    assert sizes_of_config(config)["causal"] is True


def test_the_setting_of_the_paper():
    setting = choose_setting("sliceformer_text")
    assert plan("softmax", **{**setting, "threads": 1}).sizes()[-1].length == 4096
    with pytest.raises(MolsliceError, match="did you mean 'sliceformer_text'"):
        choose_setting("sliceformer_txt")
    assert set(SETTINGS) == {"sliceformer_text"}
