"""Draw random examples for a minute: the slow form of a test with Hypothesis."""

import faulthandler
import itertools
import time

from hypothesis import given, seed, settings

FUZZ_SECONDS = 60
STALLED_SECONDS = 900  # one example takes seconds; a loaded machine takes longer


def fuzz_for_a_minute(strategy, check, base):
    """Check examples of one seed after another until the time is over.

    The examples of a seed are always the same, and a failure shows the seed. An example that stalls ends the
    tests with a traceback, because native code cannot be interrupted from Python.

    Args:
        strategy: What to draw.
        check: Called with each example.
        base: The settings. The number of examples of a seed is set here.
    """
    rounds = settings(base, derandomize=False, database=None, max_examples=200)
    start = time.monotonic()
    try:
        for number in itertools.count():
            faulthandler.dump_traceback_later(STALLED_SECONDS, exit=True)
            seed(number)(rounds(given(strategy)(lambda example: check(example))))()
            if time.monotonic() - start > FUZZ_SECONDS:
                break
    finally:
        faulthandler.cancel_dump_traceback_later()
