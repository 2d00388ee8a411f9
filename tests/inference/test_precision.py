"""Predictions depend only on the model and the row, not on global settings of torch."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch.overrides import _get_current_function_mode_stack

from molslice.config import config_from_mapping
from molslice.data import build_dataset
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.inference.predictions import NOT_FINITE
from molslice.training.run import train
from tests.inference.models import checkpoint_folder, embedded_smiles

SMILES = embedded_smiles(12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def expected(folder):
    return load_model(folder).predict(SMILES)


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def deterministic():
    torch.use_deterministic_algorithms(mode=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=False)


@contextmanager
def reduced_products():
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


SETTINGS = {
    "bfloat16 by default": lambda: default_dtype(torch.bfloat16),
    "float64 by default": lambda: default_dtype(torch.float64),
    "meta by default": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference mode": torch.inference_mode,
    "gradients": torch.enable_grad,
    "deterministic": deterministic,
    "reduced products": reduced_products,
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_the_caller_has_set_changes_nothing(folder, expected, setting):
    with SETTINGS[setting]():
        before = torch.get_default_dtype(), torch.get_float32_matmul_precision(), torch.get_default_device()
        predictor = load_model(folder)
        found = predictor.predict(SMILES)
        after = torch.get_default_dtype(), torch.get_float32_matmul_precision(), torch.get_default_device()
    np.testing.assert_array_equal(found, expected)
    assert after == before
    assert not _get_current_function_mode_stack()
    assert all(
        parameter.requires_grad and not parameter.is_inference() for parameter in predictor.model.parameters()
    )


@pytest.mark.parametrize("name", ["performer", "reformer", "slice_sort", "synthesizer", "yoso"])
def test_loading_and_predicting_draw_no_random_numbers_of_the_caller(tmp_path, name):
    folder = checkpoint_folder(tmp_path, attention={"name": name}, model={"max_tokens": 40})
    first = load_model(folder).predict(SMILES)
    torch.manual_seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    second = load_model(folder).predict(SMILES)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    np.testing.assert_array_equal(second, first)


def test_a_molecule_that_overflows_has_a_reason(folder, expected):
    predictor = load_model(folder)
    forward = predictor.model.forward
    predictor.model.forward = lambda batch: (output := forward(batch))._replace(
        prediction=output.prediction.where(batch.rows[:, None] != 2, torch.inf)
    )
    predictions = predictor.predict_with_errors([*SMILES[:4], "unreadable"])
    assert predictions.errors[:4] == [None, None, NOT_FINITE, None]
    assert np.isnan(predictions.values[2, 0])
    np.testing.assert_allclose(predictions.values[[0, 1, 3], 0], expected[[0, 1, 3]], atol=1e-5)


def run_in_bf16(tmp_path):
    smiles = embedded_smiles(60)
    lines = ["smiles,gap", *(f"{text},{3 + len(text) / 20}" for text in smiles)]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    mapping = {
        "data": {"name": "csv", "path": str(tmp_path / "data.csv"), "target_columns": ["gap"]},
        "model": {"num_layers": 2, "dim": 32, "ffn_dim": 32, "num_heads": 4, "dropout": 0.0},
        "optimizer": {"lr": 0.01},
        "training": {"max_steps": 6, "batch_size": 16, "token_budget": 2048},
        "trainer": {"accelerator": "cpu", "precision": "bf16", "num_threads": 1},
    }
    summary = train(config_from_mapping(mapping), tmp_path / "run", quiet=True)
    return summary, load_model(tmp_path / "run")


def test_evaluate_repeats_the_summary_of_a_run_in_bf16(tmp_path):
    summary, predictor = run_in_bf16(tmp_path)
    dataset = build_dataset("csv", dict(predictor.config.data.options))
    for split in ("valid", "test"):
        (target,) = evaluate(predictor, dataset, split, progress=False)["targets"]
        # both compute in float32: other batches round otherwise, in the seventh digit
        assert target["mae"] == pytest.approx(summary[split]["mae"]["gap"], rel=2e-6)
    alone = [predictor.predict_dataset(dataset, np.array([row])).values[0, 0] for row in range(20)]
    together = predictor.predict_dataset(dataset, np.arange(20)).values[:, 0]
    np.testing.assert_allclose(alone, together, atol=1e-5)


def test_an_error_counts_the_rows_that_overflow(tmp_path):
    _, predictor = run_in_bf16(tmp_path)
    dataset = build_dataset("csv", dict(predictor.config.data.options))
    with torch.no_grad():
        predictor.model.readout.bias.fill_(torch.inf)
    result = evaluate(predictor, dataset, progress=False)
    assert (result["rows"], result["failed"], result["targets"][0]["mae"]) == (6, 0, np.inf)
