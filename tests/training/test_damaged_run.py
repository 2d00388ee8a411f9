"""A damaged or forged file of a run is named in one line; nothing in it is run, and nothing is lost."""

import math
import pickle
import random
import shutil
import warnings
from pathlib import Path

import pytest
import torch

from molslice.folders.run import DATA, LAST_CHECKPOINT, METRICS, MODEL, SUMMARY
from molslice.training.run import train
from molslice.training.state import load_checkpoint
from molslice.types import MolsliceError
from tests.stopping import signal_at


@pytest.fixture(scope="module")
def config(build_config):
    return build_config(training={"checkpoint_every_steps": 3})


@pytest.fixture(scope="module")
def stopped(config, tmp_path_factory):
    """A run that was stopped at step 11 of 24."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with signal_at(11), pytest.raises(KeyboardInterrupt, match="step 11 of 24"):
        train(config, folder, quiet=True)
    return folder


@pytest.fixture
def begun(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "run")


def rewritten(change):
    def damage(folder):
        content = torch.load(folder / LAST_CHECKPOINT, weights_only=True)
        change(content)
        torch.save(content, folder / LAST_CHECKPOINT)

    return damage


def first_weight(content):
    return next(name for name, tensor in content["model"].items() if tensor.is_floating_point())


def with_weight(change):
    def do(content):
        name = first_weight(content)
        content["model"][name] = change(content["model"][name])

    return rewritten(do)


def with_moments(change):
    """Change AdamW's state of the first parameter."""
    return rewritten(lambda content: change(content["optimizer"]["state"][0]))


def with_progress(**values):
    return rewritten(lambda content: content["progress"].update(values))


CHECKPOINT = "checkpoint .*last.ckpt: "
DAMAGES = {
    "no-model": (rewritten(lambda c: c.pop("model")), CHECKPOINT + "it lacks model$"),
    "no-weights": (
        rewritten(lambda c: c.update(model={})),
        CHECKPOINT + r"model lacks .*, .* and \d+ others$",
    ),
    "more": (rewritten(lambda c: c["model"].update(x=torch.ones(1))), CHECKPOINT + "model also holds x$"),
    "shape": (with_weight(lambda w: w[:-1]), CHECKPOINT + r"model\..* is \('torch.float32', \[.*expected"),
    "double": (with_weight(lambda w: w.double()), CHECKPOINT + r"model\..* is \('torch.float64'"),
    "complex": (
        with_weight(lambda w: w.to(torch.complex64)),
        CHECKPOINT + r"model\..* is \('torch.complex64'",
    ),
    "sparse": (with_weight(lambda w: w.to_sparse()), CHECKPOINT + r"model\..*torch.sparse_coo"),
    "text": (with_weight(lambda w: "x"), CHECKPOINT + r"model\..* is 'x', expected a tensor"),
    "nan": (with_weight(lambda w: w * math.nan), CHECKPOINT + r"model\..* holds NaN"),
    "average": (rewritten(lambda c: c.update(average=None)), CHECKPOINT + "average is None"),
    "optimizer": (rewritten(lambda c: c.update(optimizer=[])), CHECKPOINT + "optimizer holds no state"),
    "no-moments": (
        rewritten(lambda c: c["optimizer"].update(state={})),
        CHECKPOINT + "optimizer holds no state",
    ),
    "moments-of-another": (
        rewritten(lambda c: c["optimizer"]["state"].update({9999: {}})),
        CHECKPOINT + "optimizer.state also holds 9999",
    ),
    # torch's fused AdamW reads beyond a tensor that is too small, and ends the process
    "moments-shape": (
        with_moments(lambda s: s.update(exp_avg=torch.ones(1))),
        CHECKPOINT + r"optimizer.state.0.exp_avg is \('torch.float32', \[1\]",
    ),
    "moments-nan": (
        with_moments(lambda s: s["exp_avg_sq"].fill_(math.nan)),
        CHECKPOINT + "optimizer.state.0.exp_avg_sq holds NaN",
    ),
    "moments-step": (
        with_moments(lambda s: s.update(step="x")),
        CHECKPOINT + "optimizer.state.0.step is 'x'",
    ),
    "step": (with_progress(step="x"), CHECKPOINT + "step is 'x'"),
    "step-below-zero": (with_progress(step=-1), CHECKPOINT + "step is -1"),
    "step-beyond": (with_progress(step=25), CHECKPOINT + "step is 25, the run has 24"),
    "epoch": (with_progress(epoch=10**18), CHECKPOINT + "epoch is 1000000000000000000$"),
    "index": (with_progress(index=-5), CHECKPOINT + "index is -5"),
    "seconds": (with_progress(seconds=math.nan), CHECKPOINT + "seconds is nan"),
    "rows": (with_progress(rows=-1), CHECKPOINT + "rows is -1"),
    "score": (with_progress(best_score=-math.inf), CHECKPOINT + "best_score is -inf"),
    "metrics": (with_progress(best_metrics={"gap": "x"}), CHECKPOINT + "best_metrics is "),
    "progress": (with_progress(more=1), CHECKPOINT + "TypeError: .*more"),
    "list": (lambda folder: torch.save([1], folder / LAST_CHECKPOINT), CHECKPOINT),
    "metrics-step": (
        lambda folder: (folder / METRICS).write_text((folder / METRICS).read_text().replace("\n8,", "\nx,")),
        "metrics.csv: invalid literal",
    ),
    "metrics-header": (
        lambda folder: (folder / METRICS).write_text("step,\0\n1,2\n"),
        "metrics.csv: no column 'epoch'",
    ),
    "metrics-text": (lambda folder: (folder / METRICS).write_text("x"), "metrics.csv: no column 'step'"),
    "metrics-column": (lambda folder: (folder / METRICS).write_text("a,b\n1,2\n"), "metrics.csv: no column"),
    "metrics-bytes": (lambda folder: (folder / METRICS).write_bytes(b"step\n\xff\n"), "metrics.csv: "),
    "summary": (lambda folder: (folder / SUMMARY).write_text("{"), "summary.json: "),
    "summary-list": (
        lambda folder: (folder / SUMMARY).write_text("[]"),
        "summary.json: it does not hold a JSON object",
    ),
    "summary-empty": (
        lambda folder: (folder / SUMMARY).write_text("{}"),
        "summary.json: no epochs, max_steps, ",
    ),
    "data": (lambda folder: (folder / DATA).write_text("[]"), "data.json: it does not hold"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_nothing_is_lost(config, begun, damage):
    do, words = DAMAGES[damage]
    do(begun)
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    with pytest.raises(MolsliceError, match=f"^cannot read {words}|^cannot read .*/{words}") as caught:
        train(config, begun, resume=True, quiet=True)
    assert "\n" not in str(caught.value)
    after = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    assert {path.name for path in before if before[path] != after.get(path)} <= {"config.yaml"}


def test_nothing_in_a_checkpoint_is_run(config, begun, tmp_path):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "evil",)

    def save(file):
        torch.save({"progress": Evil()}, file)

    def dump(file):
        file.write_bytes(pickle.dumps(Evil()))

    for write in (save, dump):
        write(begun / LAST_CHECKPOINT)
        with warnings.catch_warnings(action="error"), pytest.raises(MolsliceError) as caught:
            train(config, begun, resume=True, quiet=True)
        assert str(caught.value) == (
            f"cannot read checkpoint {begun / LAST_CHECKPOINT}: not a checkpoint, or one that holds other "
            "objects than tensors and plain values"
        )
        assert not (tmp_path / "evil").exists()


def test_the_optimizer_keeps_the_settings_of_the_configuration(config, begun, tmp_path):
    """Settings in a checkpoint would be those of no configuration."""
    forge = rewritten(
        lambda c: [g.update(betas="x", weight_decay=9.0) for g in c["optimizer"]["param_groups"]]
    )
    train(config, shutil.copytree(begun, tmp_path / "other"), resume=True, quiet=True)
    forge(begun)
    train(config, begun, resume=True, quiet=True)
    assert (tmp_path / "other" / MODEL).read_bytes() == (begun / MODEL).read_bytes()


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None], ids=["empty", "foreign", "truncated"])
def test_a_damaged_checkpoint_is_named(config, begun, damage):
    file = begun / LAST_CHECKPOINT
    file.write_bytes(file.read_bytes()[:-200] if damage is None else damage)
    with pytest.raises(MolsliceError, match=r"cannot read checkpoint .*last.ckpt: "):
        train(config, begun, resume=True, quiet=True)


def test_a_flipped_bit_of_a_checkpoint_is_noticed(begun):
    """Most bits are in weights and moments, whose values torch does not check."""
    file = begun / LAST_CHECKPOINT
    whole, draw, refused = file.read_bytes(), random.Random(0), 0
    expected = load_checkpoint(file)
    for place in draw.sample(range(len(whole)), 24):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.randrange(8)
        file.write_bytes(damaged)
        try:
            found = load_checkpoint(file)
        except MolsliceError as error:
            assert str(error).startswith(f"cannot read checkpoint {file}: ")  # noqa: PT017
            refused += 1
        else:
            assert found[1] == expected[1]
            check_equal(found[0], expected[0])  # the bit is of a date or of padding
    assert refused > 18


def check_equal(found, expected):
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        for key, value in expected.items():
            check_equal(found[key], value)
