"""The package imports and asks only for what Windows and macOS have, or checks for it first."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# names that Python has on POSIX only, and os.kill, which ends a process or sends Ctrl-C on Windows
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
NAMES = {
    "os": "chown fchmod fchown fork forkpty getegid geteuid getgid getpgrp getsid getuid "
    "kill killpg lchown lockf mkfifo mknod nice pread preadv pwrite pwritev "
    "sched_getaffinity sendfile set_blocking setpgid setsid setuid statvfs sync sysconf uname "
    "wait wait3 wait4 waitid waitstatus_to_exitcode",
    "signal": "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIG_BLOCK SIG_SETMASK alarm "
    "pause pthread_kill pthread_sigmask setitimer sigwait",
    "time": "clock_gettime tzset",
    "socket": "AF_UNIX",
    "select": "epoll poll",
}
# what is checked in another way than by `hasattr` in the same statement
GUARDED = {
    ("job.py", "_watch", "set_blocking"): "molslice bench attention needs Python 3.12 on Windows",
    ("lock.py", "has_ended", "kill"): "after the return of the branch for Windows",
    ("processes.py", "_from_server", "pthread_sigmask"): "the method forkserver exists on POSIX only",
    ("processes.py", "_from_server", "SIG_BLOCK"): "the same",
    ("processes.py", "_from_server", "SIG_SETMASK"): "the same",
}


def guarded(node, parents):
    """Return whether an enclosing statement or expression checks by `hasattr`."""
    while node in parents:
        node = parents[node]
        test = getattr(node, "test", None)
        if test is not None and "hasattr(" in ast.unparse(test):
            return True
    return False


def posix_uses(text):
    """Yield the name of the function and the name from the standard library of each use without a check."""
    tree = ast.parse(text)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and isinstance(parents[node], ast.Module):
            yield from (("", alias.name) for alias in node.names if alias.name in MODULES)
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.attr in NAMES.get(node.value.id, "").split() and not guarded(node, parents):
            function = node
            while function in parents and not isinstance(function, ast.FunctionDef):
                function = parents[function]
            yield getattr(function, "name", ""), node.attr


def test_no_name_of_one_system_only_is_used_unchecked():
    uses = [
        (path.name, *use)
        for path in sorted((ROOT / "molslice").rglob("*.py"))
        for use in posix_uses(path.read_text(encoding="utf-8"))
    ]
    assert sorted(set(uses)) == sorted(GUARDED)


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("import fcntl", [("", "fcntl")]),
        ("try:\n    import fcntl\nexcept ImportError:\n    fcntl = None", []),
        ("def f():\n    return os.getuid()", [("f", "getuid")]),
        ("f = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else 1", []),
        ("if hasattr(signal, 'SIGHUP'):\n    signal.signal(signal.SIGHUP, g)", []),
    ],
)
def test_the_search_finds_them(text, uses):
    assert list(posix_uses(text)) == uses
