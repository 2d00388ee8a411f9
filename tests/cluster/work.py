"""Functions that the workers of the tests call."""

import contextlib
import os
import signal
from pathlib import Path

from molslice.types import MolsliceError


class Twice:
    """Returns its item, the number of calls so far, and the process. Killed once at the item `at`."""

    def __init__(self, at=None, mark=None, always=False):
        self.at, self.mark, self.always, self.calls = at, mark, always, 0

    def __call__(self, item):
        if item == self.at and (self.always or not os.path.exists(self.mark)):
            if not self.always:
                Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1
        return item, self.calls, os.getpid()


def numbers(item):
    """Divide an item into numbers; the item 5 cannot be read after the first."""
    for number in range(10 * item, 10 * item + 10):
        if number == 51:
            raise MolsliceError("file 5 is damaged")
        yield number


class KilledReader:
    """Divides an item into numbers. Its process is killed once in the middle."""

    def __init__(self, mark):
        self.mark = mark

    def __call__(self, item):
        for number in numbers(item):
            if number == 15 and not os.path.exists(self.mark):
                Path(self.mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield number


class InSmallChunks:
    """Calls a function that predicts a file in chunks of 7 rows.

    The last digit of a prediction can depend on the number of molecules in its batch. The process of the test
    and its workers must therefore have the same chunks.
    """

    def __init__(self, function):
        self.function = function

    def __call__(self, item):
        from molslice.inference.load import NetworkPredictor

        NetworkPredictor.chunk_rows = 7
        return self.function(item)


class KilledInFile:
    """Calls a function that predicts a file in chunks of 7 rows; killed once when three of them are done."""

    def __init__(self, function, mark):
        self.function, self.mark = function, str(mark)

    def __call__(self, item):
        from molslice.inference.load import NetworkPredictor
        from molslice.inference.tables.chunk_log import ChunkLog

        if NetworkPredictor.chunk_rows != 7:
            NetworkPredictor.chunk_rows, ChunkLog.add = 7, _killing(ChunkLog.add, self.mark)
        return self.function(item)


def _killing(add, mark):
    calls = []

    def counted(*arguments):
        add(*arguments)
        calls.append(1)
        if len(calls) == 3 and not os.path.exists(mark):
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return counted


def killed_once(function, mark, at):
    """Return a function that kills its process at its call number `at`, unless the file `mark` exists."""
    return _KilledOnce(function, str(mark), at)


class _KilledOnce:
    def __init__(self, function, mark, at):
        self.function, self.mark, self.left = function, mark, at

    def __call__(self, item):
        self.left -= 1
        if self.left < 0:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
        return self.function(item)
