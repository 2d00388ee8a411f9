"""Tests of recorded episodes: ends, windows, damaged files."""

import sys
import warnings

import h5py
import numpy as np
import pytest

from molslice.data import build_dataset
from molslice.data.episodes.d4rl import D4rl, normalized_score, returns_to_go, task_of
from molslice.types import DataSpec, MolsliceError
from tests.data.episodes.recordings import random_episodes, write_d4rl

LENGTHS = [7, 1, 12, 5, 9, 4, 11, 6, 8, 3]
ALL = {"kind": "random", "fractions": {"train": 0.6, "valid": 0.2, "test": 0.2}, "seed": 1}


@pytest.fixture
def episodes():
    return random_episodes(LENGTHS)


@pytest.fixture
def path(tmp_path, episodes):
    return write_d4rl(tmp_path / "toy.hdf5", episodes)


def build(path, **options):
    return build_dataset("d4rl", {"path": path, "context": 4, "split": ALL, **options})


def episode_of(row):
    """Return the episode and the step of a row of the file."""
    begins = np.cumsum([0, *LENGTHS])
    number = int(np.searchsorted(begins, row, side="right")) - 1
    return number, row - begins[number]


def test_a_window_holds_what_was_recorded(path, episodes):
    data = build(path)
    rows = [0, 5, 7, 8, 17, 19, 65]
    batch = data.collate(rows)
    assert batch.step_mask is not None
    assert batch.rows.tolist() == rows
    for b, row in enumerate(rows):
        number, step = episode_of(row)
        episode, window = episodes[number], slice(step, step + 4)
        length = len(episode["rewards"][window])
        assert batch.step_mask[b].tolist() == [True] * length + [False] * (4 - length)
        assert data.num_tokens[row] == 3 * length
        rewards = episode["rewards"].astype(np.float32).astype(np.float64)
        wanted = [rewards[s:].sum() for s in range(step, step + length)]
        assert np.array_equal(batch.states[b, :length], np.float32(episode["observations"][window]))
        assert np.array_equal(batch.actions[b, :length], np.float32(episode["actions"][window]))
        np.testing.assert_allclose(batch.returns_to_go[b, :length], wanted, rtol=1e-6, atol=1e-6)
        assert batch.timesteps[b, :length].tolist() == list(range(step, step + length))


def test_without_padding_there_is_no_mask(path):
    batch = build(path).collate([0, 8])
    assert batch.step_mask is None
    assert batch.states.shape == (2, 4, 3)


def test_every_step_of_a_training_episode_begins_one_window(path):
    data = build(path)
    numbers = {name: {episode_of(row)[0] for row in rows} for name, rows in data.splits.items()}
    assert sorted(n for part in numbers.values() for n in part) == list(range(10))
    expected = [row for row in range(sum(LENGTHS)) if episode_of(row)[0] in numbers["train"]]
    assert data.splits["train"].tolist() == expected


def test_windows_of_the_other_splits_hold_each_step_once(path):
    data = build(path)
    for name in ("valid", "test"):
        batch = data.collate(data.splits[name])
        mask = np.ones(batch.timesteps.shape, bool) if batch.step_mask is None else batch.step_mask.numpy()
        steps = data.first[batch.rows.numpy()][:, None] + batch.timesteps.numpy()
        numbers = {episode_of(row)[0] for row in data.splits[name]}
        expected = [row for row in range(sum(LENGTHS)) if episode_of(row)[0] in numbers]
        assert sorted(steps[mask]) == expected
        assert int(data.targets[data.splits[name]].sum()) == len(expected)


def test_the_split_is_by_the_seed(path):
    one, same, other = (build(path, split={**ALL, "seed": seed}).splits["train"] for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_nothing_is_random_in_a_batch(path):
    data = build(path)
    one, other = data.collate([3, 9], draw=1), data.collate([3, 9], draw=2)
    assert all(np.array_equal(getattr(one, f), getattr(other, f)) for f in ("states", "timesteps"))


def test_numbers_to_predict_are_counted(path):
    data = build(path)
    assert data.count_targets(np.array([0, 5, 7])) == (4 + 2 + 1) * 2


def test_the_spec_carries_the_statistics_of_the_training_states(path):
    data = build(path)
    spec = data.spec
    assert (spec.tokens, spec.channels, spec.num_outputs) == ("steps", 3, 2)
    assert (spec.max_tokens, spec.timesteps) == (12, 1000)
    states = data.states[data.splits["train"]]
    np.testing.assert_allclose(spec.statistics["state_mean"], states.mean(0), rtol=1e-5)
    np.testing.assert_allclose(spec.statistics["state_std"], states.std(0) + 1e-6, rtol=1e-5)
    np.testing.assert_allclose(spec.statistics["action_high"], data.actions.max(0))
    assert spec == build(path, split={**ALL, "seed": 5}).spec  # about the same data
    assert spec != build(path, context=5).spec


def test_a_state_that_never_changes_has_a_spread(tmp_path, episodes):
    for episode in episodes:
        episode["observations"][:, 1] = 2.0
    spread = build(write_d4rl(tmp_path / "x.hdf5", episodes)).spec.statistics["state_std"]
    assert spread[1] == pytest.approx(1e-6)


def test_a_file_without_timeouts_is_cut_at_the_limit(tmp_path):
    episodes = random_episodes([6, 12, 5])  # the second one was stopped
    path = write_d4rl(tmp_path / "x.hdf5", episodes, timeouts=False)
    data = build(path, max_episode_steps=6, split={"fractions": {"train": 0.5, "valid": 0.5}})
    assert np.unique(data.first).tolist() == [0, 6, 12, 18]
    assert not data.errors
    assert data.spec.timesteps == 6


def test_an_episode_without_its_end_has_no_windows(tmp_path, episodes):
    (tail,) = random_episodes([5], seed=3)
    data = build(write_d4rl(tmp_path / "x.hdf5", episodes, tail=tail))
    last = range(sum(LENGTHS), sum(LENGTHS) + 5)
    assert list(data.errors) == list(last)
    assert "ends within the episode" in data.errors[last[0]]
    assert not data.num_tokens[last].any()
    assert np.isnan(data.targets[last]).all()
    assert not {*last} & {row for rows in data.splits.values() for row in rows}
    with pytest.raises(MolsliceError, match="could not be read"):
        data.collate([last[0]])


@pytest.mark.parametrize(
    ("name", "value"),
    [("observations", np.nan), ("observations", 1e300), ("actions", np.inf), ("rewards", np.nan)],
)
def test_an_episode_with_a_number_that_is_not_finite_has_no_windows(tmp_path, episodes, name, value):
    path = write_d4rl(tmp_path / "x.hdf5", episodes)
    with h5py.File(path, "a") as file:
        values = file.pop(name)[...].astype(np.float64)
        values[11] = value
        file[name] = values
    with warnings.catch_warnings(action="error"):
        data = build(path)
    assert list(data.errors) == list(range(8, 20))
    assert f"{name} that are not finite, at step 11" in data.errors[8]
    assert np.isfinite(data.spec.statistics["state_mean"]).all()
    assert np.isfinite(data.spec.statistics["action_high"]).all()


def test_arrays_of_one_column_and_numbers_for_truth(tmp_path, episodes):
    one = build(write_d4rl(tmp_path / "a.hdf5", episodes))
    path = write_d4rl(tmp_path / "b.hdf5", episodes, column=True)
    with h5py.File(path, "a") as file:
        terminals = file["terminals"][...].astype(np.float32)
        del file["terminals"]
        file["terminals"] = terminals
    other = build(path)
    assert np.array_equal(one.returns_to_go, other.returns_to_go)
    assert np.array_equal(one.first, other.first)


def test_states_of_one_number_may_be_a_plain_array(tmp_path):
    path = write_d4rl(tmp_path / "x.hdf5", random_episodes(LENGTHS, state=1, action=1))
    with h5py.File(path, "a") as file:
        for name in ("observations", "actions"):
            values = file[name][:, 0]
            del file[name]
            file[name] = values
    assert build(path).collate([0]).states.shape == (1, 4, 1)


def test_returns_are_summed_within_episodes():
    rewards = np.array([1.0, 2.0, 3.0, 10.0, 20.0])
    assert returns_to_go(rewards, np.array([3, 3, 3, 5, 5])).tolist() == [6, 5, 3, 30, 20]


def delete(name):
    def change(file):
        del file[name]

    return change


def put(name, values):
    def change(file):
        del file[name]
        file[name] = values

    return change


def put_group(name):
    def change(file):
        del file[name]
        file[f"{name}/inside"] = np.zeros(66)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (delete("rewards"), "has no rewards; it holds actions, infos, metadata, observations"),
        (put("rewards", np.zeros(3)), r"rewards has the shape \[3\], expected \[66\]"),
        (put("actions", np.zeros((66, 2, 2))), r"actions has the shape \[66, 2, 2\], expected \[66, D\]"),
        (put("terminals", np.zeros((66, 2))), r"terminals has the shape \[66, 2\]"),
        (put("observations", np.zeros((0, 3))), "has no steps"),
        (put("observations", 1.0), "has no steps"),
        (put("actions", np.array([b"a"] * 66)), "actions is not an array of numbers"),
        (put_group("timeouts"), "timeouts is not an array of numbers"),
    ],
)
def test_a_file_that_is_not_such_is_named(path, change, message):
    with h5py.File(path, "a") as file:
        change(file)
    with pytest.raises(MolsliceError, match=message):
        build(path)


def test_a_missing_or_other_file_is_named(tmp_path, path):
    with pytest.raises(MolsliceError, match="no such file: .* Download the files of D4RL from http"):
        build(tmp_path / "none.hdf5")
    (tmp_path / "text.hdf5").write_text("no")
    with pytest.raises(MolsliceError, match="damaged or not an HDF5 file"):
        build(tmp_path / "text.hdf5")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(MolsliceError, match="damaged or not an HDF5 file"):
        build(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": 0}, "context must be a positive integer"),
        ({"context": 2.5}, "context must be a positive integer"),
        ({"max_episode_steps": True}, "max_episode_steps must be a positive integer"),
        ({"max_episode_steps": 11}, "begins at step 8 has 12 steps, more than max_episode_steps=11"),
        ({"split": "scaffold"}, "invalid split 'scaffold' of episodes"),
        ({"split": {"kind": "random", "fractions": [0.5, 0.5]}}, "fractions"),
        (
            {"environment": "Hopper-v4"},
            "states of 3 numbers and actions of 2; Hopper-v4 has 11 and 3",
        ),
    ],
)
def test_options_that_do_not_fit_are_named(path, options, message):
    with pytest.raises(MolsliceError, match=message):
        build(path, **options)


def test_a_file_without_a_whole_episode_is_refused(tmp_path):
    (tail,) = random_episodes([5])
    episode = {**tail, "rewards": np.full(5, np.nan), "ended": True}
    with pytest.raises(MolsliceError, match="no complete episode; step 0: its episode holds rewards"):
        build(write_d4rl(tmp_path / "x.hdf5", [episode], tail=tail))


def test_a_missing_library_is_named_with_its_extra(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MolsliceError, match=r"pip install 'molslice\[rl\]'"):
        build(path)


def test_a_task_of_known_sizes_is_described_without_data():
    found = D4rl.describe({"path": "none", "environment": "Walker2d-v4", "context": 5})
    assert found == DataSpec(6, "steps", channels=17, max_tokens=15, timesteps=1000)
    assert D4rl.describe({"path": "none"}) is None
    assert D4rl.describe({"path": "none", "environment": "Own-v0"}) is None


def test_scores_are_between_the_random_and_the_expert_policy():
    assert normalized_score("Hopper-v5", -20.272305) == 0.0
    assert normalized_score("hopper-medium-v2", 3234.3) == pytest.approx(100.0)
    assert normalized_score("HalfCheetah-v4", (12135.0 - 280.178953) / 2) == pytest.approx(50.0)
    assert normalized_score("Walker2d-v4", 4592.3) == pytest.approx(100.0)
    assert normalized_score("Own-v0", 1.0) is None
    assert [task_of(name) for name in ("a.b:Hopper-v4", "ns/Hopper-v4", "Hopper")] == ["hopper"] * 3


def test_damage_anywhere_in_the_file_is_refused_or_harmless(tmp_path):
    path = write_d4rl(tmp_path / "a.hdf5", random_episodes([5] * 20))
    good, draw, refused = path.read_bytes(), np.random.default_rng(0), []
    contents = [b"", b"hello", good[:100], good[: len(good) // 2], good[:-1]]
    for _ in range(120):
        bad = bytearray(good)
        for place in draw.integers(0, len(bad) // 2, 3):
            bad[place] = draw.integers(256)
        contents.append(bytes(bad))
    for content in contents:
        path.write_bytes(content)
        try:
            D4rl(path=path, context=3)
        except MolsliceError as error:
            refused.append(str(error))
    assert 20 < len(refused) < len(contents)
    assert all("a.hdf5" in message and "\n" not in message for message in refused)


@pytest.mark.parametrize("kind", ["group", "empty", "huge", "elsewhere", "itself"])
def test_what_is_not_an_array_in_the_file(tmp_path, kind):
    import h5py

    path = write_d4rl(tmp_path / "a.hdf5", random_episodes([5] * 20))
    write_d4rl(tmp_path / "b.hdf5", random_episodes([5] * 20))
    with h5py.File(path, "r+") as file:
        del file["actions"]
        if kind == "group":
            file.create_group("actions")
        elif kind == "empty":
            file["actions"] = h5py.Empty("f4")
        elif kind == "huge":
            file.create_dataset("actions", (10**11,), "f4", chunks=(10**4,), compression="gzip")
        elif kind == "elsewhere":
            file["actions"] = h5py.ExternalLink(str(tmp_path / "b.hdf5"), "/actions")
        else:
            file["actions"] = h5py.SoftLink("/actions")
    with pytest.raises(MolsliceError, match=r"a\.hdf5"):
        D4rl(path=path, context=3)
