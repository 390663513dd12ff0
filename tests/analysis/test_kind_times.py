"""Times of kinds on devices, against the plain way to find them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.analysis import CommandArrays, kinds_of
from profiler.analysis.commands import kind_times
from profiler.run import intervals
from tests.runs import Command, make_call, make_run

_COMMAND = st.tuples(
    st.sampled_from(["cuda:0", "cuda:1", "cpu:0", None]),
    st.sampled_from(["compute", "host", "copy", "dma"]),
    st.sampled_from("ab"),
    st.integers(0, 60),
    st.integers(-1, 9),
)
_CALLS = st.lists(st.lists(_COMMAND, max_size=8), min_size=1, max_size=3)


def _run(calls):
    """Calls of 100 ns with their commands; the last has work of no call beside it."""
    made = [make_call(i, "unet", 100 * i, 100 * i + 100, step=i) for i in range(len(calls))]
    numbered = [*enumerate(calls), (-1, calls[-1])]
    commands = [
        Command(number, device, "t", category, layer, 100 * max(number, 0) + start, duration)
        for number, rows in sorted(numbered, key=lambda pair: pair[0])
        for device, category, layer, start, duration in sorted(rows, key=lambda row: row[3])
    ]
    return make_run(made, commands)


def _expected(run, kinds, kept):
    """Commands, busy time and waiting of each kind and device, command by command."""
    found, until, last = {}, {}, {}
    rows = zip(run.commands.to_dicts(), kinds.of_command.tolist(), strict=True)
    for row, kind in sorted(rows, key=lambda pair: pair[0]["start_ns"]):
        if row["category"] == "host":
            continue
        device, start = row["device"], row["start_ns"]
        times = found.setdefault((kind, device), Counter())
        times["commands"] += 1
        times["busy"] += max(row["duration_ns"], 0)
        if device is None:
            continue
        if device in until and last[device] == row["call"] >= 0:
            times["wait"] += max(start - until[device], 0)
        until[device] = max(until.get(device, 0), start + max(row["duration_ns"], 0))
        last[device] = row["call"]
    return {key: (t["commands"], t["busy"], t["wait"]) for key, t in found.items() if kept[key[0]]}


@given(_CALLS)
def test_as_command_by_command(calls):
    """Several devices, work of no call and of no device; transfers occupy a device, left out."""
    run = _run(calls)
    arrays = CommandArrays.of(run.commands, run.calls)
    kinds = kinds_of(run.calls, run.commands, arrays.call)
    kept = kinds.table["category"].is_in(["compute", "copy"]).to_numpy()
    for size in (1, 3, 1 << 18):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(intervals, "_BATCH", size)
            times = kind_times(kinds, arrays, kept)
        names = [*arrays.devices, None]
        found = {
            (kind, names[device]): (commands, busy, wait)
            for kind, device, commands, busy, wait in zip(
                times.kind.tolist(),
                times.device.tolist(),
                times.commands.tolist(),
                times.total_ns.tolist(),
                times.wait_ns.tolist(),
                strict=True,
            )
        }
        assert found == _expected(run, kinds, kept)


def test_nothing_kept():
    """A run of host work has no cells."""
    run = _run([[("cpu:0", "host", "a", 0, 1)]])
    kinds = kinds_of(run.calls, run.commands)
    times = kind_times(
        kinds, CommandArrays.of(run.commands, run.calls), np.zeros(len(kinds), dtype=bool)
    )
    assert len(times.kind) == 0


def test_calls_that_run_at_once_keep_the_device_busy():
    """Two calls take turns on one device: neither waited for the host."""
    calls = [make_call(i, "unet", 0, 40, step=0, pipeline=i) for i in range(2)]
    starts = {0: (0, 20), 1: (10, 30)}
    commands = [
        Command(call, "cuda:0", "s", "compute", "a", start, 10)
        for call, of_call in starts.items()
        for start in of_call
    ]
    run = make_run(calls, commands)
    arrays = CommandArrays.of(run.commands, run.calls)
    kinds = kinds_of(run.calls, run.commands, arrays.call)
    times = kind_times(kinds, arrays, np.ones(len(kinds), dtype=bool))
    assert (times.total_ns.tolist(), times.wait_ns.tolist()) == ([40], [0])
