"""Reserve a folder for one process at a time.

The lock is a file in the folder that contains the ID of its process. The operating system releases the lock
when the process ends, also after a kill, so that an ended process never blocks the folder.
"""

import contextlib
import errno
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from molslice.files.atomic import UnwritableError
from molslice.files.owner import Owner
from molslice.types import MolsliceError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["LOCK", "lock_folder"]

LOCK = ".lock"
PATIENCE_SECONDS = 10.0  # for the worker processes of a killed process, which end after it
TAKEN = (errno.EAGAIN, errno.EACCES)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which must exist, until the block ends.

    Raises:
        MolsliceError: Another process holds the lock. The message names that process.
        UnwritableError: The folder cannot be written.
    """
    path = folder / LOCK
    descriptor = _acquire(path)
    try:
        text = f"{Owner.current()} {platform.node()} {datetime.now():%Y-%m-%d %H:%M:%S}\n"
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # before the release, so that a waiting process notices the removal
        os.close(descriptor)


def _acquire(path: Path) -> int:
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UnwritableError(error.errno, error.strerror, str(path.parent)) from error
        try:
            is_held = _lock(descriptor, path, patient=time.monotonic() < end)
            with contextlib.suppress(FileNotFoundError):
                if is_held and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the holder has removed the file in the meantime, or is ending
        if not is_held:
            time.sleep(0.02)


def _lock(descriptor: int, path: Path, patient: bool) -> bool:
    """Lock the file, or return False if `patient` and its process has ended, but not yet its workers.

    Raises:
        MolsliceError: Another process holds the lock.
    """
    holder = os.pread(descriptor, 1000, 0).decode(errors="replace").split()
    owner = Owner.parse(holder[0]) if holder else None
    taken = False
    if fcntl is not None:
        try:
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
        raise MolsliceError(
            f"{path.parent} is in use by {who}; wait until it has ended, or choose another folder"
        )
    return True
