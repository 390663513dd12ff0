"""When sessions that were stopped are converted, and by whom."""

from __future__ import annotations

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
