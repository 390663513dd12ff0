"""The tables of who waits for whom: idle devices, critical paths, switches between providers."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from profiler.analysis.inputs import Inputs, device_axes, shared
from profiler.analysis.recorded_times import times_recorded
from profiler.analysis.table import FigureSpec, Table
from profiler.analysis.waiting.busy_timeline import busy_timeline
from profiler.analysis.waiting.columns import CPU_FALLBACK, CRITICAL_PATH, DEVICE_TRANSITIONS, IDLE
from profiler.analysis.waiting.copies import copy_table
from profiler.analysis.waiting.critical_path import critical_path_table
from profiler.analysis.waiting.device_gaps import DeviceGaps
from profiler.analysis.waiting.device_transitions import transition_tables
from profiler.analysis.waiting.dropped_calls import dropped_calls
from profiler.analysis.waiting.find_gaps import device_gaps
from profiler.analysis.waiting.gap_columns import BUSY_TIMELINE, COPIES, GAPS
from profiler.analysis.waiting.gaps import gap_table
from profiler.analysis.waiting.idle import idle_table
from profiler.analysis.waiting.kernels_of_calls import KernelsOfCalls
from profiler.analysis.waiting.run_timeline import RunTimeline
from profiler.table.columns import Column, empty
from profiler.table.tiles.device_axis import Busy

__all__ = ["TABLES", "busy_of", "device_works", "gaps_of", "kernels_of", "timeline_of"]


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


@shared
def _transitions(of: Inputs) -> tuple[pl.DataFrame, pl.DataFrame]:
    return transition_tables(of.calls, of.frame, of.commands)


def _where_recorded(
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
        make=_where_recorded(IDLE, lambda of: idle_table(gaps_of(of), of.everything)),
        title="What devices waited for, whole run",
        about="Rows cover the whole run: there is one for each device that computed or "
        "transferred data, in order of names. It shows what the device waited for while nothing "
        "ran on it. [idle.md](idle.md) describes the rules.",
    ),
    Table(
        name="copies",
        row="the copies of one direction on a device",
        section="idle",
        columns=COPIES,
        make=lambda of: copy_table(of.run, of.everything),
        title="Copies, whole run",
        about="Copies are the commands of category dma and copy, except collectives and fills.",
    ),
    Table(
        name="busy_timeline",
        row="one of 200 intervals of the run on a device",
        section="idle",
        columns=BUSY_TIMELINE,
        make=_where_recorded(BUSY_TIMELINE, lambda of: busy_timeline(gaps_of(of), of.axis)),
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
        make=_where_recorded(
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
    Table(
        name="critical_path",
        row="one part of a pipeline call's critical path",
        section="idle",
        columns=CRITICAL_PATH,
        make=_where_recorded(CRITICAL_PATH, lambda of: critical_path_table(timeline_of(of))),
        title="Critical path",
        about="Rows cover the whole run, the longest of each pipeline call first. "
        "[idle.md](idle.md) says what a path is and what its parts are.",
        rank=("pipeline", "-path_ns"),
        shown=30,
    ),
    Table(
        name="device_transitions",
        row="one pair of providers that a session switches between",
        section="idle",
        columns=DEVICE_TRANSITIONS,
        make=lambda of: _transitions(of)[0],
        title="Switches between providers",
        about="Providers are those of ONNX Runtime. Rows with the longest copies and gaps come "
        "first. [idle.md](idle.md) has details.",
    ),
    Table(
        name="cpu_fallback",
        row="one layer that fell back to another provider",
        section="idle",
        columns=CPU_FALLBACK,
        make=lambda of: _transitions(of)[1],
        title="CPU fallback between copies",
        about="The nodes of the layer ran on the host, between copies from and to a device. The "
        "longest come first. [idle.md](idle.md) has details.",
        rank=("-total_ns",),
    ),
)
