"""Recorded episodes of control tasks in the format of the D4RL benchmark: one HDF5 file with all steps."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from molslice.data import splits
from molslice.data.base import Dataset
from molslice.data.sequences import checked_rows
from molslice.data.split_choice import checked_choice
from molslice.types import DataSpec, EpisodeBatch, MolsliceError

# dimensions of a state and an action of the locomotion tasks, in D4RL's files and in Gymnasium
SIZES = {"hopper": (11, 3), "halfcheetah": (17, 6), "walker2d": (17, 6)}
# returns of a random and of an expert policy for the normalized score (Fu et al. 2020, arXiv 2004.07219,
# section 5), the same for all data sets of a task; values from D4RL's d4rl/infos.py
REFERENCE_RETURNS = {
    "hopper": (-20.272305, 3234.3),
    "halfcheetah": (-280.178953, 12135.0),
    "walker2d": (1.629008, 4592.3),
}
FILES = "http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2/"
NEEDED = ("observations", "actions", "rewards", "terminals")
DEFLATED = 1032  # maximum compression ratio of deflate
TOKENS_PER_STEP = 3  # return-to-go, state, action
STD_OFFSET = 1e-6  # as in the code of Chen et al. 2021, for constant states


class D4rl(Dataset):
    """Windows of recorded episodes, for a policy conditioned on its return.

    The file holds `observations` [n, F], `actions` [n, A], `rewards` [n], `terminals` [n] (true at the last
    step of an episode that ended) and usually `timeouts` [n] (true at the last step of one that was stopped).
    A row is a window: a step and up to `context` - 1 following steps of its episode. Splits divide episodes.
    In training, every step starts a window, and an epoch has each window once in random order. This is the
    sampling of Chen et al. 2021 (arXiv 2106.01345), an episode by its length and a uniform first step,
    without repetition. With `training.mix_lengths: true`, batches have windows of any length, as there. In
    other splits, a window starts every `context` steps, so that each step counts once.

    An episode with a value that is not finite has no windows, and neither has one that is cut by the end of
    the file, because its return is unknown. `errors` contains the reasons.

    Args:
        path: The file.
        environment: Gymnasium environment, such as `Hopper-v4`, the default of `molslice rollout`. If its
            sizes are known, they are checked against the file.
        context: Maximum number of steps of a window.
        max_episode_steps: Time limit of the environment. Episodes of a file without `timeouts` end there.
        split: How to divide the episodes, `{kind: random, fractions: [0.8, 0.1, 0.1], seed: 0}`.
    """

    kind, row_name = "actions", "windows"
    instructions = f"Download the files of D4RL from {FILES}, such as hopper_medium-v2.hdf5"
    target_names, target_units = ("action",), ("",)

    def __init__(
        self,
        *,
        path: str | os.PathLike[str],
        environment: str | None = None,
        context: int = 20,
        max_episode_steps: int = 1000,
        split: str | Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (("context", context), ("max_episode_steps", max_episode_steps)):
            if type(value) is not int or value < 1:
                raise MolsliceError(f"{name} must be a positive integer, got {value!r}")
        choice = checked_choice(split, ())
        if choice.kind != "random":
            raise MolsliceError(f"invalid split {choice.kind!r} of episodes; choices: random")
        self.source, self.context, self.max_episode_steps = str(path), context, max_episode_steps
        arrays = _read(Path(path))
        self.states, self.actions = arrays["observations"], arrays["actions"]
        sizes = self.states.shape[1], self.actions.shape[1]
        known = SIZES.get(task_of(environment or ""), sizes)
        if known != sizes:
            raise MolsliceError(
                f"{path} holds states of {sizes[0]} numbers and actions of {sizes[1]}; {environment} has "
                f"{known[0]} and {known[1]}"
            )
        self.first, self.stop, failures = self._divide_into_episodes(arrays)
        self.returns_to_go = returns_to_go(arrays["rewards"], self.stop)
        self._failures = failures
        self._make_windows(choice.division)
        self._spec = _spec(*sizes, context, max_episode_steps, self._count_statistics())

    def _divide_into_episodes(
        self, arrays: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
        """Compute the start and end of the episode of each step, and the reasons of failed episodes."""
        count = len(self.states)
        ended = np.flatnonzero(arrays["terminals"] | arrays.get("timeouts", np.zeros(count, bool))) + 1
        if "timeouts" not in arrays:
            ended = _cut_long(ended, count, self.max_episode_steps)
        stops = np.append(ended, count) if not len(ended) or ended[-1] < count else ended
        lengths = np.diff(stops, prepend=0)
        if lengths.max() > self.max_episode_steps:
            step = int((stops - lengths)[lengths.argmax()])
            raise MolsliceError(
                f"{self.source}: the episode that begins at step {step} has {lengths.max()} steps, more than "
                f"max_episode_steps={self.max_episode_steps}; give the time limit of the environment"
            )
        failures = {}
        if not len(ended) or ended[-1] < count:
            failures[int(stops[-1] - lengths[-1])] = "the file ends within the episode"
        for name in ("observations", "actions", "rewards"):
            values = arrays[name].reshape(count, -1)
            for step in np.flatnonzero(~np.isfinite(values).all(1)):
                place = int(np.searchsorted(stops, step, side="right"))
                reason = f"its episode holds {name} that are not finite, at step {step}"
                failures.setdefault(int(stops[place] - lengths[place]), reason)
        return np.repeat(stops - lengths, lengths), np.repeat(stops, lengths), failures

    def _make_windows(self, division: splits.Division) -> None:
        """Set the lengths of the windows, 0 in failed episodes, and the rows of the splits."""
        steps = np.arange(len(self.first))
        self.lengths = np.minimum(self.stop - steps, self.context)
        failed = np.isin(self.first, list(self._failures))
        self.lengths[failed] = 0
        begins = np.unique(self.first[~failed])
        if not len(begins):
            step = min(self._failures)
            raise MolsliceError(f"{self.source} has no complete episode; step {step}: {self._failures[step]}")
        self.splits = {}
        for name, chosen in division.divide({"train": begins}, self.source).items():
            rows = steps[np.isin(self.first, chosen)]
            if name != "train":
                rows = rows[(rows - self.first[rows]) % self.context == 0]
            self.splits[name] = rows

    def _count_statistics(self) -> dict[str, tuple[float, ...]]:
        """Compute mean and standard deviation of the training states, and the range of all actions."""
        states = self.states[self.splits["train"]].astype(np.float64)
        actions = self.actions[self.lengths > 0]
        statistics = {
            "state_mean": states.mean(0),
            "state_std": states.std(0) + STD_OFFSET,
            "action_low": actions.min(0),
            "action_high": actions.max(0),
        }
        return {name: tuple(map(float, values)) for name, values in statistics.items()}

    @property
    def num_tokens(self) -> np.ndarray:
        """Number of tokens of each row, int [rows]: three per step of the window."""
        return TOKENS_PER_STEP * self.lengths

    @property
    def targets(self) -> np.ndarray:
        """Number of actions to predict in each window, float32 [rows, 1]; NaN without a window."""
        return np.where(self.lengths > 0, self.lengths, np.nan).astype(np.float32)[:, None]

    @property
    def errors(self) -> Mapping[int, str]:
        """Reasons why episodes failed, by row number."""
        steps = np.flatnonzero(self.lengths == 0)
        return {int(step): self._failures[int(self.first[step])] for step in steps}

    def count_targets(self, rows: np.ndarray) -> int:
        """Count the values in the actions of all steps of the windows."""
        return int(self.lengths[rows].sum()) * self.actions.shape[1]

    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> EpisodeBatch:  # noqa: ARG002
        """Collate windows into one batch, padded at the end; nothing in it is random."""
        rows = checked_rows(rows, self.lengths, self.source)
        lengths = self.lengths[rows]
        steps = rows[:, None] + np.arange(lengths.max())
        real = steps < (rows + lengths)[:, None]
        steps = np.where(real, steps, rows[:, None])
        return EpisodeBatch(
            states=torch.from_numpy(self.states[steps]),
            actions=torch.from_numpy(self.actions[steps]),
            returns_to_go=torch.from_numpy(self.returns_to_go[steps]),
            timesteps=torch.from_numpy(steps - self.first[steps]),
            step_mask=None if real.all() else torch.from_numpy(real),
            rows=torch.from_numpy(rows),
        )

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Derive the spec without statistics, if the sizes of `environment` are known."""
        sizes = SIZES.get(task_of(str(options.get("environment", ""))))
        if sizes is None:
            return None
        return _spec(*sizes, options.get("context", 20), options.get("max_episode_steps", 1000), {})


def returns_to_go(rewards: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Sum the rewards from each step to the end of its episode, float32 [n].

    Args:
        rewards: Reward of each step [n].
        stop: Index of the first step after the episode of each step [n].

    Source: Chen et al. 2021, arXiv 2106.01345, section 3.
    """
    # summed from the end of each episode, so that other episodes do not affect the rounding
    sums = np.empty(len(rewards), np.float64)
    begin = 0
    while begin < len(rewards):
        steps = slice(begin, int(stop[begin]))
        sums[steps] = rewards[steps][::-1].cumsum(dtype=np.float64)[::-1]
        begin = steps.stop
    return sums.astype(np.float32)


def task_of(environment: str) -> str:
    """Return the task of an environment or a data set: `hopper` for `Hopper-v4` and `hopper-medium-v2`."""
    return environment.rpartition("/")[2].rpartition(":")[2].partition("-")[0].lower()


def normalized_score(environment: str, value: float) -> float | None:
    """Compute the normalized score 100 (R - random) / (expert - random) of a return R.

    It is 0 for a random policy, 100 for an expert, and None for a task without reference returns.

    Source: Fu et al. 2020, arXiv 2004.07219, section 5.
    """
    reference = REFERENCE_RETURNS.get(task_of(environment))
    if reference is None:
        return None
    random, expert = reference
    return 100.0 * (value - random) / (expert - random)


def _spec(
    state: int, action: int, context: int, timesteps: int, statistics: Mapping[str, tuple[float, ...]]
) -> DataSpec:
    return DataSpec(
        action,
        "steps",
        channels=state,
        max_tokens=TOKENS_PER_STEP * context,
        timesteps=timesteps,
        statistics=statistics,
    )


def _cut_long(ended: np.ndarray, count: int, limit: int) -> np.ndarray:
    """Add an end after every `limit` steps without an end to the ends of episodes."""
    bounds = itertools.pairwise([0, *ended, count])
    cuts = {cut for begin, stop in bounds for cut in range(begin + limit, stop + 1, limit)}
    return np.array(sorted(cuts | set(ended)), dtype=np.int64)


def _read(path: Path) -> dict[str, np.ndarray]:
    """Read and check the arrays of the file: observations and actions float32 [n, ...], the others [n]."""
    try:
        import h5py
    except ImportError as error:
        raise MolsliceError(f"reading {path} needs h5py: pip install 'molslice[rl]'") from error
    if not path.is_file():
        raise MolsliceError(f"no such file: {path}. {D4rl.instructions}")
    try:
        with h5py.File(path, "r") as file:
            missing = [name for name in NEEDED if name not in file]
            if missing:
                raise MolsliceError(f"{path} has no {', '.join(missing)}; it holds {', '.join(file)}")
            columns: dict[str, Any] = {name: file[name] for name in (*NEEDED, "timeouts") if name in file}
            for name, column in columns.items():
                if (
                    not isinstance(column, h5py.Dataset)
                    or column.dtype.kind not in "fiub"
                    or column.shape is None
                ):
                    raise MolsliceError(f"{path}: {name} is not an array of numbers")
                if not isinstance(file.get(name, getlink=True), h5py.HardLink) or column.external:
                    raise MolsliceError(f"{path}: {name} is stored in another file")
                if column.nbytes > DEFLATED * path.stat().st_size:
                    raise MolsliceError(
                        f"{path}: {name} has {column.nbytes} bytes, more than the file can hold"
                    )
            arrays = {name: np.asarray(column[...]) for name, column in columns.items()}
    except MolsliceError:
        raise
    except (OSError, LookupError, RuntimeError, TypeError, ValueError, MemoryError) as error:
        # h5py has no exception type of its own for damaged files
        reason = " ".join(str(error).split())
        raise MolsliceError(f"{path} is damaged or not an HDF5 file: {reason}") from error
    return _checked_arrays(arrays, path)


def _checked_arrays(arrays: dict[str, np.ndarray], path: Path) -> dict[str, np.ndarray]:
    count = len(arrays["observations"]) if arrays["observations"].ndim else 0
    if not count:
        raise MolsliceError(f"{path} has no steps")
    for name, values in arrays.items():
        vectors = name in ("observations", "actions")
        shapes = (1, 2) if vectors or values.shape[1:] == (1,) else (1,)
        if values.ndim not in shapes or len(values) != count:
            expected = f"[{count}, D]" if vectors else f"[{count}]"
            raise MolsliceError(f"{path}: {name} has the shape {list(values.shape)}, expected {expected}")
        if vectors:
            with np.errstate(over="ignore"):  # infinite values are reported with their episode
                arrays[name] = values.reshape(count, -1).astype(np.float32)
        else:
            arrays[name] = values.reshape(count).astype(np.float64 if name == "rewards" else bool)
    return arrays
