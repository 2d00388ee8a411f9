"""Resident sets, their peaks, limits on their growth, and the memory that an allocator keeps.

Linux reports resident sets in /proc. Other systems report only the peak; the other functions return None
there.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None

CGROUP = Path("/sys/fs/cgroup")
NO_LIMIT = 1 << 60  # old control groups write a larger number for "no limit"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt
KEPT_BYTES, OWN_MAPPING_BYTES = 1 << 28, 1 << 25


def resident_bytes(process: int | str = "self") -> int | None:
    """Return the resident set of a process in bytes; None if it is not available or the process has ended."""
    return _entry(f"/proc/{process}/status", "VmRSS")


def peak_bytes() -> int | None:
    """Return the largest resident set of this process in bytes, since `restart_peak` or since its start.

    None if it is not available.
    """
    # ru_maxrss is the second choice, because Linux inherits it from the parent process
    peak = _entry("/proc/self/status", "VmHWM")
    return peak if peak is not None or resource is None else _largest(resource.RUSAGE_SELF)


def ended_peak_bytes() -> int | None:
    """Return the largest peak of the resident set of child processes that have ended, in bytes.

    None if it is not available.
    """
    return None if resource is None else _largest(resource.RUSAGE_CHILDREN)


def _largest(who: int) -> int:
    assert resource is not None
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def restart_peak() -> None:
    """Restart the peak of `peak_bytes`; has no effect on systems without /proc."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def keep_freed_memory() -> None:
    """Let this process and its forks keep up to 256 MiB of freed memory, for allocations up to 32 MiB.

    By default, glibc returns the memory of large tensors to the system after each batch, and the next batch
    waits until the system has filled the same pages with zeros. Has no effect with other allocators, or if
    the environment has settings for glibc's.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    import ctypes  # `--help` does not need it

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc, or Windows
        return
    # either threshold alone would stop glibc from adapting the other one
    if mallopt(M_MMAP_THRESHOLD, OWN_MAPPING_BYTES):
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


@contextmanager
def limited_growth(budget_bytes: int | None) -> Iterator[None]:
    """Limit the growth of the data segment of this process inside the context.

    An allocation beyond the limit fails before a page is touched, with MemoryError or torch's RuntimeError.

    Args:
        budget_bytes: Largest growth in bytes. With None, or on a system without limits, there is no limit.
    """
    data = _entry("/proc/self/status", "VmData")
    if budget_bytes is None or resource is None or data is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    asked = data + budget_bytes
    resource.setrlimit(
        resource.RLIMIT_DATA, (asked if hard == resource.RLIM_INFINITY else min(asked, hard), hard)
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def available_bytes(*, swap: bool = False) -> int | None:
    """Return the bytes that a new process can use, in the machine and its control group.

    Cached files do not count as used. None if the number is not available.

    Args:
        swap: Whether to add the free swap space.
    """
    free = [_entry("/proc/meminfo", "MemAvailable")]
    limit = _number(CGROUP / "memory.max")
    if limit is not None and limit < NO_LIMIT:
        free.append(limit - (_number(CGROUP / "memory.current") or 0) + _cached_bytes())
    known = [number for number in free if number is not None]
    more = (_entry("/proc/meminfo", "SwapFree") or 0) if swap else 0
    return max(0, min(known)) + more if known else None


def _cached_bytes() -> int:
    """Return the bytes of cached files in the control group, which the system frees on demand."""
    try:
        lines = (CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    values = dict(line.split(maxsplit=1) for line in lines)
    return sum(int(values.get(name, 0)) for name in ("inactive_file", "active_file"))


def _entry(path: str, key: str) -> int | None:
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    entries = (line.partition(":") for line in text.splitlines())
    return next((int(value.split()[0]) * 1024 for name, _, value in entries if name == key), None)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such group, or "max"
        return None
