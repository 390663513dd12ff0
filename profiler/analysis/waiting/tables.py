"""The tables of idle devices and of their gaps."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from profiler.analysis.inputs import Inputs, device_axes, shared
from profiler.analysis.recorded_times import times_recorded
from profiler.analysis.table import FigureSpec, Table
from profiler.analysis.waiting.busy_timeline import busy_timeline
from profiler.analysis.waiting.columns import IDLE
from profiler.analysis.waiting.device_gaps import DeviceGaps
from profiler.analysis.waiting.dropped_calls import dropped_calls
from profiler.analysis.waiting.find_gaps import device_gaps
from profiler.analysis.waiting.gap_columns import BUSY_TIMELINE, GAPS
from profiler.analysis.waiting.gaps import gap_table
from profiler.analysis.waiting.idle import idle_table
from profiler.analysis.waiting.kernels_of_calls import KernelsOfCalls
from profiler.analysis.waiting.run_timeline import RunTimeline
from profiler.run.columns import Column, empty
from profiler.run.device_timeline import Busy

__all__ = [
    "TABLES",
    "busy_of",
    "device_works",
    "gaps_of",
    "if_times_recorded",
    "kernels_of",
    "timeline_of",
]


@shared
def device_works(of: Inputs) -> tuple[tuple[DeviceGaps, ...], dict[str, Busy]]:
    """The gaps of the devices of a run, and when each worked, by name. They are all that is made of
    the axes, which are forgotten."""
    axes, dropped = device_axes(of), dropped_calls(of.run)
    gaps = device_gaps(of.run, of.everything, axes, of.axis, of.pipelines, dropped)
    of.forget(device_axes)
    return gaps, {name: axis.busy for name, axis in axes.axes.items()}


def gaps_of(of: Inputs) -> tuple[DeviceGaps, ...]:
    """The gaps of the devices of a run."""
    return device_works(of)[0]


def busy_of(of: Inputs) -> dict[str, Busy]:
    """When each device of the run worked, by name."""
    return device_works(of)[1]


@shared
def kernels_of(of: Inputs) -> dict[str, KernelsOfCalls]:
    """When the first and the last kernel of each call ran, by device."""
    return KernelsOfCalls.of(gaps_of(of), of.run, of.everything)


@shared
def timeline_of(of: Inputs) -> RunTimeline:
    """What happened when in the run."""
    return RunTimeline.of(of.run, of.everything, of.pipelines, of.axis)


def if_times_recorded(
    columns: tuple[Column, ...], make: Callable[[Inputs], pl.DataFrame]
) -> Callable[[Inputs], pl.DataFrame]:
    """The table of runs whose commands have times of their own; of others it is empty."""

    def made(of: Inputs) -> pl.DataFrame:
        return make(of) if times_recorded(of.run.info) else empty(columns)

    return made


TABLES = (
    Table(
        name="idle",
        row="one device, and what it waited for",
        section="idle",
        columns=IDLE,
        make=if_times_recorded(IDLE, lambda of: idle_table(gaps_of(of), of.everything)),
        title="What devices waited for, whole run",
        about="Rows cover the whole run: there is one for each device that computed or "
        "transferred data, in order of names. It shows what the device waited for while nothing "
        "ran on it. [idle.md](idle.md) describes the rules.",
    ),
    Table(
        name="busy_timeline",
        row="one of 200 intervals of the run on a device",
        section="idle",
        columns=BUSY_TIMELINE,
        make=if_times_recorded(BUSY_TIMELINE, lambda of: busy_timeline(gaps_of(of), of.axis)),
        title="Busy share over time",
        about="Each device of the idle table has 200 intervals of equal length, from the begin "
        "of the first pipeline call to the end of the last.",
        figure=FigureSpec(
            "curves", {"series": ("device",), "time": ("begin_ns",), "share": ("busy_share",)}
        ),
    ),
    Table(
        name="gaps",
        row="one of the longest gaps of a device",
        section="idle",
        columns=GAPS,
        make=if_times_recorded(
            GAPS, lambda of: gap_table(gaps_of(of), of.run, of.everything, kernels_of(of))
        ),
        title="Longest gaps, whole run",
        about="The table has the 20 longest gaps of each device within the end-to-end time, "
        "including time that was not recorded, which is not idle time. What the host did is "
        "known from its launches and waits; for imports with Python stacks or operators, it is "
        "also known for the 32 longest gaps over 100 µs of each device. [idle.md](idle.md) has "
        "details.",
        rank=("-length_ns",),
    ),
)
