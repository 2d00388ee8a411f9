"""Steps with batches of fixed shapes equal steps with collated batches of the same rows."""

import itertools
from contextlib import closing, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from molslice.attention import ATTENTIONS
from molslice.config import DataConfig
from molslice.data import build_dataset
from molslice.data.molecules.base import MoleculeDataset
from molslice.folders.run import read_config
from molslice.model import build_model
from molslice.model.graphormer import GraphormerSpec
from molslice.ops import path_codes
from molslice.tasks import TASKS, TargetInfo
from molslice.tasks.base import MicroBatch
from molslice.training.batches import TrainingBatches
from molslice.training.fabric import build_fabric
from molslice.training.optimizer import build_optimizer
from molslice.training.run import train
from molslice.training.step_graphs import WaitFinder, uses_fixed_shapes
from molslice.training.stepper import Stepper
from molslice.types import MoleculeBatch, MolsliceError
from tests.data.molecules.corpora import make_corpus


def assemble_stepper(config, fabric, fixed):
    """Build a stepper for the training rows, with or without batches of fixed shapes."""
    dataset = build_dataset(config.data.name, dict(config.data.options))
    rows, stated = dataset.labeled_rows("train"), dataset.stated_targets
    names = dataset.target_names, dataset.target_units, dataset.kind
    targets = (
        TargetInfo.of_training(*names, dataset.targets[rows], ())
        if stated is None
        else TargetInfo.from_mapping(stated)
    )
    torch.manual_seed(0)
    model = build_model(config.model, config.attention, dataset.spec)
    task = TASKS.build(config.task, model, targets, options={})
    batches = TrainingBatches(dataset, rows, config.training, config.seed, fixed_shapes=fixed)
    return Stepper(fabric, task, config, batches)


@pytest.fixture
def build_stepper(build_config):
    def build(fixed, data=None, **sections):
        config = build_config(data={"target_columns": ["gap", "half"], **(data or {})}, **sections)
        return assemble_stepper(config, build_fabric(config.trainer), fixed)

    return build


@pytest.fixture
def pretraining(build_config, tmp_path):
    """Build the configuration of a pretraining."""
    path = str(make_corpus(tmp_path / "corpus"))

    def build(**model):
        built = build_config(
            model={"name": "graphormer_pretraining", "dropout": 0.0, "attention_dropout": 0.0, **model},
            task="pretraining",
            training={"batch_size": 13},
        )
        options = {"path": path, "valid_fraction": 0.2, "test_fraction": 0.1}
        return replace(built, data=DataConfig("corpus", options))

    return build


@pytest.fixture
def hidden_search(monkeypatch):
    """Search for paths out of sight of a `WaitFinder`: on a CPU the search stops early."""
    search = path_codes.path_codes

    def compute(adjacency):
        with torch.utils._python_dispatch._disable_current_modes():
            return search(adjacency)

    monkeypatch.setattr("molslice.model.graphormer.path_codes", compute)


class MetaFabric:
    """Stands in for Fabric with one process on torch's device `meta`."""

    device = torch.device("meta")
    world_size, global_rank, is_global_zero, strategy = 1, 0, True, None

    def setup_module(self, module):
        module.mark_forward_method = lambda name: None
        return module

    def setup_optimizers(self, optimizer):
        return optimizer

    def no_backward_sync(self, module, enabled):  # noqa: ARG002
        return nullcontext()

    def autocast(self):
        return nullcontext()

    def backward(self, loss):
        loss.backward()

    def clip_gradients(self, module, optimizer, max_norm, error_if_nonfinite):  # noqa: ARG002
        torch.nn.utils.clip_grad_norm_(module.parameters(), max_norm)


@pytest.fixture
def build_meta_stepper(build_config, monkeypatch):
    """Build steppers on `meta`, whose tensors have no values and do not mix with tensors of the host.

    Parts of torch without this device are left out: autocast, the seed, and AdamW with its fused kernel.
    """
    replaced = "molslice.training.stepper"
    monkeypatch.setattr(f"{replaced}.seed_step", lambda *given: None)
    monkeypatch.setattr(
        f"{replaced}.build_optimizer", lambda *given, **_: build_optimizer(*given, fused=False)
    )
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: None)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    monkeypatch.setattr(torch, "autocast", lambda *given, **named: nullcontext())

    def build(config=None, **sections):
        return assemble_stepper(config or build_config(**sections), MetaFabric(), fixed=True)

    return build


def with_empty_rows(stepper, batch):
    """Return a batch of row numbers without its last two rows, which are empty instead."""
    (given,) = batch.micro_batches
    rows = given.batch.rows.clone()
    rows[-2:] = -1
    kept = rows[:-2].numpy()
    present = stepper.batches.dataset.count_targets(kept)
    made = MicroBatch(replace(given.batch, rows=rows), len(kept), present, size=len(kept), draw=given.draw)
    return batch._replace(rows=len(kept), micro_batches=[made])


def collated(stepper, batch):
    """Return a batch of row numbers with its rows collated, and no empty ones."""
    (given,) = batch.micro_batches
    rows = given.batch.rows[given.batch.rows >= 0].numpy()
    made = MicroBatch(stepper.batches.dataset.collate(rows), given.rows, given.present, draw=given.draw)
    return batch._replace(micro_batches=[made])


@pytest.mark.parametrize(
    ("attention", "model"),
    [
        ("softmax", {}),
        ("slice_sort", {}),
        ("flow", {}),
        ("singular", {}),
        ("softmax", {"local": "gine", "pair_state": True}),
        ("slice_sort", {"local": "gine", "pair_state": True}),
    ],
)
def test_steps_equal_those_of_collated_batches(build_stepper, attention, model):
    sections = {
        "attention": attention,
        "model": {"dropout": 0.0, "attention_dropout": 0.0, **model},
        "training": {"batch_size": 13},
    }
    fixed, plain = build_stepper(True, **sections), build_stepper(False, **sections)
    assert fixed.graphs is not None
    assert plain.graphs is None
    for number, batch in enumerate(itertools.islice(fixed.batches.stream(0, 0), 25)):
        batch = with_empty_rows(fixed, batch) if number % 2 else batch
        rate = 1e-3 * (1 + number % 3)
        result = fixed.step(batch, number, rate)
        expected = plain.step(collated(plain, batch), number, rate)
        torch.testing.assert_close(result, expected, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("model", [{}, {"local": "gine", "readout": "mean"}])
def test_steps_of_a_pretraining_equal_those_of_collated_batches(pretraining, model):
    """The same targets, atoms and bonds are hidden in both."""
    config = pretraining(**model)
    fabric = build_fabric(config.trainer)
    fixed, plain = assemble_stepper(config, fabric, True), assemble_stepper(config, fabric, False)
    assert fixed.graphs is not None
    drawn = set()
    for number, batch in enumerate(itertools.islice(fixed.batches.stream(0, 0), 25)):
        batch = with_empty_rows(fixed, batch) if number % 2 else batch
        drawn.add(batch.micro_batches[0].draw)
        result = fixed.step(batch, number, 1e-3)
        expected = plain.step(collated(plain, batch), number, 1e-3)
        torch.testing.assert_close(result, expected, rtol=2e-4, atol=1e-5)
    assert len(drawn) == 25


@pytest.mark.usefixtures("hidden_search")
def test_steps_of_a_pretraining_can_be_captured(pretraining):
    config = pretraining(local="gine")
    stepper = assemble_stepper(config, build_fabric(config.trainer), True)
    stepper.step(with_empty_rows(stepper, next(stepper.batches.stream(0, 0))), 0, 1e-3)
    assert stepper.graphs.obstacles == set()
    assert all(parameter.isfinite().all() for parameter in stepper.model.parameters())


@pytest.mark.usefixtures("hidden_search")
@pytest.mark.parametrize("attention", ATTENTIONS.names())
def test_steps_can_be_captured_with_every_attention(build_stepper, attention):
    """The host reads nothing back, and empty rows leave all weights finite."""
    model = {"max_tokens": 64, "local": "gine"}
    stepper = build_stepper(True, attention=attention, model=model, training={"batch_size": 7})
    stepper.step(with_empty_rows(stepper, next(stepper.batches.stream(0, 0))), 0, 1e-3)
    assert stepper.graphs.obstacles == set()
    assert all(parameter.isfinite().all() for parameter in stepper.model.parameters())


@pytest.mark.usefixtures("hidden_search")
def test_steps_of_muon_can_be_captured(build_stepper):
    sections = {"optimizer": {"name": "muon"}, "training": {"batch_size": 7}}
    stepper = build_stepper(True, **sections, attention="mean")
    stepper.step(next(stepper.batches.stream(0, 0)), 0, 1e-3)
    assert stepper.graphs.obstacles == set()


@pytest.mark.usefixtures("hidden_search")
def test_steps_with_a_geometry_can_be_captured(build_stepper):
    stepper = build_stepper(True, data={"geometry": True}, training={"batch_size": 7})
    stepper.step(with_empty_rows(stepper, next(stepper.batches.stream(0, 0))), 0, 1e-3)
    assert stepper.graphs.obstacles == set()
    assert stepper.model.distance_head.pair.weight.isfinite().all()


@pytest.mark.parametrize("precision", ["32", "bf16-weights"])
@pytest.mark.parametrize("attention", ATTENTIONS.names())
def test_no_tensor_of_the_host_takes_part_in_a_step(build_meta_stepper, attention, precision):
    """On `meta` this is an error, and so is a value that the host reads."""
    stepper = build_meta_stepper(
        attention=attention,
        model={"max_tokens": 64, "local": "gine", "pair_state": True},
        data={"geometry": True},
        optimizer={"name": "muon"},
        trainer={"precision": precision},
        training={"batch_size": 7},
    )
    for number, batch in enumerate(itertools.islice(stepper.batches.stream(0, 0), 2)):
        stepper.step(batch, number, 1e-3)
    assert stepper.graphs.obstacles == set()


@pytest.mark.parametrize("precision", ["32", "bf16-weights"])
def test_no_tensor_of_the_host_takes_part_in_a_step_of_pretraining(
    build_meta_stepper, pretraining, precision
):
    config = pretraining(local="gine")
    stepper = build_meta_stepper(replace(config, trainer=replace(config.trainer, precision=precision)))
    for number, batch in enumerate(itertools.islice(stepper.batches.stream(0, 0), 2)):
        stepper.step(batch, number, 1e-3)
    assert stepper.graphs.obstacles == set()


@pytest.mark.parametrize(
    ("compute", "reason"),
    [
        (lambda loss: loss + torch.ones(1), "device"),
        (lambda loss: loss * float(loss.detach()), "meta"),
    ],
)
def test_tensors_of_the_host_are_found_on_meta(build_meta_stepper, monkeypatch, compute, reason):
    stepper = build_meta_stepper()
    task, step = stepper.task, stepper.task.training_step
    monkeypatch.setattr(task, "training_step", lambda micro_batch: compute(step(micro_batch)))
    with pytest.raises(RuntimeError, match=reason):
        stepper.step(next(stepper.batches.stream(0, 0)), 0, 1e-3)


def test_steps_of_radam_are_not_captured(build_stepper):
    assert build_stepper(True, optimizer={"name": "radam"}).graphs is None


def test_each_shape_is_captured_after_a_step_without_a_graph(build_stepper, monkeypatch):
    """The first step of all only looks for obstacles; what a graph replays is the whole step."""
    sections = {"model": {"dropout": 0.2}, "training": {"batch_size": 13}}
    graphed, plain = build_stepper(True, **sections), build_stepper(True, **sections)
    plain.graphs, graphs = None, graphed.graphs
    replayed = []

    def capture(step):
        def replay():
            replayed.append(step)
            step.loss.copy_(graphs._compute(step.micro_batch))

        step.graph = SimpleNamespace(replay=replay)

    monkeypatch.setattr(graphs, "_captures", True)
    monkeypatch.setattr(graphs, "_refuse", lambda reason: None)
    monkeypatch.setattr(graphs, "_capture", capture)
    shapes, seen = graphed.batches.order.shapes, []
    stream = itertools.islice(graphed.batches.stream(0, 0), 4 * graphed.batches.steps_per_epoch)
    for number, batch in enumerate(stream):
        assert torch.equal(graphed.step(batch, number, 1e-3), plain.step(batch, number, 1e-3))
        rows = batch.micro_batches[0].batch.rows
        seen.append(graphed.batches.order.shape_of(rows[rows >= 0].numpy()))
    without = {shape: 1 + (shape == seen[0]) for shape in shapes}
    assert graphs.num_captured == len(shapes)
    assert len(replayed) == len(seen) - sum(without.values())
    graphs.discard()
    assert graphs.num_captured == 0


@pytest.mark.parametrize(
    "compute",
    [
        lambda values: values[values > 0],
        lambda values: values.nonzero(),
        lambda values: float(values.sum()),
        lambda values: bool((values > 0).all()),
        lambda values: torch.equal(values, values),
        lambda values: values.masked_select(values > 0),
        lambda values: values.to("meta"),
    ],
)
def test_operators_that_cannot_be_captured_are_found(compute):
    finder = WaitFinder()
    with finder:
        compute(torch.arange(3.0))
    assert len(finder.waiting_operators) == 1


def test_a_learning_rate_is_in_memory_that_a_graph_reads(build_stepper):
    stepper = build_stepper(True, optimizer={"layer_decay": 0.5})
    rates = [group["lr"] for group in stepper.optimizer.param_groups]
    batch = next(stepper.batches.stream(0, 0))
    stepper.step(batch, 0, 0.25)
    assert all(isinstance(rate, torch.Tensor) for rate in rates)
    factors = [group["factor"] for group in stepper.optimizer.param_groups]
    assert [float(rate) for rate in rates] == pytest.approx([0.25 * factor for factor in factors])
    assert [group["lr"] for group in stepper.optimizer.param_groups] == rates


@pytest.mark.parametrize(("world", "accumulate"), [(1, 3), (2, 1), (3, 2), (16, 1)])
def test_processes_divide_the_same_batches(build_config, world, accumulate):
    config = build_config(training={"accumulate": accumulate})
    dataset = build_dataset(config.data.name, dict(config.data.options))

    def build(rank, world, accumulate):
        training = build_config(training={"accumulate": accumulate}).training
        rows = dataset.labeled_rows("train")
        return TrainingBatches(dataset, rows, training, 5, rank, world, fixed_shapes=True)

    alone = build(0, 1, 1)
    whole = list(itertools.islice(alone.stream(0, 0), 2 * alone.steps_per_epoch))
    streams = [build(rank, world, accumulate).stream(0, 0) for rank in range(world)]
    for batch, *parts in zip(whole, *streams, strict=False):
        micro_batches = [micro for part in parts for micro in part.micro_batches]
        assert len({micro.batch.rows.shape for micro in micro_batches}) == 1
        assert {micro.batch.width for micro in micro_batches} == {batch.micro_batches[0].batch.width}
        rows = torch.cat([micro.batch.rows for micro in micro_batches])
        expected = batch.micro_batches[0].batch.rows
        assert sorted(rows[rows >= 0].tolist()) == sorted(expected[expected >= 0].tolist())
        assert sum(micro.size for micro in micro_batches) == batch.rows
        assert all(part.rows == batch.rows for part in parts)


def test_a_resumed_run_equals_an_uninterrupted_one(build_config, train_and_resume):
    sections = {"training": {"max_steps": 25, "fixed_shapes": True, "valid_every_steps": 10}}
    assert_same(*train_and_resume(build_config(**sections), stop=17))


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one.keys() - {"seconds"}:
            assert_same(one[key], other[key])
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(
    ("precision", "sections"),
    [
        ("32", {}),
        ("bf16-weights", {}),
        ("32", {"optimizer": {"name": "muon"}}),
        ("32", {"model": {"local": "gine", "pair_state": True}}),
        ("32", {"data": {"geometry": True}}),
        ("bf16-weights", {"model": {"pair_state": True}, "optimizer": {"name": "muon"}}),
    ],
)
def test_captured_steps_have_the_losses_of_the_same_steps_without_a_graph(build_stepper, precision, sections):
    trainer = {"accelerator": "cuda", "precision": precision}
    check_captured_losses(lambda: build_stepper(True, trainer=trainer, **sections))


def check_captured_losses(build):
    """Compare the losses of two steppers, of which the second computes without graphs."""
    graphed, plain = build(), build()
    assert graphed.graphs is not None
    plain.graphs = None
    losses = []
    for stepper in (graphed, plain):
        with closing(stepper.stream(0, 0)) as stream:
            losses.append([float(stepper.step(next(stream), number, 1e-3)) for number in range(20)])
    assert graphed.graphs.num_captured > 0
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", ["32", "bf16-weights"])
def test_captured_steps_of_a_pretraining_have_the_losses_of_steps_without_a_graph(pretraining, precision):
    config = pretraining(dropout=0.1)  # messages add in any order
    trainer = replace(config.trainer, accelerator="cuda", precision=precision)
    config = replace(config, trainer=trainer)
    check_captured_losses(lambda: assemble_stepper(config, build_fabric(trainer), True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_captured_steps_take_batches_that_the_host_gathers(build_stepper, monkeypatch):
    rows_on = MoleculeDataset.rows_on

    def without_room(self, device):
        return None if device.type == "cuda" else rows_on(self, device)

    monkeypatch.setattr(MoleculeDataset, "rows_on", without_room)
    check_captured_losses(lambda: build_stepper(True, trainer={"accelerator": "cuda"}))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", ["32", "bf16-weights"])
def test_a_continued_run_with_graphs_has_the_same_checkpoint(build_config, train_and_resume, precision):
    trainer = {"accelerator": "cuda", "precision": precision}
    training = {"max_steps": 40, "checkpoint_every_steps": 1, "batch_size": 13}
    whole, resumed = train_and_resume(build_config(trainer=trainer, training=training), stop=25)
    for part in ("model", "average"):
        for name, tensor in whole[part].items():
            assert torch.equal(resumed[part][name], tensor), name


def test_a_run_records_its_kind_of_batches(build_config, tmp_path):
    config = build_config(training={"max_steps": 2})
    train(config, tmp_path / "run", quiet=True)
    assert read_config(tmp_path / "run").training.fixed_shapes is False
    with pytest.raises(MolsliceError, match="training.fixed_shapes is True, was False"):
        train(
            build_config(training={"max_steps": 2, "fixed_shapes": True}),
            tmp_path / "run",
            resume=True,
            quiet=True,
        )


def test_what_has_no_fixed_shapes_is_named(build_config, monkeypatch):
    config = build_config()
    dataset = build_dataset(config.data.name, dict(config.data.options))
    cpu, cuda = torch.device("cpu"), torch.device("cuda")

    def uses(fixed_shapes, device, mix_lengths=None, **sections):
        sections["training"] = {"fixed_shapes": fixed_shapes, "mix_lengths": mix_lengths}
        return uses_fixed_shapes(build_config(**sections), dataset, device)

    assert uses(None, cuda)
    assert not uses(None, cpu)
    assert uses(True, cpu)
    assert not uses(False, cuda)
    assert not uses(None, cuda, task="sequence")
    assert not uses(None, cuda, model={"name": "gin_virtual"})
    with monkeypatch.context() as patch:  # fixed shapes have rows of similar lengths
        patch.setattr(GraphormerSpec, "has_batch_norm", True)
        assert not uses(None, cuda)
    assert not uses(None, cuda, mix_lengths=True)
    with pytest.raises(MolsliceError, match="not available with batches of mixed lengths"):
        uses(True, cpu, mix_lengths=True)
    with pytest.raises(MolsliceError, match="not available with the task sequence"):
        uses(True, cpu, task="sequence")
    with pytest.raises(MolsliceError, match="not available with the model gin_virtual"):
        uses(True, cpu, model={"name": "gin_virtual"})


def test_padded_tokens_are_those_of_the_shapes(build_stepper):
    batches = build_stepper(True).batches
    steps = itertools.islice(batches.stream(0, 0), batches.steps_per_epoch)
    sizes = [len(one.micro_batches[0].batch) * one.micro_batches[0].batch.width for one in steps]
    np.testing.assert_array_equal(batches.padded_tokens(0), sizes)


def test_rows_without_room_on_the_device_are_gathered_by_the_host(build_stepper, monkeypatch, caplog):
    dataset_type = type(build_stepper(True).batches.dataset)
    rows_on = dataset_type.rows_on

    def only_once_on_a_device(self, device):
        asked.append(device)
        return None if len(asked) == 1 else rows_on(self, device)

    asked = []
    sections = {"data": {"geometry": True}, "training": {"batch_size": 13}}
    plain = build_stepper(True, **sections)
    with monkeypatch.context() as patch:
        patch.setattr(dataset_type, "rows_on", only_once_on_a_device)
        stepper = build_stepper(True, **sections)
    assert stepper.rows.device.type == "cpu"
    assert "the host gathers the batches, because the rows would take too much" in caplog.text
    for number, batch in enumerate(itertools.islice(plain.batches.stream(0, 0), 20)):
        (given,) = batch.micro_batches
        gathered = given.prepared(stepper._prepare_ahead)
        assert isinstance(gathered.batch, MoleculeBatch)
        assert all(tensor.is_contiguous() for tensor in gathered.batch.tensors.values())
        result = stepper.step(batch._replace(micro_batches=[gathered]), number, 1e-3)
        assert torch.equal(result, plain.step(batch, number, 1e-3))
    shapes = {form[0][:2] for form in stepper.graphs._steps}
    assert shapes == {(rows, width - 1) for width, rows in plain.batches.order.shapes}


@pytest.mark.parametrize("error", [None, RuntimeError("stopped")])
def test_a_finished_run_frees_its_rows_and_graphs(build_config, tmp_path, monkeypatch, error):
    steppers = []

    class Watched(Stepper):
        def step(self, *given):
            steppers.append(self)
            assert self.rows is not None
            assert self.graphs is not None
            if error is not None:
                raise error
            return super().step(*given)

    monkeypatch.setattr("molslice.training.run.Stepper", Watched)
    with nullcontext() if error is None else pytest.raises(RuntimeError, match="stopped"):
        train(build_config(training={"max_steps": 2, "fixed_shapes": True}), tmp_path / "run", quiet=True)
    assert steppers
    assert all(one.rows is None and one.graphs is None for one in steppers)
