"""Play a trained policy in its environment, conditioned on a target return."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from molslice.data.episodes.d4rl import TOKENS_PER_STEP, normalized_score
from molslice.files.progress import Progress
from molslice.inference.load import NetworkPredictor
from molslice.inference.precision import float32_inference
from molslice.types import EpisodeBatch, MolsliceError

if TYPE_CHECKING:
    import gymnasium

AT_ONCE = 32  # episodes that share a forward pass


def rollout(
    predictor: NetworkPredictor,
    target_returns: Sequence[float],
    *,
    environment: str | None = None,
    episodes: int = 10,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, Any]:
    """Play episodes for each target return.

    An episode ends when the environment ends it, at the latest after the number of timesteps of the model.
    Each target is played with the same seeds.

    Args:
        predictor: A policy: a model trained on episodes.
        target_returns: The returns to condition on.
        environment: The name of a Gymnasium environment, or `package.module:Name-v0` to import the module
            that registers it. None takes the registered environment that the data of the model name; a module
            is never imported because a model names it.
        episodes: Number of episodes for each target.
        seed: Seed of the first episode. Episode k has seed + k.
        progress: Whether to show a bar on standard error.

    Returns:
        `environment`, `episodes`, `seed`, `seconds` and `targets`. For each target: `target_return`, the mean
        and standard deviation over episodes `return` and `return_std`, D4RL's score `normalized` and
        `normalized_std` (None without a reference score), the mean `length`, and the `returns` of all
        episodes.

    Raises:
        MolsliceError: The model is not a policy, or the environment cannot be made or does not fit the model.
    """
    if predictor.data.tokens != "steps":
        raise MolsliceError(f"{predictor.name} is not a policy: it was trained on {predictor.data.tokens}")
    name = environment or _environment_of(predictor)
    start, results = time.perf_counter(), []
    with Progress("rollout", len(target_returns) * episodes, "episodes", shown=progress) as bar:
        for target in target_returns:
            returns, lengths = np.empty(episodes), np.empty(episodes)
            for first in range(0, episodes, AT_ONCE):
                batch = slice(first, min(first + AT_ONCE, episodes))
                seeds = range(seed + batch.start, seed + batch.stop)
                environments = [_make(name, predictor) for _ in seeds]
                try:
                    returns[batch], lengths[batch] = play(
                        predictor.model, environments, target, seeds, predictor.device, bar.update
                    )
                finally:
                    for opened in environments:
                        opened.close()
            results.append(_summary(name, target, returns, lengths))
    return {
        "environment": name,
        "episodes": episodes,
        "seed": seed,
        "targets": results,
        "seconds": time.perf_counter() - start,
    }


def play(
    model: nn.Module,
    environments: Sequence["gymnasium.Env[Any, Any]"],
    target_return: float,
    seeds: Sequence[int],
    device: torch.device | str = "cpu",
    tick: Callable[[int], Any] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Play one episode in each environment, all in step, with shared forward passes.

    Returns:
        The returns and the lengths, float64 [episodes] each.

    Source: Chen et al. 2021 (arXiv 2106.01345), algorithm 1.
    """
    data: Any = model.data
    episodes = _Episodes(environments, target_return, seeds, data)
    while len(episodes.running):
        with float32_inference(device):
            prediction = model(episodes.seen().to(device)).prediction
        ended = episodes.act(prediction[:, -1].float().cpu().numpy())
        if tick is not None:
            tick(ended)
    return episodes.reached, episodes.lengths.astype(np.float64)


class _Episodes:
    """The history of episodes that are at the same step, in the units of the environment."""

    def __init__(
        self,
        environments: Sequence["gymnasium.Env[Any, Any]"],
        target_return: float,
        seeds: Sequence[int],
        data: Any,  # noqa: ANN401
    ) -> None:
        count = len(environments)
        self.environments, self.step = environments, 0
        self.context, self.limit = data.max_tokens // TOKENS_PER_STEP, data.timesteps
        self.states = np.zeros((count, self.limit, data.channels), np.float32)
        self.actions = np.zeros((count, self.limit, data.num_outputs), np.float32)
        self.wanted = np.full((count, self.limit), target_return, np.float32)
        self.target_return, self.reached = target_return, np.zeros(count)
        self.lengths, self.running = np.zeros(count, np.int64), np.arange(count)
        for index, (environment, seed) in enumerate(zip(environments, seeds, strict=True)):
            self.states[index, 0] = environment.reset(seed=int(seed))[0]

    def seen(self) -> EpisodeBatch:
        """Return the last `context` steps of the running episodes, in the format of the data.

        The return-to-go is the target minus the rewards so far. The action to predict is zero, and the model
        predicts it without seeing it.
        """
        window = np.arange(max(0, self.step + 1 - self.context), self.step + 1)
        place = np.ix_(self.running, window)
        return EpisodeBatch(
            states=torch.from_numpy(self.states[place]),
            actions=torch.from_numpy(self.actions[place]),
            returns_to_go=torch.from_numpy(self.wanted[place]),
            timesteps=torch.from_numpy(window).expand(len(self.running), -1),
        )

    def act(self, chosen: np.ndarray) -> int:
        """Take the actions [running, A], clipped to the action space; return how many episodes ended."""
        before, going = len(self.running), []
        for index, action in zip(self.running, chosen, strict=True):
            environment = self.environments[int(index)]
            space: Any = environment.action_space
            action = np.clip(action, space.low, space.high).astype(space.dtype)
            self.actions[index, self.step] = action
            state, reward, terminated, truncated, _ = environment.step(action)
            self.reached[index] += float(reward)
            self.lengths[index] += 1
            if not (terminated or truncated or self.step + 1 == self.limit):
                self.states[index, self.step + 1] = state
                self.wanted[index, self.step + 1] = self.target_return - self.reached[index]
                going.append(index)
        self.running, self.step = np.array(going, np.int64), self.step + 1
        return before - len(going)


def _environment_of(predictor: NetworkPredictor) -> str:
    """Return the environment that the data of the model name, which must be registered.

    `module:Name-v0` makes Gymnasium import the module. The user may ask for that, a model may not.
    """
    name = predictor.config.data.options.get("environment")
    if not name:
        raise MolsliceError("the data of the model name no environment; give one, such as Hopper-v4")
    if ":" in name:
        raise MolsliceError(
            f"{predictor.name} names the environment {name!r}, whose module a model cannot import; if you "
            "trust that module, give the environment yourself (--env)"
        )
    return str(name)


def _make(name: str, predictor: NetworkPredictor) -> "gymnasium.Env[Any, Any]":
    """Make the environment and check that its states and actions are vectors of the model's sizes."""
    try:
        import gymnasium
    except ImportError as error:
        raise MolsliceError("a rollout needs gymnasium: pip install 'molslice[rl]'") from error
    try:
        environment = gymnasium.make(name, disable_env_checker=True)
    except (gymnasium.error.Error, ImportError) as error:
        reason = " ".join(str(error).split())
        raise MolsliceError(f"cannot make the environment {name!r}: {reason}") from error
    sizes = (("states", environment.observation_space, predictor.data.channels),)
    sizes += (("actions", environment.action_space, predictor.data.num_outputs),)
    for what, space, size in sizes:
        if not isinstance(space, gymnasium.spaces.Box) or space.shape != (size,):
            environment.close()
            raise MolsliceError(f"{what} of {name} are {space}, but the model takes {size} numbers")
    return environment


def _summary(name: str, target: float, returns: np.ndarray, lengths: np.ndarray) -> dict[str, Any]:
    scores = [score for value in returns if (score := normalized_score(name, value)) is not None]
    return {
        "target_return": float(target),
        "return": returns.mean(),
        "return_std": returns.std(),
        "normalized": np.mean(scores) if scores else None,
        "normalized_std": np.std(scores) if scores else None,
        "length": lengths.mean(),
        "returns": returns,
    }
