"""Tests of rollouts: inputs equal those of training, and the target return determines the achieved return."""

import json
import re
import sys

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from molslice.cli import main
from molslice.config import config_from_mapping
from molslice.data import build_dataset
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.inference.sequences.rollout import play, rollout
from molslice.training.run import train
from molslice.types import ModelOutput, MolsliceError
from tests.data.episodes.recordings import write_d4rl
from tests.inference.integrator import STEPS, Integrator, record

CONTEXT = 3


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    pushes = np.random.default_rng(0).uniform(-1, 1, 120)
    episodes = [record(seed, push) for seed, push in enumerate(pushes)]
    return write_d4rl(tmp_path_factory.mktemp("data") / "toy.hdf5", episodes)


def mapping(path):
    return {
        "data": {
            "name": "d4rl",
            "path": str(path),
            "environment": "Integrator-v0",
            "context": CONTEXT,
            "max_episode_steps": STEPS,
            "split": {"kind": "random", "fractions": {"train": 0.9, "valid": 0.1}},
        },
        "model": {
            "name": "decision",
            "num_layers": 1,
            "dim": 32,
            "ffn_dim": 64,
            "num_heads": 2,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "return_scale": 3.0,
        },
        "attention": {"name": "softmax"},
        "task": "decision",
        "optimizer": {"lr": 3e-3, "warmup_steps": 20, "ema_decay": None},
        "training": {"max_steps": 250, "batch_size": 64, "token_budget": 1024, "valid_every_steps": 125},
        "trainer": {"accelerator": "cpu", "num_threads": 1},
        "seed": 0,
    }


@pytest.fixture(scope="module")
def run_folder(path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "toy"
    train(config_from_mapping(mapping(path)), folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def policy(run_folder):
    return load_model(run_folder)


class Replay(nn.Module):
    """Returns recorded actions [episodes, steps, A] and records its inputs."""

    def __init__(self, actions, data):
        super().__init__()
        self.actions, self.data, self.seen = actions, data, []

    def forward(self, batch):
        step = len(self.seen)
        self.seen.append(batch)
        prediction = torch.full_like(batch.actions, float("nan"))
        prediction[:, -1] = self.actions[:, step]
        return ModelOutput(prediction)


def test_a_policy_is_fed_what_training_fed(path):
    """Replays recorded actions: the inputs of the model equal the windows of the data set."""
    data = build_dataset("d4rl", _options(path))
    numbers = [4, 17, 50]
    for number in numbers:
        begin = number * STEPS
        actions = torch.from_numpy(data.actions[begin : begin + STEPS])[None]
        model = Replay(actions, data.spec)
        target = float(data.returns_to_go[begin])
        reached, lengths = play(model, [gymnasium.make("Integrator-v0")], target, [number])
        assert lengths.tolist() == [STEPS]
        assert reached[0] == pytest.approx(target, abs=1e-5)
        for step, seen in enumerate(model.seen):
            first = max(0, step + 1 - CONTEXT)
            count = step + 1 - first
            window = data.collate([begin + first])
            assert seen.step_mask is None
            assert seen.states.shape == (1, count, 2)
            assert torch.equal(seen.states, window.states[:, :count])
            assert torch.equal(seen.timesteps, window.timesteps[:, :count])
            assert torch.equal(seen.actions[:, :-1], window.actions[:, : count - 1])
            assert not seen.actions[:, -1].any()
            torch.testing.assert_close(
                seen.returns_to_go, window.returns_to_go[:, :count], rtol=1e-5, atol=1e-5
            )


def _options(path):
    return {key: value for key, value in mapping(path)["data"].items() if key != "name"}


def test_what_is_asked_for_is_reached(policy):
    """Returns are from -3.6 to 3.6; a policy that ignores the target would reach only one of them."""
    result = rollout(policy, [-2.5, 0.0, 2.5], episodes=6, seed=1000, progress=False)
    reached = [target["return"] for target in result["targets"]]
    assert reached == sorted(reached)
    for target, value in zip((-2.5, 0.0, 2.5), reached, strict=True):
        assert abs(value - target) < 0.6
    assert all(target["length"] == STEPS for target in result["targets"])
    assert result["environment"] == "Integrator-v0"  # that of the data
    assert result["targets"][0]["normalized"] is None


def test_mean_and_spread_are_over_the_episodes(policy):
    target = rollout(policy, [1.0], episodes=5, seed=3, progress=False)["targets"][0]
    assert len(target["returns"]) == 5
    assert target["return"] == pytest.approx(np.mean(target["returns"]))
    assert target["return_std"] == pytest.approx(np.std(target["returns"]))
    assert target["return_std"] > 0
    alone = [rollout(policy, [1.0], episodes=1, seed=3 + i, progress=False) for i in range(5)]
    found = [result["targets"][0]["return"] for result in alone]
    np.testing.assert_allclose(found, target["returns"], rtol=1e-4, atol=1e-4)


def test_episodes_that_end_early_leave_the_others_alone(policy):
    ticks = []
    environments = [Integrator(bound) for bound in (0.25, 10.0, 0.12, 0.4)]
    reached, lengths = play(policy.model, environments, 2.0, range(4), tick=ticks.append)
    assert sum(ticks) == 4
    assert len(set(lengths.tolist())) > 2
    assert lengths[1] == STEPS  # as many as the model knows; the environment itself has no limit here
    for seed, bound in enumerate((0.25, 10.0, 0.12, 0.4)):
        alone = play(policy.model, [Integrator(bound)], 2.0, [seed])
        np.testing.assert_allclose(alone[0], reached[seed], rtol=1e-4, atol=1e-4)
        assert alone[1] == lengths[seed]


def test_actions_stay_within_the_space_and_are_seen_as_they_were_taken(path):
    data = build_dataset("d4rl", _options(path))
    model = Replay(torch.full((2, STEPS, 1), 3.0), data.spec)
    reached, _ = play(model, [Integrator(), Integrator()], 0.0, [0, 1])
    for seen in model.seen[1:]:
        assert (seen.actions[:, :-1] == 1.0).all()
    starts = [env.reset(seed=seed)[0][0] / 10 - 10 for seed, env in enumerate((Integrator(), Integrator()))]
    expected = [STEPS * x + 0.1 * STEPS * (STEPS + 1) / 2 for x in starts]
    np.testing.assert_allclose(reached, expected, rtol=1e-9)


def test_the_error_is_evaluated_and_needs_no_environment(policy, path):
    dataset = build_dataset("d4rl", _options(path))
    result = evaluate(policy, dataset, "valid", progress=False)
    (target,) = result["targets"]
    assert target["count"] == dataset.lengths[dataset.rows("valid")].sum() > result["rows"]  # steps
    assert result["metric"] == "mse"
    assert 0.0 < target["mse"] < 0.1  # the noise of the recorded actions has 0.01, their spread 0.33
    assert result["noun"] == "windows"


def test_other_data_of_the_same_environment_are_evaluated_by_the_statistics_of_the_model(policy, path):
    options = _options(path)
    other = build_dataset("d4rl", options | {"split": {"fractions": [0.3, 0.5, 0.2], "seed": 9}})
    assert other.spec.statistics != policy.data.statistics
    assert evaluate(policy, other, "valid", progress=False)["targets"][0]["mse"] < 0.1
    shorter = build_dataset("d4rl", options | {"context": 2})
    with pytest.raises(MolsliceError, match=r"trained on: max_tokens is 6, was 9$"):
        evaluate(policy, shorter, "valid", progress=False)


def test_the_command(run_folder, capsys):
    words = ["rollout", str(run_folder), "--target-return", "-2", "2", "--episodes", "2", "--seed", "5"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "Integrator-v0, 2 episodes each" in out
    assert main([*words, "--env", "Integrator-v0", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [target["target_return"] for target in result["targets"]] == [-2.0, 2.0]
    assert result["targets"][0]["return"] < result["targets"][1]["return"]
    assert len(result["targets"][0]["returns"]) == 2
    assert result["targets"][0]["normalized"] is None
    assert (result["model"], result["seed"]) == (str(run_folder), 5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "None-v0"], "cannot make the environment 'None-v0'"),
        (["--env", "no_such_package:None-v0"], "cannot make the environment"),
        (["--env", "CartPole-v1"], "states of CartPole-v1 are Box.* but the model takes 2 numbers"),
        (["--env", "MountainCar-v0"], "actions of MountainCar-v0 are Discrete"),
    ],
)
def test_what_cannot_be_played_is_named(run_folder, capsys, words, message):
    assert main(["rollout", str(run_folder), "--target-return", "1", *words]) == 1
    assert re.search(message, capsys.readouterr().err)


def test_behavior_cloning_is_trained_and_played_on_the_same_episodes(path, tmp_path):
    base = mapping(path)
    base["model"] = {"name": "behavior_cloning", "num_layers": 2, "dim": 32, "dropout": 0.0}
    summary = train(config_from_mapping(base), tmp_path / "run", quiet=True)
    policy = load_model(tmp_path / "run")
    data = build_dataset("d4rl", dict(policy.config.data.options))
    error = evaluate(policy, data, "valid", progress=False)["targets"][0]["mse"]
    assert error == pytest.approx(summary["valid"]["mse"]["action"], rel=1e-5)
    # x is the sum of earlier actions of nearly one push, so that the state says less than state and return
    assert 0.01 < error < 0.4
    result = rollout(policy, [-2.0, 2.0], episodes=4, progress=False)
    low, high = (target["returns"] for target in result["targets"])
    assert low.tolist() == high.tolist()  # it does not know of the target


def test_a_target_return_that_is_not_finite_is_wrong_usage(run_folder, capsys):
    assert main(["rollout", str(run_folder), "--target-return", "nan"]) == 2
    assert "nan" in capsys.readouterr().err


def test_a_model_of_something_else_is_named(capsys):
    assert main(["rollout", "gap-xtb", "--target-return", "1"]) == 1
    assert "gap-xtb is not a policy: it was trained on molecules" in capsys.readouterr().err


def test_without_an_environment_one_is_asked_for(policy, monkeypatch):
    monkeypatch.delitem(policy.config.data.options, "environment")
    with pytest.raises(MolsliceError, match="name no environment; give one"):
        rollout(policy, [1.0], progress=False)


def test_nothing_is_imported_because_a_model_names_it(policy, tmp_path, monkeypatch):
    (tmp_path / "attack.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(policy.config.data.options, "environment", "attack:Hopper-v4")
    with pytest.raises(MolsliceError, match="a model cannot import"):
        rollout(policy, [1.0], progress=False)
    with pytest.raises(SystemExit, match="imported"):  # who plays may ask for it
        rollout(policy, [1.0], environment="attack:Hopper-v4", progress=False)


def test_a_missing_library_is_named_with_its_extra(policy, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MolsliceError, match=r"pip install 'molslice\[rl\]'"):
        rollout(policy, [1.0], progress=False)


def test_environments_are_closed(policy, monkeypatch):
    made = []

    def make(name, **options):
        made.append(Integrator())
        return made[-1]

    monkeypatch.setattr(gymnasium, "make", make)
    rollout(policy, [1.0], episodes=3, progress=False)
    assert [env.closed for env in made] == [True] * 3
    monkeypatch.setattr(Integrator, "step", lambda self, action: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rollout(policy, [1.0], episodes=2, progress=False)
    assert all(env.closed for env in made)


def test_a_locomotion_task_is_played_and_scored(tmp_path):
    for library in ("mujoco", "imageio"):  # both are in the extra of gymnasium
        pytest.importorskip(library, exc_type=ImportError)
    from molslice.config.entries import describe_data
    from molslice.folders.run import CONFIG, write_model
    from molslice.model import build_model
    from molslice.tasks.targets import TargetInfo

    base = mapping("none")
    base["data"] |= {"environment": "Hopper-v5", "context": 20, "max_episode_steps": 1000}
    config = config_from_mapping(base)
    data = describe_data(config)
    model = build_model(config.model, config.attention, data)
    info = TargetInfo(("action",), ("",), "actions", (0.0,), (1.0,))
    write_model(tmp_path, model.state_dict(), info, data, config)
    (tmp_path / CONFIG).write_text("")
    (target,) = rollout(load_model(tmp_path), [3600.0], episodes=2, progress=False)["targets"]
    expected = 100 * (target["return"] + 20.272305) / (3234.3 + 20.272305)
    assert target["normalized"] == pytest.approx(expected)
    assert 1 < target["length"] < 1000  # an untrained policy falls
