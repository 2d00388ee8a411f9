"""The tables of pretraining."""

import pytest

from tests.programs import load_program


def result(how, attention, labels, measured, mean, sd=None):
    return {"how": how, "attention": attention, "labels": labels, "set": measured, "mean": mean, "sd": sd}


def results(*keys):
    sets = {"esol": 0.5, "freesolv": 1.5, "bace": 0.8}
    return {
        "results": [
            result(how, *key, name, mean + 0.01 * place)
            for place, key in enumerate(keys)
            for how in ("frozen", "fine-tuned")
            for name, mean in sets.items()
        ],
        "ratios": [
            {"how": how, "attention": key[0], "labels": key[1], "error_over_none": 1.0 - 0.1 * place}
            for place, key in enumerate(keys)
            for how in ("frozen", "fine-tuned")
        ],
    }


@pytest.fixture
def tables():
    return load_program("pretraining_tables")


def test_labels_are_compared_frozen_and_fine_tuned(tables, monkeypatch):
    content = results(("softmax", "none"), ("softmax", "quantum"))
    monkeypatch.setattr(tables, "load", lambda name: content)
    frozen, tuned = tables.labels_table().split("\n\n")
    assert frozen.splitlines() == [
        "| frozen | ESOL, MAE | FreeSolv, MAE | BACE, ROC-AUC | error ratio to random weights |",
        "| :--- | ---: | ---: | ---: | ---: |",
        "| random weights | 0.500 | 1.500 | 0.800 | 1.000 |",
        "| quantum labels | 0.510 | 1.510 | 0.810 | 0.900 |",
    ]
    assert tuned.startswith("| fine-tuned |")


def test_each_attention_has_a_row_with_random_weights_and_one_pretrained(tables, monkeypatch):
    content = results(("flow", "none"), ("flow", "all"))
    monkeypatch.setattr(tables, "load", lambda name: content)
    lines = tables.attentions_table().splitlines()
    assert lines[2].startswith("| `flow`, random weights | 0.500 |")
    assert lines[3].startswith("| `flow`, pretrained | 0.510 |")


def test_both_starts_stand_beside_each_other(tables, monkeypatch):
    content = {
        "results": [
            {
                "attention": "softmax",
                "start": start,
                "pretraining_steps": 8000,
                "test_mae_eV": {"mean": mean, "sd": 0.002},
            }
            for start, mean in (("random weights", 0.25), ("pretrained", 0.2))
        ]
    }
    monkeypatch.setattr(tables, "load", lambda name: content)
    assert tables.embedded_table().splitlines()[2] == "| `softmax` | 8,000 | 0.250 ± 0.002 | 0.200 ± 0.002 |"


def test_sizes_have_their_errors_of_pretraining_and_of_each_use(tables, monkeypatch):
    encoder = {"parameters": 1_000, "steps": 2_000, "batch_size": 256, "descriptors_mae_std": 0.1}
    encoder |= {"gap_mae": 0.2, "homo_mae": 0.3, "lumo_mae": 0.4}
    sets = {"esol": 0.5, "freesolv": 1.5, "bace": 0.8}
    content = {
        "encoders": [
            {**encoder, "encoder": name, "model": {"num_layers": 6, "dim": dim}}
            for name, dim in (("a", 192), ("b", 512))
        ],
        "results": [
            {"how": "frozen", "labels": label, "set": name, "mean": mean, "sd": None}
            for label in ("a", "b", "b, random weights")
            for name, mean in sets.items()
        ],
        "ratios": [{"how": "frozen", "labels": "b", "ratio": 0.9, "sd": 0.1}]
        + [{"how": "frozen", "labels": "b, random weights", "ratio": 1.2, "sd": None}],
    }
    monkeypatch.setattr(tables, "load", lambda name: content)
    pretrained, frozen = (part.splitlines() for part in tables.sizes_table().split("\n\n"))
    assert pretrained[2] == "| 6 layers of width 192 | 1,000 | 2,000 | 256 | 0.100 | 0.200 | 0.300 | 0.400 |"
    assert frozen[2:] == [
        "| 6 layers of width 192 | 0.500 | 1.500 | 0.800 | 1.000 |",
        "| 6 layers of width 512 | 0.500 | 1.500 | 0.800 | 0.900 ± 0.100 |",
        "| 6 layers of width 512, random weights | 0.500 | 1.500 | 0.800 | 1.200 |",
    ]
