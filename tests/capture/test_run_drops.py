"""Every call that awaited operators and got none is in some drop, whatever the cause."""

from __future__ import annotations

import errno

import pytest

import profiler
from profiler.capture import FakeClock, Invocation, Options, Recorder, Session, SourceSummary
from profiler.capture.run_info import run_drops
from profiler.errors import OutputError
from profiler.files import not_writable
from profiler.trace import UNKNOWN, BundleWriter, Drop, DropKind
from tests.runs import why


def recorded(*calls):
    """A run of calls, each (submodule, what else is known of it)."""
    recorder = Recorder(FakeClock(0))
    for submodule, known in calls:
        invocation = Invocation(submodule, "denoise", "", 0, "cpu:0", {})
        returned = known.pop("returned", True)
        for name, value in known.items():
            setattr(invocation, name, value)
        recorder.begin_call(invocation)
        recorder.end_call(invocation, failed=not returned)
    return recorder


def rows(recorder, drops=(), written=(), failure=""):
    """Where and how many, of the drops that are not given."""
    found = run_drops(recorder, [SourceSummary(drops=tuple(drops))], written, failure)
    return [(drop.where, drop.count) for drop in found if drop not in (*drops, *written)]


WAITED = {"awaits_operators": True}


def test_calls_that_nobody_tells_of():
    """Those that have operators, need none, or whose drop was recorded are in no further one."""
    recorder = recorded(
        ("a", dict(WAITED)),
        ("a", dict(WAITED)),
        ("b", WAITED | {"ops_traced": True}),
        ("c", {}),
        ("d", WAITED | {"drop_noted": True}),
        ("e", dict(WAITED)),
    )
    assert rows(recorder) == [("a", 2), ("e", 1)]


@pytest.mark.parametrize(("count", "left"), [(1, [("a", 1)]), (2, []), (UNKNOWN, [])])
def test_what_a_source_tells_is_not_said_again(count, left):
    """Its count is taken off; one that cannot count its calls speaks for all of them."""
    recorder = recorded(("a", dict(WAITED)), ("a", dict(WAITED)))
    assert rows(recorder, [Drop(DropKind.UNTRACED_CALL, "a", count, "calls", why("why"))]) == left


def test_files_that_could_not_be_written():
    """Their drops name the file, and not the call once more."""
    recorder = recorded(("a", dict(WAITED)))
    (call,) = recorder.calls()
    written = [Drop(DropKind.DROPPED_EVENTS, call.file_name, 3, "events", why("disk"))]
    assert rows(recorder, (), written) == []


def test_calls_that_did_not_return():
    """Those of one submodule and step are one drop with their number; if the script caught what
    they raised and went on, nothing is missing."""
    recorder = recorded(("a", {"returned": False}), ("a", {"returned": False}))
    assert rows(recorder, failure="SIGTERM") == [("a", 2), ("run", 1)]
    assert rows(recorder) == []


def test_a_full_disk_keeps_no_empty_folder(tmp_path, monkeypatch):
    """A run whose first manifest cannot be written leaves nothing, and the sentence says what to
    do."""
    full = not_writable(tmp_path, OSError(errno.ENOSPC, "No space left on device"))

    def begin(_bundle, _info):
        raise full

    monkeypatch.setattr(BundleWriter, "begin", begin)
    session = Session.open(Options(), tmp_path)
    with pytest.raises(OutputError, match=r"left on device.: make room there, or give a"):
        session.directory  # noqa: B018 - it is made on first use
    assert list(tmp_path.iterdir()) == []
    assert session.close() is None


@pytest.mark.torch
def test_a_session_that_vanishes(tmp_path, monkeypatch):
    """What torch has recorded goes, as after two interrupts: the run says so by submodule."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    from profiler.capture.host_work import Conversions

    class Pipeline:
        def __init__(self):
            self.transformer = torch.nn.Linear(4, 4)

        def __call__(self):
            for _ in range(3):
                self.transformer(torch.ones(1, 4))

    monkeypatch.setattr(Conversions, "put", lambda _, session: session.close())
    pipe = Pipeline()
    with profiler.profile(pipe, out=tmp_path) as run:
        pipe()
    loaded = profiler.load(run.path)
    assert not loaded.calls["ops_traced"].any()
    (drop,) = loaded.info.drops
    assert (drop.kind, drop.where, drop.count) == ("untraced_call", "transformer", 3)
