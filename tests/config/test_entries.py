from dataclasses import replace

from molslice.config import config_from_mapping
from molslice.config.entries import attention_label, folder_name, labels_of, parse_entries
from molslice.model.sequences.hierarchical import HierarchicalSpec


def build_config(**sections):
    mapping = {
        "data": {"name": "csv", "path": "molecules.csv", "target_columns": "gap"},
        "model": {"num_layers": 2, "dim": 16, "ffn_dim": 16, "num_heads": 2},
        "attention": {"name": "softmax"},
    }
    return config_from_mapping({**mapping, **sections})


def test_an_entry_says_all_of_its_attention():
    base = build_config(attention={"name": "slice_sort", "order": "half"})
    plain, mixed, gin = parse_entries("slice_sort,flow:clamp=5:pair_bias=mix,gin_virtual:dim=12", base)
    assert dict(plain.config.attention.options) == {}  # not the options of the base
    assert (mixed.config.attention.pair_bias, dict(mixed.config.attention.options)) == ("mix", {"clamp": 5})
    assert (gin.config.model.name, gin.config.model.dim) == ("gin_virtual", 12)
    for entry in (plain, mixed):
        assert attention_label(entry.config) == entry.label
        assert replace(entry.config, attention=base.attention) == base
    (back,) = parse_entries("softmax", gin.config)
    assert back.config.model.name == "graphormer"


def test_labels_tell_runs_apart():
    one = build_config()
    other = build_config(optimizer={"lr": 1e-4})
    assert labels_of([one, replace(one, seed=9)]) == ["softmax", "softmax"]
    assert labels_of([one, other, one]) == ["softmax 2x16 #1", "softmax 2x16 #2", "softmax 2x16 #1"]
    stages = replace(one, model=HierarchicalSpec((8, 16), (2, 1), 2))
    assert labels_of([stages, one]) == ["softmax 2x8-1x16", "softmax 2x16"]
    labels = ["slice_sort:order=half", "flow:pair_bias=mix"]
    assert len({folder_name(label) for label in labels}) == 2
    assert "/" not in folder_name("a/b:c d")


def test_runs_of_as_many_epochs_share_a_label():
    one = build_config()
    runs = [
        replace(one, seed=seed, training=replace(one.training, max_epochs=None, max_steps=steps))
        for seed, steps in enumerate((1_000, 1_012, 1_019, 1_100, 500))
    ]
    labels = [f"softmax 2x16 #{number}" for number in (1, 1, 1, 2, 3)]
    assert labels_of(runs) == labels
    assert labels_of(runs[:3]) == ["softmax"] * 3
    assert labels_of(list(reversed(runs[:4])))[0] == "softmax 2x16 #1"
    # another configuration changes nothing
    other = replace(runs[0], task="sequence", training=replace(runs[0].training, max_steps=990))
    assert labels_of([*runs[:2], other])[:2] == ["softmax 2x16 #1"] * 2
    # runs of one seed are no repetitions, whatever their lengths
    longer = [replace(run, seed=0) for run in runs[:2]]
    assert labels_of(longer) == ["softmax 2x16 #1", "softmax 2x16 #2"]
