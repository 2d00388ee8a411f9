"""Tests of atomic files and folders: failures, killed processes, partial files of dead processes."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from molslice.files import atomic
from molslice.files.atomic import (
    UnwritableError,
    atomic_file,
    atomic_folder,
    atomic_path,
    reserved,
    write_atomically,
)
from molslice.files.lock import Owner
from molslice.types import MolsliceError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write_file(path, content):
    write_atomically(path, content)


def write_folder(path, content):
    with atomic_folder(path, replace=True) as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text(content)


def content_of(path):
    return (path / "deep" / "file" if path.is_dir() else path).read_text()


both = pytest.mark.parametrize("write", [write_file, write_folder])


@both
def test_what_stood_there_is_replaced(tmp_path, write):
    for content in ("before", "after"):
        write(tmp_path / "name", content)
        assert content_of(tmp_path / "name") == content
        assert names(tmp_path) == ["name"]


@both
def test_the_contents_are_on_the_disk_before_the_name_and_the_name_before_the_end(
    tmp_path, monkeypatch, write
):
    events = []
    sync = os.fsync

    def recorded_sync(descriptor):
        events.append(("sync", os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))))
        sync(descriptor)

    for function in ("replace", "rename"):
        original = getattr(os, function)

        def moved(source, target, original=original):
            events.append(("move", os.path.basename(target)))
            original(source, target)

        monkeypatch.setattr(os, function, moved)
    monkeypatch.setattr(os, "fsync", recorded_sync)
    write(tmp_path / "name", "content")
    moved = events.index(("move", "name"))
    synced = [name for event, name in events[:moved] if event == "sync"]
    assert (synced[0] == "file") if write is write_folder else synced[0].startswith(".name.")
    assert events[moved + 1 :] == [("sync", tmp_path.name)]


@both
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch, write, call):
    write(tmp_path / "name", "before")

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    call = "rename" if write is write_folder and call == "replace" else call
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(UnwritableError, match="cannot write .*/name: No space left on device") as caught:
            write(tmp_path / "name", "after")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "name"))
    assert isinstance(caught.value, MolsliceError)
    assert names(tmp_path) == ["name"]
    assert content_of(tmp_path / "name") == "before"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_disk_that_is_really_full(tmp_path):
    def write():
        with atomic_path(tmp_path / "name") as partial:
            partial.symlink_to("/dev/full")
            partial.write_bytes(b"a" * 100_000)

    with pytest.raises(UnwritableError, match="/name: No space left"):
        write()
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError("mine"), OSError(2, "no", "other.txt")])
@pytest.mark.parametrize("context", [atomic_file, atomic_path, atomic_folder])
def test_an_exception_of_the_block_passes_through(tmp_path, context, error):
    def write():
        with context(tmp_path / "name"):
            raise error

    with pytest.raises(error if isinstance(error, type) else type(error)) as caught:
        write()
    assert not isinstance(caught.value, UnwritableError)
    assert names(tmp_path) == []


@both
def test_a_place_that_cannot_be_written_is_named(tmp_path, write):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnwritableError, match=r"cannot write .*/file/name: Not a directory"):
        write(tmp_path / "file" / "name", "content")


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("kind", ["working folder", "mount point"])
def test_a_folder_that_must_stay_is_filled(tmp_path, monkeypatch, kind, windows):
    monkeypatch.setattr(atomic, "WINDOWS", windows)
    final = tmp_path / "final"
    final.mkdir()
    if kind == "working folder":
        monkeypatch.chdir(final)
    else:
        monkeypatch.setattr("os.path.ismount", lambda path: path == final)
    before = final.stat().st_ino
    with atomic_folder("." if kind == "working folder" else final) as partial:
        (partial / "a").write_text("1")
        (partial / "inner").mkdir()
        (partial / "inner" / "b").write_text("2")
    assert final.stat().st_ino == before
    assert (final / "a").read_text() + (final / "inner" / "b").read_text() == "12"
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
    with pytest.raises(UnwritableError) as caught, atomic_folder(final) as partial:
        (partial / "c").write_text("3")
    assert caught.value.errno == errno.EEXIST
    assert sorted(path.name for path in final.iterdir()) == ["a", "inner"]


def write_two(path):
    with atomic_folder(path) as partial:
        (partial / "a").mkdir()
        (partial / "a" / "x").write_text("1")
        (partial / "b").write_text("2")


def test_a_folder_that_cannot_be_filled_stays_empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    real = shutil.move

    def move(source, target):
        if target.name == "b":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(source, target)

    monkeypatch.setattr("shutil.move", move)
    with pytest.raises(UnwritableError, match=r"cannot write .*: No space left on device"):
        write_two(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_failure_removes_the_empty_folders_that_it_has_made(tmp_path):
    (tmp_path / "old").mkdir()
    for final, others in ((tmp_path / "old" / "a" / "b" / "name", []), (tmp_path / "c" / "name", ["note"])):

        def write(final=final, others=others):
            with atomic_folder(final):
                for other in others:  # of somebody else
                    (final.parent / other).touch()
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            write()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["c", "c/note", "old"]


def test_a_folder_is_not_replaced_unasked(tmp_path):
    write_folder(tmp_path / "name", "before")

    def write():
        with atomic_folder(tmp_path / "name"):
            pytest.fail("the block ran, and its work would be lost")

    assert_taken(write, tmp_path, "before")


def test_a_folder_that_is_taken_during_the_work_is_not_replaced(tmp_path):
    def write():
        with atomic_folder(tmp_path / "name") as folder:
            (folder / "file").write_text("after")
            write_folder(tmp_path / "name", "another")

    assert_taken(write, tmp_path, "another")


def assert_taken(write, folder, content):
    """Check that `name` is refused because it is taken, and keeps its content."""
    with pytest.raises(UnwritableError) as caught:
        write()
    assert caught.value.errno == errno.EEXIST
    assert content_of(folder / "name") == content
    assert names(folder) == ["name"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomically(tmp_path / "link", "content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "content"


@both
def test_a_loop_of_links_is_refused_and_stays(tmp_path, write):
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(UnwritableError, match=r"^cannot write .*/one: Too many levels of symbolic links$"):
        write(tmp_path / "one", "content")
    assert names(tmp_path) == ["one", "two"]
    assert os.readlink(tmp_path / "one") == "two"


def test_a_long_name(tmp_path):
    write_atomically(tmp_path / ("n" * 255), "content")
    assert names(tmp_path) == ["n" * 255]


@both
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path, write):
    """The partial file of a running process is kept; after its end it is removed."""
    program = (
        "import sys, time\n"
        "from molslice.files.atomic import atomic_file, atomic_folder\n"
        f"with atomic_{'file' if write is write_file else 'folder'}({str(tmp_path / 'name')!r}):\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "writing\n"
        (left,) = names(tmp_path)
        write(tmp_path / "name", "content")
        assert left in names(tmp_path)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    write(tmp_path / "other", "content")
    assert names(tmp_path) == ["name", "other"]


@pytest.mark.parametrize(
    ("owner", "age", "stays"),
    [
        (Owner.current(), 0, True),
        (Owner.current(), 10**6, True),
        (Owner.current()._replace(start=1), 0, False),  # the process ID is in use again
        (Owner.current()._replace(machine="elsewhere"), 0, True),
        (Owner.current()._replace(machine="elsewhere"), 10**6, False),
        ("mine", 10**6, True),
    ],
)
def test_whose_partial_file_is_removed(tmp_path, owner, age, stays):
    file = tmp_path / f".name.{owner}-0.partial"
    file.write_text("half")
    os.utime(file, (time.time() - age,) * 2)
    atomic.remove_stale(tmp_path)
    assert file.exists() == stays


def test_a_folder_that_is_being_written_is_refused_if_asked(tmp_path):
    path = tmp_path / "na[m]e"
    with atomic_folder(path, alone=True):
        words = (
            rf"na\[m\]e is in use by process {os.getpid()} on .*; wait until it has ended, or choose another"
        )
        with pytest.raises(MolsliceError, match=words), atomic_folder(path, alone=True):
            pass
        with atomic_folder(tmp_path / "other", alone=True):
            pass
    assert names(tmp_path) == ["na[m]e", "other"]


@pytest.mark.parametrize("machine", [Owner.current().machine, "another"])
def test_what_a_killed_process_has_reserved_is_not_in_use(tmp_path, machine):
    """The process ID and the machine of a container that starts again are others."""
    ended = Owner.current()._replace(pid=2**22 + 1, machine=machine)
    (tmp_path / ".name.lock").write_text(f"{ended} host 2026-01-01 00:00:00\n")
    with reserved(tmp_path / "name"):
        pass
    assert names(tmp_path) == []


def test_a_long_name_is_reserved(tmp_path):
    with reserved(tmp_path / ("n" * 255)):
        assert len(names(tmp_path)) == 1
    assert names(tmp_path) == []


def test_windows_replaces_no_folder_and_syncs_only_writable_files(tmp_path, monkeypatch):
    rename, sync, synced = os.rename, os.fsync, []

    def rename_to_a_new_name(source, target):
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, "it exists", source)
        rename(source, target)

    def sync_writable(descriptor):
        os.pwrite(descriptor, b"", 0)
        synced.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "rename", rename_to_a_new_name)
    monkeypatch.setattr(os, "fsync", sync_writable)
    monkeypatch.setattr(atomic, "WINDOWS", True)
    target = tmp_path / "empty"
    target.mkdir()
    with atomic_folder(target) as folder:
        (folder / "a").write_text("content")
    assert (target / "a").read_text() == "content"
    assert len(synced) == 1
    with pytest.raises(UnwritableError, match="it exists"), atomic_folder(target):
        pass
