"""Files of recorded episodes in the format of D4RL."""

import numpy as np


def write_d4rl(path, episodes, *, timeouts=True, tail=None, column=False):
    """Write episodes, dictionaries of `observations` [n, F], `actions` [n, A], `rewards` [n] and `ended`.

    `ended` says that an episode came to its end (terminal), not that it was stopped (timeout). `tail` is an
    episode that the file ends in the midst of. `column` keeps what is one number a step as [n, 1].
    """
    import h5py

    parts = [*episodes, *([tail] if tail is not None else [])]
    arrays = {
        name: np.concatenate([np.asarray(part[name], np.float32) for part in parts])
        for name in ("observations", "actions", "rewards")
    }
    last = np.cumsum([len(episode["rewards"]) for episode in episodes], dtype=int) - 1
    ended = np.array([bool(episode["ended"]) for episode in episodes], dtype=bool)
    for name, chosen in (("terminals", last[ended]), ("timeouts", last[~ended])):
        arrays[name] = np.zeros(len(arrays["rewards"]), bool)
        arrays[name][chosen] = True
    if not timeouts:
        del arrays["timeouts"]
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values[:, None] if column and values.ndim == 1 else values
        file["infos/qpos"] = np.zeros((len(arrays["rewards"]), 2))  # the real files hold such beside
        file["metadata/algorithm"] = "SAC"
    return path


def random_episodes(lengths, state=3, action=2, seed=0):
    """Return random episodes of these lengths; every second one is terminal."""
    draw = np.random.default_rng(seed)
    return [
        {
            "observations": draw.normal(size=(n, state)) * 3 + 1,
            "actions": draw.uniform(-1, 1, size=(n, action)),
            "rewards": draw.normal(size=n),
            "ended": number % 2 == 0,
        }
        for number, n in enumerate(lengths)
    ]
