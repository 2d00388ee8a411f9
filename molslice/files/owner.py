"""Identify the process that wrote a file, and check later whether it is still running.

A process ID alone is not sufficient: it is reused after the process has ended, and has no meaning on another
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
        machine: Hash of the host name and of the process ID namespace (each container has its own).
        pid: The process ID.
        start: Start of the process in clock ticks since boot; 0 if the system does not report it.
    """

    machine: str
    pid: int
    start: int

    @classmethod
    def current(cls) -> Self:
        """Return the calling process."""
        return cls(_machine(), os.getpid(), _start(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Convert the text of an owner, as written by `str`. None for any other text."""
        machine, _, numbers = text.partition("-")
        pid, _, start = numbers.partition("-")
        if not (machine and pid.isdecimal() and start.isdecimal()):
            return None
        return cls(machine, int(pid), int(start))

    def __str__(self) -> str:
        return f"{self.machine}-{self.pid}-{self.start}"

    @property
    def is_local(self) -> bool:
        """Whether the process ran on this machine."""
        return self.machine == _machine()

    @property
    def has_ended(self) -> bool:
        """Whether the process has certainly ended; False if that is unknown, as on another machine."""
        if not self.is_local:
            return False
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except OSError:  # it is running under another user
            return False
        return self.start != _start(self.pid)


def _machine() -> str:
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{platform.node()} {namespace}".encode()).hexdigest()[:8]


def _start(pid: int) -> int:
    """Return the start of a process in clock ticks since boot: 0 if unknown, -1 for an ended process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()  # the name of the program may contain any character
    return -1 if fields[0] in "ZX" else int(fields[19])
