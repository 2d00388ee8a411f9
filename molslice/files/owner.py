"""Identify the process that wrote a file, and tell later whether it still runs.

A process ID alone is not enough: it is reused after the process has ended, and it means nothing on another
machine that shares the folder.
"""

import contextlib
import hashlib
import os
import platform
from pathlib import Path
from typing import NamedTuple, Self

__all__ = ["Owner"]


class Owner(NamedTuple):
    """A process, identified across process ID reuse and machines.

    Attributes:
        machine: a hash of the host name and of the process ID namespace (each container has its own).
        pid: the process ID.
        start: when the process started, in clock ticks since boot; 0 where the system does not report it.
    """

    machine: str
    pid: int
    start: int

    @classmethod
    def current(cls) -> Self:
        """The calling process."""
        return cls(_machine(), os.getpid(), _start(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The owner that `str` wrote, or None for any other text."""
        machine, _, numbers = text.partition("-")
        pid, _, start = numbers.partition("-")
        if not (machine and pid.isdecimal() and start.isdecimal()):
            return None
        return cls(machine, int(pid), int(start))

    def __str__(self) -> str:
        return f"{self.machine}-{self.pid}-{self.start}"

    @property
    def is_local(self) -> bool:
        """Whether the process ran on this machine, so that `has_ended` can be known."""
        return self.machine == _machine()

    @property
    def has_ended(self) -> bool:
        """Whether the process certainly does not run any more; False where that cannot be known."""
        if not self.is_local:
            return False
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except OSError:  # it runs, under another user
            return False
        return self.start != _start(self.pid)


def _machine() -> str:
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{platform.node()} {namespace}".encode()).hexdigest()[:8]


def _start(pid: int) -> int:
    """Start of a process in clock ticks since boot, 0 where it is unknown, -1 for one that has exited."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()  # the name of the program may hold anything
    return -1 if fields[0] in "ZX" else int(fields[19])
