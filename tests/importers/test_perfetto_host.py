"""Perfetto traces of other producers whose slices are all the host's."""

from __future__ import annotations

import pytest

from profiler.analysis.analyze import analyze as analysis_of
from profiler.analysis.devices import device_facts
from profiler.analysis.run_headline import headline
from profiler.cli.commands.analyze import AnalyzeOptions, analyze
from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.importers.perfetto import read_run
from profiler.tools.sources import load
from profiler.trace import schema
from tests.report.reader import plain


def _track(trace, sequence, uuid, *, pid=5, tid=1, name=""):
    packet = trace.packet.add(trusted_packet_sequence_id=sequence)
    packet.track_descriptor.uuid = uuid
    packet.track_descriptor.thread.pid = pid
    packet.track_descriptor.thread.tid = tid
    packet.track_descriptor.thread.thread_name = name


def _slice(trace, uuid, begin, end, sequence=1):
    for kind, time in ((schema.SLICE_BEGIN, begin), (schema.SLICE_END, end)):
        packet = trace.packet.add(trusted_packet_sequence_id=sequence, timestamp=time)
        packet.track_event.type = kind
        packet.track_event.track_uuid = uuid
        packet.track_event.name = "work"


def _written(trace, folder):
    path = folder / "theirs.pb"
    path.write_bytes(trace.SerializeToString())
    return path


def _printed(path, capsys):
    analyze(AnalyzeOptions(path=path, no_html=True))
    return " ".join(capsys.readouterr().out.split())


def _lengths(run):
    calls = [call.commands for call in (run.make_calls or list)()]
    host = [(run.make_host or run.host.build)()]
    return sorted(length for one in (*calls, *host) for length in one.duration_ns.tolist())


@pytest.mark.parametrize(("tid", "sequence"), [(5, 2), (5, 1), (1, 2)])
def test_a_track_that_is_described_again_is_no_loss(tid, sequence, tmp_path, capsys):
    """By another sequence or later in its own, whatever the second says: all slices are read."""
    trace = schema.Trace()
    _track(trace, 1, 7)
    _track(trace, sequence, 7, tid=tid, name="later")
    _slice(trace, 7, 1_000, 4_000)
    _slice(trace, 7, 5_000, 7_000, sequence)
    path = _written(trace, tmp_path)
    text = _printed(path, capsys)
    assert text.startswith("6.00 µs for 1 call ")
    assert "lost no events" in text
    assert _lengths(read_run(path)) == [2_000, 3_000]


def test_events_of_a_track_that_nobody_described_are_a_loss(tmp_path):
    """The one of a parent that is not there: the drop says so."""
    trace = schema.Trace()
    _track(trace, 1, 7)
    _slice(trace, 7, 1_000, 4_000)
    packet = trace.packet.add(trusted_packet_sequence_id=1)
    packet.track_descriptor.uuid = 9
    packet.track_descriptor.parent_uuid = 8
    _slice(trace, 9, 1_000, 4_000)
    run = read_run(_written(trace, tmp_path))
    (drop,) = run.drops
    assert (drop.count, drop.unit, drop.detail.code) == (2, "events", "no_track")


def test_a_slice_that_does_not_end_is_lost_once(tmp_path):
    """It has no length, and its reason is that it does not end in the file."""
    trace = schema.Trace()
    _track(trace, 1, 7)
    _slice(trace, 7, 1_000, 4_000)
    _slice(trace, 7, 5_000, 6_000)
    del trace.packet[-1]
    run = read_run(_written(trace, tmp_path))
    (drop,) = run.drops
    assert (drop.kind, drop.count, drop.detail.code) == ("unclosed_slice", 1, "no_end")
    assert _lengths(run) == [3_000]


def test_busy_time_is_unknown_for_want_of_devices(tmp_path, capsys):
    """Every slice was read, so no call is said to lack its work."""
    trace = schema.Trace()
    _track(trace, 1, 7)
    _slice(trace, 7, 1_000, 4_000)
    text = _printed(_written(trace, tmp_path), capsys)
    assert "cpu:0 in calls 100 %, busy time is unknown: only host work was recorded" in text


def test_the_submodule_of_all_calls_is_named_once(tmp_path):
    """Three slices of 1 µs in 5 µs are 60 %."""
    trace = schema.Trace()
    _track(trace, 1, 7)
    for begin in (1_000, 3_000, 5_000):
        _slice(trace, 7, begin, begin + 1_000)
    options = {"submodules": "work"}
    found = analysis_of(
        load(import_trace(_written(trace, tmp_path), tmp_path / "made", options=options))
    )
    (fact,) = device_facts(found)
    assert plain(fact.value) == "in calls 60 %"
    text = plain(headline(found, 0))
    assert text.startswith("5.00 µs for 3 calls of work: ")
    assert text.endswith("the calls take 60 %")
    assert text.count("work") == 1


def test_work_beneath_other_calls_shows_how_long_it_lasted(tmp_path, capsys):
    """A process that works within the calls of another one adds nothing, and lasts 4 µs."""
    trace = schema.Trace()
    _track(trace, 1, 7, pid=5)
    _track(trace, 1, 8, pid=6, tid=2)
    _slice(trace, 7, 1_000, 51_000)
    _slice(trace, 8, 11_000, 15_000)
    text = _printed(_written(trace, tmp_path), capsys)
    assert "submodule elapsed µs begin to end µs share %" in text
    assert "process_1 0 4.00 0 1 4.00 cpu:0" in text


def test_moments_alone_take_no_share(tmp_path, capsys):
    """Two processes with a slice of no length each: none is said to take 0 %."""
    trace = schema.Trace()
    _track(trace, 1, 7, pid=5)
    _track(trace, 1, 8, pid=6, tid=2)
    _slice(trace, 7, 1_000, 1_000)
    _slice(trace, 8, 2_000, 2_000)
    assert _printed(_written(trace, tmp_path), capsys).startswith("1.00 µs for 2 processes All ")


_YEAR_NS = 31_556_952_000_000_000
_IN_2262 = 292 * _YEAR_NS


def test_slices_of_the_year_2262_are_named_as_such(tmp_path, capsys):
    """Beside other work they are lost, by their time."""
    trace = schema.Trace()
    _track(trace, 1, 7)
    _slice(trace, 7, 1_000, 4_000)
    _slice(trace, 7, _IN_2262, _IN_2262 + 1_000)
    text = _printed(_written(trace, tmp_path), capsys)
    assert text.startswith("3.00 µs for 1 call ")
    assert "their time is missing, or not in the years 1970 to 2043" in text


def test_a_trace_whose_work_is_of_the_year_2262_is_refused(tmp_path):
    """What is left takes no time: 1 of 2 slices is out of range."""
    trace = schema.Trace()
    _track(trace, 1, 7)
    _slice(trace, 7, 1_000, 1_000)
    _slice(trace, 7, _IN_2262, _IN_2262 + 1_000)
    path = _written(trace, tmp_path)
    with pytest.raises(InputError, match="has 1 of 2 slices after the year 2043"):
        analyze(AnalyzeOptions(path=path, no_html=True))
