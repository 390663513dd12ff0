"""When sessions that were stopped are converted, and by whom."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from profiler.capture.host_work import Conversions
from profiler.capture.torch.profiler_session import StoppedSession, TracedCall
from profiler.text import Note
from profiler.trace import DropReason

NOTHING = Note.of(DropReason.NO_SESSION_EVENTS)


class Moments:
    """A clock that the test moves, and since when nothing is recorded."""

    def __init__(self):
        self.now, self.rest = 100.0, None

    def conversions(self, **limits):
        return Conversions(lambda: self.rest, now=lambda: self.now, **limits)


def session(number, delivered, events=10):
    """One that has nothing of its only call: that it says so tells when it was converted."""
    call = TracedCall("", lambda cut: delivered.append((number, cut)))
    return StoppedSession(None, (0, 0), (0, 0), {}, [call], {}, "cuda", events)


def test_they_wait_and_are_converted_in_order():
    """Nothing is converted on the thread that stops one; all is once somebody asks."""
    delivered, conversions = [], Moments().conversions()
    for number in range(3):
        conversions.put(session(number, delivered))
    assert delivered == []
    conversions.drain()
    assert delivered == [(number, NOTHING) for number in range(3)]
    assert conversions.pause_s() is None
    conversions.drain()
    assert len(delivered) == 3


@pytest.mark.parametrize("limits", [{"events": 25}, {"sessions": 2}])
def test_no_more_waits_than_may(limits):
    """Of events or of open files: then whoever stops one more converts them all."""
    delivered, conversions = [], Moments().conversions(**limits)
    for number in range(3):
        assert delivered == []
        conversions.put(session(number, delivered))
    assert [number for number, _ in delivered] == [0, 1, 2]


def test_few_files_may_be_open(monkeypatch):
    """Sessions that wait hold an eighth of the files that the process may open: of 16, two."""
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (16, 1024))
    delivered, conversions = [], Moments().conversions()
    for number in range(3):
        assert delivered == []
        conversions.put(session(number, delivered))
    assert [number for number, _ in delivered] == [0, 1, 2]


def test_the_thread_waits_for_rest_or_for_the_oldest():
    """A fifth of a second of rest, or four seconds of any."""
    moments = Moments()
    conversions = moments.conversions()
    conversions.put(session(0, []))
    assert conversions.pause_s() == 4.0
    moments.now = 101.0
    assert conversions.pause_s() == 3.0
    moments.rest = 100.9
    assert conversions.pause_s() == pytest.approx(0.1)
    moments.rest = None
    assert conversions.pause_s() == 3.0
    conversions.drain()


def test_a_forked_child_converts_nothing_of_its_parents():
    """What waits is gone there, and nobody is told."""
    delivered, conversions = [], Moments().conversions()
    conversions.put(session(0, delivered))
    conversions.abandon()
    conversions.drain()
    assert delivered == []


FORKED_DURING_AN_IMPORT = """
import os, signal, sys, threading
import numpy as np
from profiler.capture.host_work import Conversions

class Stopped:
    events = 1
    recorders = lambda self: ()
    convert = lambda self: np.unique(np.arange(3))

class Finder:
    def find_spec(name, path, target=None):
        if name == "numpy.ma" and not importing.is_set():
            importing.set()
            forked.wait(0.2)  # in vain if the fork waits for the import

importing, forked = threading.Event(), threading.Event()
sys.meta_path.insert(0, Finder)
Conversions(lambda: 0.0).put(Stopped())
importing.wait(10)
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    np.unique(np.arange(3))
    os._exit(0)
forked.set()
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_waits_for_what_the_thread_imports():
    """A child that was forked while the thread imports what `numpy.unique` needs can use it."""
    ours = subprocess.run(
        [sys.executable, "-c", FORKED_DURING_AN_IMPORT], capture_output=True, text=True, check=True
    )
    assert ours.stdout == "0\n", ours.stderr
