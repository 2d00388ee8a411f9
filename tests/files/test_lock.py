"""A folder is locked by one process at a time, and a dead process does not block it."""

import errno
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from molslice.files import lock
from molslice.files.atomic import UnwritableError
from molslice.files.lock import LOCK, lock_folder
from molslice.types import MolsliceError


class Msvcrt:
    """Locks the byte at the position of a file, as the module of Windows does."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def locking(self, descriptor, mode, count):
        import fcntl

        kind = fcntl.LOCK_UN if mode == self.LK_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB
        fcntl.lockf(descriptor, kind, count, os.lseek(descriptor, 0, os.SEEK_CUR))


def imitate(system, monkeypatch):
    """Make the module work as on a system without file locks, or as on Windows."""
    if system == "without":
        monkeypatch.setattr(lock, "fcntl", None)
    elif system == "windows":
        monkeypatch.setattr(lock, "sys", SimpleNamespace(platform="win32"))
        monkeypatch.setattr(lock, "msvcrt", Msvcrt(), raising=False)
        monkeypatch.setattr(lock, "_has_ended_on_windows", lambda pid: not os.path.exists(f"/proc/{pid}"))


HOLDER = """
import pathlib, sys, time
import pytest
from molslice.files import lock
from tests.files.test_lock import imitate
imitate(sys.argv[2], pytest.MonkeyPatch())
with lock.lock_folder(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("system", ["with", "without", "windows"])
def test_the_second_is_refused_until_the_first_is_dead(tmp_path, monkeypatch, system):
    imitate(system, monkeypatch)
    command = [sys.executable, "-c", HOLDER, str(tmp_path), system]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "locked\n"
        words = rf"^{re.escape(str(tmp_path))} is in use by process {first.pid} on \S+ since 2\d{{3}}-"
        with pytest.raises(MolsliceError, match=words), lock_folder(tmp_path):
            pass
    finally:
        first.kill()
        first.wait()
        first.stdout.close()
    assert (tmp_path / LOCK).exists()
    with lock_folder(tmp_path):
        assert str(os.getpid()) in (tmp_path / LOCK).read_text()
    assert list(tmp_path.iterdir()) == []


def test_windows_without_locks_on_a_file_system_releases_none(tmp_path, monkeypatch):
    imitate("windows", monkeypatch)

    def refuse(*_):
        raise OSError(errno.EINVAL, "no locks")

    monkeypatch.setattr(Msvcrt, "locking", refuse)
    with lock_folder(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


WITH_WORKER = """
import os, pathlib, signal, sys, time
from molslice.files.lock import lock_folder
with lock_folder(pathlib.Path(sys.argv[1])):
    if os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(float(sys.argv[2]))
    os._exit(0)
"""


def test_the_workers_of_a_killed_process_are_waited_for(tmp_path, monkeypatch):
    def kill(seconds):
        command = [sys.executable, "-c", WITH_WORKER, str(tmp_path), str(seconds)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL

    kill(0.3)
    with lock_folder(tmp_path):
        pass
    kill(1)
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0)
    with pytest.raises(MolsliceError, match="is in use by process"), lock_folder(tmp_path):
        pass


def test_one_process_does_not_take_it_twice(tmp_path):
    with lock_folder(tmp_path):
        with pytest.raises(MolsliceError, match=f"in use by process {os.getpid()} "), lock_folder(tmp_path):
            pass
        assert (tmp_path / LOCK).exists()


@pytest.mark.parametrize("content", ["", "half", "\0\0", "a-1-2"])
def test_what_a_lock_says_does_not_matter_where_nobody_holds_it(tmp_path, content):
    (tmp_path / LOCK).write_text(content)
    with lock_folder(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_exception_releases_it(tmp_path):
    with pytest.raises(KeyError), lock_folder(tmp_path):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path):
    with pytest.raises(UnwritableError, match="none: No such file"), lock_folder(tmp_path / "none"):
        pass
