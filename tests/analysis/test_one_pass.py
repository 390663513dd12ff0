"""What is made of one pass over the work of each device: the same as going over all of it anew."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from profiler.analysis import Inputs, Selection
from profiler.analysis.idle import busy_of, gaps_of, kernels_of
from profiler.analysis.idle_causes import PARTS
from profiler.analysis.submodules import work_extents
from profiler.analysis.timeline import extent
from profiler.run import intervals
from tests.analysis.random_runs import runs
from tests.async_runs import TICK_NS, machines
from tests.examples import examples
from tests.runs import EPOCH

WORK = ("compute", "dma", "copy", "collective", "other")
KERNELS = ("compute", "other")
_slow = settings(max_examples=examples(60), deadline=None)


@pytest.fixture(params=[3, 1 << 18], autouse=True, scope="module")
def _batch(request):
    """Batches of a few rows have borders everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_BATCH", request.param)
        yield


def inputs_of(run):
    return Inputs(run, Selection(), (), {})


def by_call(run, device, categories):
    """First begin and last end of the commands of each call on a device, as Polars groups them."""
    end = pl.col("start_ns") + pl.col("duration_ns").clip(0)
    return {
        call: (first, last)
        for call, first, last in run.commands.filter(
            pl.col("call") >= 0,
            pl.col("category").is_in(categories),
            pl.lit(value=True) if device is None else pl.col("device") == device,
            pl.col("device").is_not_null(),
        )
        .group_by("call")
        .agg(first=pl.col("start_ns").min(), last=end.max())
        .rows()
    }


@given(machines())
@_slow
def test_a_device_is_busy_in_the_ticks_in_which_it_works(machine):
    """Length, and what of it lies in any window, are those of counting every tick."""
    run = machine.run()
    ran = {}
    for device, start, length in (
        run.commands.filter(pl.col("category").is_in(WORK))
        .select("device", "start_ns", "duration_ns")
        .iter_rows()
    ):
        first = (start - EPOCH) // TICK_NS
        ran.setdefault(device, set()).update(range(first, first + length // TICK_NS))
    busy = busy_of(inputs_of(run))
    assert busy.keys() == {device for device, ticks in ran.items() if ticks}
    for device, one in busy.items():
        ticks = ran[device]
        assert one.length == len(ticks) * TICK_NS
        edges = np.arange(min(ticks) - 2, max(ticks) + 4)
        counted = [tick in ticks for tick in edges[:-1].tolist()]
        moments = EPOCH + edges * TICK_NS
        assert (one.within(moments[:-1], moments[1:]) // TICK_NS).tolist() == counted


@given(machines())
@_slow
def test_all_gaps_together_are_put_down_to_what_each_of_them_is(machine):
    """The totals, which go by the few covers, are the sums over all gaps, which have no cover for
    longer than they last."""
    for gaps in gaps_of(inputs_of(machine.run())):
        rows = np.arange(len(gaps))
        start, end = gaps.ranges(rows)
        parts, totals = gaps.parts(rows), gaps.totals()
        assert (parts.sum(axis=0) == end - start).all()
        assert [totals[name] for name in PARTS] == parts.sum(axis=1).tolist()
        assert totals["inside"] == gaps.in_tiles.within(start, end).sum()
        assert gaps.dry(start[:1], end[-1:])[0] == (end - start).sum()
        until = start.copy()  # of a gap that began in a wait, as much later as that had lasted
        for began, ended in zip(gaps.waits.start, gaps.waits.end, strict=True):
            held = (began <= start) & (start <= ended)
            until = np.where(held, np.minimum(2 * start - began, end), until)
        host = gaps.host.within(until, end) - gaps.others.within(until, end)
        assert totals["host_work"] == host.sum()


@given(machines())
@_slow
def test_the_longest_gaps_are_those_of_sorting_all(machine):
    """By the time of each that counts or was not recorded, of equally long ones the first."""
    for gaps in gaps_of(inputs_of(machine.run())):
        start, end = gaps.ranges(slice(None))
        length = gaps.counted.within(start, end) + gaps.unrecorded.within(start, end)
        order = np.argsort(-length, kind="stable")
        assert gaps.longest(3).tolist() == order[length[order] > 0][:3].tolist()
        idle = gaps.counted.within(start, end)
        assert gaps.longer_than(2 * TICK_NS).tolist() == idle[idle > 2 * TICK_NS].tolist()


@given(runs())
@_slow
def test_extents_of_calls_and_devices_are_those_that_polars_groups(run):
    """First begin and last end: of all work of each call, of its kernels on each device, of all
    commands of a device."""
    of = inputs_of(run)
    numbers = of.run.calls["call"].to_list()

    def found(first, last):
        rows = zip(numbers, first.tolist(), last.tolist(), strict=True)
        return {call: (begin, end) for call, begin, end in rows if begin <= end}

    assert found(*work_extents(of)) == by_call(of.run, None, WORK)
    for device, kernels in kernels_of(of).items():
        assert found(kernels.first, kernels.last) == by_call(of.run, device, KERNELS)
    commands = of.everything
    end = pl.col("start_ns") + pl.col("duration_ns").clip(0)
    grouped = of.run.commands.group_by("device").agg(pl.col("start_ns").min(), end=end.max())
    known = {device: (first, last) for device, first, last in grouped.rows() if device}
    devices = np.where(commands.device < len(commands.devices), commands.device, -1)
    pairs = zip(
        *(column.tolist() for column in extent(commands.start, commands.end, devices, len(known))),
        strict=True,
    )
    assert dict(zip(commands.devices, pairs, strict=True)) == known
