"""The progress of long operations on standard error: a bar on a terminal, lines elsewhere.

A phase that takes at most `BAR_SECONDS` shows no bar, and one of at most `FIRST_SECONDS` writes no line. A
longer phase writes a line to a file or a pipe, and then one every `EVERY_SECONDS`, also if it is stuck in one
step. Of several phases in one bar, each long one writes a line.
"""

import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

BAR_SECONDS = 2.0
FIRST_SECONDS, EVERY_SECONDS = 5.0, 30.0
LOOK_SECONDS = 1.0  # between two looks of the thread that writes lines
BYTES, PERCENT = "B", "%"
PERCENT_BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed} passed, {remaining} left"
LARGE = 100_000  # bars show such numbers as 100k
NEW_NUMBERS = 0.5, 10.0  # seconds after which a bar, and lines, want other numbers

Item = TypeVar("Item")

_hidden: ContextVar[bool] = ContextVar("hidden", default=False)


@contextmanager
def hidden_progress(hidden: bool = True) -> Iterator[None]:
    """Show nothing of the phases that begin in the block, as `--quiet` asks; if not `hidden`, no change."""
    token = _hidden.set(_hidden.get() or hidden)
    try:
        yield
    finally:
        _hidden.reset(token)


def is_hidden() -> bool:
    """Return whether the block is one of `hidden_progress`."""
    return _hidden.get()


class Progress:
    """The progress of one phase, until the end of the `with` block or `close`.

    Args:
        label: Name of the phase.
        total: Number of units; None if unknown.
        unit: Name of a unit in the plural; `B` for bytes, `%` for hundredths of a `total` of 100.
        shown: Whether to show anything; see also `hidden_progress`.
        done: Number of units that are done before.
        clock: Returns the time in seconds.

    Attributes:
        label: Name of the phase, which may change.
        total: Number of units, which may change.
        done: Number of units that are done.
        note: Text after the numbers, such as a loss.
        phase: Number of the phase, from 1, if several share the bar.
    """

    def __init__(
        self,
        label: str,
        total: int | None = None,
        unit: str = "",
        *,
        shown: bool = True,
        done: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label, self.total, self.unit, self.done, self.note = label, total, unit, done, ""
        self._clock, self._first, self._start = clock, done, clock()
        self.phase = 1
        self._shown_at = float("-inf")
        self._bar = self._closed = None
        if not shown or _hidden.get() or sys.stderr is None:
            return
        if sys.stderr.isatty():
            self._bar = self._new_bar()
        else:
            self._closed = threading.Event()
            arguments = (weakref.ref(self), self._closed.wait)
            threading.Thread(target=_write_lines, args=arguments, name="progress", daemon=True).start()

    def _new_bar(self) -> "tqdm":
        from tqdm import tqdm  # takes time to import

        return tqdm(
            desc=self.label or None,
            total=self.total,
            unit=self.unit if self.unit == BYTES else f" {self.unit}",
            unit_scale=self.unit == BYTES or (self.total or LARGE) >= LARGE,
            unit_divisor=1024 if self.unit == BYTES else 1000,
            initial=self.done,
            delay=BAR_SECONDS,
            bar_format=PERCENT_BAR if self.unit == PERCENT else None,
            file=sys.stderr,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def wants_numbers(self) -> bool:
        """Whether to give a new `note` now; computing one may take time."""
        if self._bar is None and self._closed is None:
            return False
        return self._clock() - self._shown_at > NEW_NUMBERS[self._bar is None]

    def annotate(self, note: str) -> None:
        """Show a text after the numbers."""
        self.note, self._shown_at = note, self._clock()
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)

    def rename(self, label: str) -> None:
        """Change the name of the phase."""
        self.label = label
        if self._bar is not None:
            self._bar.set_description_str(label, refresh=False)

    def update(self, count: int = 1) -> None:
        """Count units that are done."""
        self.done += count
        if self._bar is not None:
            self._bar.total = self.total
            self._bar.update(count)

    def move(self, done: int, total: int | None = None) -> None:
        """Set the number of units that are done, and of all units if it is given."""
        self.total = self.total if total is None else total
        self.update(done - self.done)

    def close(self) -> None:
        """End the phase; a bar that was shown stays."""
        if self._bar is not None:
            self._bar.close()
        if self._closed is not None:
            self._closed.set()

    def line(self) -> str:
        """Return what is done, in which time, and when the end is expected, without a line end."""
        from tqdm import tqdm

        passed = self._clock() - self._start
        unit = f" {self.unit}" if self.unit not in ("", BYTES) else ""
        if self.unit == PERCENT:
            parts = [f"{self.done}% done"]
        elif self.total:
            share = 100 * self.done / self.total
            parts = [f"{self._count(self.done)} of {self._count(self.total)}{unit} ({share:.0f}%)"]
        else:
            parts = [f"{self._count(self.done)}{unit}"]
        parts.append(f"{tqdm.format_interval(passed)} passed")
        if self.total and self.done > self._first:
            left = passed / (self.done - self._first) * max(0, self.total - self.done)
            parts.append(f"end expected in {tqdm.format_interval(left)}")
        if self.note:
            parts.append(self.note)
        return (f"{self.label}: " if self.label else "") + ", ".join(parts)

    def _count(self, number: int) -> str:
        from tqdm import tqdm

        return tqdm.format_sizeof(number, BYTES, 1024) if self.unit == BYTES else f"{number:,}"


class Phases:
    """The progress of several phases in one bar, until the end of the `with` block.

    Args:
        seconds: The expected time of each phase by its name, in order; only its share of the sum matters.
        shown: Whether to show anything; see `Progress`.
    """

    def __init__(self, seconds: Mapping[str, float], *, shown: bool = True) -> None:
        total, before = (
            sum(seconds.values()) or 1.0,
            list(itertools.accumulate(seconds.values(), initial=0.0)),
        )
        self._ends = {
            name: (100.0 * start / total, 100.0 * end / total)
            for name, start, end in zip(seconds, before, before[1:], strict=False)
        }
        self._bar = Progress(next(iter(seconds), ""), 100, PERCENT, shown=shown)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._bar.move(100)
        self._bar.close()

    def begin(self, name: str) -> Callable[[int, int], None]:
        """Begin a phase; the phases before it are over.

        Returns:
            What is called with the number of steps that are done and of all steps of the phase. A phase that
            was not expected does not move the bar.
        """
        start, end = self._ends.get(name, (self._bar.done, self._bar.done))
        self._bar.phase += name != self._bar.label
        self._bar.rename(name)

        def move(done: int, total: int) -> None:
            share = min(1.0, done / total) if total else 1.0
            self._bar.move(max(self._bar.done, int(start + share * (end - start))))

        move(0, 1)
        return move


def _write_lines(progress: "weakref.ref[Progress]", wait: Callable[[float], bool]) -> None:
    """Write lines until the phase ends or is forgotten.

    The first line is written after `FIRST_SECONDS`. Others follow every `EVERY_SECONDS`, and once for each
    further phase of the bar that lasts longer than `FIRST_SECONDS`.

    Args:
        progress: The phase.
        wait: Waits for so many seconds, and returns whether the phase has ended.
    """
    look = min(LOOK_SECONDS, FIRST_SECONDS)
    left, current, in_phase, written = FIRST_SECONDS, 1, 0.0, 0
    while not wait(look):
        bar = progress()
        if bar is None:
            return
        left -= look
        in_phase = in_phase + look if bar.phase == current else 0.0
        current = bar.phase
        if left <= 0 or (in_phase >= FIRST_SECONDS and written not in (0, current)):
            try:
                sys.stderr.write(f"molslice: {bar.line()}\n")
                sys.stderr.flush()
            except (OSError, ValueError, AttributeError):  # it is closed
                return
            left, written = EVERY_SECONDS, current
        del bar  # not kept while this thread waits


def tracked(items: Iterable[Item], label: str, total: int | None = None, unit: str = "") -> Iterator[Item]:
    """Yield items, and show how many there were; see `Progress`."""
    with Progress(label, total, unit) as progress:
        for item in items:
            yield item
            progress.update()
