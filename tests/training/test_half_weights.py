"""Training with `trainer.precision: bf16-weights`: bfloat16 in the layers, float32 in the optimizer."""

import copy
import csv

import pytest
import torch
from safetensors.torch import load_file

from molslice.config.settings import TrainerConfig
from molslice.folders.run import METRICS, MODEL
from molslice.model.encoder import EncoderLayer
from molslice.training.fabric import build_fabric
from molslice.training.run import train
from molslice.types import MolsliceError
from tests.training.test_trainer import build_stepper

HALF = {"accelerator": "cpu", "num_threads": 1, "precision": "bf16-weights"}
ATTENTIONS = ["softmax", "slice_sort", "flow", "singular"]

__all__ = ["build_stepper"]


def steps(stepper, first, count):
    for number, batch in enumerate(stepper.batches.stream(0, first)):
        if number == count:
            return
        stepper.step(batch, first + number, 2e-3)
        stepper.average.update(first + number + 1)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_saved_weights_are_float32_and_the_error_is_as_in_float32(build_config, tmp_path, attention):
    losses, names = {}, {}
    for precision in ("32", "bf16-weights"):
        folder = tmp_path / precision
        config = build_config(attention={"name": attention}, trainer={"precision": precision})
        assert train(config, folder, quiet=True)["steps"] == 24
        weights = load_file(folder / MODEL)
        names[precision] = [(name, tensor.dtype, tensor.shape) for name, tensor in weights.items()]
        with (folder / METRICS).open() as file:
            losses[precision] = [float(row["train_loss"]) for row in csv.DictReader(file)]
    assert names["32"] == names["bf16-weights"]
    assert losses["bf16-weights"] == pytest.approx(losses["32"], rel=0.05)
    assert losses["bf16-weights"] != losses["32"]


def test_the_copy_is_the_rounded_weights(build_stepper):
    stepper = build_stepper(trainer=HALF)
    for count in range(3):
        halves = dict(stepper.half.task.named_parameters())
        for name, whole in stepper.task.named_parameters():
            assert whole.dtype == torch.float32
            half = halves[name]
            assert half.dtype == (torch.bfloat16 if ".layers." in name else torch.float32)
            assert torch.equal(half, whole.to(half.dtype)), name
        steps(stepper, count, 1)
    for state in stepper.optimizer.optimizer.state.values():
        assert all(tensor.dtype == torch.float32 for tensor in state.values())


def test_small_updates_are_not_lost(build_stepper):
    """Updates below the rounding of bfloat16 add up in the weights of the optimizer."""
    stepper = build_stepper(trainer=HALF, optimizer={"weight_decay": 0.0})
    before = copy.deepcopy(stepper.model.state_dict())
    for number, batch in enumerate(stepper.batches.stream(0, 0)):
        if number == 6:
            break
        stepper.step(batch, number, 1e-6)
    moved = [
        (tensor - before[name]).abs().max()
        for name, tensor in stepper.model.state_dict().items()
        if "layers" in name
    ]
    assert 3e-6 < max(moved) < 1e-5
    layers = [module for module in stepper.half.task.modules() if isinstance(module, EncoderLayer)]
    assert all(parameter.dtype == torch.bfloat16 for layer in layers for parameter in layer.parameters())


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_continued_run_equals_an_uninterrupted_one(build_stepper, attention):
    sections = {"trainer": HALF, "attention": {"name": attention}, "model": {"dropout": 0.2}}
    whole = build_stepper(**sections)
    steps(whole, 0, 2)
    tensors = copy.deepcopy(whole.tensors())
    steps(whole, 2, 2)
    continued = build_stepper(**sections)
    continued.load_tensors(tensors, step=2)
    steps(continued, 2, 2)
    for part in ("model", "average"):
        for name, tensor in whole.tensors()[part].items():
            assert torch.equal(tensor, continued.tensors()[part][name]), name
    for one, other in zip(whole.half.task.parameters(), continued.half.task.parameters(), strict=True):
        assert torch.equal(one, other)


def test_gradients_are_clipped_in_float32(build_stepper):
    stepper = build_stepper(trainer=HALF, optimizer={"gradient_clip": 0.01})
    norms = []

    def record(optimizer, *_):
        gradients = [
            p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        assert all(gradient.dtype == torch.float32 for gradient in gradients)
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    stepper.optimizer.optimizer.register_step_pre_hook(record)
    steps(stepper, 0, 1)
    assert norms == [pytest.approx(0.01, rel=1e-3)]


def test_gradients_of_micro_batches_are_added(build_stepper):
    stepper = build_stepper(trainer=HALF, training={"accumulate": 4})
    assert len(next(stepper.batches.stream(0, 0)).micro_batches) == 4
    steps(stepper, 0, 1)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_pair_states_and_messages_are_computed_in_bfloat16(build_stepper, attention):
    model = {"pair_state": True, "local": "gine"}
    stepper = build_stepper(trainer=HALF, model=model, attention={"name": attention})
    before = copy.deepcopy(stepper.model.state_dict())
    steps(stepper, 0, 2)
    halves = dict(stepper.half.task.named_parameters())
    for part in ("messages.0.map.weight", "messages.1.norm.weight", "pair_updates.0.weight"):
        half, whole = halves[f"model.encoder.{part}"], stepper.model.state_dict()[f"encoder.{part}"]
        assert (half.dtype, whole.dtype) == (torch.bfloat16, torch.float32)
        assert torch.equal(half, whole.bfloat16())
        assert not torch.equal(whole, before[f"encoder.{part}"])


def test_models_without_encoder_layers_are_refused(build_stepper):
    with pytest.raises(MolsliceError, match="needs a model with encoder layers; choices here: 32, bf16"):
        build_stepper(
            trainer=HALF,
            model={"name": "gin_virtual", "num_layers": 2, "dim": 16, "ffn_dim": None, "num_heads": None},
        )


def test_fully_sharded_training_is_refused():
    with pytest.raises(MolsliceError, match=r"bf16-weights is not available .*fsdp; choices: 32, bf16"):
        build_fabric(TrainerConfig(accelerator="cpu", strategy="fsdp", precision="bf16-weights"))
