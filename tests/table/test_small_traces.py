"""Small traces as one are what each would be by itself, one behind the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace
from polars.testing import assert_frame_equal

from profiler.run.load import TraceFrames, commands_of, together, trace_frames
from profiler.trace import HOST_NAME, TraceColumns, call_files, read_trace

_TEXTS = pl.col(pl.Categorical, pl.Enum).cast(pl.String)
SAMPLES = Path(__file__).parents[2] / "sample_traces"


def _traces(sample: str) -> list[TraceColumns]:
    folder = SAMPLES / sample
    return [read_trace(path) for path in (*call_files(folder), folder / HOST_NAME)]


def _commands(frames: list[TraceFrames]) -> pl.DataFrame:
    """The commands of all traces, texts as texts: codes follow the order of reading."""
    return pl.concat([commands_of([frame.commands]).with_columns(_TEXTS) for frame in frames])


def _flows(frames: list[TraceFrames]) -> list[tuple[int, int]]:
    """The rows that each flow joins, of all commands."""
    rows, found = 0, []
    for frame in frames:
        found += [(source + rows, target + rows) for source, target in frame.flows.rows()]
        rows += frame.rows
    return found


@pytest.mark.parametrize("sample", ["tiny_two_devices", "sd35_mi300x"])
def test_together_they_are_what_each_would_be(sample):
    """What a sample's files hold in one frame is what it is in a frame a file."""
    apart = [trace_frames(trace) for trace in _traces(sample)]
    (one,) = (trace_frames(trace) for trace in together(_traces(sample)))
    assert _flows([one]) == _flows(apart)
    assert_frame_equal(_commands([one]), _commands(apart))
    samples = pl.concat([frame.counters.with_columns(_TEXTS) for frame in apart])
    assert_frame_equal(one.counters.with_columns(_TEXTS), samples)
    assert one.calls == tuple(call for frame in apart for call in frame.calls)
    assert one.spans == tuple(span for frame in apart for span in frame.spans)
    assert one.drops == tuple(drop for frame in apart for drop in frame.drops)


def test_a_value_that_all_have_takes_no_memory():
    """A column that is one value in every trace is that value once, of all of them."""
    (one,) = together(_traces("tiny_two_devices"))
    assert one.slices.flops.strides == (0,)
    assert len(one.slices.flops) == sum(len(t.slices) for t in _traces("tiny_two_devices"))


def test_tracks_and_parents_keep_what_they_refer_to():
    """Each slice is on the track, and within the slice, that it was on and in."""
    apart = _traces("sd35_mi300x")
    (one,) = together(apart)
    tracks = [trace.tracks[code].uuid for trace in apart for code in trace.slices.track]
    assert [one.tracks[code].uuid for code in one.slices.track] == tracks
    roots = [trace.tracks[t.parent].uuid for trace in apart for t in trace.tracks if t.parent >= 0]
    assert [one.tracks[track.parent].uuid for track in one.tracks if track.parent >= 0] == roots
    texts = [trace.strings[code] for trace in apart for code in trace.slices.layer]
    assert [one.strings[code] for code in one.slices.layer] == texts


@pytest.mark.parametrize("how", ["unnumbered", "backwards", "twice"])
def test_what_needs_a_frame_of_its_own_stays_apart(how):
    """Commands without numbers, and calls that do not follow on each other, are read as before."""
    first, second, *_ = _traces("tiny_two_devices")
    if how == "unnumbered":
        none = np.full(len(second.slices), -1, dtype=np.int32)
        second = replace(second, slices=replace(second.slices, command_index=none))
    traces = {"unnumbered": [first, second], "backwards": [second, first], "twice": [first, first]}
    given = traces[how]
    assert together(given) is given
