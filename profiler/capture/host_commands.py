"""Commands of no call: what the pipeline itself has devices do between its submodules' calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from profiler.capture.recorder import number_of
from profiler.events import HOST_TRACK, ROOT_DEVICE, Track
from profiler.trace.columns import CommandBuilder, CommandColumns, Int64s

if TYPE_CHECKING:
    from profiler.capture.recorder import Invocation, Recorder
    from profiler.capture.timeline import PipelineCall

__all__ = ["HostCommands", "add_host_commands", "host_columns"]


@dataclass(frozen=True, slots=True, eq=False)
class HostCommands:
    """What was executed in `pipeline` outside of the calls that were traced."""

    pipeline: PipelineCall
    commands: CommandColumns


def host_columns(recorder: Recorder) -> CommandColumns:
    """All that `host.pb` holds of a run that has ended: the pipelines' host work, and commands of
    no call."""
    builder = CommandBuilder()
    add_host_commands(recorder.host_commands, recorder.invocations, builder)
    track = Track(ROOT_DEVICE, HOST_TRACK, "host")
    for work in recorder.placed_host_work():
        duration = work.end_ns - work.start_ns
        builder.add(
            track,
            work.name,
            "",
            work.start_ns,
            duration,
            stage=work.stage,
            step=work.step,
            pipeline=number_of(work.pipeline),
        )
    return builder.build()


def add_host_commands(
    found: Iterable[HostCommands], invocations: Iterable[Invocation], builder: CommandBuilder
) -> None:
    """Add commands of pipeline calls that have ended, with the stage and step in which each was
    launched. What was launched inside an invocation is left out: it is that call's, untraced."""
    calls: dict[PipelineCall | None, list[tuple[int, int]]] = {}
    for call in invocations:
        if call.end_ns >= 0:
            calls.setdefault(call.pipeline, []).append((call.start_ns, call.end_ns))
    for host in found:
        times = np.array(sorted(calls.get(host.pipeline, ())), dtype=np.int64).reshape(-1, 2)
        _add(host, times, builder)


def _add(host: HostCommands, calls: Int64s, builder: CommandBuilder) -> None:
    columns, pipeline = host.commands, host.pipeline
    launched = columns.start_ns.copy()
    launched[columns.flows[:, 1]] = columns.start_ns[columns.flows[:, 0]]
    before = np.searchsorted(calls[:, 0], launched, side="right") - 1
    inside = np.zeros(len(columns), dtype=bool)
    if len(calls):
        inside = (before >= 0) & (launched < calls[before, 1])
    strings, rows = columns.strings, {}
    for row in np.flatnonzero(~inside).tolist():
        time_ns = int(launched[row])
        rows[row] = builder.add(
            columns.tracks[columns.track[row]],
            strings[columns.layer[row]],
            strings[columns.op_type[row]],
            int(columns.start_ns[row]),
            int(columns.duration_ns[row]),
            shapes=strings[columns.shapes[row]],
            stage=pipeline.stage_at(time_ns),
            step=pipeline.step_at(time_ns),
            pipeline=pipeline.number,
            bytes_read=int(columns.bytes_read[row]),
            bytes_written=int(columns.bytes_written[row]),
        )
    for source, target in columns.flows.tolist():
        if source in rows and target in rows:
            builder.link(rows[source], rows[target])
