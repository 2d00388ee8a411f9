"""A simple Gymnasium environment and recorded episodes."""

import gymnasium
import numpy as np

STEPS = 8


class Integrator(gymnasium.Env):
    """Adds a tenth of the action to x, which is the reward; an episode ends early if x exceeds `bound`."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, bound=np.inf):
        self.bound, self.closed = bound, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-0.02, 0.02)
        return self._state(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.x += 0.1 * float(action[0])
        return self._state(), self.x, abs(self.x) > self.bound, False, {}

    def close(self):
        self.closed = True

    def _state(self):
        return np.array([100.0 + 10.0 * self.x, 0.5])  # far from standardized


gymnasium.register("Integrator-v0", entry_point=Integrator, max_episode_steps=STEPS)


def record(seed, push, steps=STEPS):
    """Record one episode with an almost constant action."""
    env, draw = gymnasium.make("Integrator-v0"), np.random.default_rng(seed)
    state, _ = env.reset(seed=seed)
    episode = {"observations": [], "actions": [], "rewards": [], "ended": False}
    for _ in range(steps):
        action = np.clip(push + draw.normal(size=1) * 0.1, -1, 1).astype(np.float32)
        episode["observations"].append(state)
        episode["actions"].append(action)
        state, reward, *_ = env.step(action)
        episode["rewards"].append(reward)
    return episode
