"""Times of the parts of training steps."""

import time
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["StepClock"]

WITH_PARTS = 5  # moments of a step with one backward pass: start, arrival, backward pass, end


class StepClock:
    """The times of waiting, forward passes, backward passes and the optimizer in a sequence of steps.

    On a GPU the moments are events in its stream, which do not synchronize. Waiting is then the time in which
    the device has nothing to do before a batch arrives, not the time in which the host waits.

    Args:
        device: The device that computes.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._steps: list[list[Any]] = []
        self._arrived: Any = None

    def now(self) -> Any:  # noqa: ANN401
        """Return the current moment: seconds on a CPU, a recorded event on a GPU."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        """Forget all steps, and start before the first batch is requested."""
        self._steps, self._arrived = [], None
        self._moments = [self.now()]

    def arrive(self) -> None:
        """A batch has arrived, and its step begins."""
        self._moments.append(self.now())

    def around(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that computes the backward pass and notes when it begins and ends."""

        def timed(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                return backward(*args, **options)
            self._moments.append(self.now())
            result = backward(*args, **options)
            self._moments.append(self.now())
            return result

        return timed

    def finish(self) -> None:
        """The step is finished, and the next batch is requested."""
        end = self.now()
        self._steps.append([*self._moments, end])
        self._moments = [end]

    def seconds(self) -> dict[str, float | None]:
        """Return the sums over all steps in seconds: waiting, forward, backward, optimizer.

        The forward pass includes the copy of the batch to the device and the loss; the optimizer includes
        clipping and averaging. The sum of all four is the time from `begin` to the last `finish`. The last
        three are None if a step was replayed as a CUDA graph, which has no moments inside.
        """
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        total: dict[str, float] = dict.fromkeys(("waiting", "forward", "backward", "optimizer"), 0.0)
        for moments in self._steps:
            parts = [self._between(a, b) for a, b in zip(moments, moments[1:], strict=False)]
            total["waiting"] += parts[0]
            total["forward"] += sum(parts[1:-1:2])
            total["backward"] += sum(parts[2:-1:2])
            total["optimizer"] += parts[-1]
        if any(len(moments) < WITH_PARTS for moments in self._steps):
            return {"waiting": total["waiting"], "forward": None, "backward": None, "optimizer": None}
        return {**total}

    def _between(self, start: Any, end: Any) -> float:  # noqa: ANN401
        if self.device.type == "cuda":
            return start.elapsed_time(end) / 1e3
        return end - start
