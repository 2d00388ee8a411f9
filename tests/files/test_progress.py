"""Progress on standard error: a bar on a terminal, lines elsewhere."""

import gc
import io
import json
import re
import sys
import threading
import weakref

import pytest

from molslice.cli import main
from molslice.files import progress
from molslice.files.progress import BYTES, Phases, Progress, hidden_progress, tracked


class Clock:
    """A clock that only `wait` moves; `events` are called when their time has come."""

    def __init__(self, end):
        self.now, self.end, self.events = 0.0, end, []

    def __call__(self):
        return self.now

    def at(self, seconds, event):
        self.events.append((seconds, event))

    def wait(self, seconds):
        self.now += seconds
        for event in [event for when, event in self.events if when <= self.now]:
            event()
        self.events = [(when, event) for when, event in self.events if when > self.now]
        return self.now > self.end


def write_lines(phase, clock, capsys):
    progress._write_lines(weakref.ref(phase), clock.wait)
    return capsys.readouterr().err.splitlines()


def test_a_long_phase_writes_a_line_after_five_seconds_and_every_thirty(capsys):
    clock = Clock(end=100.0)
    with Progress("learners", 5, "fits", clock=clock) as phase:
        for seconds in (20.0, 50.0):
            clock.at(seconds, phase.update)
        lines = write_lines(phase, clock, capsys)
    assert lines == [
        "molslice: learners: 0 of 5 fits (0%), 00:05 passed",
        "molslice: learners: 1 of 5 fits (20%), 00:35 passed, end expected in 02:20",
        "molslice: learners: 2 of 5 fits (40%), 01:05 passed, end expected in 01:37",
        "molslice: learners: 2 of 5 fits (40%), 01:35 passed, end expected in 02:22",
    ]


def test_a_short_phase_writes_nothing(capsys):
    with Progress("learners", 5, "fits", clock=(clock := Clock(end=4.9))) as phase:
        assert write_lines(phase, clock, capsys) == []


def test_the_end_is_expected_from_the_work_of_this_run(capsys):
    """A resumed training has done 90 steps before; one step took 5 seconds."""
    with Progress("training", 100, "steps", done=90, clock=(clock := Clock(end=6.0))) as phase:
        phase.rename("epoch 2")
        phase.annotate("loss 0.5")
        clock.at(5.0, phase.update)
        lines = write_lines(phase, clock, capsys)
    assert lines == [
        "molslice: epoch 2: 91 of 100 steps (91%), 00:05 passed, end expected in 00:45, loss 0.5"
    ]


def test_bytes_and_unknown_totals_are_readable(capsys):
    with Progress("predict", 3 * 1024**2, BYTES, clock=(clock := Clock(end=6.0))) as phase:
        phase.move(1024**2)
        assert write_lines(phase, clock, capsys) == [
            "molslice: predict: 1.00MB of 3.00MB (33%), 00:05 passed, end expected in 00:10"
        ]
    with Progress("explain", None, "molecules", clock=(clock := Clock(end=6.0))) as phase:
        phase.move(12_345)
        assert write_lines(phase, clock, capsys) == ["molslice: explain: 12,345 molecules, 00:05 passed"]


def test_the_thread_writes_while_the_work_is_in_one_step_and_ends_with_the_phase(capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.01)
    written, stream = threading.Event(), sys.stderr

    class Stream(io.StringIO):
        def write(self, text):
            written.set()
            return stream.write(text)

    monkeypatch.setattr(sys, "stderr", Stream())
    with Progress("networks", 5, "folds"):
        assert written.wait(20.0)
        (thread,) = [each for each in threading.enumerate() if each.name == "progress"]
    thread.join(20.0)
    assert not thread.is_alive()
    assert capsys.readouterr().err.startswith("molslice: networks: 0 of 5 folds (0%), 00:0")


def test_a_phase_that_nobody_has_closed_writes_nothing_more(capsys):
    phase, clock = Progress("learners", clock=Clock(end=1e9)), Clock(end=1e9)
    forgotten = weakref.ref(phase)
    phase._closed.set()  # ends its own thread
    del phase
    gc.collect()
    progress._write_lines(forgotten, clock.wait)
    assert clock.now == progress.LOOK_SECONDS
    assert capsys.readouterr().err == ""


def test_a_closed_stream_ends_the_lines(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("learners", clock=(clock := Clock(end=1e9))) as phase:
        stream.close()
        progress._write_lines(weakref.ref(phase), clock.wait)
    assert clock.now == progress.FIRST_SECONDS


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_hidden_phases_start_no_thread(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    before = threading.active_count()
    phases = [Progress("a", shown=False)]
    with hidden_progress():
        phases += [Progress("b")]
        with hidden_progress(False):
            phases += [Progress("c")]
    phases += [Progress("d")] if stream is None else []
    assert threading.active_count() == before
    assert not any(phase.wants_numbers for phase in phases)
    for phase in phases:
        phase.update()
        phase.annotate("x")
        phase.close()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_a_bar_and_no_lines(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    monkeypatch.setattr(progress, "BAR_SECONDS", 0.0)
    with Progress("training", 4, "steps") as phase:
        assert phase.wants_numbers
        phase.rename("epoch 1")
        phase.annotate("loss 0.5")
        assert not phase.wants_numbers
        for _ in range(4):
            phase.update()
        assert not [thread for thread in threading.enumerate() if thread.name == "progress"]
    last = stream.getvalue().replace("\r", "\n").strip().splitlines()[-1]
    assert re.match(r"epoch 1: 100%.* 4/4 .*loss 0\.5", last)
    assert "molslice" not in stream.getvalue()


def test_numbers_are_wanted_more_rarely_for_lines(capsys):
    with Progress("training", clock=(clock := Clock(end=1e9))) as phase:
        assert phase.wants_numbers
        phase.annotate("loss 0.5")
        clock.now = 9.0
        assert not phase.wants_numbers
        clock.now = 11.0
        assert phase.wants_numbers


def test_items_are_counted(capsys):
    assert list(tracked("abc", "reading", unit="rows")) == ["a", "b", "c"]


@pytest.mark.parametrize("quiet", [False, True])
def test_a_command_writes_lines_to_standard_error_only(quiet, tmp_path, capsys, monkeypatch):
    """The phases of a fit after reading share one bar; --json stays readable, and --quiet is silent."""
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr("molslice.learners.extra_trees.NUM_TREES", 20)
    table = tmp_path / "table.csv"
    table.write_text("smiles,y\n" + "".join(f"{'C' * n}O,{n % 7}\n" for n in range(1, 31)))
    words = ["fit", str(table), "--target", "y", "--out", str(tmp_path / "model"), "--no-encoder", "--json"]
    assert main([*words, "--members", "2", *(["--quiet"] if quiet else [])]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["results"]
    phases = {line.split(": ")[1] for line in err.splitlines() if " passed" in line}
    assert ("learners (measuring)" in phases) == (not quiet)
    assert not quiet or err == ""


def test_each_long_phase_of_a_bar_writes_a_line(capsys):
    clock = Clock(end=61.0)
    with Phases({"embedding": 8.0, "checks": 2.0, "learners": 30.0, "networks": 20.0}, shown=False) as phases:
        bar = phases._bar
        bar._clock, bar._start = clock, 0.0
        for seconds, name in ((8.0, "checks"), (10.0, "learners"), (40.0, "networks")):
            clock.at(seconds, lambda name=name: phases.begin(name))
        phases.begin("embedding")
        lines = write_lines(bar, clock, capsys)
    assert [line.split(",")[0] for line in lines] == [
        "molslice: embedding: 0% done",
        "molslice: learners: 16% done",
        "molslice: networks: 66% done",
    ]
    # a look is up to a second after the beginning of a phase
    assert [line.split(", ")[1] for line in lines] == ["00:05 passed", "00:15 passed", "00:45 passed"]


def test_several_phases_share_one_bar(capsys):
    clock = Clock(end=30.0)
    with Phases({"embedding": 10.0, "learners": 30.0, "networks": 0.0}, shown=False) as phases:
        bar = phases._bar
        bar._clock, bar._start = clock, 0.0
        move = phases.begin("embedding")
        move(1, 4)
        assert (bar.label, bar.done) == ("embedding", 6)
        move = phases.begin("learners")  # the first phase is over, whatever it has reported
        assert bar.done == 25
        move(1, 3)
        move(0, 3)  # a bar does not go back
        assert bar.done == 50
        phases.begin("something else")(1, 2)
        assert (bar.label, bar.done) == ("something else", 50)
        clock.now = 20.0
        assert bar.line() == "something else: 50% done, 00:20 passed, end expected in 00:20"
    assert bar.done == 100
    with pytest.raises(KeyError), Phases({"one": 1.0}) as phases:
        raise KeyError
    assert phases._bar.done == 0
    with Phases({}) as phases:
        phases.begin("nothing")(1, 1)
    assert capsys.readouterr().err == ""
