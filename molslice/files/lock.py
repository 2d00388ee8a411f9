"""Reserve a file or a folder for one process at a time.

A lock is a file that contains the ID of its process. The operating system releases the lock when the process
ends, also after a kill, so that an ended process never blocks another one.

A process ID alone does not identify a process: it is reused after the process has ended, and has no meaning
on another machine that shares the folder.
"""

import contextlib
import errno
import hashlib
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Self

from molslice.errors import MolsliceError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
if sys.platform == "win32":
    import ctypes
    import msvcrt

LOCK = ".lock"
PATIENCE_SECONDS = 10.0  # for the worker processes of a killed process, which end after it
TAKEN = (errno.EAGAIN, errno.EACCES)
FAR = 1 << 30  # place of the locked byte on Windows, where other processes cannot read it


class UnwritableError(OSError, MolsliceError):  # in this order OSError reads the arguments
    """Error for a file or folder that cannot be written.

    Attributes:
        filename: The final path.
        errno: The reason.
    """

    def __str__(self) -> str:
        return f"cannot write {self.filename}: {self.strerror}"


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
        if sys.platform == "win32":
            return _has_ended_on_windows(self.pid)
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except OSError:  # it is running under another user
            return False
        return self.start != _start(self.pid)


def lock_folder(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock of a folder, which must exist; see `lock_file`."""
    return lock_file(folder / LOCK, str(folder))


@contextmanager
def lock_file(path: Path, name: str) -> Iterator[None]:
    """Hold a lock until the block ends, and remove its file.

    Args:
        path: The file of the lock, in a folder that exists.
        name: What is locked, for messages.

    Raises:
        MolsliceError: Another process holds the lock. The message names that process.
        UnwritableError: The folder cannot be written.
    """
    descriptor = _acquire(path, name)
    try:
        text = f"{Owner.current()} {platform.node()} {datetime.now():%Y-%m-%d %H:%M:%S}\n"
        os.truncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, text.encode())
        yield
    finally:
        if sys.platform == "win32":
            os.lseek(descriptor, FAR, os.SEEK_SET)
            with contextlib.suppress(OSError):  # a file system without locks
                msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
            os.close(descriptor)  # before the removal, which fails while any process has the file open
        with contextlib.suppress(OSError):
            path.unlink()  # before the release, so that a waiting process notices the removal
        if sys.platform != "win32":
            os.close(descriptor)


def _acquire(path: Path, name: str) -> int:
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UnwritableError(error.errno, error.strerror, name) from error
        try:
            is_held = _lock(descriptor, name, patient=time.monotonic() < end)
            with contextlib.suppress(FileNotFoundError):
                if is_held and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the holder has removed the file in the meantime, or is ending
        if not is_held:
            time.sleep(0.02)


def _lock(descriptor: int, name: str, patient: bool) -> bool:
    """Lock the file, or return False if `patient` and its process has ended, but not yet its workers.

    Raises:
        MolsliceError: Another process holds the lock.
    """
    os.lseek(descriptor, 0, os.SEEK_SET)
    holder = os.read(descriptor, 1000).decode(errors="replace").split()
    owner = Owner.parse(holder[0]) if holder else None
    taken = False
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, FAR, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            return True
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError as error:  # other errors mean a file system without locks
        taken = error.errno in TAKEN
    if taken and patient and owner is not None and owner.has_ended:
        return False
    if taken or (owner is not None and owner.is_local and not owner.has_ended):
        who = "another process"
        if owner is not None:
            who = f"process {owner.pid} on {holder[1]} since {' '.join(holder[2:])}"
        raise MolsliceError(f"{name} is in use by {who}; wait until it has ended, or choose another path")
    return True


def _has_ended_on_windows(pid: int) -> bool:
    """Return whether a process has ended; `os.kill(pid, 0)` would send it Ctrl-C."""
    assert sys.platform == "win32"
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.OpenProcess.restype = ctypes.c_void_p
    process = ctypes.c_void_p(kernel.OpenProcess(0x1000, False, pid % (1 << 32)))  # may only be queried
    if not process:
        return ctypes.get_last_error() == 87  # no process has the number; another user may own it
    code = ctypes.c_ulong()
    kernel.GetExitCodeProcess(process, ctypes.byref(code))
    kernel.CloseHandle(process)
    return code.value != 259  # still active


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
